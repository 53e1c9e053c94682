//! Random numbers from a seed: splitmix64.

use std::time::Duration;

/// A generator; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from zero to below `count`. `count` is small, so the bias is negligible.
    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next_u64() % count as u64).unwrap_or(0)
    }

    /// Returns a random time to the next arrival, for `rate` arrivals per second.
    pub fn exponential(&mut self, rate: u32) -> Duration {
        // A number of 53 bits above zero, so the logarithm is finite.
        let uniform = ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        Duration::from_secs_f64(-uniform.ln() / f64::from(rate))
    }
}

/// Maps each input to a different output; similar inputs give unrelated outputs.
pub fn mix(bits: u64) -> u64 {
    let z = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
        // The standard deviation of an exponential distribution equals its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
    }
}
