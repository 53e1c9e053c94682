//! A frame whose headers have been read once.

use crate::meta::FRAME_BYTES_MAX;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::{Packet, protocol};
use crate::track::Key;
use crate::vpc::tables::fragments::First;

/// A frame whose headers have been read.
#[derive(Clone, Copy)]
pub(in crate::vpc) struct Read {
    pub(in crate::vpc) packet: Packet,
    pub(in crate::vpc) layout: Layout,
    /// For a later fragment: data of the first fragment, if that has arrived.
    pub(in crate::vpc) first: Option<First>,
    /// For a later fragment: whether the first fragment was refused, or is unknown although it
    /// alone contains the protocol.
    pub(in crate::vpc) follows_refused: bool,
}

impl Read {
    /// Reads a frame. Returns `None` if the frame contains no IP packet or an offload header that
    /// contradicts the packet, if the ports of the packet cannot be read, or if its source and
    /// destination are equal, which no host sends (V1).
    #[inline(never)]
    pub(in crate::vpc) fn frame(frame: &[u8]) -> Option<Self> {
        Self::of_frame::<false>(frame)
    }

    /// Reads a frame that comes from the internet. Unlike [`Read::frame`], it permits equal
    /// addresses: if an interface sends to its own public address, the packet has this address as
    /// source and destination until the gateway has written the private address.
    #[inline(never)]
    pub(in crate::vpc) fn arriving(frame: &[u8]) -> Option<Self> {
        Self::of_frame::<true>(frame)
    }

    /// Reads a frame as [`Read::frame`] does, without a call: so the result is written once, in the
    /// caller's memory. A copy would have to wait until the single fields are in the cache.
    #[inline(always)]
    pub(in crate::vpc) fn in_place(frame: &[u8]) -> Option<Self> {
        Self::of_frame::<false>(frame)
    }

    #[inline(always)]
    fn of_frame<const TO_ITSELF: bool>(frame: &[u8]) -> Option<Self> {
        if frame.len() > FRAME_BYTES_MAX {
            return None;
        }
        let (header, bytes) = frame.split_first_chunk::<OFFLOAD_BYTES>()?;
        // IPv4 and IPv6 have separate code up to the end, so that no field is copied at a point
        // where the code of both would meet.
        match bytes.first()? >> 4 {
            4 => Self::of::<TO_ITSELF>(Packet::read_v4(bytes)?, header, bytes),
            6 => Self::of_v6::<TO_ITSELF>(header, bytes),
            _ => None,
        }
    }

    #[inline(never)]
    fn of_v6<const TO_ITSELF: bool>(header: &[u8; OFFLOAD_BYTES], bytes: &[u8]) -> Option<Self> {
        Self::of::<TO_ITSELF>(Packet::read_v6(bytes)?, header, bytes)
    }

    #[inline(always)]
    fn of<const TO_ITSELF: bool>(
        packet: Packet,
        header: &[u8; OFFLOAD_BYTES],
        bytes: &[u8],
    ) -> Option<Self> {
        let is_to_itself = !TO_ITSELF && packet.source == packet.destination;
        if is_to_itself || packet.is_hidden(bytes) {
            return None;
        }
        let layout = Layout::of(&packet, bytes)?.with_offload(header)?;
        Some(Self { packet, layout, first: None, follows_refused: false })
    }

    /// Returns the packet in the form that the rules use. A later fragment gets the ports of its
    /// first fragment, if that is known.
    pub(in crate::vpc) fn for_rules(&self, bytes: &[u8]) -> srd_vpc::packet::Packet {
        use srd_vpc::packet::Inner;
        let Packet { source, destination, protocol: number, transport_at, .. } = self.packet;
        if let Some(First { inner, .. }) = self.first {
            return srd_vpc::packet::Packet { source, destination, inner };
        }
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

    /// Returns the key of the frame's flow at the interface with the index `eni` of its instance.
    #[inline]
    pub(in crate::vpc) fn key(&self, bytes: &[u8], direction: Direction, eni: u16) -> Key {
        match self.first {
            Some(First { ports, .. }) => Key::with_ports(&self.packet, ports, direction, eni),
            None => Key::of(&self.packet, bytes, direction, eni),
        }
    }

    /// Whether the frame is a later fragment without a known first fragment, of a protocol whose
    /// rules need the fields that only the first fragment contains.
    pub(in crate::vpc) fn is_headless(&self) -> bool {
        let asks = matches!(self.packet.protocol, protocol::TCP | protocol::UDP)
            || self.is_icmp()
            || self.packet.is_of_unknown_protocol();
        !self.packet.first && self.first.is_none() && asks
    }

    /// Whether the frame is ICMP over IPv4 or ICMPv6 over IPv6.
    fn is_icmp(&self) -> bool {
        self.packet.protocol == if self.packet.is_v4() { protocol::ICMP } else { protocol::ICMP_V6 }
    }

    /// Whether the rules give the same verdict to all packets of the frame's flow (V3).
    pub(in crate::vpc) fn is_cacheable(&self) -> bool {
        !self.packet.fragment && !self.is_icmp()
    }
}

/// Bytes of the packets that a frame represents, from their IP headers on.
pub(in crate::vpc) fn bytes_of(layout: &Layout) -> u32 {
    let more = layout.packets().saturating_sub(1) * layout.header_bytes() as u64;
    u32::try_from(layout.packet_bytes() as u64 + more).unwrap_or(u32::MAX)
}
