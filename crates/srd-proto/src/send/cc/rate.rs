//! Estimate of the network's rate, from the delivery rate.
//!
//! The delivery rate is measured over periods of about one round trip. A period counts only if the
//! sender used at least half of its window, because the delivery rate of a sender with little to
//! send is no measure of the network. On a slow link a period is a few packets, whose
//! acknowledgements come in bursts, and a shaper passes some packets at once before it enforces its
//! rate. Therefore the rate is averaged over [`SPAN`], and the estimate is the highest average of
//! the last five to ten seconds. Until half of [`SPAN`] has been observed, the estimate is the
//! average of the last few periods, so that the rate of a fast link is available soon.

// Rates and times are far below 2^53; conversions are clamped.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

use crate::time::{Duration, Instant};

/// Time over which a rate is averaged.
const SPAN: Duration = Duration::from_millis(50);
/// Number of periods over which the first estimate is averaged.
const PERIODS: f64 = 8.0;
/// Duration of a generation. The estimate is the highest average rate of the present and the
/// previous generation.
const GENERATION: Duration = Duration::from_secs(5);

/// Bits and the time that they took, summed over periods. An older period has less weight than a
/// newer period.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    bits: f64,
    ns: f64,
}

impl Average {
    /// Adds a period. `keep` is the factor by which the weight of all earlier periods is reduced.
    fn take(&mut self, bits: f64, ns: f64, keep: f64) {
        self.bits = self.bits * keep + bits;
        self.ns = self.ns * keep + ns;
    }

    fn bps(&self) -> u64 {
        if self.ns > 0.0 { (self.bits * 1e9 / self.ns) as u64 } else { 0 }
    }
}

/// The estimator of the network's rate for one context.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Average over the last few periods, used before `long` covers enough time.
    first: Average,
    /// Average over [`SPAN`].
    long: Average,
    /// Highest average rates in the present and in the previous generation.
    highest_bps: [u64; 2],
    generation_ends: Instant,
}

impl Rate {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            first: Average::default(),
            long: Average::default(),
            highest_bps: [0; 2],
            generation_ends: now + GENERATION,
        }
    }

    /// Adds a period in which the sender used its window.
    pub(crate) fn on_period(&mut self, now: Instant, bytes: u64, elapsed: Duration) {
        // C6: Bandwidth-delay product
        let (bits, ns) = (bytes as f64 * 8.0, elapsed.as_nanos() as f64);
        let span = SPAN.as_nanos() as f64;
        self.first.take(bits, ns, 1.0 - 1.0 / PERIODS);
        self.long.take(bits, ns, (1.0 - ns / span).max(0.0));
        if self.long.ns < span / 2.0 {
            return;
        }
        if now >= self.generation_ends {
            self.generation_ends = now + GENERATION;
            self.highest_bps = [0, self.highest_bps[0]];
        }
        self.highest_bps[0] = self.highest_bps[0].max(self.long.bps());
    }

    /// Estimated rate in bits per second; zero: not known.
    pub(crate) fn bps(&self) -> u64 {
        let highest = self.highest_bps[0].max(self.highest_bps[1]);
        if highest > 0 { highest } else { self.first.bps() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// On slow links a period is a few packets. Several acknowledgements may fall into one period
    /// and none into the next, so the fastest period is not the network's rate.
    #[test]
    fn regression_bursts_of_acknowledgements_do_not_teach_twice_the_rate() {
        let mut rate = Rate::new(Instant::ZERO);
        let mut now = 0;
        for _ in 0..200 {
            // 40 packets of 8900 bytes in 2.85 ms are 1 Gb/s.
            for (packets, us) in [(39, 1150), (1, 1698)] {
                now += us;
                rate.on_period(at(now), packets * 8900, Duration::from_micros(us));
            }
        }
        let gbps = rate.bps() as f64 / 1e9;
        assert!((0.95..1.1).contains(&gbps), "{gbps}");
    }

    /// Simulates an idle shaper, which passes 200 KB at 1 Gb/s and then enforces 250 Mb/s.
    #[test]
    fn regression_what_a_shaper_lets_pass_at_first_is_not_its_rate() {
        let mut rate = Rate::new(Instant::ZERO);
        for ms in 1..200 {
            let bytes = if ms <= 2 { 125_000 } else { 31_250 };
            rate.on_period(at(1000 * ms), bytes, Duration::from_millis(1));
            assert!(rate.bps() > 0);
        }
        let mbps = rate.bps() / 1_000_000;
        assert!((250..350).contains(&mbps), "{mbps}");
    }

    #[test]
    fn a_fast_link_is_known_after_a_period_and_a_rate_lasts_for_seconds() {
        let mut rate = Rate::new(Instant::ZERO);
        assert_eq!(rate.bps(), 0);
        rate.on_period(at(100), 125_000, Duration::from_micros(100));
        assert_eq!(rate.bps(), 10_000_000_000);
        let mut now = 100;
        let mut go = |rate: &mut Rate, seconds: u64, bytes: u64| {
            for _ in 0..seconds * 1000 {
                now += 1000;
                rate.on_period(at(now), bytes, Duration::from_millis(1));
            }
            rate.bps() / 1_000_000
        };
        assert_eq!(go(&mut rate, 1, 1_250_000), 10_000);
        assert_eq!(go(&mut rate, 3, 125_000), 10_000, "others share the link for a while");
        assert!(go(&mut rate, 10, 125_000) < 1100, "the link has become slower");
    }
}
