//! The sender's record of every segment in flight: a ring in stream order. A list through the
//! records gives the order of transmission for RACK (the time list).
//!
//! Counts are in segments, as in Linux: `in_flight = outstanding - sacked - lost + resent`. A
//! record is in the time list while its latest transmission is neither SACKed nor marked lost. The
//! ring grows to the largest window so far, which the configuration bounds, and never shrinks.

use srd_proto::time::Instant;

use super::segment::{ByteRange, SACK_BLOCKS_MAX};

const NONE: u32 = u32::MAX;
const SACKED: u8 = 1;
const LOST: u8 = 2;
/// Flag of a segment: its retransmission is in flight.
const RESENT: u8 = 4;
/// Flag of a segment: it was retransmitted at least once.
const EVER_RESENT: u8 = 8;

/// Record of a segment in flight.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Offset of the segment's first byte in the stream.
    pub seq: u64,
    /// Time of the segment's latest transmission.
    pub sent_at: Instant,
    /// Payload length, in bytes.
    pub bytes: u32,
    previous: u32,
    next: u32,
    flags: u8,
}

impl Record {
    const EMPTY: Self =
        Self { seq: 0, sent_at: Instant::ZERO, bytes: 0, previous: NONE, next: NONE, flags: 0 };

    /// Returns the offset after the segment's last byte.
    pub const fn end(&self) -> u64 {
        self.seq + self.bytes as u64
    }

    /// Whether the segment was ever retransmitted. Its round trip is then ambiguous.
    pub const fn was_resent(&self) -> bool {
        self.flags & EVER_RESENT != 0
    }

    const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Effects of one acknowledgement on the scoreboard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Number of segments that were acknowledged or SACKed for the first time.
    pub delivered: u32,
    /// Number of segments that were acknowledged cumulatively.
    pub acked: u32,
    /// Number of segments that were SACKed for the first time.
    pub sacked: u32,
    /// Transmission time of the first cumulatively acknowledged segment among those sent only once.
    pub first_acked_at: Option<Instant>,
    /// Transmission time of the last cumulatively acknowledged segment among those sent only once.
    pub last_acked_at: Option<Instant>,
    /// Transmission time of the first newly SACKed segment among those sent only once.
    pub first_sacked_at: Option<Instant>,
    /// Transmission time of the last newly SACKed segment among those sent only once.
    pub last_sacked_at: Option<Instant>,
    /// Whether a retransmitted segment was acknowledged cumulatively.
    pub resent_acked: bool,
    /// Whether a segment below the recovery point that was sent only once was delivered.
    pub original_delivered: bool,
    /// Whether a segment that was sent only once arrived after a later segment.
    pub reordered: bool,
}

/// The sender's record of every segment in flight.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    // Records of segments: a segment's index is its number modulo the length, which is a power of
    // two.
    ring: Vec<Record>,
    // Segment numbers: `first` is the oldest outstanding segment, `next` the next segment to be
    // sent.
    first: u32,
    next: u32,
    // First and last segment of the time list.
    oldest: u32,
    newest: u32,
    sacked: u32,
    lost: u32,
    resent: u32,
    // Lower bound of the segments that wait for retransmission.
    lost_hint: u32,
    // End of the highest SACKed segment, as a stream offset.
    sacked_end: u64,
    // SACK blocks of the previous acknowledgement. All their segments are already marked.
    seen: [ByteRange; SACK_BLOCKS_MAX],
}

impl Default for Scoreboard {
    fn default() -> Self {
        Self {
            ring: vec![Record::EMPTY; 16],
            first: 0,
            next: 0,
            oldest: NONE,
            newest: NONE,
            sacked: 0,
            lost: 0,
            resent: 0,
            lost_hint: 0,
            sacked_end: 0,
            seen: [ByteRange::default(); SACK_BLOCKS_MAX],
        }
    }
}

impl Scoreboard {
    /// Returns the number of segments that were sent and are not cumulatively acknowledged.
    pub const fn outstanding(&self) -> u32 {
        self.next - self.first
    }

    /// Returns the number of outstanding segments that SACK reported as arrived.
    pub const fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Returns the number of segments that count as lost, whether or not they were retransmitted.
    pub const fn lost(&self) -> u32 {
        self.lost
    }

    /// Returns the number of retransmissions in flight.
    pub const fn resent(&self) -> u32 {
        self.resent
    }

    /// Returns the number of segments that count as being in the network.
    pub const fn in_flight(&self) -> u32 {
        self.outstanding() - self.sacked - self.lost + self.resent
    }

