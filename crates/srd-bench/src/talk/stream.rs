//! TCP connections of this process between two instances.

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::cloud::{Cloud, address};

/// Longest time to connect or to wait for a line; a later line counts as lost.
const SILENCE: Duration = Duration::from_millis(700);
/// Interval at which sender and receiver check whether they should stop.
const LOOK_EACH: Duration = Duration::from_millis(20);

/// Opens a TCP listener on the given port in instance `b`.
pub(super) fn listen(cloud: &Cloud, port: u16) -> Result<TcpListener> {
    cloud.within("b", || TcpListener::bind(("0.0.0.0", port)).context("a listener"))
}

/// Connects from instance `a` to a listener in `b`; returns the sockets in `a` and in `b`.
pub(super) fn connect(cloud: &Cloud, listener: &TcpListener) -> Result<(TcpStream, TcpStream)> {
    let port = listener.local_addr()?.port();
    let to = SocketAddr::new(address("b").parse()?, port);
    let out = cloud.within("a", || {
        TcpStream::connect_timeout(&to, SILENCE).with_context(|| format!("port {port}"))
    })?;
    Ok((out, listener.accept()?.0))
}

/// Accepts a connection. It is an error if none comes within `limit`.
pub(super) fn accept(listener: &TcpListener, limit: Duration) -> Result<TcpStream> {
    let limit = Timespec::try_from(limit).context("a time limit")?;
    if rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit))? == 0 {
        bail!("no connection came to {}", listener.local_addr()?);
    }
    Ok(listener.accept()?.0)
}

/// Sends a line from one end of a connection; returns whether it arrives at the other end in time.
pub(super) fn passes(from: &mut TcpStream, to: &mut TcpStream) -> Result<bool> {
    to.set_read_timeout(Some(SILENCE))?;
    from.write_all(b"line")?;
    let mut line = [0; 4];
    Ok(to.read_exact(&mut line).is_ok())
}

/// A TCP connection on which one thread sends as fast as possible, and another thread receives.
pub(super) struct Stream {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<Vec<(Instant, usize)>>,
}

impl Stream {
    /// Connects instance `a` to a port of instance `b`, and starts to send.
    pub(super) fn begin(cloud: &Cloud, port: u16) -> Result<Self> {
        let listener = listen(cloud, port)?;
        let (mut out, mut into) = connect(cloud, &listener)?;
        out.set_write_timeout(Some(LOOK_EACH))?;
        into.set_read_timeout(Some(LOOK_EACH))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stop_out, stop_into) = (Arc::clone(&stop), Arc::clone(&stop));
        let sender = thread::spawn(move || {
            let bytes = [7; 16 << 10];
            while !stop_out.load(Ordering::Relaxed) {
                match out.write(&bytes) {
                    Err(error) if !is_silence(&error) => return,
                    _ => {}
                }
            }
        });
        let receiver = thread::spawn(move || {
            let (mut arrivals, mut bytes) = (Vec::new(), vec![0; 64 << 10]);
            while !stop_into.load(Ordering::Relaxed) {
                match into.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(length) => arrivals.push((Instant::now(), length)),
                    Err(error) if is_silence(&error) => {}
                    Err(_) => break,
                }
            }
            arrivals
        });
        Ok(Self { stop, sender, receiver })
    }

    /// Ends the connection; returns the times and sizes of the received data.
    pub(super) fn end(self) -> Arrivals {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.sender.join();
        Arrivals(self.receiver.join().unwrap_or_default())
    }
}

fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Time and size of each read of received data.
pub(super) struct Arrivals(Vec<(Instant, usize)>);

impl Arrivals {
    /// Returns the number of bytes that arrived in a time range.
    pub(super) fn bytes(&self, from: Instant, until: Instant) -> usize {
        let within = self.0.iter().filter(|(at, _)| *at >= from && *at < until);
        within.map(|(_, bytes)| bytes).sum()
    }

    /// Returns the rate in Mb/s for each of `steps` steps of duration `each`, beginning at `from`;
    /// each point has the time since `from` in seconds, and the rate.
    pub(super) fn line(&self, from: Instant, steps: u32, each: Duration) -> Vec<(f64, f64)> {
        let step = |step: u32| {
            let (begin, end) = (from + each * step, from + each * (step + 1));
            let mbps = self.bytes(begin, end) as f64 * 8.0 / each.as_secs_f64() / 1e6;
            (each.as_secs_f64() * f64::from(step), mbps)
        };
        (0..steps).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the demonstration waited for ever for a client that had not reached the server.
    #[test]
    fn regression_a_connection_that_never_comes_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = accept(&listener, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(error.starts_with("no connection came to 127.0.0.1:"), "{error}");
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        accept(&listener, Duration::from_secs(60)).unwrap();
    }
}
