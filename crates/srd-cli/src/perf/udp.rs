//! Raw UDP with segmentation offload, without reliability and congestion control: the ceiling for
//! any transport over the kernel's sockets.

use super::intervals::Intervals;
use super::params::{Mode, Params};
use super::received::Received;
use super::report::Rtt;
use super::running::Running;
use anyhow::{Context, Result, bail};
use srd_net::raw;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of datagrams given to the kernel at a time.
const SEGMENTS_MAX: usize = 64;
/// Maximum number of bytes given to the kernel at a time. One IP packet can hold this number of
/// bytes.
const BATCH_BYTES_MAX: usize = 65_000;
/// Socket buffers, in both directions.
const BUFFER_BYTES: i32 = 16 << 20;
/// Interval at which a blocked thread checks whether to continue.
const NAP: Duration = Duration::from_millis(100);
/// Time without an answer after which a request is sent again.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Number of requests in a row without an answer that ends the run.
const UNANSWERED_MAX: u32 = 5;

/// Opens the client's socket for one stream.
fn socket(near: SocketAddr, server: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(near.ip(), 0)).context("a UDP socket")?;
    socket.connect(server).with_context(|| format!("UDP to {server}"))?;
    raw::buffers(&socket, BUFFER_BYTES).context("socket buffers")?;
    Ok(socket)
}

/// Opens the server's socket.
pub(super) fn bind(local: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(local).with_context(|| format!("UDP port {}", local.port()))?;
    raw::buffers(&socket, BUFFER_BYTES).context("socket buffers")?;
    Ok(socket)
}

/// Sends for the given time. Returns the bytes given to the kernel.
pub(super) fn send_bulk(
    near: SocketAddr,
    server: SocketAddr,
    params: &Params,
    intervals: &mut Intervals<'_>,
) -> Result<u64> {
    let one = |_| socket(near, server);
    let sockets: Vec<UdpSocket> = (0..params.streams).map(one).collect::<Result<_>>()?;
    let work = |socket, bytes: &_, stop: &_| send_until(&socket, params.size(), bytes, stop);
    super::tcp::send_in_threads(sockets, params, intervals, work)
}

fn send_until(socket: &UdpSocket, size: usize, bytes: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    let segments = (BATCH_BYTES_MAX / size).clamp(1, SEGMENTS_MAX);
    if segments > 1 {
        let segment = u16::try_from(size).context("a datagram of less than 64 KB")?;
        raw::udp_segment(socket, segment).context("UDP_SEGMENT (needs Linux 4.18)")?;
    }
    let batch = vec![7; size * segments];
    while !stop.load(Ordering::Relaxed) {
        match socket.send(&batch) {
            Ok(count) => {
                bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let what = send_failed(&error, size);
                return Err(error).context(what);
            }
        }
    }
    Ok(())
}

fn send_failed(error: &std::io::Error, size: usize) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "the server stopped receiving".to_owned(),
        _ => format!("cannot send datagrams of {size} bytes; does --size exceed the MTU?"),
    }
}

/// Receives, or answers, until the client has finished. Datagrams from other addresses than the
/// client's are ignored. Otherwise a forged source address would let the server send to any host.
pub(super) fn serve(
    socket: &UdpSocket,
    client: IpAddr,
    params: &Params,
    running: &Running,
) -> Result<Received> {
    if params.mode == Mode::Bulk {
        // Optional: without it every datagram costs a system call.
        let _ = raw::udp_gro(socket);
    }
    socket.set_read_timeout(Some(NAP))?;
    socket.set_nonblocking(params.busy_poll)?;
    let mut buffer = vec![0; 1 << 16];
    let mut received = Received::default();
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((_, from)) if from.ip().to_canonical() != client => {
                if running.is_over() {
                    return Ok(received);
                }
            }
            Ok((count, from)) => {
                received.add(count as u64);
                running.arrived();
                if params.mode == Mode::RequestResponse {
                    let _ = socket.send_to(&buffer[..count], from);
                }
            }
            Err(error) if is_idle(&error) => {
                // The socket is empty: everything that was sent before the client's end is counted.
                if running.is_over() {
                    return Ok(received);
                }
            }
            Err(error) => return Err(error).context("receive"),
        }
    }
}

/// Sends requests by UDP, one after the other, and waits for each answer. Requests are numbered, so
/// that a late answer to a repeated request is not taken for the answer to the next request.
pub(super) struct Exchange {
    socket: UdpSocket,
    request: Vec<u8>,
    buffer: Vec<u8>,
    number: u64,
}

impl Exchange {
    pub(super) fn new(near: SocketAddr, server: SocketAddr, params: &Params) -> Result<Self> {
        let socket = socket(near, server)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.set_nonblocking(params.busy_poll)?;
        let request = vec![1; params.size()];
        Ok(Self { socket, buffer: request.clone(), request, number: 0 })
    }

    /// Makes one round trip. A lost request or answer adds [`ANSWER_MAX`] to the measured time.
    pub(super) fn once(&mut self, rtt: &mut Rtt) -> Result<()> {
        self.number += 1;
        for (to, from) in self.request.iter_mut().zip(self.number.to_le_bytes()) {
            *to = from;
        }
        let start = Instant::now();
        for _ in 0..UNANSWERED_MAX {
            let sent = self.socket.send(&self.request);
            sent.map_err(|e| anyhow::Error::new(e).context("the server does not answer"))?;
            if self.answer()? {
                rtt.record(start.elapsed());
                return Ok(());
            }
        }
        bail!("{UNANSWERED_MAX} requests in a row were not answered")
    }

    fn answer(&mut self) -> Result<bool> {
        let start = Instant::now();
        loop {
            match self.socket.recv(&mut self.buffer) {
                Ok(count) if self.buffer[..count] == self.request => return Ok(true),
                Ok(_) => {}
                Err(error) if is_idle(&error) => {
                    if start.elapsed() >= ANSWER_MAX {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error).context("receive"),
            }
        }
    }
}

fn is_idle(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::params::Transport;
    use crate::perf::params::tests::requests;
    use std::thread;

    #[test]
    fn only_the_address_of_the_control_connection_is_answered() {
        let server = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = server.local_addr().unwrap();
        let (params, running) = (requests(Transport::Udp), Running::default());
        let client = "127.0.0.3".parse().unwrap();
        let received = thread::scope(|scope| {
            let served = scope.spawn(|| serve(&server, client, &params, &running));
            let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
            let own = UdpSocket::bind("127.0.0.3:0").unwrap();
            for socket in [&stranger, &own] {
                socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                socket.send_to(b"question", at).unwrap();
            }
            let mut buffer = [0; 16];
            // The stranger's datagram came first, so an answer to it would have arrived by now.
            assert_eq!(own.recv(&mut buffer).unwrap(), 8);
            stranger.set_nonblocking(true).unwrap();
            let silence = stranger.recv(&mut buffer).unwrap_err();
            assert_eq!(silence.kind(), ErrorKind::WouldBlock);
            running.end();
            served.join().unwrap().unwrap()
        });
        assert_eq!(received.bytes(), 8);
    }
}
