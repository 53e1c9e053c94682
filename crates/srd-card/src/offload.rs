//! What a packet leaves to hardware: the 10 bytes that stand before each packet of a TUN device
//! with `IFF_VNET_HDR`, the legacy `virtio_net_hdr`.
//!
//! ```text
//!  0               1               2               4
//! +---------------+---------------+-------------------------------+
//! |     flags     |   GSO type    |    bytes of all headers       |
//! +---------------+---------------+---------------+---------------+
//! |  payload bytes per segment    |  checksum from                |
//! +-------------------------------+-------------------------------+
//! |  checksum field, from there   |
//! +-------------------------------+          little-endian
//! ```
//!
//! It travels to the peer as it is: a super-packet that nobody has cut stays one, and a checksum
//! that nobody has added up need not be, since SRD carries every byte unchanged.

use crate::checksum;
use crate::packet::{Packet, protocol};

/// Bytes of the header.
pub const OFFLOAD_BYTES: usize = 10;
/// Packets that a super-packet may stand for at most: 64 KB of the smallest segments that a
/// kernel makes (Linux's `tcp_min_snd_mss`, 48 bytes).
pub const PACKETS_MAX: u64 = 65_535 / 48 + 1;

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// What kind of segments a super-packet is to be cut into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gso {
    /// TCP segments.
    Tcp {
        /// The first segment alone carries CWR.
        ecn: bool,
    },
    /// UDP datagrams (`UDP_SEGMENT`).
    Udp,
}

/// The header, read and found consistent with its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// How it is to be cut, if it is, and payload bytes per segment.
    pub gso: Option<(Gso, u16)>,
    /// Where the checksum starts and where its field is from there, if it is to be filled in.
    pub checksum: Option<(u16, u16)>,
    /// Whether somebody has checked the checksum already.
    pub checked: bool,
}

impl Offload {
    /// Reads the header before `packet`; `None` if it contradicts itself or the packet.
    pub fn read(header: &[u8; OFFLOAD_BYTES], bytes: &[u8], packet: &Packet) -> Option<Self> {
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let checksum = if header[0] & NEEDS_CHECKSUM != 0 {
            let (start, offset) = (word(6), word(8));
            let field = usize::from(start) + usize::from(offset);
            // A checksum of an inner packet begins later; one of the IP header is not left.
            if usize::from(start) < packet.transport_at || field + 2 > bytes.len() {
                return None;
            }
            Some((start, offset))
        } else {
            None
        };
        let kind = header[1] & !GSO_ECN;
        let gso = match (kind, packet.protocol, packet.is_v4()) {
            (0, ..) => None,
            (GSO_TCP_V4, protocol::TCP, true) | (GSO_TCP_V6, protocol::TCP, false) => {
                Some(Gso::Tcp { ecn: header[1] & GSO_ECN != 0 })
            }
            (GSO_UDP, protocol::UDP, _) => Some(Gso::Udp),
            _ => return None,
        };
        let field = match gso {
            Some(Gso::Tcp { .. }) => 16,
            Some(Gso::Udp) => 6,
            None => 0,
        };
        let gso = match (gso, checksum) {
            // Segments need their checksums filled in one by one.
            (Some(gso), Some((start, offset)))
                if word(4) > 0
                    && !packet.fragment
                    && (usize::from(start), offset) == (packet.transport_at, field) =>
            {
                Some((gso, word(4)))
            }
            (Some(_), _) => return None,
            (None, _) => None,
        };
        let offload = Self { gso, checksum, checked: header[0] & CHECKSUM_VALID != 0 };
        (offload.packets(bytes, packet) <= PACKETS_MAX).then_some(offload)
    }

