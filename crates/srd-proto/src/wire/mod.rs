//! The wire format: every packet is a [`Header`], possibly a [`greeting::Greeting`], then a body
//! whose layout depends on the packet type. All integers are big-endian. `docs/spec/srd.md` shows
//! all diagrams together.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+---------------+---------------+
//! | ver=2 | type  |     flags     |   key phase   |   rtt code    |
//! +-------+-------+---------------+---------------+---------------+
//! |               destination context (0: not known yet)          |
//! +---------------------------------------------------------------+
//! |    packet number: low 32 bits of PSN or control number        |
//! +---------------------------------------------------------------+
//! ```
//!
//! The header (and greeting) is authenticated and sent in clear text; the rest is sealed in
//! protected modes. The UDP source port, which switches hash, is outside of both.

pub mod ack;
pub mod data;
pub mod greeting;
pub mod handshake;
pub mod probe;
pub mod unreliable;

use alloc::vec::Vec;

/// Version of the protocol.
pub const VERSION: u8 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 12;
/// Bytes of the authentication tag in protected modes.
pub const TAG_BYTES: usize = 16;

/// Type of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A data packet, which carries a datagram.
    Data = 1,
    /// An acknowledgement.
    Ack = 2,
    /// A request for an acknowledgement, which echoes the probe's number.
    Probe = 3,
    /// First handshake message: an opening.
    Hello = 4,
    /// Second handshake message: the answer to an opening.
    HelloReply = 5,
    /// An answer to an opening that demands a cookie: the initiator must return the cookie with its
    /// opening.
    Retry = 6,
    /// The refusal of a packet that named a context that does not exist.
    Reset = 7,
    /// A datagram that is neither acknowledged nor retransmitted.
    Unreliable = 8,
    /// The end of a context, with an acknowledgement of all received packets.
    Close = 9,
    /// A random token that the peer must return, as a proof that it receives at an address.
    /// Protected modes only.
    Challenge = 10,
    /// The answer to a Challenge: its token.
    ChallengeReply = 11,
}

impl Kind {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Probe,
            4 => Self::Hello,
            5 => Self::HelloReply,
            6 => Self::Retry,
            7 => Self::Reset,
            8 => Self::Unreliable,
            9 => Self::Close,
            10 => Self::Challenge,
            11 => Self::ChallengeReply,
            _ => return None,
        })
    }
}

/// Header flag: a greeting follows the header.
pub const FLAG_GREETING: u8 = 0x01;
/// Header flag: the receiver should acknowledge at once.
pub const FLAG_ACK_NOW: u8 = 0x02;
/// Header flag: interactive mode. The acknowledgement may wait for more packets with this flag.
pub const FLAG_ACK_LATER: u8 = 0x04;
/// Header flag: an acknowledgement follows the fields of a Data packet, before the payload.
pub const FLAG_ACK: u8 = 0x08;
/// All flags that this version defines.
pub const FLAGS_KNOWN: u8 = FLAG_GREETING | FLAG_ACK_NOW | FLAG_ACK_LATER | FLAG_ACK;

/// The first twelve bytes of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Type of the packet.
    pub kind: Kind,
    /// Flags: the bits `FLAG_*`.
    pub flags: u8,
    /// Generation of the sealing key, modulo 256. Zero in plain mode.
    pub key_phase: u8,
    /// The sender's base round-trip time as a code of [`encode_rtt`]; [`RTT_UNKNOWN`] until the
    /// sender has measured it.
    pub rtt_code: u8,
    /// Context number that the receiver has assigned; zero until the sender has received it.
    pub dst_context: u32,
    /// Low 32 bits of the packet's number: of the PSN, or of the control number.
    pub number: u32,
}

/// Reason why bytes are not a valid packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// The packet is too short, or a field has a value that no sender writes.
    Malformed,
    /// The packet has another version of the protocol.
    Version,
}

impl Header {
    /// Appends the header to a packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[1] = self.flags;
        bytes[2] = self.key_phase;
        bytes[3] = self.rtt_code;
        bytes[4..8].copy_from_slice(&self.dst_context.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Reads the header from the start of a packet. Also returns the bytes that follow it.
    ///
    /// # Errors
    /// Returns an error if there are too few bytes, or if version, type or a flag is unknown.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(WireError::Malformed)?;
        // E2: Malformed packets
        if head[0] >> 4 != VERSION {
            return Err(WireError::Version);
        }
        let kind = Kind::from_bits(head[0] & 15).ok_or(WireError::Malformed)?;
        let flags = head[1];
        if flags & !FLAGS_KNOWN != 0 || (flags & FLAG_ACK != 0 && kind != Kind::Data) {
            return Err(WireError::Malformed);
        }
        let header = Self {
            kind,
            flags,
            key_phase: head[2],
            rtt_code: head[3],
            dst_context: u32_at(head, 4),
            number: u32_at(head, 8),
        };
        Ok((header, rest))
    }
}

/// Code for a round trip that the sender has not measured.
pub const RTT_UNKNOWN: u8 = 0;

/// Encodes a time in one byte: five bits of exponent, three of mantissa, unit 16 ns. The code is
/// within 12 % of the time and, from 144 ns on, never above it. It is never [`RTT_UNKNOWN`].
#[allow(clippy::cast_possible_truncation)] // exponent is below 32, mantissa below 8
pub fn encode_rtt(ns: u64) -> u8 {
    let units = (ns / 16).clamp(9, 15 << 31);
    let exponent = units.ilog2() - 3;
    let mantissa = (units >> exponent) & 7;
    (exponent as u8) << 3 | mantissa as u8
}

/// Returns the time in nanoseconds that belongs to a code of [`encode_rtt`]. The result for
/// [`RTT_UNKNOWN`] has no meaning.
pub const fn decode_rtt(code: u8) -> u64 {
    ((8 | (code as u64 & 7)) << (code >> 3)) * 16
}

/// Returns the 64-bit number that is nearest to `expected` among those whose low 32 bits are `low`.
pub const fn expand(low: u32, expected: u64) -> u64 {
    // W4: Low 32 bits of numbers
    let base = expected & !0xffff_ffff | low as u64;
    let half = 1 << 31;
    if base.wrapping_add(half) < expected {
        base.wrapping_add(1 << 32)
    } else if base > expected.saturating_add(half) && base >= 1 << 32 {
        base - (1 << 32)
    } else {
        base
    }
}

/// Reads the big-endian `u16` at `at`; the caller has checked the length.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads the big-endian `u32` at `at`; the caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads the big-endian `u64` at `at`; the caller has checked the length.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[cfg(test)]
mod tests;
