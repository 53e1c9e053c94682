//! The received packets: a window over the peer's PSN space, `[floor, floor + window)`.
//!
//! There are two bits per PSN: *received* (this packet arrived, for the SACK) and *delivered* (the
//! datagram with this identity was delivered, for at-most-once). The floor that every packet
//! carries moves the window, so a packet that is lost for ever cannot block it.
//!
//! The number of bits depends on the distance between the floor and the highest received PSN: for a
//! sender with few packets in flight, one word of each kind is enough.

use alloc::boxed::Box;
use alloc::vec;

/// Relation of a packet to the packets received before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The packet is the first one of its datagram that has arrived.
    New,
    /// A packet that was received before.
    Replay,
    /// A new packet of a datagram that was delivered before.
    Duplicate,
    /// A packet below the floor or beyond the window.
    Outside,
}

/// The receive window of a context: the PSNs that have arrived or may arrive.
#[derive(Debug)]
pub(crate) struct Received {
    /// *Received* bits of the PSNs from the floor to the highest received. The number of words is a
    /// power of two.
    received: Box<[u64]>,
    /// *Delivered* bits of the PSNs from the floor to the highest received. It has as many words as
    /// `received`.
    delivered: Box<[u64]>,
    /// Size of the window: a PSN is outside if it is the floor plus this number, or beyond.
    window: u64,
    floor: u64,
    cumulative: u64,
    /// Highest PSN received, plus one.
    highest: u64,
}

impl Received {
    /// Creates a window of `packets` PSNs, a power of two of at least 64.
    pub(crate) fn new(packets: u16) -> Self {
        debug_assert!(packets >= 64 && packets.is_power_of_two());
        Self {
            received: Box::new([0]),
            delivered: Box::new([0]),
            window: packets.into(),
            floor: 0,
            cumulative: 0,
            highest: 0,
        }
    }

    /// Cumulative point: the lowest PSN that is not settled.
    pub(crate) fn cumulative(&self) -> u64 {
        self.cumulative
    }

    /// Lowest PSN that may still arrive.
    #[cfg(debug_assertions)]
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Highest PSN received, plus one.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Number of PSNs from the floor that the allocated bits cover.
    fn covered(&self) -> u64 {
        self.received.len() as u64 * 64
    }

    fn index(&self, psn: u64) -> (usize, u64) {
        let mask = self.received.len() as u64 - 1;
        // The mask bounds the value below the table's length.
        (usize::try_from((psn / 64) & mask).unwrap_or(0), 1 << (psn % 64))
    }

    fn has(&self, psn: u64) -> bool {
        let (word, bit) = self.index(psn);
        self.received[word] & bit != 0
    }

    /// Compares packet `psn`, of the datagram with the identity `first`, with the packets received
    /// before. `first <= psn`. `floor`: the floor that the packet carries.
    pub(crate) fn classify(&self, psn: u64, first: u64, floor: u64) -> Arrival {
        let floor = floor.max(self.floor);
        // D6: Window of PSNs
        if psn < floor || first < floor || psn >= floor + self.window {
            return Arrival::Outside;
        }
        if psn < self.highest && self.has(psn) {
            return Arrival::Replay;
        }
        // D2: Deliver at most once
        let (word, bit) = self.index(first);
        if first < self.highest && self.delivered[word] & bit != 0 {
            return Arrival::Duplicate;
        }
        Arrival::New
    }

    /// Raises the floor, and clears the bits of all PSNs below the new floor.
    pub(crate) fn advance_floor(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        // Clear whole words that leave the window, then the part of the word that stays.
        if floor - self.floor >= self.covered() {
            self.received.fill(0);
            self.delivered.fill(0);
        } else {
            let mut psn = self.floor;
            while psn < floor {
                let (word, _) = self.index(psn);
                let end = (psn | 63) + 1;
                // Bits below the old floor already belong to the far end of the window.
                let far = (1 << (psn % 64)) - 1;
                let keep = far | if end <= floor { 0 } else { u64::MAX << (floor % 64) };
                self.received[word] &= keep;
                self.delivered[word] &= keep;
                psn = end;
            }
        }
        self.floor = floor;
        self.highest = self.highest.max(floor);
        if self.cumulative < floor {
            self.cumulative = floor;
            self.advance_cumulative();
        }
    }

    /// Records packet `psn` of the datagram with the identity `first`. Both PSNs are within the
    /// window.
    pub(crate) fn record(&mut self, psn: u64, first: u64) {
        if psn >= self.floor + self.covered() {
            self.resize(psn + 1);
        }
        let (word, bit) = self.index(psn);
        self.received[word] |= bit;
        let (word, bit) = self.index(first);
        self.delivered[word] |= bit;
        self.highest = self.highest.max(psn + 1);
        if psn == self.cumulative {
            self.advance_cumulative();
        }
    }

    /// Number of words of *received* bits, and of *delivered* bits, that the PSNs from the floor to
    /// `end` need.
    fn words_for(&self, end: u64) -> usize {
        let words = (end - self.floor).div_ceil(64).next_power_of_two();
        usize::try_from(words).unwrap_or(usize::MAX)
    }

