//! Layout of a packet: offsets, kind, and the work that is left to hardware. Together with the
//! flow's key, this is all that the later steps of the card need. A layout is small, because it is
//! stored beside its packet while the packet waits in queues.

use crate::meta::offload::{Gso, Header, OFFLOAD_BYTES, Offload, PACKETS_MAX};
use crate::meta::packet::{Packet, protocol};

const V4: u8 = 1;
const PORTS: u8 = 2;
const FRAGMENT: u8 = 4;
const FIRST: u8 = 8;
const DONT_FRAGMENT: u8 = 16;
const SYN: u8 = 32;

/// Bytes of a TCP header without options.
const TCP_BYTES: usize = 20;
/// Offset of the flags in a TCP header.
const TCP_FLAGS_AT: usize = 13;
/// Flag of a TCP segment that begins or accepts a connection.
const TCP_SYN: u8 = 0x02;
const UDP_BYTES: usize = 8;

/// Offsets and properties of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Transport protocol; with IPv6, the first protocol that is not an extension header.
    pub(crate) protocol: u8,
    flags: u8,
    packet_bytes: u16,
    transport_at: u16,
    /// Offset of the transport payload. If the packet was cut off, the offset may be larger than
    /// the length of the packet.
    payload_at: u16,
    /// Work that is left to hardware.
    pub(crate) offload: Offload,
}

impl Layout {
    /// Reads the layout of a packet that leaves no work to hardware. Returns `None` if the packet
    /// is longer than any frame.
    #[inline(always)]
    pub(crate) fn of(packet: &Packet, bytes: &[u8]) -> Option<Self> {
        let tcp_bytes = packet.tcp_header_bytes(bytes);
        let transport_bytes = match packet.protocol {
            protocol::TCP => tcp_bytes.unwrap_or(TCP_BYTES),
            protocol::UDP => UDP_BYTES,
            _ => 0,
        };
        let tcp_flags = tcp_bytes.and(bytes.get(packet.transport_at + TCP_FLAGS_AT));
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(packet.is_v4(), V4)
            | flag(packet.ports.is_some(), PORTS)
            | flag(packet.fragment, FRAGMENT)
            | flag(packet.first, FIRST)
            | flag(packet.dont_fragment, DONT_FRAGMENT)
            | flag(tcp_flags.is_some_and(|flags| flags & TCP_SYN != 0), SYN);
        Some(Self {
            protocol: packet.protocol,
            flags,
            packet_bytes: u16::try_from(bytes.len()).ok()?,
            transport_at: u16::try_from(packet.transport_at).ok()?,
            payload_at: u16::try_from(packet.transport_at + transport_bytes).ok()?,
            offload: Offload::default(),
        })
    }

    /// Adds the work that the offload header leaves to hardware. Returns `None` if the header
    /// contradicts itself or the packet.
    #[inline(always)]
    pub(crate) fn with_offload(self, header: &[u8; OFFLOAD_BYTES]) -> Option<Self> {
        let raw = Header::decode(header);
        if let Some((start, field)) = raw.checksum {
            let field = usize::from(start) + usize::from(field);
            // A checksum of an inner packet begins later. The checksum of the IP header is never
            // left to hardware.
            if usize::from(start) < self.transport_at() || field + 2 > self.packet_bytes() {
                return None;
            }
        }
        let gso = if raw.is_super_packet() { Some(self.segments_of(&raw)?) } else { None };
        let offload = Offload { gso, checksum: raw.checksum, checked: raw.checked };
        let layout = Self { offload, ..self };
        (layout.packets() <= PACKETS_MAX).then_some(layout)
    }

    /// Returns how a super-packet is segmented, or `None` if the header's kind does not fit the
    /// packet.
    fn segments_of(&self, raw: &Header) -> Option<(Gso, u16)> {
        let gso = raw.segments_of(self.protocol, self.is_v4())?;
        // Each segment needs its own checksum.
        let own_checksum = raw.checksum == Some((self.transport_at, gso.checksum_field()));
        let possible = own_checksum && raw.segment_bytes > 0 && !self.is_fragment();
        possible.then_some((gso, raw.segment_bytes))
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the packet is IPv4.
    pub(crate) fn is_v4(&self) -> bool {
        self.has(V4)
    }

    /// Whether the packet is TCP or UDP and contains its ports.
    pub(crate) fn has_ports(&self) -> bool {
        self.has(PORTS)
    }

    /// Whether the packet is a whole packet of a tunnel without ports: GRE, ESP, IP in IP.
    pub(crate) fn is_tunnel(&self) -> bool {
        let known = [protocol::GRE, protocol::ESP, protocol::IPV4, protocol::IPV6];
        known.contains(&self.protocol) && !self.is_fragment()
    }

    /// Whether the packet is a fragment.
    pub(crate) fn is_fragment(&self) -> bool {
        self.has(FRAGMENT)
    }

    /// Whether the packet contains the first byte of the original packet, as all except later
    /// fragments do.
    pub(crate) fn is_first(&self) -> bool {
        self.has(FIRST)
    }

    /// Whether a router may not fragment the packet (always so with IPv6).
    pub(crate) fn dont_fragment(&self) -> bool {
        self.has(DONT_FRAGMENT)
    }

    /// Whether the packet begins or accepts a TCP connection, and contains its whole TCP header.
    pub(crate) fn is_syn(&self) -> bool {
        self.has(SYN)
    }

    /// Bytes of the packet.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.packet_bytes.into()
    }

