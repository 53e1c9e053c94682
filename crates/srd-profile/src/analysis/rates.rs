//! Rates (of bytes, packets or new connections) over all periods of one length: percentiles and the
//! maximum. Memory is that of one histogram, for any duration.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Largest count in a period that the histogram records.
const COUNT_MAX: u64 = 1 << 48;
const MS: u64 = 1_000_000;
/// The lengths of periods, in nanoseconds: a millisecond, a second, a minute.
pub const PERIODS_NS: [u64; 3] = [MS, 1_000 * MS, 60_000 * MS];

/// Rates per second, over all periods of one length.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Rates {
    /// Length of a period in nanoseconds.
    pub period_ns: u64,
    /// Number of whole periods. If it is zero, each rate is the mean over the captured time.
    pub periods: u64,
    /// Rate that half of the periods do not exceed.
    pub p50: f64,
    /// Rate that 99 of 100 periods do not exceed.
    pub p99: f64,
    /// Rate that 999 of 1000 periods do not exceed.
    pub p999: f64,
    /// Largest rate in any period.
    pub max: f64,
}

/// Counts in the periods of one length.
#[derive(Clone, Debug)]
struct Periods {
    period_ns: u64,
    origin_ns: u64,
    current: u64,
    count: u64,
    /// The exact largest count of a complete period; values in the histogram have only three
    /// digits.
    most: u64,
    histogram: Histogram<u64>,
}

impl Periods {
    fn new(period_ns: u64, origin_ns: u64) -> Self {
        // The histogram grows with the largest count, to save memory: a file may have many
        // interfaces with small counts.
        let histogram = Histogram::new(3).expect("three digits are valid");
        Self { period_ns, origin_ns, current: 0, count: 0, most: 0, histogram }
    }

    /// Adds `count` at the time `time_ns`. Times must not decrease, so all periods that end before
    /// are complete.
    fn add(&mut self, time_ns: u64, count: u64) {
        let period = time_ns.saturating_sub(self.origin_ns) / self.period_ns;
        if period > self.current {
            record(&mut self.histogram, self.count.min(COUNT_MAX), 1);
            self.most = self.most.max(self.count);
            record(&mut self.histogram, 0, period - self.current - 1);
            (self.current, self.count) = (period, 0);
        }
        self.count += count;
    }

    fn rates(&self, seen_ns: u64, factor: f64) -> Rates {
        let (period_ns, periods) = (self.period_ns, self.histogram.len());
        if periods == 0 {
            let mean = self.count as f64 * factor * 1e9 / seen_ns.max(1) as f64;
            return Rates { period_ns, periods, p50: mean, p99: mean, p999: mean, max: mean };
        }
        let a_second = factor * 1e9 / period_ns as f64;
        let at = |share: f64| self.histogram.value_at_quantile(share) as f64 * a_second;
        // The count of the current period can only grow, so its present value is a lower bound.
        let max = self.most.max(self.count) as f64 * a_second;
        Rates {
            period_ns,
            periods,
            p50: at(0.5).min(max),
            p99: at(0.99).min(max),
            p999: at(0.999).min(max),
            max,
        }
    }
}

/// Adds `value` to a histogram that grows as needed, `count` times.
pub(crate) fn record(histogram: &mut Histogram<u64>, value: u64, count: u64) {
    let recorded = histogram.record_n(value, count);
    debug_assert!(recorded.is_ok(), "it resizes itself: {recorded:?}");
}

/// Counts of one quantity, over periods of all lengths.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    all: [Periods; 3],
    total: u64,
}

impl Meter {
    pub(crate) fn new(origin_ns: u64) -> Self {
        Self { all: PERIODS_NS.map(|period| Periods::new(period, origin_ns)), total: 0 }
    }

    pub(crate) fn add(&mut self, time_ns: u64, count: u64) {
        self.total += count;
        self.all.iter_mut().for_each(|periods| periods.add(time_ns, count));
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the rates per second over a captured time of `seen_ns`; each count is multiplied by
    /// `factor`.
    pub(crate) fn rates(&self, seen_ns: u64, factor: f64) -> [Rates; 3] {
        [0, 1, 2].map(|n: usize| {
            // Idle periods up to the end of the captured time count as whole periods as well.
            let mut periods = self.all[n].clone();
            periods.add(periods.origin_ns + seen_ns, 0);
            periods.rates(seen_ns, factor)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_counts_take_little_memory() {
        let places = |largest: u64| {
            let mut meter = Meter::new(0);
            (0..100).for_each(|n| meter.add(n * MS, largest));
            meter.all.iter().map(|of| of.histogram.distinct_values()).sum::<usize>()
        };
        let (small, most) = (places(1500), places(u64::MAX >> 8));
        assert!(small <= 3 * 2048, "{small} places of 8 bytes");
        assert!(most <= 3 * 64 * 1024, "{most}");
    }

    #[test]
    fn idle_periods_count_and_a_short_look_has_its_mean() {
        let mut meter = Meter::new(7);
        (0..10).for_each(|n| meter.add(7 + n * MS, if n == 3 { 50 } else { 10 }));
        meter.add(7 + 2_000 * MS, 0);
        let [ms, second, minute] = meter.rates(2_000 * MS, 8.0);
        assert_eq!((ms.periods, second.periods, minute.periods), (2000, 2, 0));
        assert_eq!((ms.p50, ms.max), (0.0, 400_000.0));
        assert_eq!(ms.p999, 80_000.0, "eleven of 2000 have more than nothing");
        assert_eq!((second.p50, second.max), (0.0, 1120.0));
        assert_eq!(minute.max, 560.0);
        assert_eq!(meter.total(), 140);
        // If nothing was counted, all periods are idle.
        let [ms, second, minute] = Meter::new(7).rates(2_000 * MS, 8.0);
        assert_eq!((ms.periods, second.periods, minute.periods), (2000, 2, 0));
    }
}
