//! Kernel TCP with TCP_NODELAY: the transport that every machine has.

use super::control::{self, Message};
use super::intervals::Intervals;
use super::params::{Mode, Params};
use super::received::Received;
use super::report::Rtt;
use super::running::Running;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes read from the kernel at a time.
const READ_BYTES: usize = 256 << 10;
/// Maximum time until a connection to the server's port has sent its first message.
const FIRST_MESSAGE_MAX: Duration = Duration::from_secs(2);
/// Maximum time to open a data connection, and maximum time for which a write or read may make no
/// progress.
const STUCK: Duration = Duration::from_secs(10);
/// Interval at which a blocked thread checks whether to continue.
const NAP: Duration = Duration::from_millis(100);

/// Opens the client's data connections.
pub(super) fn connect(server: SocketAddr, token: u64, params: &Params) -> Result<Vec<TcpStream>> {
    let one = |_| -> Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&server, STUCK)
            .with_context(|| format!("cannot open a data connection to {server}"))?;
        stream.set_nodelay(true)?;
        control::send(&mut stream, &Message::Data { token })?;
        stream.set_write_timeout(Some(STUCK))?;
        stream.set_read_timeout(Some(STUCK))?;
        Ok(stream)
    };
    (0..params.streams).map(one).collect()
}

/// Accepts the server's data connections.
pub(super) fn accept(
    listener: &TcpListener,
    token: u64,
    params: &Params,
) -> Result<Vec<TcpStream>> {
    listener.set_nonblocking(true)?;
    let streams = accept_all(listener, token, params, Instant::now() + STUCK);
    listener.set_nonblocking(false)?;
    streams
}

fn accept_all(
    listener: &TcpListener,
    token: u64,
    params: &Params,
    deadline: Instant,
) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    while streams.len() < usize::from(params.streams) {
        // Strangers that connect again and again do not delay the end.
        if Instant::now() > deadline {
            bail!("{} of {} data connections came", streams.len(), params.streams);
        }
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => return Err(error).context("accept"),
        };
        match control::receive_within(&mut stream, FIRST_MESSAGE_MAX) {
            Ok(Message::Data { token: shown }) if shown == token => {
                stream.set_nodelay(true)?;
                streams.push(stream);
            }
            _ => {
                let reason = "the server is busy with another measurement".to_owned();
                let _ = control::send(&mut stream, &Message::Refused { reason });
            }
        }
    }
    Ok(streams)
}

/// Sends for the given time. Returns the bytes written.
pub(super) fn send_bulk(
    streams: Vec<TcpStream>,
    params: &Params,
    intervals: &mut Intervals<'_>,
) -> Result<u64> {
    let work = |stream, bytes: &_, stop: &_| write_until(stream, params.size(), bytes, stop);
    send_in_threads(streams, params, intervals, work)
}

/// Runs `work` on a thread for each of the `streams`, for the time of the measurement. `work` adds
/// the bytes that it sends to a counter, until a flag is set. Returns the bytes sent.
pub(super) fn send_in_threads<S: Send>(
    streams: Vec<S>,
    params: &Params,
    intervals: &mut Intervals<'_>,
    work: impl Fn(S, &AtomicU64, &AtomicBool) -> Result<()> + Sync,
) -> Result<u64> {
    let (bytes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (bytes, stop, work) = (&bytes, &stop, &work);
    let time = Duration::from_millis(params.time_ms);
    thread::scope(|scope| {
        let start = |stream| scope.spawn(move || work(stream, bytes, stop));
        let workers: Vec<_> = streams.into_iter().map(start).collect();
        let mut outcome = Ok(());
        while outcome.is_ok() && intervals.elapsed() < time {
            let left = time.saturating_sub(intervals.elapsed());
            thread::sleep(intervals.until_due().min(left).min(NAP));
            outcome = intervals.tick(bytes.load(Ordering::Relaxed));
            if workers.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        outcome.map(|()| bytes.load(Ordering::Relaxed))
    })
}

fn write_until(
    mut stream: TcpStream,
    size: usize,
    bytes: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let chunk = vec![7; size];
    while !stop.load(Ordering::Relaxed) {
        let count = stream.write(&chunk).context("the server stopped receiving")?;
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Receives, or answers, until the client has finished.
pub(super) fn serve(
    streams: Vec<TcpStream>,
    params: &Params,
    running: &Running,
) -> Result<Received> {
    thread::scope(|scope| {
        let workers: Vec<_> = streams
            .into_iter()
            .map(|stream| {
                scope.spawn(|| match params.mode {
                    Mode::Bulk => read_until_end(stream, running),
                    Mode::RequestResponse => answer_until_end(stream, params, running),
                })
            })
            .collect();
        let mut all = Received::default();
        for worker in workers {
            let one = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.merge(one);
        }
        Ok(all)
    })
}

fn read_until_end(mut stream: TcpStream, running: &Running) -> Result<Received> {
    stream.set_read_timeout(Some(NAP))?;
    let mut buffer = vec![0; READ_BYTES];
    let mut received = Received::default();
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(received),
            Ok(count) => {
                received.add(count as u64);
                running.arrived();
            }
            Err(error) if is_idle(&error) => {
                if running.is_over() {
                    return Ok(received);
                }
            }
            Err(error) => return Err(error).context("receive"),
        }
    }
}

fn answer_until_end(mut stream: TcpStream, params: &Params, running: &Running) -> Result<Received> {
    let mut buffer = vec![0; params.size()];
    let mut received = Received::default();
    wait_as_asked(&stream, params, NAP)?;
    let patient = || !running.is_over();
    while let Some(()) = read_whole(&mut stream, &mut buffer, patient)? {
        received.add(buffer.len() as u64);
        running.arrived();
        // A client that does not read its answers must not hold up the server.
        if write_whole(&mut stream, &buffer, patient)?.is_none() {
            break;
        }
    }
    Ok(received)
}

/// Sends requests over one TCP connection, one after the other, and waits for each answer.
pub(super) struct Exchange {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Exchange {
    pub(super) fn new(mut streams: Vec<TcpStream>, params: &Params) -> Result<Self> {
        let stream = streams.pop().context("a request needs a connection")?;
        wait_as_asked(&stream, params, NAP)?;
        Ok(Self { stream, buffer: vec![1; params.size()] })
    }

    /// Makes one round trip: sends a request, and reads its answer.
    pub(super) fn once(&mut self, rtt: &mut Rtt) -> Result<()> {
        let start = Instant::now();
        let patient = || start.elapsed() < STUCK;
        if write_whole(&mut self.stream, &self.buffer, patient)?.is_none()
            || read_whole(&mut self.stream, &mut self.buffer, patient)?.is_none()
        {
            bail!("no answer within {} s", STUCK.as_secs());
        }
        rtt.record(start.elapsed());
        Ok(())
    }
}

fn wait_as_asked(stream: &TcpStream, params: &Params, nap: Duration) -> Result<()> {
    stream.set_nonblocking(params.busy_poll)?;
    stream.set_write_timeout(Some(nap)).context("SO_SNDTIMEO")?;
    stream.set_read_timeout(Some(nap)).context("SO_RCVTIMEO")
}

/// Fills the buffer. Returns `None` if the stream ends, or if nothing arrives and `patient` returns
/// false.
fn read_whole(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    patient: impl Fn() -> bool,
) -> Result<Option<()>> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(None),
            Ok(count) => filled += count,
            Err(error) if is_idle(&error) => {
                if !patient() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error).context("receive"),
        }
    }
    Ok(Some(()))
}

