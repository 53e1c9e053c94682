//! Mean rates over the last second or minute, and a histogram of the rates of all periods of one
//! length.

use std::collections::VecDeque;

use hdrhistogram::Histogram;

/// Number of parts into which the span of a mean is divided.
const SLOTS: u64 = 1000;
/// Largest number of bytes in a period that the histogram can record.
const BYTES_MAX: u64 = 1 << 48;

/// Bytes in a span of time that ends now, such as the last second, exact to a thousandth of the
/// span.
#[derive(Clone, Debug)]
pub(crate) struct Trailing {
    span_ns: u64,
    slots: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Trailing {
    pub(crate) fn new(span_ns: u64) -> Self {
        Self { span_ns, slots: VecDeque::new(), bytes: 0 }
    }

    /// Counts `bytes` that arrived at `time_ns`; times must not decrease.
    pub(crate) fn add(&mut self, time_ns: u64, bytes: u64) {
        let slot = time_ns / self.slot_ns();
        while self.slots.front().is_some_and(|(first, _)| first + SLOTS <= slot) {
            self.bytes -= self.slots.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        self.bytes += bytes;
        match self.slots.back_mut() {
            Some((last, sum)) if *last == slot => *sum += bytes,
            _ => self.slots.push_back((slot, bytes)),
        }
    }

    /// Returns the mean rate in bits per second. If `seen_ns`, the time that has been watched so
    /// far, is shorter than the span, the mean is over this time.
    pub(crate) fn mean_bps(&self, seen_ns: u64) -> u64 {
        rate_bps(self.bytes, self.span_ns.min(seen_ns))
    }

    fn slot_ns(&self) -> u64 {
        (self.span_ns / SLOTS).max(1)
    }
}

/// Returns the rate of `bytes` in `time_ns`, in bits per second.
pub(crate) fn rate_bps(bytes: u64, time_ns: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(time_ns.max(1))).unwrap_or(u64::MAX)
}

/// The rates of all whole periods of one length, including idle periods.
#[derive(Clone, Debug)]
pub(crate) struct Periods {
    period_ns: u64,
    /// Start of the first period, in nanoseconds.
    origin_ns: u64,
    current: u64,
    bytes: u64,
    histogram: Histogram<u64>,
}

impl Periods {
    pub(crate) fn new(period_ns: u64, origin_ns: u64) -> Self {
        let histogram =
            Histogram::new_with_bounds(1, BYTES_MAX, 3).expect("these bounds are valid");
        Self { period_ns, origin_ns, current: 0, bytes: 0, histogram }
    }

    /// Counts `bytes` that arrived at `time_ns`. Times must not decrease, so all periods that end
    /// before `time_ns` are complete.
    pub(crate) fn add(&mut self, time_ns: u64, bytes: u64) {
        let period = time_ns.saturating_sub(self.origin_ns) / self.period_ns;
        if period > self.current {
            self.histogram.saturating_record(self.bytes);
            let idle = period - self.current - 1;
            self.histogram.saturating_record_n(0, idle);
            (self.current, self.bytes) = (period, 0);
        }
        self.bytes += bytes;
    }

    /// Returns the number of complete periods.
    pub(crate) fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns a quantile of the rates, in bits per second: the rate that a share of all periods
    /// does not exceed. `share` is from 0 to 1.
    pub(crate) fn quantile_bps(&self, share: f64) -> u64 {
        rate_bps(self.histogram.value_at_quantile(share), self.period_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;

    #[test]
    fn a_mean_covers_its_span_or_what_was_seen_and_memory_is_bounded() {
        let mut second = Trailing::new(S);
        for ms in 0..5000 {
            second.add(ms * MS, if ms < 3000 { 125 } else { 250 });
            assert!(second.slots.len() <= 1000);
        }
        assert_eq!(second.mean_bps(5 * S), 2_000_000);
        assert_eq!(second.mean_bps(S / 2), 4_000_000);
        second.add(60 * S, 0);
        assert_eq!(second.mean_bps(60 * S), 0);
    }

    #[test]
    fn idle_periods_count() {
        let mut periods = Periods::new(S, 7);
        periods.add(8, 125_000);
        periods.add(9 * S + 8, 5);
        assert_eq!(periods.len(), 9);
        assert_eq!(periods.quantile_bps(0.5), 0);
        let most = periods.quantile_bps(1.0);
        assert!((1_000_000..1_001_000).contains(&most), "{most}");
    }
}