    /// Returns the first unacknowledged segment; `None` if every segment is acknowledged.
    pub fn head(&self) -> Option<&Record> {
        (self.outstanding() > 0).then(|| self.record(self.first))
    }

    /// Returns the number of the last segment that was sent; `None` if every segment is
    /// acknowledged.
    pub fn tail(&self) -> Option<u32> {
        (self.outstanding() > 0).then(|| self.next - 1)
    }

    /// Returns the record of segment `number`, which must be outstanding.
    pub fn record(&self, number: u32) -> &Record {
        &self.ring[number as usize & (self.ring.len() - 1)]
    }

    fn slot(&mut self, number: u32) -> &mut Record {
        let mask = self.ring.len() - 1;
        &mut self.ring[number as usize & mask]
    }

    /// Removes all records, and keeps the memory.
    pub fn clear(&mut self) {
        let ring = std::mem::take(&mut self.ring);
        *self = Self { ring, ..Self::default() };
    }

    /// Adds a new segment, which is sent at `now`.
    pub fn push(&mut self, seq: u64, bytes: u32, now: Instant) {
        if self.outstanding() as usize == self.ring.len() {
            self.grow();
        }
        let number = self.next;
        self.next += 1;
        *self.slot(number) = Record { seq, bytes, sent_at: now, ..Record::EMPTY };
        self.link_newest(number);
    }

    fn grow(&mut self) {
        let mut ring = vec![Record::EMPTY; 2 * self.ring.len()];
        let mask = ring.len() - 1;
        for number in self.first..self.next {
            ring[number as usize & mask] = *self.record(number);
        }
        self.ring = ring;
    }

    fn link_newest(&mut self, number: u32) {
        let previous = self.newest;
        let slot = self.slot(number);
        slot.previous = previous;
        slot.next = NONE;
        match previous {
            NONE => self.oldest = number,
            _ => self.slot(previous).next = number,
        }
        self.newest = number;
    }

    fn unlink(&mut self, number: u32) {
        let Record { previous, next, .. } = *self.record(number);
        match previous {
            NONE => self.oldest = next,
            _ => self.slot(previous).next = next,
        }
        match next {
            NONE => self.newest = previous,
            _ => self.slot(next).previous = previous,
        }
    }

    fn in_time_list(record: &Record) -> bool {
        !record.is(SACKED) && (!record.is(LOST) || record.is(RESENT))
    }

    /// Records a retransmission of segment `number`.
    pub fn resend(&mut self, number: u32, now: Instant) {
        let record = *self.record(number);
        debug_assert!(!record.is(SACKED), "what arrived is not sent again");
        if Self::in_time_list(&record) {
            self.unlink(number);
        }
        self.resent += u32::from(!record.is(RESENT));
        let slot = self.slot(number);
        slot.flags |= RESENT | EVER_RESENT;
        slot.sent_at = now;
        self.link_newest(number);
    }

    /// Marks the latest transmission of segment `number` lost. Returns false if it was lost or
    /// SACKed before.
    pub fn mark_lost(&mut self, number: u32) -> bool {
        let record = *self.record(number);
        if !Self::in_time_list(&record) {
            return false;
        }
        self.unlink(number);
        self.resent -= u32::from(record.is(RESENT));
        self.lost += u32::from(!record.is(LOST));
        let slot = self.slot(number);
        slot.flags = (slot.flags | LOST) & !RESENT;
        self.lost_hint = self.lost_hint.min(number);
        true
    }

    /// Removes the mark from every segment that counts as lost, because the loss proved not to be
    /// real.
    pub fn forget_losses(&mut self) {
        for number in self.first..self.next {
            let record = *self.record(number);
            if !record.is(LOST) {
                continue;
            }
            if !Self::in_time_list(&record) {
                // The record is appended after newer records. Its age is checked when the search
                // reaches it.
                self.link_newest(number);
            }
            self.slot(number).flags &= !LOST;
        }
        self.lost = 0;
    }

    /// Returns the first segment that waits for retransmission; `None` if no segment waits.
    pub fn next_lost(&mut self) -> Option<u32> {
        if self.lost == 0 {
            return None;
        }
        let mut number = self.lost_hint.max(self.first);
        while number < self.next {
            let record = self.record(number);
            if record.is(LOST) && !record.is(RESENT) {
                self.lost_hint = number;
                return Some(number);
            }
            number += 1;
        }
        self.lost_hint = number;
        None
    }

