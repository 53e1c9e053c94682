//! A sliding window over packet numbers: each number is accepted once, and numbers below the window
//! are refused.
//!
//! It serves the control space, whose numbers no other structure tracks. Bound: 2048 numbers below
//! the highest one, in 264 bytes; older numbers are refused even if they are new. Control packets
//! are advisory or idempotent, so a very late packet that is refused costs a repetition, not a
//! loss.
//!
//! A number enters the window only after its packet has authenticated. Before that,
//! [`ReplayWindow::is_fresh`] saves the cost of opening a packet that would be refused.

const WORDS: usize = 32;

/// A window of packet numbers. Bit `n mod 2048` stands for number `n`.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// The highest accepted number plus one; zero if no number was accepted yet.
    end: u64,
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// Size of the window: the largest distance of a number from `end`.
    pub const NUMBERS: u64 = WORDS as u64 * 64;

    /// Returns an empty window, in which every number is fresh.
    pub const fn new() -> Self {
        Self { end: 0, seen: [0; WORDS] }
    }

    /// Whether `number` would be accepted. The window does not change.
    pub fn is_fresh(&self, number: u64) -> bool {
        let (word, bit) = slot(number);
        number >= self.end || (self.end - number <= Self::NUMBERS && self.seen[word] & bit == 0)
    }

    /// Accepts `number` if it is fresh. Returns whether it was. Call it only for packets that
    /// authenticated.
    ///
    /// The last number, 2^64 - 1, is never fresh; packet numbers end far below it.
    pub fn check_and_set(&mut self, number: u64) -> bool {
        if number == u64::MAX || !self.is_fresh(number) {
            return false;
        }
        if number >= self.end {
            self.slide(number + 1);
        }
        let (word, bit) = slot(number);
        self.seen[word] |= bit;
        true
    }

    /// Clears the bits of numbers that leave the window, so that these bits can stand for
    /// `self.end..end`.
    fn slide(&mut self, end: u64) {
        if end - self.end >= Self::NUMBERS {
            self.seen = [0; WORDS];
        } else {
            for number in self.end..end {
                let (word, bit) = slot(number);
                self.seen[word] &= !bit;
            }
        }
        self.end = end;
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(clippy::cast_possible_truncation)] // WORDS is a power of two: no used bit is lost
const fn slot(number: u64) -> (usize, u64) {
    ((number / 64) as usize % WORDS, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_number_is_accepted_once_and_not_from_before_the_window() {
        let mut window = ReplayWindow::new();
        assert!(window.check_and_set(5000));
        assert!(!window.check_and_set(5000));
        assert!(window.check_and_set(5001 - 2048));
        assert!(!window.check_and_set(5000 - 2048));
        assert!(window.check_and_set(4999));
    }

    #[test]
    fn zero_and_the_largest_numbers_are_handled() {
        let mut window = ReplayWindow::new();
        assert!(window.check_and_set(0));
        assert!(!window.check_and_set(0));
        assert!(window.check_and_set(u64::MAX - 1));
        assert!(!window.check_and_set(u64::MAX - 1));
        assert!(!window.check_and_set(u64::MAX));
    }

    #[test]
    fn asking_whether_a_number_is_fresh_changes_nothing() {
        let mut window = ReplayWindow::new();
        assert!(window.is_fresh(9) && window.is_fresh(9));
        assert!(window.check_and_set(9));
        assert!(!window.is_fresh(9));
    }

    proptest! {
        /// Compares with a plain model: the set of all accepted numbers, and the highest of them.
        #[test]
        fn the_window_agrees_with_a_set(
            start in prop_oneof![Just(0_u64), any::<u64>().prop_map(|n| n / 2)],
            steps in proptest::collection::vec(
                prop_oneof![0..200_u64, 0..5000_u64, 0..100_000_u64], 1..600),
        ) {
            let mut window = ReplayWindow::new();
            let mut accepted = BTreeSet::new();
            for step in steps {
                let number = start + step;
                let highest = accepted.last().copied();
                let fresh = highest.is_none_or(|h| number + ReplayWindow::NUMBERS > h)
                    && !accepted.contains(&number);
                prop_assert_eq!(window.is_fresh(number), fresh);
                prop_assert_eq!(window.check_and_set(number), fresh);
                if fresh {
                    accepted.insert(number);
                }
            }
        }

        #[test]
        fn in_order_numbers_are_all_accepted(start in 0..u64::MAX / 2, count in 1..5000_u64) {
            let mut window = ReplayWindow::new();
            prop_assert!((start..start + count).all(|n| window.check_and_set(n)));
            prop_assert!((start..start + count).all(|n| !window.check_and_set(n)));
        }
    }
}
