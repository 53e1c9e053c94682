//! Packets to endpoints of the same machine through memory instead of the kernel.
//!
//! [`NearIo`] combines UDP sockets with rings of packets in memory that two processes share. A
//! packet to an address of this machine is written into the ring of the endpoint at this address,
//! after both endpoints have set up a link. Without a link the packet goes by UDP. The cores of
//! both ends see no difference: packets have the same bytes as on the wire, including encryption,
//! and a full ring drops packets, as a full queue does.
//!
//! ```text
//!  endpoint --> address of this machine? --> ring --> endpoint of another process, or of this one
//!       \            no, or not met yet                 ^ looks at rings, then at sockets; sleeps
//!        `--------------> UDP                             on one descriptor, which writers wake
//! ```
//!
//! | file | content |
//! |---|---|
//! | `ring` | packets through memory: one end writes, the other end reads and checks every value |
//! | `directory` | directories in which only processes of one user can listen and connect |
//! | `meet` | discovery of the other endpoint, and exchange of the memory |
//! | `link` | the link to one endpoint of this machine, from the connection to its end |
//! | `table` | addresses with a link, and the times of the next attempts for other addresses |
//!
//! Bounds: the number of links of a process, by the number of descriptors that the process may have
//! ([`links_max`]); two rings of 1 MiB for each link; the number of stored addresses. Packets
//! beyond these bounds go by UDP.

mod directory;
mod link;
mod meet;
mod ring;
mod table;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use srd_proto::ids::Entropy;
use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::{PacketMeta, Transmit};

use crate::back_ends::io::{IoStats, Notice, PacketIo, Segments, SendOutcome, Undelivered, Wait};
use crate::back_ends::udp::UdpIo;
use crate::clock::Clock;
use crate::endpoints::wake::IoWaker;
use table::Table;
pub use table::links_max;

/// Interval of reads from sockets while packets arrive through memory; otherwise each call reads
/// the sockets.
const UDP_LOOK: Duration = Duration::from_micros(20);

/// Largest packet to endpoints of the same machine, in bytes, independent of the interface's MTU:
/// the kernel's own path between two sockets of one address passes 65,000 bytes.
pub(crate) const PACKET_BYTES_MAX: u16 = 8_972;

/// A back end of UDP sockets, with shared memory to endpoints of the same machine.
#[derive(Debug)]
pub struct NearIo {
    udp: UdpIo,
    /// Links to endpoints of this machine. `None` if links are switched off or cannot be set up, or
    /// if the endpoint has an unspecified address or several addresses.
    near: Option<Table>,
    udp_looked_at: Instant,
    stats: NearStats,
}

/// Counters of packets that are exchanged with endpoints of this machine through shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NearStats {
    /// Packets sent through memory.
    pub sent_packets: u64,
    /// Packets received through memory.
    pub received_packets: u64,
    /// Packets dropped by the sender because the ring was full.
    pub full: u64,
    /// Links that were set up so far.
    pub links: u64,
    /// Links that ended because the other process wrote values that no endpoint writes.
    pub broken: u64,
}

impl NearIo {
    /// Makes the back end over the UDP sockets of one shard. Packets go through memory only if
    /// `enabled` is set and the endpoint has a single specified address, by which other processes
    /// can find it.
    pub(crate) fn over(udp: UdpIo, enabled: bool) -> Self {
        let own = udp.local_address();
        let possible = enabled && !own.ip().is_unspecified() && udp.local_addresses() == 1;
        let near = possible.then(|| Table::open(own)).transpose().unwrap_or_else(|error| {
            tracing::info!("no shared memory for peers of this machine: {error}");
            None
        });
        let mut io = Self { udp, near, udp_looked_at: Instant::ZERO, stats: NearStats::default() };
        if let Some(table) = &io.near {
            io.udp.watch(Arc::clone(table.descriptor()));
        }
        io
    }

