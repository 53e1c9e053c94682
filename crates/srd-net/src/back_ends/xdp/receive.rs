//! Receiving: packets are handed over in their frames, without a copy; then the frames return to
//! the kernel.

use std::io;
use std::net::SocketAddr;

use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::PacketMeta;

use super::headers::{self, HeaderError};
use super::next_hops::is_link_local;
use super::{Blocked, Kernel, XdpIo};
use crate::back_ends::io::{PacketIo as _, PollMode, Wait};
use crate::sys::shared::xdp::Piece;

/// Largest number of packets that one call takes from the receive ring.
const PACKETS_MAX: usize = 64;
/// Interval at which a polling thread reads the UDP socket, if the last read returned no packet. A
/// packet that arrives at the UDP socket ends a sleep.
const UDP_LOOK: Duration = Duration::from_micros(100);
/// If no more than this time is left until a deadline, the thread polls instead of sleeping: a
/// sleep would end after the deadline.
const SLEEP_MIN: Duration = Duration::from_micros(3);
/// Largest packet in several pieces, in bytes.
const GATHER_BYTES_MAX: usize = 65_536 + 64;

/// The received pieces of a packet that arrives in several pieces.
#[derive(Debug, Default)]
pub(super) struct Gather {
    bytes: Vec<u8>,
    open: bool,
}

impl Gather {
    /// Adds a piece of a packet. Bytes beyond [`GATHER_BYTES_MAX`] are dropped. They do not belong
    /// to the packet, because the length fields of its headers cannot include them.
    fn add(&mut self, bytes: &[u8]) {
        if !self.open {
            self.bytes.clear();
        }
        self.open = true;
        let room = GATHER_BYTES_MAX - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl XdpIo {
    pub(super) fn receive_waiting(
        &mut self,
        wait: Wait,
        mut each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        let start = self.clock.now();
        self.next_hops.look(start);
        self.flush();
        let spin_until = match self.poll {
            PollMode::Block => start,
            PollMode::Spin => Instant::FAR_FUTURE,
            PollMode::Adaptive(spin) => start + spin,
        };
        loop {
            let (now, packets) = self.receive_now(&mut each)?;
            if packets > 0 || now >= wait.until || self.waker.as_ref().is_some_and(|w| w.take()) {
                return Ok(packets);
            }
            if now >= spin_until && wait.until.since(now) > SLEEP_MIN {
                if self.sleep(wait, now)? {
                    return Ok(self.receive_now(&mut each)?.1);
                }
                return Ok(0);
            }
            if wait.writable {
                // A send waits. In polling mode the caller tries it again.
                return Ok(0);
            }
        }
    }

    /// Takes the packets that have arrived. Returns the time, and the number of packets.
    fn receive_now(
        &mut self,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<(Instant, usize)> {
        let now = self.clock.now();
        let mut packets = self.receive_ring(now, each);
        if now >= self.udp_look_at
            && let Kernel::Sockets(udp, _) = &mut self.kernel
        {
            let came = udp.receive(Wait::NOT, &mut *each)?;
            self.counted.received_by_kernel += came as u64;
            packets += came;
            self.udp_look_at = if came > 0 { Instant::ZERO } else { now + UDP_LOOK };
        }
        Ok((now, packets))
    }

    fn receive_ring(
        &mut self,
        now: Instant,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> usize {
        let (mut pieces, mut packets) = (0, 0);
        while packets < PACKETS_MAX
            && let Some(piece) = self.socket.take()
        {
            pieces += 1;
            packets += usize::from(self.receive_piece(&piece, now, each));
            self.socket.give(piece.frame);
        }
        if pieces > 0 {
            self.socket.publish();
            self.counted.received_packets += packets as u64;
            self.stats.received_packets += packets as u64;
            self.stats.received_messages += packets as u64;
        } else {
            self.socket.wake_receive();
        }
        packets
    }

    /// Processes a piece of a packet. After the last piece, checks the packet and passes it to
    /// `each`. Returns whether a packet was passed.
    fn receive_piece(
        &mut self,
        piece: &Piece,
        now: Instant,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> bool {
        let bytes = &mut self.socket.bytes(&piece.frame)[piece.offset..piece.offset + piece.length];
        if piece.more || self.gather.open {
            self.gather.add(bytes);
        }
        if piece.more {
            return false;
        }
        let packet = if self.gather.open { self.gather.bytes.as_mut_slice() } else { bytes };
        self.gather.open = false;
        let datagram = match headers::read(packet) {
            Ok(datagram) if !datagram.payload.is_empty() => datagram,
            Ok(_) => return false,
            Err(HeaderError::Malformed) => {
                self.counted.dropped_malformed += 1;
                return false;
            }
            Err(HeaderError::Checksum) => {
                self.counted.dropped_checksum += 1;
                return false;
            }
        };
        let mut source = datagram.from;
        if let SocketAddr::V6(source) = &mut source
            && is_link_local((*source.ip()).into())
        {
            source.set_scope_id(self.index);
        }
        self.counted.received_partial_checksum += u64::from(datagram.partial);
        self.stats.received_bytes += datagram.payload.len() as u64;
        let meta = PacketMeta { source, local: 0, ecn: datagram.ecn, received_at: now };
        each(now, meta, &mut packet[datagram.payload]);
        true
    }

    /// Whether a send waits for frames that belong to the kernel.
    pub(super) fn waits_for_frames(&self) -> bool {
        self.blocked == Some(Blocked::Frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_gathered_up_to_a_bound() {
        let mut gather = Gather::default();
        gather.add(&[1; 3000]);
        gather.add(&[2; 3000]);
        assert_eq!((gather.bytes.len(), gather.bytes[3000]), (6000, 2));
        for _ in 0..40 {
            gather.add(&[3; 3000]);
        }
        assert_eq!(gather.bytes.len(), GATHER_BYTES_MAX);
        gather.open = false;
        gather.add(&[4; 10]);
        assert_eq!(gather.bytes, [4; 10]);
    }
}
