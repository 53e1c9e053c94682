//! Content of SRD's 64 opaque bits in the verbs layer, and the header of an RDMA request.
//!
//! ```text
//! SEND, RDMA WRITE, RDMA READ
//!  63    60 59    56 55                      32 31                       0
//! +--------+--------+--------------------------+--------------------------+
//! | opcode | flags  |    check of the Q key    |        immediate         |
//! +--------+--------+--------------------------+--------------------------+
//!
//! WRITE DATA, READ DATA, READ ERROR, WRITE ABORT
//! +--------+--------+--------------------------+--------------------------+
//! | opcode |   0    |  number of the transfer  |     offset, or status    |
//! +--------+--------+--------------------------+--------------------------+
//!
//! before the data of an RDMA WRITE, and all there is of an RDMA READ:
//! +-----------------------------------------------------------------------+
//! |                           remote address                              |
//! +-----------------------------------------------------------------------+
//! |                             remote key                                |
//! +-----------------------------------+-----------------------------------+
//! |          bytes in all             |      number of the transfer       |
//! +-----------------------------------+-----------------------------------+
//! ```
//!
//! Integers are big-endian.

/// Bytes of the header of an RDMA request.
pub(crate) const RDMA_HEADER_BYTES: usize = 24;
/// Number of different transfer numbers: each transfer number is below this value.
pub(crate) const TRANSFERS: u32 = 1 << 24;

const FLAG_IMMEDIATE: u64 = 1;
const FLAG_PART: u64 = 2;

/// Content of the 64 opaque bits of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opaque {
    /// A complete message.
    Send { check: u32, imm: Option<u32> },
    /// An RDMA write: all of its bytes, or the first bytes. `part`: whether the write is part of a
    /// larger operation, and not its last part.
    Write { check: u32, imm: Option<u32>, part: bool },
    /// Bytes of a write, at `offset`, in a datagram after the write's first.
    WriteData { number: u32, offset: u32 },
    /// The initiator has given up a write.
    WriteAbort { number: u32 },
    /// A request to read. `part`: whether the read is part of a larger operation, and not its last
    /// part.
    Read { check: u32, part: bool },
    /// Data of a read, at `offset`, from its responder.
    ReadData { number: u32, offset: u32 },
    /// The responder cannot continue a read.
    ReadError { number: u32, status: u32 },
}

impl Opaque {
    pub(crate) fn encode(self) -> u64 {
        let pack = |op: u64, flags: u64, middle: u32, low: u32| {
            debug_assert!(middle < TRANSFERS);
            op << 60 | flags << 56 | u64::from(middle) << 32 | u64::from(low)
        };
        let flags = |imm: Option<u32>| if imm.is_some() { FLAG_IMMEDIATE } else { 0 };
        let parts = |part: bool| if part { FLAG_PART } else { 0 };
        match self {
            Self::Send { check, imm } => pack(1, flags(imm), check, imm.unwrap_or(0)),
            Self::Write { check, imm, part } => {
                pack(2, flags(imm) | parts(part), check, imm.unwrap_or(0))
            }
            Self::WriteData { number, offset } => pack(3, 0, number, offset),
            Self::WriteAbort { number } => pack(4, 0, number, 0),
            Self::Read { check, part } => pack(5, parts(part), check, 0),
            Self::ReadData { number, offset } => pack(6, 0, number, offset),
            Self::ReadError { number, status } => pack(7, 0, number, status),
        }
    }

    /// Decodes a peer's opaque bits; `None` for bits that no correct sender writes.
    #[allow(clippy::cast_possible_truncation)] // fields of the word
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let (op, flags) = (word >> 60, word >> 56 & 15);
        let (middle, low) = ((word >> 32) as u32 & (TRANSFERS - 1), word as u32);
        let imm = (flags == FLAG_IMMEDIATE).then_some(low);
        let plain = flags == 0;
        let part = flags == FLAG_PART;
        let either = imm.is_some() || plain && low == 0;
        let bare = (plain || part) && low == 0;
        Some(match op {
            1 if either => Self::Send { check: middle, imm },
            2 if either || bare => Self::Write { check: middle, imm, part },
            3 if plain => Self::WriteData { number: middle, offset: low },
            4 if plain && low == 0 => Self::WriteAbort { number: middle },
            5 if bare => Self::Read { check: middle, part },
            6 if plain => Self::ReadData { number: middle, offset: low },
            7 if plain => Self::ReadError { number: middle, status: low },
            _ => return None,
        })
    }
}