    /// Returns a descriptor that is readable while packets wait, after [`NearIo::arm`].
    pub(crate) fn arrivals(&self) -> io::Result<OwnedFd> {
        let sockets = self.udp.arrivals()?;
        let Some(near) = &self.near else { return Ok(sockets) };
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&both, &sockets, epoll::EventData::new_u64(0), readable)?;
        epoll::add(&both, near.descriptor().as_fd(), epoll::EventData::new_u64(1), readable)?;
        // The sockets stay open until this endpoint is dropped. The descriptor is not used after
        // that.
        Ok(both)
    }

    /// Prepares a sleep on [`NearIo::arrivals`]: from now on a packet makes the descriptor
    /// readable. Returns `false` if a packet waits already.
    pub(crate) fn arm(&mut self) -> bool {
        self.near.as_mut().is_none_or(Table::arm)
    }

    /// Returns the counters of packets through memory.
    pub fn near_stats(&self) -> NearStats {
        let met = self.near.as_ref().map(Table::counts).unwrap_or_default();
        NearStats { links: met.links, broken: met.broken, ..self.stats }
    }

    /// Receives packets that have arrived through memory.
    fn receive_near(
        &mut self,
        now: Instant,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> usize {
        let packets = self.near.as_mut().map_or(0, |near| near.receive(now, each));
        self.stats.received_packets += packets as u64;
        packets
    }
}

impl PacketIo for NearIo {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        let here = |near: &Table| batches.iter().any(|(to, _)| near.is_here(to.destination));
        let Some(near) = self.near.as_mut().filter(|near| here(near)) else {
            return self.udp.send(batches);
        };
        let now = self.udp.clock().now();
        let mut done = 0;
        while done < batches.len() {
            let (transmit, segments) = &batches[done];
            if let Some(link) = near.link_to(now, transmit.destination) {
                let port = self.udp.source(transmit.entropy, transmit.destination).port();
                let (sent, full) = link.send(now, port, transmit.ecn, segments);
                self.stats.sent_packets += sent;
                self.stats.full += full;
                done += 1;
                continue;
            }
            let rest = &batches[done..];
            let far = |batch: &&(Transmit, S)| !near.has_link(batch.0.destination);
            let length = rest.iter().take_while(far).count().max(1);
            match self.udp.send(&rest[..length])? {
                SendOutcome::All => done += length,
                SendOutcome::Blocked { batches } => {
                    return Ok(SendOutcome::Blocked { batches: done + batches });
                }
            }
        }
        Ok(SendOutcome::All)
    }

    fn receive(
        &mut self,
        wait: Wait,
        mut each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        if self.near.is_none() {
            return self.udp.receive(wait, each);
        }
        let now = self.udp.clock().now();
        let near = self.receive_near(now, &mut each);
        if near > 0 {
            if now.since(self.udp_looked_at) < UDP_LOOK {
                return Ok(near);
            }
            self.udp_looked_at = now;
            return Ok(near + self.udp.receive(Wait::NOT, each)?);
        }
        if wait.until == Instant::ZERO {
            self.udp_looked_at = now;
            return self.udp.receive(wait, each);
        }
        if !self.arm() {
            return Ok(self.receive_near(now, &mut each));
        }
        let far = self.udp.receive(wait, &mut each)?;
        let now = self.udp.clock().now();
        self.udp_looked_at = now;
        Ok(far + self.receive_near(now, &mut each))
    }

    fn clock(&self) -> &Clock {
        self.udp.clock()
    }

    fn local_address(&self) -> SocketAddr {
        self.udp.local_address()
    }

    fn local_addresses(&self) -> u8 {
        self.udp.local_addresses()
    }

    fn local_address_at(&self, place: u8) -> SocketAddr {
        self.udp.local_address_at(place)
    }

    fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        self.udp.source(entropy, destination)
    }

    fn paths(&self) -> u16 {
        self.udp.paths()
    }

    fn batch_segments_max(&self) -> usize {
        self.udp.batch_segments_max()
    }

    fn check_destination(&mut self, destination: SocketAddr, packet_bytes_max: u16) {
        self.udp.check_destination(destination, packet_bytes_max);
    }

    fn take_undelivered(&mut self, now: Instant) -> Option<(SocketAddr, Undelivered)> {
        self.udp.take_undelivered(now)
    }

    fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        self.udp.refusal(destination)
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.udp.take_notice()
    }

    fn stats(&self) -> IoStats {
        let mut stats = self.udp.stats();
        stats.sent_packets += self.stats.sent_packets;
        stats.received_packets += self.stats.received_packets;
        stats
    }

    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        self.udp.waker()
    }
}

#[cfg(test)]
mod tests;
