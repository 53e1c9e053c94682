//! Departure times of packets: a token bucket of one burst that refills at the pacing rate.

use crate::time::{Duration, Instant};

/// Pacer of a context: computes the earliest time of the next departure.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Time at which all bytes sent so far would have left at the pacing rate.
    virtual_time: Instant,
    rate_bps: u64,
    /// Maximum time by which `virtual_time` may be ahead of the clock: the time that one burst
    /// takes at the pacing rate.
    burst: Duration,
}

impl Pacer {
    pub(crate) fn new(now: Instant) -> Self {
        Self { virtual_time: now, rate_bps: 1, burst: Duration::ZERO }
    }

    /// Sets the pacing rate, and the number of bytes that may leave at once in excess of it. Bytes
    /// that have left in excess of the former rate stay the same number of bytes.
    pub(crate) fn set_pace(&mut self, now: Instant, rate_bps: u64, burst_bytes: u64) {
        let rate_bps = rate_bps.max(1);
        let ahead = self.virtual_time.since(now);
        if ahead > Duration::ZERO {
            // The bytes of a burst and of a run, in bits times 10^9, are far below 2^64.
            self.virtual_time = now + ahead.times(self.rate_bps).over(rate_bps);
        }
        self.rate_bps = rate_bps;
        self.burst = time_for(burst_bytes, rate_bps);
    }

    /// Earliest time of the next departure. It is in the past while less than one burst has been
    /// sent in excess of the pacing rate.
    pub(crate) fn next_departure(&self) -> Instant {
        self.virtual_time - self.burst
    }

    /// Accounts for a packet of `bytes` bytes that left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.virtual_time = self.virtual_time.max(now) + time_for(bytes, self.rate_bps);
    }
}

/// Time that `bytes` take at a rate, which must not be zero.
pub(crate) fn time_for(bytes: u64, rate_bps: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(8_000_000_000) / rate_bps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        let mut pacer = Pacer::new(Instant::ZERO);
        // 10 us a packet, two of them at once
        pacer.set_pace(Instant::ZERO, 1_000_000_000, 2500);
        let mut now = Instant::ZERO;
        let mut at_once = 0;
        for _ in 0..100 {
            if pacer.next_departure() <= Instant::ZERO {
                at_once += 1;
            }
            now = now.max(pacer.next_departure());
            pacer.on_sent(now, 1250);
        }
        assert_eq!(at_once, 3);
        assert_eq!(now, Instant::ZERO + Duration::from_micros(970));
    }

    /// Regression: after a burst at a low rate, a higher rate made the sender wait for the time
    /// that the burst takes at the low rate.
    #[test]
    fn regression_bytes_that_left_early_stay_the_same_at_another_rate() {
        let now = Instant::from_nanos(5_000);
        let at = |us: u64| now + Duration::from_micros(us);
        let mut pacer = Pacer::new(now);
        pacer.set_pace(now, 1_000_000_000, 12_500);
        for _ in 0..11 {
            pacer.on_sent(now, 1250);
        }
        assert_eq!(pacer.next_departure(), at(10));
        pacer.set_pace(now, 10_000_000_000, 12_500);
        assert_eq!(pacer.next_departure(), at(1));
        pacer.set_pace(now, 500_000_000, 12_500);
        assert_eq!(pacer.next_departure(), at(20));
        // Without such bytes, another rate delays nothing.
        let later = at(1000);
        pacer.set_pace(later, 1_000_000, 12_500);
        assert!(pacer.next_departure() <= later);
    }
}