    /// Offset of the transport header.
    pub(crate) fn transport_at(&self) -> usize {
        self.transport_at.into()
    }

    /// Bytes of all headers, from the IP header to the transport payload.
    pub(crate) fn header_bytes(&self) -> usize {
        self.payload_at.into()
    }

    /// Bytes of transport payload.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.packet_bytes().saturating_sub(self.header_bytes())
    }

    /// Number of packets that this packet represents: more than one for a super-packet.
    pub(crate) fn packets(&self) -> u64 {
        let Some((_, segment_bytes)) = self.offload.gso else { return 1 };
        (self.payload_bytes() as u64).div_ceil(segment_bytes.into()).max(1)
    }

    /// Returns the addresses of a packet of this layout, source first, in network byte order.
    pub(crate) fn addresses<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if self.is_v4() { &bytes[12..20] } else { &bytes[8..40] }
    }

    /// Returns the layout with `offload` as the work that is left to hardware.
    pub(crate) fn leaving(&self, offload: Offload) -> Self {
        Self { offload, ..*self }
    }

    /// Returns the layout of a fragment of this packet with this number of bytes. The fragment
    /// leaves no work to hardware, and does not show its ports.
    pub(crate) fn of_part(&self, packet_bytes: usize) -> Self {
        let flags = self.flags & !(PORTS | SYN) | FRAGMENT;
        let packet_bytes = u16::try_from(packet_bytes).unwrap_or(u16::MAX);
        Self { flags, packet_bytes, offload: Offload::default(), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::{layout, v4};

    #[test]
    fn what_is_written_is_read() {
        let bytes = v4(protocol::TCP, (1, 2), &[7; 3000]);
        let offload = Offload {
            gso: Some((Gso::Tcp { ecn: true }, 1000)),
            checksum: Some((20, 16)),
            checked: false,
        };
        let header = offload.write(true, layout(&bytes).header_bytes());
        let read = layout(&bytes).with_offload(&header).unwrap();
        assert_eq!((read.offload, read.packets()), (offload, 3));
    }

    #[test]
    fn a_super_packet_stands_for_so_many_packets_at_most() {
        let bytes = v4(protocol::UDP, (1, 2), &[7; 60_000]);
        let read = |segment: u8| {
            let header = [1, 5, 0, 0, segment, 0, 20, 0, 6, 0];
            layout(&bytes).with_offload(&header).map(|layout| layout.packets())
        };
        assert_eq!(read(1), None, "60,000 packets for one");
        assert_eq!(read(48), Some(1250));
    }

    #[test]
    fn contradictions_are_refused() {
        let bytes = v4(protocol::UDP, (1, 2), &[7; 30]);
        // TCP segments of a UDP packet; a checksum beyond the end; segments of zero bytes;
        // segmentation without checksums; an unknown kind.
        for header in [
            [1, 1, 0, 0, 9, 0, 20, 0, 6, 0],
            [1, 0, 0, 0, 0, 0, 200, 0, 6, 0],
            [1, 5, 0, 0, 0, 0, 20, 0, 6, 0],
            [0, 5, 0, 0, 9, 0, 20, 0, 6, 0],
            [0, 77, 0, 0, 9, 0, 20, 0, 6, 0],
            // A checksum of the IP header; segments whose checksum field is at another offset.
            [1, 0, 0, 0, 0, 0, 0, 0, 10, 0],
            [1, 5, 0, 0, 9, 0, 20, 0, 7, 0],
            [1, 5, 0, 0, 9, 0, 28, 0, 6, 0],
        ] {
            assert_eq!(layout(&bytes).with_offload(&header), None, "{header:?}");
        }
    }
}