/// Returns the 24 bits of a Q key that datagrams carry: a multiplicative hash (Knuth), so that keys
/// that differ in any bits hardly ever agree in these 24 bits.
pub(crate) const fn check_of(qkey: u32) -> u32 {
    qkey.wrapping_mul(0x9e37_79b1) >> 8
}

/// The header of an RDMA request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RdmaHeader {
    pub(crate) addr: u64,
    pub(crate) rkey: u64,
    pub(crate) length: u32,
    pub(crate) number: u32,
}

impl RdmaHeader {
    pub(crate) fn encode(&self) -> [u8; RDMA_HEADER_BYTES] {
        let mut b = [0; RDMA_HEADER_BYTES];
        b[..8].copy_from_slice(&self.addr.to_be_bytes());
        b[8..16].copy_from_slice(&self.rkey.to_be_bytes());
        b[16..20].copy_from_slice(&self.length.to_be_bytes());
        b[20..].copy_from_slice(&self.number.to_be_bytes());
        b
    }

    /// Decodes the header. Returns it and the bytes that follow.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (b, rest) = bytes.split_first_chunk::<RDMA_HEADER_BYTES>()?;
        let word = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |at| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        let header = Self { addr: long(0), rkey: long(8), length: word(16), number: word(20) };
        (header.number < TRANSFERS).then_some((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_bits_survive_and_what_nobody_writes_is_none() {
        let words = [
            Opaque::Send { check: 0xabcdef, imm: Some(7) },
            Opaque::Send { check: 1, imm: None },
            Opaque::Write { check: 2, imm: Some(u32::MAX), part: false },
            Opaque::Write { check: 2, imm: None, part: true },
            Opaque::WriteData { number: TRANSFERS - 1, offset: u32::MAX },
            Opaque::WriteAbort { number: 3 },
            Opaque::Read { check: 4, part: false },
            Opaque::Read { check: 4, part: true },
            Opaque::ReadData { number: 5, offset: 6 },
            Opaque::ReadError { number: 5, status: 8 },
        ];
        for word in words {
            assert_eq!(Opaque::decode(word.encode()), Some(word));
        }
        let flagged = |op: u64, flags: u64, low: u64| op << 60 | flags << 56 | low;
        let of_nobody = [flagged(2, 3, 0), flagged(2, 2, 9), flagged(5, 1, 0), flagged(6, 2, 0)];
        let flagged = [flagged(1, 2, 0), flagged(3, 1, 0), flagged(1, 0, 9)];
        for rubbish in [0, 8 << 60, u64::MAX].into_iter().chain(of_nobody).chain(flagged) {
            assert_eq!(Opaque::decode(rubbish), None, "{rubbish:x}");
        }
    }

    #[test]
    fn a_header_survives_and_a_short_one_is_none() {
        let header = RdmaHeader { addr: 1 << 40 | 5, rkey: 6 << 50 | 7, length: 7, number: 8 };
        let bytes = header.encode();
        assert_eq!(RdmaHeader::decode(&bytes), Some((header, &[][..])));
        for n in 0..bytes.len() {
            assert_eq!(RdmaHeader::decode(&bytes[..n]), None);
        }
        let above = RdmaHeader { number: TRANSFERS, ..header }.encode();
        assert_eq!(RdmaHeader::decode(&above), None);
    }

    #[test]
    fn keys_that_differ_in_one_bit_differ_on_the_wire() {
        for bit in 8..32 {
            assert_ne!(check_of(0x1234_5678), check_of(0x1234_5678 ^ 1 << bit));
        }
    }
}
