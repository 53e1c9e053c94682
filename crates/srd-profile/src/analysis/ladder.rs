//! Determines the need of traffic: the least rate of a token bucket that would have let all packets
//! pass at once.
//!
//! A ladder has a bucket for each rate, in steps of the factor [`STEP`]; the arrivals of a bin (a
//! short interval) are taken from all buckets. If a bin exceeds a bucket, this bucket and all
//! slower buckets are excluded. The least remaining rate is the need. The buckets follow
//! `srd_card::limits`, but count the tokens that are missing from a full bucket.
//!
//! Cost: only the buckets from the slowest remaining one up to the rate of the largest bin are
//! updated. A faster bucket is full again when the next bin arrives.
#![allow(clippy::cast_possible_truncation)] // rates, times and counts, far below 2^64

/// Factor from the rate of a bucket to the next higher rate.
pub(crate) const STEP: f64 = 1.02;
/// Tolerance: amount above a rate that may pass at once, in seconds at that rate. Instance types
/// have the same.
const TOLERANCE_S: f64 = 1e-3;

/// Buckets of ascending rates, each with the number of its missing tokens.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    rates: Vec<f64>,
    missing: Vec<f64>,
    /// Index of the slowest bucket that no bin has exceeded.
    low: usize,
    /// Index from which buckets are always full again when the next bin arrives.
    high: usize,
    bin_s: f64,
    at_ns: Option<u64>,
}

impl Ladder {
    /// Returns a ladder of rates from `least` to `most` per second, for bins of `bin_ns`
    /// nanoseconds.
    pub(crate) fn new(least: f64, most: f64, bin_ns: u64) -> Self {
        let rates = steps(least, most);
        let missing = vec![0.0; rates.len()];
        Self { rates, missing, low: 0, high: 0, bin_s: bin_ns as f64 / 1e9, at_ns: None }
    }

    /// Adds the arrivals of a bin that ended at `end_ns`; each bin must be added once, in order.
    pub(crate) fn add(&mut self, end_ns: u64, amount: f64) {
        let before = self.at_ns.replace(end_ns).unwrap_or(end_ns);
        let passed_s = end_ns.saturating_sub(before) as f64 / 1e9;
        while self.high < self.rates.len() && self.rates[self.high] * self.bin_s < amount {
            self.high += 1;
        }
        let mut slow = self.low;
        for n in self.low..self.high {
            let rate = self.rates[n];
            let missing = (self.missing[n] - rate * passed_s).max(0.0) + amount;
            self.missing[n] = missing;
            if missing > rate * TOLERANCE_S {
                slow = n + 1;
            }
        }
        self.low = slow;
    }

    /// Returns the least rate at which no packet would have waited; zero if even the slowest rate
    /// suffices, infinity if the fastest rate does not suffice.
    pub(crate) fn need(&self) -> f64 {
        match self.low {
            0 => 0.0,
            low => self.rates.get(low).copied().unwrap_or(f64::INFINITY),
        }
    }
}

/// Largest backlog of a link with a steady rate, for each rate in steps of the factor [`STEP`]. At
/// an instance's baseline rate, credits have to cover this amount.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    rates: Vec<f64>,
    behind: Vec<f64>,
    most: Vec<f64>,
    at_ns: Option<u64>,
}

impl Backlog {
    pub(crate) fn new(least: f64, most: f64) -> Self {
        let rates = steps(least, most);
        let zeros = vec![0.0; rates.len()];
        Self { rates, behind: zeros.clone(), most: zeros, at_ns: None }
    }

    /// Adds `amount`, which arrived since the previous call and by `end_ns`.
    pub(crate) fn add(&mut self, end_ns: u64, amount: f64) {
        let before = self.at_ns.replace(end_ns).unwrap_or(end_ns);
        let passed_s = end_ns.saturating_sub(before) as f64 / 1e9;
        for (n, rate) in self.rates.iter().enumerate() {
            let behind = (self.behind[n] - rate * passed_s).max(0.0) + amount;
            self.behind[n] = behind;
            self.most[n] = self.most[n].max(behind);
        }
    }

    /// Returns the largest backlog at a rate. It is the backlog of the next slower rate in the
    /// table, so it may be too large, but not too small.
    pub(crate) fn of(&self, rate: f64) -> f64 {
        let at = self.rates.partition_point(|known| *known <= rate);
        self.most[at.saturating_sub(1)]
    }
}

fn steps(least: f64, most: f64) -> Vec<f64> {
    std::iter::successors(Some(least), |rate| Some(rate * STEP))
        .take_while(|rate| *rate < most * STEP)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIN_NS: u64 = 100_000;

    fn ladder() -> Ladder {
        Ladder::new(1e6, 1e12, BIN_NS)
    }

    /// Traffic at a steady rate passes buckets of a slightly higher rate, but no slower bucket.
    #[test]
    fn a_steady_rate_needs_itself() {
        for rate in [3e6, 1e9, 4e10] {
            let mut ladder = ladder();
            for bin in 1..100_000 {
                ladder.add(bin * BIN_NS, rate * 1e-4);
            }
            let need = ladder.need();
            assert!((rate * 0.97..=rate * STEP).contains(&need), "{rate} {need}");
        }
    }

    /// The result equals the least rate of the card's bucket at which no packet of the same traffic
    /// waits.
    #[test]
    fn the_need_is_the_least_rate_at_which_the_cards_bucket_holds_nothing_up() {
        use srd_card::limits::Bucket;
        use srd_proto::time::{Duration, Instant};
        // Bins with gaps of 1 to 37 bins, and 10,000 to 370,000 bits.
        let mut bin = 0;
        let bursts: Vec<(u64, u64)> = (0..400_u64)
            .map(|n| {
                bin += n * n % 37 + 1;
                (bin, 10_000 + n * 7919 % 90_000 * (n % 5))
            })
            .collect();
        let mut ladder = ladder();
        bursts.iter().for_each(|(bin, bits)| ladder.add(bin * BIN_NS, *bits as f64));
        let waits = |rate: u64| {
            let mut bucket = Bucket::new(rate, rate / 1000, Instant::ZERO);
            bursts.iter().any(|(bin, bits)| {
                let wait =
                    bucket.take(Instant::from_nanos(bin * BIN_NS), *bits, Duration::from_secs(9));
                wait != Ok(Duration::ZERO)
            })
        };
        let need = ladder.need() as u64;
        assert!(!waits(need + 2000), "{need}");
        assert!(waits((need as f64 / STEP / STEP) as u64), "{need}");
    }

    #[test]
    fn nothing_needs_nothing_and_too_much_has_no_end() {
        let mut ladder = ladder();
        assert_eq!(ladder.need(), 0.0);
        ladder.add(BIN_NS, 100.0);
        assert_eq!(ladder.need(), 0.0);
        ladder.add(2 * BIN_NS, 1e12);
        assert!(ladder.need().is_infinite());
    }

    #[test]
    fn a_backlog_is_what_credits_pay() {
        let mut backlog = Backlog::new(1e6, 1e12);
        for tenth in 1..=100 {
            backlog.add(tenth * 100_000_000, if tenth <= 50 { 2e8 } else { 0.0 });
        }
        // Arrivals of 2 Gb/s for 5 s at a rate of 1 Gb/s: 5 Gb are left at the end.
        let missing = backlog.of(1e9);
        assert!((5.0e9..5.4e9).contains(&missing), "{missing}");
        assert!(backlog.of(3e9) < 2.1e8);
        assert!(backlog.of(1.0) > 9e9, "a rate below all is taken for the least");
    }
}
