//! The load of the soak: long TCP connections, short TCP connections that come and go, and a UDP
//! stream. Every received byte is checked.
//!
//! Each stream has a number; a byte is computed from the stream's number and its position in the
//! stream. Long connections must last to the end of the soak. A short connection may fail while a
//! daemon is down, but the data that it delivers must be correct.

use anyhow::{Context, Result};
use srd_lab::address;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::random::Random;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Server port of short connections, and destination port of datagrams.
const SHORT_PORT: u16 = 7101;
const UDP_PORT: u16 = 7102;
/// Bytes that a long connection sends at a time, and the interval: 16 Mb/s per connection.
const LONG_BYTES: usize = 50_000;
const LONG_EVERY: Duration = Duration::from_millis(25);
/// Threads per host that accept short connections, and threads per host that open them.
const SERVERS: usize = 4;
const CLIENTS: usize = 2;
/// Mean rate at which one client thread opens short connections, per second.
const SHORT_PER_S: u32 = 12;
/// Largest number of bytes that a server sends on a short connection.
const ANSWER_BYTES_MAX: usize = 40_000;
/// Timeout of connecting, of each read and of each write on a short connection.
const SHORT_MAX: Duration = Duration::from_secs(5);
/// Time between two datagrams, and the payload of a datagram in bytes.
const UDP_EVERY: Duration = Duration::from_millis(5);
const UDP_BYTES: usize = 600;
/// Interval at which waiting threads check whether the load is over.
const NAP: Duration = Duration::from_millis(10);

/// Results of one long connection.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// Number of bytes that arrived.
    pub(super) bytes: AtomicU64,
    /// The longest time in which no data arrived, in ms.
    pub(super) silence_ms: AtomicU64,
    /// Reason why the connection ended before the end of the load; `None` if it did not.
    pub(super) ended: Mutex<Option<String>>,
}

/// Results of the whole load.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Results of each long connection.
    pub(super) long: Vec<Long>,
    /// Number of short connections that received the whole answer.
    pub(super) short_done: AtomicU64,
    /// Number of short connections that failed.
    pub(super) short_failed: AtomicU64,
    /// Number of received bytes that differ from the expected bytes.
    pub(super) wrong_bytes: AtomicU64,
    /// Number of datagrams sent, and number of datagrams that arrived.
    pub(super) udp_sent: AtomicU64,
    pub(super) udp_arrived: AtomicU64,
    /// Number of datagrams that arrived a second time.
    pub(super) udp_twice: AtomicU64,
    over: AtomicBool,
}

/// Returns the byte at position `at` of the stream with number `stream`.
fn byte(stream: u64, at: u64) -> u8 {
    // The period is prime, so that successive buffers begin at different positions of the period.
    ((at % 251) ^ (at / 65_521) ^ stream).to_le_bytes()[0]
}

fn fill(stream: u64, from: u64, buffer: &mut [u8]) {
    for (at, b) in (from..).zip(buffer) {
        *b = byte(stream, at);
    }
}

impl Tally {
    pub(super) fn new(long: usize) -> Tally {
        Tally { long: (0..long).map(|_| Long::default()).collect(), ..Tally::default() }
    }

