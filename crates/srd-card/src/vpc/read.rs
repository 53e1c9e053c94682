//! A frame, read once.

use crate::meta::FRAME_BYTES_MAX;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::{Packet, protocol};

/// A frame that was read.
pub(super) struct Read {
    pub(super) packet: Packet,
    pub(super) layout: Layout,
}

impl Read {
    /// Reads a frame; `None` if it is no packet, or its offload header contradicts it, or if it
    /// hides its ports, or is from an address to itself, which no host sends (V1).
    pub(super) fn frame(frame: &[u8]) -> Option<Self> {
        if frame.len() > FRAME_BYTES_MAX {
            return None;
        }
        let (header, bytes) = frame.split_first_chunk::<OFFLOAD_BYTES>()?;
        // Each family its own way, so that no field is copied to where both ways meet.
        match bytes.first()? >> 4 {
            4 => Self::of(Packet::read_v4(bytes)?, header, bytes),
            6 => Self::of_v6(header, bytes),
            _ => None,
        }
    }

    #[inline(never)]
    fn of_v6(header: &[u8; OFFLOAD_BYTES], bytes: &[u8]) -> Option<Self> {
        Self::of(Packet::read_v6(bytes)?, header, bytes)
    }

    #[inline(always)]
    fn of(packet: Packet, header: &[u8; OFFLOAD_BYTES], bytes: &[u8]) -> Option<Self> {
        if packet.source == packet.destination || packet.is_hidden(bytes) {
            return None;
        }
        let layout = Layout::of(&packet, bytes)?.with_offload(header)?;
        Some(Self { packet, layout })
    }

    /// The packet as rules see it.
    pub(super) fn for_rules(&self, bytes: &[u8]) -> srd_vpc::packet::Packet {
        use srd_vpc::packet::Inner;
        let Packet { source, destination, protocol: number, transport_at, .. } = self.packet;
        let inner = match (number, self.packet.ports_in_sight(bytes)) {
            (protocol::TCP, Some((from, to))) => Inner::Tcp(from, to),
            (protocol::UDP, Some((from, to))) => Inner::Udp(from, to),
            _ => match bytes.get(transport_at..transport_at + 2) {
                Some(&[kind, code]) if self.is_icmp() && self.packet.first => {
                    Inner::Icmp(kind, code)
                }
                _ => Inner::Other(number),
            },
        };
        srd_vpc::packet::Packet { source, destination, inner }
    }

    /// Whether it is ICMP of its family.
    fn is_icmp(&self) -> bool {
        self.packet.protocol == if self.packet.is_v4() { protocol::ICMP } else { protocol::ICMP_V6 }
    }

    /// Whether all packets of its flow look alike to the rules (V3).
    pub(super) fn is_cacheable(&self) -> bool {
        !self.packet.fragment && !self.is_icmp()
    }
}

/// Bytes of the packets that a frame stands for, from their IP headers on.
pub(super) fn bytes_of(layout: &Layout) -> u32 {
    let more = layout.packets().saturating_sub(1) * layout.header_bytes() as u64;
    u32::try_from(layout.packet_bytes() as u64 + more).unwrap_or(u32::MAX)
}
