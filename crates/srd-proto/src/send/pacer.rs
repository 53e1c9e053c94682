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

    /// Sets the pacing rate, and the number of bytes that may leave at once in excess of it.
    pub(crate) fn set_pace(&mut self, rate_bps: u64, burst_bytes: u64) {
        self.rate_bps = rate_bps.max(1);
        self.burst = time_for(burst_bytes, self.rate_bps);
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
        pacer.set_pace(1_000_000_000, 2500); // 10 us a packet, two of them at once
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
}
