//! Random choices for the plan of a soak test.

use srd_proto::rng::Rng;

/// A source of random choices that follow from a seed.
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// Returns true with the given probability in percent.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.0.below(100) < percent
    }

    /// Returns a random item.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let count = u32::try_from(items.len()).expect("few items");
        items[self.0.below(count) as usize]
    }

    /// Returns a random number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.below(high - low + 1)
    }

    /// Returns a random number from `low` to `high`. All orders of magnitude are equally likely.
    pub(super) fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let share = (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let value = low as f64 * (high as f64 / low as f64).powf(share);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the bounds
        let value = value.round() as u64;
        value.clamp(low, high)
    }

    /// Returns a random time from `low` to `high` microseconds.
    pub(super) fn us(&mut self, low: f64, high: f64) -> f64 {
        let share = f64::from(self.0.below(1 << 20)) / f64::from(1 << 20);
        low + (high - low) * share
    }

    /// Puts a slice into random order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }
}
