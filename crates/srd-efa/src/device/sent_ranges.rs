//! Byte ranges of the datagrams of a transfer. The range of a datagram that is too large for the
//! path is sent again in smaller datagrams (R13).

use alloc::vec::Vec;

/// Consecutive datagrams of one size, whose bytes follow each other.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Number of the first datagram.
    first: u32,
    /// Offset of the first datagram's first byte in the transfer.
    offset: u32,
    /// Bytes of each datagram.
    bytes: u32,
}

/// Byte ranges of the datagrams of a transfer.
#[derive(Debug, Default)]
pub(super) struct SentRanges {
    /// Number of datagrams that were handed over.
    count: u32,
    /// Rows of datagrams, in the order of sending. Their number is small: the size of datagrams
    /// changes only at the ends of a transfer, and when the path turns out to pass only smaller
    /// packets.
    rows: Vec<Row>,
    /// Byte ranges to send again: start and end of each.
    again: Vec<(u32, u32)>,
}

impl SentRanges {
    /// Returns the part number of the next datagram: the lower 16 bits of the number of earlier
    /// datagrams.
    #[allow(clippy::cast_possible_truncation)] // fewer than 2^16 datagrams are in flight
    pub(super) fn part(&self) -> u16 {
        self.count as u16
    }

    /// Records that a datagram with bytes from `offset` on was handed over.
    pub(super) fn note(&mut self, offset: u32, bytes: u32) {
        let follows = |row: &Row| {
            row.bytes == bytes && row.offset + (self.count - row.first) * bytes == offset
        };
        if !self.rows.last().is_some_and(follows) {
            self.rows.push(Row { first: self.count, offset, bytes });
        }
        self.count += 1;
        if let Some(&(from, to)) = self.again.last()
            && from == offset
        {
            self.again.pop();
            if offset + bytes < to {
                self.again.push((offset + bytes, to));
            }
        }
    }

    /// Handles a datagram that was too large for the path: its bytes are sent again. `part`: part
    /// number of the datagram.
    pub(super) fn refuse(&mut self, part: u16) {
        let back = self.part().wrapping_sub(part);
        let Some(number) = self.count.checked_sub(back.into()) else { return };
        let row = self.rows.iter().rev().find(|row| row.first <= number);
        if let Some(row) = row {
            let from = row.offset + (number - row.first) * row.bytes;
            self.again.push((from, from + row.bytes));
        }
    }

    /// Returns the next range to send again: start and end.
    pub(super) fn again(&self) -> Option<(u32, u32)> {
        self.again.last().copied()
    }

    /// Removes the ranges to send again, because the whole transfer starts again.
    pub(super) fn forget(&mut self) {
        self.again.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_datagrams_go_again_in_as_many_as_it_takes() {
        let mut ranges = SentRanges::default();
        let mut parts = Vec::new();
        for (offset, bytes) in [(0, 72), (72, 100), (172, 100), (272, 100), (372, 28)] {
            parts.push(ranges.part());
            ranges.note(offset, bytes);
        }
        ranges.refuse(parts[2]);
        assert_eq!(ranges.again(), Some((172, 272)));
        let small = ranges.part();
        ranges.note(172, 60);
        assert_eq!(ranges.again(), Some((232, 272)));
        ranges.note(232, 40);
        assert_eq!(ranges.again(), None);
        ranges.refuse(small);
        ranges.refuse(parts[4]);
        assert_eq!(ranges.again(), Some((372, 400)));
        ranges.note(372, 28);
        assert_eq!(ranges.again(), Some((172, 232)));
    }

    #[test]
    fn parts_wrap_around() {
        let mut ranges = SentRanges::default();
        for number in 0..70_000 {
            ranges.note(number * 10, 10);
        }
        let part = ranges.part().wrapping_sub(5000);
        ranges.refuse(part);
        assert_eq!(ranges.again(), Some((650_000, 650_010)));
    }
}