/// Sends all bytes. Returns `None` if nothing can be sent and `patient` returns false.
fn write_whole(
    stream: &mut TcpStream,
    mut bytes: &[u8],
    patient: impl Fn() -> bool,
) -> Result<Option<()>> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_idle(&error) => {
                if !patient() {
                    return Ok(None);
                }
                thread::yield_now();
            }
            Err(error) => return Err(error).context("send"),
        }
    }
    Ok(Some(()))
}

fn is_idle(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// TCP's counters of this network namespace: segments sent, and segments retransmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Segments {
    sent: u64,
    again: u64,
}

impl Segments {
    /// Returns the present counters, or zeros if the kernel does not show them.
    pub(super) fn now() -> Self {
        let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
        Self::parse(&text).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (lines.next()?, lines.next()?);
        let value = |name| {
            let at = names.split_whitespace().position(|other| other == name)?;
            values.split_whitespace().nth(at)?.parse().ok()
        };
        Some(Self { sent: value("OutSegs")?, again: value("RetransSegs")? })
    }

    /// Returns the share of retransmissions in the segments sent since `before`. Other connections
    /// of the namespace count, too; under load they do not matter.
    pub(super) fn again_since(self, before: Self) -> f64 {
        let again = self.again.saturating_sub(before.again);
        let all = self.sent.saturating_sub(before.sent) + again;
        again as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::control::tests::pair;
    use crate::perf::params::Transport;
    use crate::perf::params::tests::requests;

    /// The client sends requests, and does not read the answers, until no more data fits.
    #[test]
    fn a_client_that_does_not_read_ends_with_its_measurement() {
        let (mut near, far) = pair();
        let params = Params { size_bytes: 1 << 20, ..requests(Transport::Tcp) };
        let running = Running::default();
        thread::scope(|scope| {
            let served = scope.spawn(|| answer_until_end(far, &params, &running));
            near.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let request = vec![1; params.size()];
            // Until the buffers of both directions are full.
            while near.write_all(&request).is_ok() {}
            running.end();
            served.join().unwrap().unwrap();
        });
    }

    /// Regression: the deadline was not considered while other programs connected.
    #[test]
    fn regression_strangers_do_not_extend_the_wait_for_data_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let past = Instant::now();
        while Instant::now() <= past {}
        let error = accept_all(&listener, 1, &requests(Transport::Tcp), past).unwrap_err();
        assert!(error.to_string().starts_with("0 of "), "{error}");
        assert!(listener.accept().is_ok(), "the stranger still waits");
    }

    #[test]
    fn segments_are_found_by_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: X OutSegs RetransSegs\nTcp: 9 100 7\n";
        let before = Segments::parse(text).unwrap();
        assert_eq!(before, Segments { sent: 100, again: 7 });
        let after = Segments { sent: 190, again: 17 };
        assert!((after.again_since(before) - 0.1).abs() < 1e-9);
        assert_eq!(Segments::parse("Tcp: A\n"), None);
    }
}
