//! Departure times: a bucket of one burst that refills at the pacing rate.

use crate::time::{Duration, Instant};

/// When the next packet may leave.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// When the bytes sent so far would have left at the pacing rate.
    virtual_time: Instant,
}

impl Pacer {
    pub(crate) fn new(now: Instant) -> Self {
        Self { virtual_time: now }
    }

    /// When the next packet may leave: at once while less than `burst` of time is owed.
    pub(crate) fn next_departure(&self, burst: Duration) -> Instant {
        self.virtual_time - burst
    }

    /// A packet of `bytes` left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, rate_bps: u64) {
        let ns = bytes.saturating_mul(8_000_000_000) / rate_bps.max(1);
        self.virtual_time = self.virtual_time.max(now) + Duration::from_nanos(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        let mut pacer = Pacer::new(Instant::ZERO);
        let burst = Duration::from_micros(20);
        let mut now = Instant::ZERO;
        let mut at_once = 0;
        for _ in 0..100 {
            if pacer.next_departure(burst) <= Instant::ZERO {
                at_once += 1;
            }
            now = now.max(pacer.next_departure(burst));
            pacer.on_sent(now, 1250, 1_000_000_000); // 10 us each
        }
        assert_eq!(at_once, 3);
        assert_eq!(now, Instant::ZERO + Duration::from_micros(970));
    }
}