    /// The header for a packet whose headers are `header_bytes` long.
    pub fn write(&self, is_v4: bool, header_bytes: usize) -> [u8; OFFLOAD_BYTES] {
        let mut out = [0; OFFLOAD_BYTES];
        if let Some((start, offset)) = self.checksum {
            out[0] |= NEEDS_CHECKSUM;
            out[6..8].copy_from_slice(&start.to_le_bytes());
            out[8..10].copy_from_slice(&offset.to_le_bytes());
        } else if self.checked {
            out[0] |= CHECKSUM_VALID;
        }
        if let Some((gso, segment_bytes)) = self.gso {
            out[1] = match gso {
                Gso::Tcp { ecn } => {
                    let kind = if is_v4 { GSO_TCP_V4 } else { GSO_TCP_V6 };
                    if ecn { kind | GSO_ECN } else { kind }
                }
                Gso::Udp => GSO_UDP,
            };
            let header_bytes = u16::try_from(header_bytes).unwrap_or(u16::MAX);
            out[2..4].copy_from_slice(&header_bytes.to_le_bytes());
            out[4..6].copy_from_slice(&segment_bytes.to_le_bytes());
        }
        out
    }

    /// Fills in the checksum of a packet, if that was left to hardware.
    pub fn complete(&self, bytes: &mut [u8], packet: &Packet) {
        let Some((start, offset)) = self.checksum else { return };
        let (start, offset) = (usize::from(start), usize::from(offset));
        // The field holds the sum of the pseudo-header.
        let Some(covered) = bytes.get(start..).filter(|covered| covered.len() >= offset + 2) else {
            return;
        };
        let sum = match checksum::of(covered) {
            // Zero means that there is none.
            0 if packet.protocol == protocol::UDP => 0xffff,
            sum => sum,
        };
        bytes[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// How many packets this one stands for.
    pub fn packets(&self, bytes: &[u8], packet: &Packet) -> u64 {
        let Some((_, segment_bytes)) = self.gso else { return 1 };
        let payload = bytes.len().saturating_sub(header_bytes(bytes, packet));
        (payload as u64).div_ceil(segment_bytes.into()).max(1)
    }
}

/// Bytes before the transport payload.
pub fn header_bytes(bytes: &[u8], packet: &Packet) -> usize {
    let transport = match packet.protocol {
        protocol::TCP => packet.tcp_header_bytes(bytes).unwrap_or(20),
        protocol::UDP => 8,
        _ => 0,
    };
    packet.transport_at + transport
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::v4;

    #[test]
    fn what_is_written_is_read() {
        let bytes = v4(protocol::TCP, (1, 2), &[7; 3000]);
        let packet = Packet::read(&bytes).unwrap();
        let offload = Offload {
            gso: Some((Gso::Tcp { ecn: true }, 1000)),
            checksum: Some((20, 16)),
            checked: false,
        };
        let header = offload.write(true, header_bytes(&bytes, &packet));
        assert_eq!(Offload::read(&header, &bytes, &packet), Some(offload));
        assert_eq!(offload.packets(&bytes, &packet), 3);
    }

    #[test]
    fn a_super_packet_stands_for_so_many_packets_at_most() {
        let bytes = v4(protocol::UDP, (1, 2), &[7; 60_000]);
        let packet = Packet::read(&bytes).unwrap();
        let read =
            |segment: u8| Offload::read(&[1, 5, 0, 0, segment, 0, 20, 0, 6, 0], &bytes, &packet);
        assert_eq!(read(1), None, "60,000 packets for one");
        assert_eq!(read(48).unwrap().packets(&bytes, &packet), 1250);
    }

    #[test]
    fn contradictions_are_refused() {
        let bytes = v4(protocol::UDP, (1, 2), &[7; 30]);
        let packet = Packet::read(&bytes).unwrap();
        // TCP segments of a UDP packet; a checksum beyond the end; segments of no bytes;
        // segmentation without checksums; an unknown kind.
        for header in [
            [1, 1, 0, 0, 9, 0, 20, 0, 6, 0],
            [1, 0, 0, 0, 0, 0, 200, 0, 6, 0],
            [1, 5, 0, 0, 0, 0, 20, 0, 6, 0],
            [0, 5, 0, 0, 9, 0, 20, 0, 6, 0],
            [0, 77, 0, 0, 9, 0, 20, 0, 6, 0],
            // A checksum of the IP header; segments whose checksums are elsewhere.
            [1, 0, 0, 0, 0, 0, 0, 0, 10, 0],
            [1, 5, 0, 0, 9, 0, 20, 0, 7, 0],
            [1, 5, 0, 0, 9, 0, 28, 0, 6, 0],
        ] {
            assert_eq!(Offload::read(&header, &bytes, &packet), None, "{header:?}");
        }
    }
}
