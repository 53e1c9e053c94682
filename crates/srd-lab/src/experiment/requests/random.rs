//! Arrivals, keys and connections from a seed: splitmix64.

use super::protocol::{KEYS, Kind};
use std::time::Duration;

/// One SET in so many requests.
const SET_ONE_IN: usize = 5;

/// A generator; the same seed gives the same numbers.
pub(in crate::experiment) struct Random(u64);

impl Random {
    pub(in crate::experiment) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Zero to below `count`, which is small: the bias is not noticeable.
    pub(in crate::experiment) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap_or(0)
    }

    /// A key that exists.
    pub(super) fn key(&mut self) -> u32 {
        u32::try_from(self.below(KEYS as usize)).unwrap_or(0)
    }

    /// Four GETs to one SET.
    pub(super) fn kind(&mut self) -> Kind {
        if self.below(SET_ONE_IN) == 0 { Kind::Set } else { Kind::Get }
    }

    /// Time to the next of so many arrivals per second.
    pub(in crate::experiment) fn exponential(&mut self, rate: u32) -> Duration {
        // 53 bits, above zero: the logarithm is finite.
        let uniform = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        Duration::from_secs_f64(-uniform.ln() / f64::from(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let mut random = Random::new(7);
        let gaps: Vec<f64> = (0..20_000).map(|_| random.exponential(2000).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 2000.0 - 1.0).abs() < 0.03, "{mean}");
        // The deviation of an exponential is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
    }

    #[test]
    fn one_request_in_five_is_a_set_and_a_seed_repeats() {
        let sets = |seed| {
            let mut random = Random::new(seed);
            (0..10_000).filter(|_| random.kind() == Kind::Set).count()
        };
        assert!((1850..2150).contains(&sets(1)), "{}", sets(1));
        assert_eq!(sets(3), sets(3));
        assert!((0..1000).all(|seed| Random::new(seed).key() < KEYS));
    }
}
