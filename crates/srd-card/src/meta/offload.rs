//! Work that a packet leaves to hardware: the 10 bytes before each packet of a TUN device with
//! `IFF_VNET_HDR`, the legacy `virtio_net_hdr`.
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
//! The header is sent to the peer unchanged. SRD carries every byte unchanged, so a super-packet
//! need not be segmented, and a checksum that is left to hardware need not be computed.

use crate::meta::packet::protocol;

/// Bytes of the offload header.
pub const OFFLOAD_BYTES: usize = 10;
/// Largest number of packets that a super-packet may represent: 64 KB of the smallest segments
/// that a kernel makes (Linux's `tcp_min_snd_mss`, 48 bytes).
pub const PACKETS_MAX: u64 = 65_535 / 48 + 1;

pub(crate) const NEEDS_CHECKSUM: u8 = 1;
pub(crate) const CHECKSUM_VALID: u8 = 2;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
pub(crate) const GSO_ECN: u8 = 0x80;

/// Kind of the segments of a super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gso {
    /// Segments of TCP.
    Tcp {
        /// Whether only the first segment carries CWR.
        ecn: bool,
    },
    /// UDP datagrams (`UDP_SEGMENT`).
    Udp,
}

/// Content of an offload header that is consistent with its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// Kind and payload bytes of the segments, if the packet is a super-packet.
    pub gso: Option<(Gso, u16)>,
    /// Offset in the packet at which the bytes of the checksum begin, and offset of the checksum
    /// field from there; `None` if no checksum is left to hardware.
    pub checksum: Option<(u16, u16)>,
    /// Whether the checksum was verified already, so that the receiver need not do so.
    pub checked: bool,
}

/// Offload header that was decoded, but not compared with its packet.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// GSO type, if the packet is a super-packet.
    gso: Option<u8>,
    pub(crate) segment_bytes: u16,
    /// Offset in the packet at which the bytes of the checksum begin, and offset of the checksum
    /// field from there; `None` if no checksum is left to hardware.
    pub checksum: Option<(u16, u16)>,
    pub(crate) checked: bool,
}

impl Header {
    /// Decodes the header.
    pub fn decode(header: &[u8; OFFLOAD_BYTES]) -> Self {
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        Self {
            gso: Some(header[1]).filter(|gso| gso & !GSO_ECN != 0),
            segment_bytes: word(4),
            checksum: (header[0] & NEEDS_CHECKSUM != 0).then(|| (word(6), word(8))),
            checked: header[0] & CHECKSUM_VALID != 0,
        }
    }

    /// Returns the payload bytes of each segment, if the packet is a super-packet.
    pub fn segment(&self) -> Option<u16> {
        self.gso.map(|_| self.segment_bytes).filter(|bytes| *bytes > 0)
    }

    /// Whether the packet is a super-packet.
    pub(crate) fn is_super_packet(&self) -> bool {
        self.gso.is_some()
    }

    /// Returns the kind of the segments; `None` if the packet is no super-packet, or if its
    /// protocol and IP version contradict the GSO type of the header.
    pub(crate) fn segments_of(&self, protocol: u8, is_v4: bool) -> Option<Gso> {
        let gso = self.gso?;
        match (gso & !GSO_ECN, protocol, is_v4) {
            (GSO_TCP_V4, protocol::TCP, true) | (GSO_TCP_V6, protocol::TCP, false) => {
                Some(Gso::Tcp { ecn: gso & GSO_ECN != 0 })
            }
            (GSO_UDP, protocol::UDP, _) => Some(Gso::Udp),
            _ => None,
        }
    }
}

impl Gso {
    /// Offset of the checksum field in a segment's transport header.
    pub(crate) fn checksum_field(self) -> u16 {
        match self {
            Self::Tcp { .. } => 16,
            Self::Udp => 6,
        }
    }
}

impl Offload {
    /// Encodes the header of a packet whose headers are `header_bytes` long.
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
}