    /// Whether more bits are allocated than the PSNs up to the highest need.
    pub(crate) fn may_shrink(&self) -> bool {
        self.words_for(self.highest) < self.received.len()
    }

    /// Releases the bits that no PSN up to the highest needs.
    pub(crate) fn shrink(&mut self) {
        self.resize(self.highest);
    }

    /// Allocates bits for the PSNs from the floor to `end`, and copies the present bits.
    #[cold]
    fn resize(&mut self, end: u64) {
        let words = self.words_for(end);
        if words == self.received.len() {
            return;
        }
        let before = [core::mem::take(&mut self.received), core::mem::take(&mut self.delivered)];
        let mut after = [vec![0; words], vec![0; words]];
        let mask = |len: usize| len as u64 - 1;
        let mut start = self.floor & !63;
        while start < self.highest {
            // Both ends of the window may be in one word: each copies only its own bits.
            let mut bits = u64::MAX << (self.floor.max(start) - start);
            if self.highest - start < 64 {
                bits &= (1 << (self.highest - start)) - 1;
            }
            let index = |len| usize::try_from((start / 64) & mask(len)).unwrap_or(0);
            for (before, after) in before.iter().zip(&mut after) {
                after[index(words)] |= before[index(before.len())] & bits;
            }
            start += 64;
        }
        let [received, delivered] = after;
        (self.received, self.delivered) = (received.into(), delivered.into());
    }

    fn advance_cumulative(&mut self) {
        while self.cumulative < self.highest {
            let (word, _) = self.index(self.cumulative);
            let missing = !self.received[word] >> (self.cumulative % 64);
            let run = u64::from(missing.trailing_zeros()).min(64 - self.cumulative % 64);
            if run == 0 {
                return;
            }
            self.cumulative = (self.cumulative + run).min(self.highest);
        }
    }

    /// Writes the SACK words from the word of PSN `from` up to the highest PSN. `from` is at most
    /// the cumulative point. Returns the number of words.
    pub(crate) fn sack(&self, from: u64, out: &mut [u64]) -> usize {
        let start = from & !63;
        let mut n = 0;
        let mut psn = start;
        while psn < self.highest && n < out.len() {
            let (word, _) = self.index(psn);
            let mut bits = self.received[word];
            if psn < self.floor {
                // The low part of this word contains the far end of the window.
                bits &= u64::MAX << (self.floor % 64);
            }
            if self.highest - psn < 64 {
                bits &= (1 << (self.highest - psn)) - 1;
            }
            out[n] = bits;
            n += 1;
            psn += 64;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cumulative_crosses_words_and_stops_at_the_first_hole() {
        let mut r = Received::new(256);
        for psn in (0..130).filter(|p| *p != 70) {
            r.record(psn, psn);
        }
        assert_eq!((r.cumulative(), r.highest()), (70, 130));
        r.record(70, 70);
        assert_eq!(r.cumulative(), 130);
    }

    #[test]
    fn a_retransmission_of_a_delivered_datagram_is_a_duplicate() {
        let mut r = Received::new(64);
        r.record(3, 3);
        assert_eq!(r.classify(9, 3, 0), Arrival::Duplicate);
        assert_eq!(r.classify(3, 3, 0), Arrival::Replay);
        assert_eq!(r.classify(9, 4, 0), Arrival::New);
        assert_eq!(r.classify(64, 64, 0), Arrival::Outside);
        assert_eq!(r.classify(64, 64, 1), Arrival::New);
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(
            ops in proptest::collection::vec((0u64..900, 0u64..8, 0u64..300), 1..400),
            stride in 1u64..10,
        ) {
            let mut r = Received::new(1024);
            let (mut received, mut delivered) = (BTreeSet::new(), BTreeSet::new());
            let (mut floor, mut top) = (0u64, 0u64);
            for (ahead, back, lift) in ops {
                floor = (floor + lift / 10).min(top);
                r.advance_floor(floor);
                let psn = floor + ahead / stride;
                if lift == 7 {
                    r.shrink();
                }
                let first = psn.saturating_sub(back).max(floor);
                let expected = if received.contains(&psn) {
                    Arrival::Replay
                } else if delivered.contains(&first) {
                    Arrival::Duplicate
                } else {
                    Arrival::New
                };
                prop_assert_eq!(r.classify(psn, first, floor), expected);
                if expected != Arrival::Replay {
                    r.record(psn, first);
                    received.insert(psn);
                    delivered.insert(first);
                }
                top = top.max(psn + 1);
                let cumulative = (floor..).find(|p| !received.contains(p)).unwrap();
                prop_assert_eq!(r.cumulative(), cumulative);
                let mut words = [0; 16];
                let n = r.sack(r.cumulative(), &mut words);
                let start = cumulative & !63;
                let seen: Vec<u64> = (0..n as u64 * 64)
                    .filter(|i| words[usize::try_from(i / 64).unwrap()] >> (i % 64) & 1 == 1)
                    .map(|i| start + i).filter(|p| *p >= cumulative).collect();
                let expected: Vec<u64> = received.range(cumulative..).copied().collect();
                prop_assert_eq!(seen, expected);
            }
        }
    }
}
