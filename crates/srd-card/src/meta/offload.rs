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
//! It travels to the peer as it is: a super-packet that is not cut stays one, and a checksum
//! that is not added up yet need not be, since SRD carries every byte unchanged.

use crate::meta::packet::protocol;

/// Bytes of the header.
pub const OFFLOAD_BYTES: usize = 10;
/// Packets that a super-packet may stand for at most: 64 KB of the smallest segments that a
/// kernel makes (Linux's `tcp_min_snd_mss`, 48 bytes).
pub const PACKETS_MAX: u64 = 65_535 / 48 + 1;

pub(crate) const NEEDS_CHECKSUM: u8 = 1;
pub(crate) const CHECKSUM_VALID: u8 = 2;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
pub(crate) const GSO_ECN: u8 = 0x80;

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
    /// Whether the checksum was checked already.
    pub checked: bool,
}

/// The header as it stands there, compared with nothing yet.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The GSO type, if the packet is to be cut.
    gso: Option<u8>,
    pub(crate) segment_bytes: u16,
    /// Where the checksum starts and where its field is from there, if it is to be filled in.
    pub checksum: Option<(u16, u16)>,
    pub(crate) checked: bool,
}

impl Header {
    /// Reads the header.
    pub fn decode(header: &[u8; OFFLOAD_BYTES]) -> Self {
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        Self {
            gso: Some(header[1]).filter(|gso| gso & !GSO_ECN != 0),
            segment_bytes: word(4),
            checksum: (header[0] & NEEDS_CHECKSUM != 0).then(|| (word(6), word(8))),
            checked: header[0] & CHECKSUM_VALID != 0,
        }
    }

    /// Payload bytes of each packet that it is to be cut into, if it is.
    pub fn segment(&self) -> Option<u16> {
        self.gso.map(|_| self.segment_bytes).filter(|bytes| *bytes > 0)
    }

    /// Whether the packet is to be cut.
    pub(crate) fn is_super_packet(&self) -> bool {
        self.gso.is_some()
    }

    /// How a packet of this protocol is to be cut; `None` if it cannot be cut in that way.
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
    /// Where in a segment's transport header its checksum is.
    pub(crate) fn checksum_field(self) -> u16 {
        match self {
            Self::Tcp { .. } => 16,
            Self::Udp => 6,
        }
    }
}

impl Offload {
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
}