    /// Ends the load: all its threads stop soon afterwards.
    pub(super) fn stop(&self) {
        self.over.store(true, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn compare(&self, stream: u64, from: u64, bytes: &[u8]) {
        let wrong = (from..).zip(bytes).filter(|(at, b)| byte(stream, *at) != **b).count();
        self.wrong_bytes.fetch_add(wrong as u64, Relaxed);
    }

    /// Starts the load: one long connection for each of `pairs`, short connections from each of
    /// `hosts` to other hosts at random, and a datagram stream from the first to the last of
    /// `hosts`.
    pub(super) fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        fabric: &'s Fabric,
        hosts: &'s [HostId],
        pairs: &[(HostId, HostId)],
        seed: u64,
    ) -> Result<()> {
        for (number, (from, to)) in (0u64..).zip(pairs) {
            let (near, far) = long_connection(fabric, *from, *to)?;
            let at = usize::try_from(number)?;
            scope.spawn(move || self.send_long(number, near));
            scope.spawn(move || self.receive_long(at, far));
        }
        for (number, host) in (0u64..).zip(hosts) {
            let address = SocketAddr::new(address::overlay(*host).into(), SHORT_PORT);
            let listener = fabric.within(*host, || listen(address))??;
            for _ in 0..SERVERS {
                let listener = listener.try_clone().context("listener")?;
                scope.spawn(move || self.serve(&listener));
            }
            let others = hosts.iter().copied().filter(|other| other != host).collect::<Vec<_>>();
            for thread in 0..CLIENTS as u64 {
                let others = others.clone();
                let random = Random::new(seed ^ (number << 32) ^ thread);
                // The thread stays in the host's namespace, so that each connection is opened
                // there.
                scope.spawn(move || fabric.within(*host, || self.call(&others, random)));
            }
        }
        let (from, to) = (hosts[0], hosts[hosts.len() - 1]);
        let socket = |host: HostId, port| {
            let address = SocketAddr::new(address::overlay(host).into(), port);
            fabric.within(host, || UdpSocket::bind(address))?.context("UDP socket")
        };
        let (near, far) = (socket(from, 0)?, socket(to, UDP_PORT)?);
        let target = far.local_addr().context("UDP address")?;
        scope.spawn(move || self.send_udp(&near, target));
        scope.spawn(move || self.receive_udp(&far));
        Ok(())
    }

    fn send_long(&self, stream: u64, mut socket: TcpStream) {
        let (mut at, mut chunk) = (0u64, vec![0; LONG_BYTES]);
        if socket.set_write_timeout(Some(NAP)).is_err() {
            return;
        }
        while !self.is_over() {
            fill(stream, at, &mut chunk);
            if !self.write_until_over(&mut socket, &chunk) {
                return;
            }
            at += chunk.len() as u64;
            thread::sleep(LONG_EVERY);
        }
    }

    /// Writes all bytes. The socket takes nothing while a daemon or link is down, and the receiver
    /// records the result. Returns whether all bytes were written before the measurement ended.
    fn write_until_over(&self, socket: &mut TcpStream, mut rest: &[u8]) -> bool {
        while !rest.is_empty() {
            if self.is_over() {
                return false;
            }
            match socket.write(rest) {
                Ok(0) => return false,
                Ok(count) => rest = &rest[count..],
                Err(error) if is_wait(&error) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn receive_long(&self, number: usize, mut socket: TcpStream) {
        let (long, mut buffer) = (&self.long[number], vec![0; 1 << 16]);
        let (mut at, mut last_byte) = (0u64, Instant::now());
        while !self.is_over() {
            let ended = match socket.read(&mut buffer) {
                Ok(0) => Some("closed by the other end".to_owned()),
                Ok(count) => {
                    self.compare(number as u64, at, &buffer[..count]);
                    at += count as u64;
                    long.bytes.store(at, Relaxed);
                    last_byte = Instant::now();
                    None
                }
                Err(error) if is_wait(&error) => None,
                Err(error) => Some(error.to_string()),
            };
            let silence = last_byte.elapsed().as_millis();
            long.silence_ms.fetch_max(u64::try_from(silence).unwrap_or(u64::MAX), Relaxed);
            if let Some(why) = ended {
                if !self.is_over() {
                    *long.ended.lock().expect("nobody panics with the lock") = Some(why);
                }
                return;
            }
        }
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }

    fn serve(&self, listener: &TcpListener) {
        while !self.is_over() {
            match listener.accept() {
                Ok((socket, _)) => {
                    // The client counts failures.
                    let _ = answer(socket);
                }
                Err(_) => thread::sleep(NAP),
            }
        }
    }

    fn call(&self, others: &[HostId], mut random: Random) {
        while !self.is_over() {
            let to = others[random.below(others.len())];
            let stream = random.below(1 << 30) as u64;
            let bytes = 1 + random.below(ANSWER_BYTES_MAX);
            match self.exchange(to, stream, bytes) {
                Ok(()) => self.short_done.fetch_add(1, Relaxed),
                Err(_) => self.short_failed.fetch_add(1, Relaxed),
            };
            let pause = random.exponential(SHORT_PER_S).min(Duration::from_secs(1));
            thread::sleep(pause);
        }
    }

    fn exchange(&self, to: HostId, stream: u64, bytes: usize) -> Result<()> {
        let target = SocketAddr::new(address::overlay(to).into(), SHORT_PORT);
        let mut socket = TcpStream::connect_timeout(&target, SHORT_MAX)?;
        limit(&socket)?;
        socket.write_all(&[stream.to_le_bytes(), (bytes as u64).to_le_bytes()].concat())?;
        let mut got = vec![0; bytes];
        socket.read_exact(&mut got)?;
        self.compare(stream, 0, &got);
        Ok(())
    }

    fn send_udp(&self, socket: &UdpSocket, target: SocketAddr) {
        let (mut number, mut packet) = (0u64, vec![0; UDP_BYTES]);
        while !self.is_over() {
            packet[..8].copy_from_slice(&number.to_le_bytes());
            fill(number, 8, &mut packet[8..]);
            // Without the daemon of its host there is no route, and sending fails.
            if socket.send_to(&packet, target).is_ok() {
                self.udp_sent.fetch_add(1, Relaxed);
            }
            number += 1;
            thread::sleep(UDP_EVERY);
        }
    }

    fn receive_udp(&self, socket: &UdpSocket) {
        let (mut tally, mut buffer) = (Vec::<u64>::new(), vec![0; 2 * UDP_BYTES]);
        let _ = socket.set_read_timeout(Some(NAP));
        while !self.is_over() {
            let Ok((count, _)) = socket.recv_from(&mut buffer) else { continue };
            let Some((head, body)) = buffer[..count].split_first_chunk::<8>() else { continue };
            let number = u64::from_le_bytes(*head);
            self.compare(number, 8, body);
            let missing = UDP_BYTES.abs_diff(count) as u64;
            self.wrong_bytes.fetch_add(missing, Relaxed);
            let word = usize::try_from(number / 64).unwrap_or(0);
            if tally.len() <= word {
                tally.resize(word + 1, 0);
            }
            let bit = 1 << (number % 64);
            self.udp_twice.fetch_add(u64::from(tally[word] & bit != 0), Relaxed);
            tally[word] |= bit;
            self.udp_arrived.fetch_add(1, Relaxed);
        }
    }
}

fn is_wait(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn limit(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(SHORT_MAX))?;
    socket.set_write_timeout(Some(SHORT_MAX))
}

fn answer(mut socket: TcpStream) -> Result<()> {
    limit(&socket)?;
    let mut asked = [0; 16];
    socket.read_exact(&mut asked)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| asked[at + i]));
    let bytes = usize::try_from(word(8)).unwrap_or(0).min(ANSWER_BYTES_MAX);
    let mut out = vec![0; bytes];
    fill(word(0), 0, &mut out);
    socket.write_all(&out)?;
    Ok(())
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen at {address}"))?;
    listener.set_nonblocking(true).context("listener")?;
    Ok(listener)
}

fn long_connection(fabric: &Fabric, from: HostId, to: HostId) -> Result<(TcpStream, TcpStream)> {
    let address = SocketAddr::new(address::overlay(to).into(), 0);
    let listener = fabric.within(to, || TcpListener::bind(address))?.context("listen")?;
    let target = listener.local_addr().context("listener")?;
    let near = fabric.within(from, || TcpStream::connect_timeout(&target, SHORT_MAX))?;
    let near = near.with_context(|| format!("{from} cannot connect to {to}"))?;
    let (far, _) = listener.accept().context("accept")?;
    far.set_read_timeout(Some(NAP)).context("receiver")?;
    Ok((near, far))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_stream_or_place_are_wrong() {
        let mut bytes = vec![0; 1000];
        fill(7, 100_000, &mut bytes);
        let tally = Tally::new(0);
        tally.compare(7, 100_000, &bytes);
        assert_eq!(tally.wrong_bytes.load(Relaxed), 0);
        tally.compare(7, 100_001, &bytes);
        assert!(tally.wrong_bytes.swap(0, Relaxed) > 900);
        tally.compare(8, 100_000, &bytes);
        assert_eq!(tally.wrong_bytes.load(Relaxed), 1000);
    }
}