    /// Returns the segment with the oldest transmission that is neither SACKed nor marked lost.
    pub fn oldest_sent(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Returns the segment that was transmitted next after segment `number`, among those neither
    /// SACKed nor marked lost.
    pub fn next_sent(&self, number: u32) -> Option<u32> {
        let next = self.record(number).next;
        (next != NONE).then_some(next)
    }

    /// Returns the numbers of the outstanding segments, in stream order.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        self.first..self.next
    }

    /// Whether segment `number` is SACKed.
    pub fn is_sacked(&self, number: u32) -> bool {
        self.record(number).is(SACKED)
    }

    /// Marks the segments in the SACK blocks of one acknowledgement, and calls `delivered` for each
    /// segment that was not marked before. Segments below `recovery_point` may set
    /// [`Progress::original_delivered`].
    pub fn on_sack(
        &mut self,
        blocks: impl Iterator<Item = ByteRange>,
        recovery_point: u64,
        progress: &mut Progress,
        mut delivered: impl FnMut(&Record),
    ) {
        let mut now_seen = [ByteRange::default(); SACK_BLOCKS_MAX];
        let old_sacked_end = self.sacked_end;
        for (block, seen) in blocks.zip(&mut now_seen) {
            *seen = block;
            let mut number = self.number_at(block.start);
            while number < self.next {
                let record = *self.record(number);
                if record.end() > block.end {
                    break;
                }
                if let Some(known) = self.seen.iter().find(|known| known.contains(range(&record))) {
                    // The previous acknowledgement reported these segments, so they are skipped.
                    number = self.number_at(known.end.min(block.end)).max(number + 1);
                    continue;
                }
                if !record.is(SACKED) {
                    self.mark_sacked(number, old_sacked_end, recovery_point, progress);
                    delivered(&record);
                }
                number += 1;
            }
        }
        self.seen = now_seen;
    }

    fn mark_sacked(
        &mut self,
        number: u32,
        old_sacked_end: u64,
        recovery_point: u64,
        progress: &mut Progress,
    ) {
        let record = *self.record(number);
        self.leave_network(number, &record);
        let slot = self.slot(number);
        slot.flags = (slot.flags | SACKED) & !(LOST | RESENT);
        self.sacked += 1;
        self.sacked_end = self.sacked_end.max(record.end());
        progress.sacked += 1;
        progress.delivered += 1;
        if !record.was_resent() {
            progress.reordered |= record.seq < old_sacked_end;
            progress.original_delivered |= record.end() <= recovery_point;
            progress.first_sacked_at.get_or_insert(record.sent_at);
            progress.last_sacked_at = Some(record.sent_at);
        }
    }

    // Removes a record that is not SACKed from the time list and from the counts of lost and
    // retransmitted segments.
    fn leave_network(&mut self, number: u32, record: &Record) {
        if Self::in_time_list(record) {
            self.unlink(number);
        }
        self.lost -= u32::from(record.is(LOST));
        self.resent -= u32::from(record.is(RESENT));
    }

    /// Removes the segments before byte `ack`, and calls `delivered` for each segment that was not
    /// SACKed before.
    pub fn on_ack(
        &mut self,
        ack: u64,
        recovery_point: u64,
        progress: &mut Progress,
        mut delivered: impl FnMut(&Record),
    ) {
        while self.first < self.next {
            let record = *self.record(self.first);
            if record.end() > ack {
                break;
            }
            progress.acked += 1;
            progress.resent_acked |= record.was_resent();
            if record.is(SACKED) {
                self.sacked -= 1;
            } else {
                self.leave_network(self.first, &record);
                progress.delivered += 1;
                delivered(&record);
                if !record.was_resent() {
                    progress.reordered |= record.seq < self.sacked_end;
                    progress.original_delivered |= record.end() <= recovery_point;
                    progress.first_acked_at.get_or_insert(record.sent_at);
                    progress.last_acked_at = Some(record.sent_at);
                }
            }
            self.first += 1;
        }
        self.lost_hint = self.lost_hint.max(self.first);
        if self.sacked_end <= ack {
            self.sacked_end = 0;
        }
    }

    // Returns the first outstanding segment that begins at or after `seq`.
    fn number_at(&self, seq: u64) -> u32 {
        let (mut low, mut high) = (self.first, self.next);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.record(middle).seq < seq {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

const fn range(record: &Record) -> ByteRange {
    ByteRange { start: record.seq, end: record.end() }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
