//! Checks each frame for the guest, without use of the code under test: the frame must contain a
//! packet with a consistent header, and the peer that sent it must be allowed to use its source
//! address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srd_card::{Guest, Prefix};

/// Offset of the byte of a frame that contains the sender's mark: the type of service of IPv4, or a
/// part of the traffic class of IPv6.
pub(super) const MARK_AT: usize = 11;
/// Bits of the byte at [`MARK_AT`] that form the mark. The ECN bits are outside of them in both
/// IPv4 and IPv6.
const MARK: u8 = 0xcc;
/// Maximum number of packets that a super-packet may represent.
const PACKETS_MAX: usize = 1366;

/// Returns the mark of a peer that was removed `generation` times.
pub(super) fn mark(peer: usize, generation: u8) -> u8 {
    (1 + peer as u8) << 6 | (generation & 3) << 2
}

/// Writes a mark into the byte at [`MARK_AT`].
pub(super) fn stamp(byte: &mut u8, mark: u8) {
    *byte = *byte & !MARK | mark;
}

/// A guest that checks the frames that it receives.
#[derive(Default)]
pub(super) struct Oracle {
    /// Addresses from which each peer may send.
    pub(super) allowed: Vec<Vec<Prefix>>,
    /// Mark of each peer; `None` if the frames of the peer have no mark.
    pub(super) marks: Vec<Option<u8>>,
    /// Whether the guest has just sent a packet, so that it may receive an answer.
    pub(super) answers: bool,
    /// Number of frames that the guest has received.
    pub(super) got: u64,
}

impl Guest for Oracle {
    fn deliver(&mut self, frame: &[u8]) {
        self.got += 1;
        let source = well_formed(frame).expect("a frame whose header agrees with its packet");
        if self.answers {
            let protocol = if frame[10] >> 4 == 4 { frame[19] } else { frame[16] };
            assert!(matches!(protocol, 1 | 58), "an answer is ICMP");
            return;
        }
        let owner = super::owner(&self.allowed, source);
        let owner = owner.unwrap_or_else(|| panic!("{source} is no address of any peer"));
        if let Some(Some(mark)) = self.marks.get(owner) {
            let seen = frame[MARK_AT] & MARK;
            assert_eq!(seen, *mark, "a frame from {source} was not sent by its owner");
        }
    }
}

/// Returns the source address of a frame; `None` if its header and its packet do not agree.
fn well_formed(frame: &[u8]) -> Option<IpAddr> {
    if frame.len() > 65_535 {
        return None;
    }
    let (header, packet) = frame.split_at_checked(10)?;
    let word = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (source, headers, protocol) = match packet.first()? >> 4 {
        4 => {
            let headers = usize::from(packet[0] & 15) * 4;
            let address: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            (IpAddr::V4(Ipv4Addr::from(address)), headers, Some(*packet.get(9)?))
        }
        6 => {
            let address: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            // After extension headers the protocol differs.
            let plain = Some(packet[6]).filter(|next| matches!(next, 6 | 17));
            (IpAddr::V6(Ipv6Addr::from(address)), 40, plain)
        }
        _ => return None,
    };
    if headers < 20 || packet.len() < headers {
        return None;
    }
    let left = header[0] & 1 != 0;
    if left && (word(6) < headers || word(6) + word(8) + 2 > packet.len()) {
        return None;
    }
    let kind = header[1] & 0x7f;
    if kind != 0 {
        let (wanted, v4) = match kind {
            1 => (6, true),
            4 => (6, false),
            5 => (17, source.is_ipv4()),
            _ => return None,
        };
        let agrees = v4 == source.is_ipv4() && protocol.is_none_or(|protocol| protocol == wanted);
        let payload = packet.len().saturating_sub(word(6) + 60);
        let few = word(4) > 0 && payload.div_ceil(word(4)) <= PACKETS_MAX;
        if !(agrees && left && few) {
            return None;
        }
    }
    Some(source)
}
