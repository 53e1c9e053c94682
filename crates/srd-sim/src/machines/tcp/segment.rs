//! A TCP segment in the simulator: fields without bytes.
//!
//! Data flows one way in the model, so a segment is either data (`payload_bytes > 0`) or an
//! acknowledgement. Offsets are those of the stream, 64 bits wide, so nothing wraps.

/// Largest number of SACK blocks that fit beside a timestamp option (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 3;

/// Opens the connection: first segment of a handshake, or data of a connection whose peer has not
/// sent anything yet.
pub const FLAG_SYN: u8 = 1;
/// The fields of an acknowledgement are set.
pub const FLAG_ACK: u8 = 2;
/// Congestion experienced, echoed to the sender (RFC 3168; per segment in RFC 8257).
pub const FLAG_ECE: u8 = 4;
/// Congestion window reduced: the echo may stop (RFC 3168).
pub const FLAG_CWR: u8 = 8;
/// The segment ends a message of the application.
pub const FLAG_PSH: u8 = 16;
/// The receiver has no such connection.
pub const FLAG_RST: u8 = 32;
/// The first SACK block reports a duplicate (RFC 2883).
pub const FLAG_DSACK: u8 = 64;
/// The connection carried another flow until just now: its receiver is past the quick
/// acknowledgements of the beginning.
pub const FLAG_RESUMED: u8 = 128;

/// A run of bytes in a stream, `end` excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
}

impl ByteRange {
    /// Whether every byte of `other` is in this range.
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// One segment. Its size must stay at 72 bytes or less, so that a packet slot fills two cache
/// lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpSegment {
    /// Offset of the first payload byte in the stream.
    pub seq: u64,
    /// Every byte before this offset has arrived.
    pub ack: u64,
    /// The sender's clock, in nanoseconds (RFC 7323).
    pub timestamp_ns: u64,
    /// The peer's clock, echoed.
    pub timestamp_echo_ns: u64,
    /// SACK blocks as (start, length): see [`TcpSegment::push_sack`]. The start is relative to
    /// `ack`, and below it for some duplicates.
    pub sack: [(i32, u32); SACK_BLOCKS_MAX],
    /// The flow that the connection carries.
    pub flow: u32,
    /// Payload length.
    pub payload_bytes: u32,
    /// `FLAG_*`.
    pub flags: u8,
    /// Number of SACK blocks that are set.
    pub sack_count: u8,
}

impl TcpSegment {
    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The offset after the last payload byte.
    pub const fn end(&self) -> u64 {
        self.seq + self.payload_bytes as u64
    }

    /// Adds a SACK block. Returns false if the option is full or the block is out of its reach.
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

    /// The SACK blocks, in the order they were added. The first is a duplicate's if
    /// [`FLAG_DSACK`] is set.
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
