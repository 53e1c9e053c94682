//! UDP probes between hosts: one datagram and its echo, and a spray over source ports.
//!
//! Sockets are not connected, and the leaves hash the packet, so the source port alone decides the
//! spine: these probes take the same paths as a transport that sprays over ports.

use crate::build::fabric::Fabric;
use crate::build::id::{Family, HostId};
use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// Destination port of probes.
const PROBE_PORT: u16 = 9;
/// Time limit for a port to become free.
const BIND_MAX: Duration = Duration::from_millis(500);
/// Largest number of bytes that the kernel counts for a packet in addition to its payload.
const PACKET_OVERHEAD: usize = 4096;

/// Hosts and address family of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The host that sends the probe.
    pub from: HostId,
    /// The host that answers.
    pub to: HostId,
    /// IP version of the probe.
    pub family: Family,
}

impl Fabric {
    /// Sends one UDP datagram from a source port and waits for its echo. Returns the round trip
    /// time, or `None` if no echo arrived in time.
    pub fn ping(&self, pair: Pair, source_port: u16, wait: Duration) -> Result<Option<Duration>> {
        let server = self.udp_socket(pair.to, pair.family, PROBE_PORT)?;
        let client = self.udp_socket(pair.from, pair.family, source_port)?;
        let target = SocketAddr::new(self.host_address(pair.to, pair.family)?, PROBE_PORT);
        let start = Instant::now();
        client.send_to(b"ping", target).context("send a probe")?;
        let mut buffer = [0; 16];
        let Some(peer) = receive(&server, &mut buffer, start + wait)? else { return Ok(None) };
        server.send_to(b"pong", peer).context("answer a probe")?;
        Ok(receive(&client, &mut buffer, start + wait)?.map(|_| start.elapsed()))
    }

    /// Sends one datagram of `bytes` from each source port, back to back. Returns the number of
    /// datagrams that arrived with gaps of at most `wait`.
    pub fn spray(
        &self,
        pair: Pair,
        source_ports: Range<u16>,
        bytes: usize,
        wait: Duration,
    ) -> Result<usize> {
        let server = self.udp_socket(pair.to, pair.family, PROBE_PORT)?;
        let target = SocketAddr::new(self.host_address(pair.to, pair.family)?, PROBE_PORT);
        let (payload, mut buffer) = (vec![0; bytes], vec![0; bytes]);
        // The receive buffer holds a whole spray, because this thread may get no processor for that
        // time. The kernel also counts its own bytes for each packet.
        let room = source_ports.len() * 2 * (bytes + PACKET_OVERHEAD);
        let _ = set_socket_recv_buffer_size_force(&server, room);
        let mut arrived = 0;
        for port in source_ports {
            let client = self.udp_socket(pair.from, pair.family, port)?;
            client.send_to(&payload, target).context("send a probe")?;
            while receive(&server, &mut buffer, Instant::now())?.is_some() {
                arrived += 1;
            }
        }
        while receive(&server, &mut buffer, Instant::now() + wait)?.is_some() {
            arrived += 1;
        }
        Ok(arrived)
    }

    /// Returns a UDP socket inside of a host, bound to all of the host's addresses.
    pub fn udp_socket(&self, host: HostId, family: Family, port: u16) -> Result<UdpSocket> {
        let any: IpAddr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        // If another thread is starting a process, that process holds a copy of every socket, even
        // of closed sockets, until it executes its program. The port of such a socket becomes free
        // after a moment.
        let deadline = Instant::now() + BIND_MAX;
        let bind = || loop {
            match UdpSocket::bind(SocketAddr::new(any, port)) {
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(1));
                }
                result => return result,
            }
        };
        self.within(host, bind)?.with_context(|| format!("UDP port {port} in {host}"))
    }
}

/// Receives one datagram before the deadline. After the deadline it returns only a datagram that
/// has already arrived.
fn receive(socket: &UdpSocket, buffer: &mut [u8], deadline: Instant) -> Result<Option<SocketAddr>> {
    let left = deadline.saturating_duration_since(Instant::now());
    socket.set_nonblocking(left.is_zero())?;
    if !left.is_zero() {
        socket.set_read_timeout(Some(left))?;
    }
    match socket.recv_from(buffer) {
        Ok((_, peer)) => Ok(Some(peer)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) => Err(error).context("receive a probe"),
    }
}
