//! A TCP segment in the simulator, as fields instead of bytes.
//!
//! Data flows in one direction in the model, so a segment is either data (`payload_bytes > 0`) or
//! an acknowledgement. Offsets count bytes of the stream from zero and have 64 bits, so they do not
//! wrap.

/// Largest number of SACK blocks that fit beside a timestamp option (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 3;

/// Flag of a segment that opens the connection: the first segment of a handshake, or data of a
/// connection whose peer has not replied yet.
pub const FLAG_SYN: u8 = 1;
/// Flag of a segment: the fields of an acknowledgement are valid.
pub const FLAG_ACK: u8 = 2;
/// Flag of an acknowledgement: the receiver echoes congestion experienced (RFC 3168; for each
/// segment in RFC 8257).
pub const FLAG_ECE: u8 = 4;
/// Flag of a data segment: the sender has reduced its congestion window, so the echo may stop (RFC
/// 3168).
pub const FLAG_CWR: u8 = 8;
/// Flag of a data segment: it ends the stream.
pub const FLAG_PSH: u8 = 16;
/// Flag of a reply: the receiver has no such connection.
pub const FLAG_RST: u8 = 32;
/// Flag of an acknowledgement: the first SACK block reports a duplicate (RFC 2883).
pub const FLAG_DSACK: u8 = 64;
/// Flag of a data segment: the connection carried another flow less than a timeout ago. Its
/// receiver does not begin with quick acknowledgements.
pub const FLAG_RESUMED: u8 = 128;

/// A range of bytes in a stream. `end` is excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Whether every byte of `other` is in this range.
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// One segment of the TCP model. Its size must stay at 72 bytes or less, so that a packet slot
/// fills two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpSegment {
    /// Offset of the first payload byte in the stream.
    pub seq: u64,
    /// Cumulative acknowledgement: every byte before this offset has arrived.
    pub ack: u64,
    /// Time of the segment's sender in nanoseconds (RFC 7323).
    pub timestamp_ns: u64,
    /// Timestamp of the peer that is echoed, in nanoseconds (RFC 7323).
    pub timestamp_echo_ns: u64,
    /// SACK blocks as (start, length): see [`TcpSegment::push_sack`]. The start is relative to
    /// `ack`. It is negative for some reports of duplicates.
    pub sack: [(i32, u32); SACK_BLOCKS_MAX],
    /// The flow that the connection carries.
    pub flow: u32,
    /// Payload length in bytes.
    pub payload_bytes: u32,
    /// Bits of the constants `FLAG_*`.
    pub flags: u8,
    /// Number of SACK blocks that are set.
    pub sack_count: u8,
}

impl TcpSegment {
    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the offset after the last payload byte.
    pub const fn end(&self) -> u64 {
        self.seq + self.payload_bytes as u64
    }

    /// Adds a SACK block. Returns false if the segment has no free block, or if the block's start
    /// or length is too large for its field.
    pub fn push_sack(&mut self, block: ByteRange) -> bool {
        let start = i128::from(block.start) - i128::from(self.ack);
        let (Ok(start), Ok(bytes)) =
            (i32::try_from(start), u32::try_from(block.end.saturating_sub(block.start)))
        else {
            return false;
        };
        let Some(slot) = self.sack.get_mut(usize::from(self.sack_count)) else {
            return false;
        };
        *slot = (start, bytes);
        self.sack_count += 1;
        true
    }

    /// Returns the SACK blocks in the order in which they were added. If [`FLAG_DSACK`] is set, the
    /// first block reports a duplicate.
    pub fn sack_blocks(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.sack[..usize::from(self.sack_count)].iter().map(|&(start, bytes)| {
            let start = self.ack.saturating_add_signed(i64::from(start));
            ByteRange { start, end: start + u64::from(bytes) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_leaves_room_for_the_packet_in_two_cache_lines() {
        assert!(size_of::<TcpSegment>() <= 72, "{}", size_of::<TcpSegment>());
    }

    #[test]
    fn sack_blocks_survive_above_and_below_the_cumulative_acknowledgement() {
        let mut segment = TcpSegment { ack: 10_000_000_000, ..TcpSegment::default() };
        let blocks = [
            ByteRange { start: 9_999_991_052, end: 10_000_000_000 },
            ByteRange { start: 10_000_008_948, end: 10_000_017_896 },
            ByteRange { start: 10_000_100_000, end: 10_004_000_000 },
        ];
        for block in blocks {
            assert!(segment.push_sack(block));
        }
        assert!(!segment.push_sack(blocks[0]), "the option is full");
        assert!(segment.sack_blocks().eq(blocks));
    }

    #[test]
    fn sack_block_out_of_reach_is_refused() {
        let mut segment = TcpSegment::default();
        assert!(!segment.push_sack(ByteRange { start: 1 << 40, end: (1 << 40) + 1 }));
        assert_eq!(segment.sack_blocks().count(), 0);
    }
}
