//! Round-trip estimation and the retransmission timeout, in Linux's form or that of RFC 6298, and
//! the tick of timers.

use srd_proto::time::{Duration, Instant};

use super::config::{RtoRule, TcpConfig};

/// Round-trip estimate of a connection, and the retransmission timeout that follows from the
/// estimate.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    rule: RtoRule,
    rto_min_ns: u64,
    rto_max_ns: u64,
    // Smoothed round trip; zero before the first sample.
    srtt_ns: u64,
    // In Linux's form: four times the mean deviation. In the RFC's form: rttvar.
    deviation_ns: u64,
    // In Linux's form: the largest deviation of this round trip, but at least rto_min.
    deviation_max_ns: u64,
    // In Linux's form: the part of the timeout that is added to the smoothed round trip.
    variation_ns: u64,
    // In Linux's form: when this byte is acknowledged, the round trip of `deviation_max_ns` ends.
    round_end: u64,
    min_ns: u64,
    rto_ns: u64,
}

impl RttEstimator {
    /// Creates an estimator without measurements.
    pub fn new(config: &TcpConfig) -> Self {
        Self {
            rule: config.rto_rule,
            rto_min_ns: config.rto_min.as_nanos(),
            rto_max_ns: config.rto_max.as_nanos(),
            srtt_ns: 0,
            deviation_ns: 0,
            deviation_max_ns: 0,
            variation_ns: 0,
            round_end: 0,
            min_ns: u64::MAX,
            rto_ns: config.rto_initial.as_nanos(),
        }
    }

    /// Processes a round-trip sample. `una` and `nxt` are the first unacknowledged byte and the
    /// next byte to send. Ends any back-off.
    pub fn on_sample(&mut self, rtt: Duration, una: u64, nxt: u64) {
        let rtt_ns = rtt.as_nanos().max(1);
        self.min_ns = self.min_ns.min(rtt_ns);
        match self.rule {
            RtoRule::Linux => self.estimate_linux(rtt_ns, una, nxt),
            RtoRule::Rfc6298 => self.estimate_rfc(rtt_ns),
        }
        self.reset_backoff();
    }

    /// Begins the estimate with the round trip of an earlier measurement, which does not count for
    /// the minimum.
    pub fn assume(&mut self, rtt: Duration) {
        if rtt > Duration::ZERO {
            let min_ns = self.min_ns;
            self.on_sample(rtt, 0, 0);
            self.min_ns = min_ns;
        }
    }

    /// Processes a round-trip sample that only counts for the minimum.
    pub fn on_minimum(&mut self, rtt: Duration) {
        self.min_ns = self.min_ns.min(rtt.as_nanos().max(1));
    }

    // Linux's tcp_rtt_estimator: the gains are 1/8 for the round trip and 1/4 for the deviation.
    // The deviation's gain is a quarter of the usual while the round trip falls. The variation
    // follows the largest deviation of each round trip.
    fn estimate_linux(&mut self, rtt_ns: u64, una: u64, nxt: u64) {
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt_ns;
            self.deviation_ns = 2 * rtt_ns;
            self.variation_ns = self.deviation_ns.max(self.rto_min_ns);
            self.deviation_max_ns = self.variation_ns;
            self.round_end = nxt;
            return;
        }
        let falling = rtt_ns < self.srtt_ns;
        let error_ns = rtt_ns.abs_diff(self.srtt_ns);
        self.srtt_ns =
            if falling { self.srtt_ns - error_ns.div_ceil(8) } else { self.srtt_ns + error_ns / 8 };
        let quarter_ns = self.deviation_ns / 4;
        if error_ns >= quarter_ns {
            let gain = if falling { 8 } else { 1 };
            self.deviation_ns += (error_ns - quarter_ns) / gain;
        } else {
            self.deviation_ns -= quarter_ns - error_ns;
        }
        if self.deviation_ns > self.deviation_max_ns {
            self.deviation_max_ns = self.deviation_ns;
            self.variation_ns = self.variation_ns.max(self.deviation_max_ns);
        }
        if una > self.round_end {
            if self.deviation_max_ns < self.variation_ns {
                self.variation_ns -= (self.variation_ns - self.deviation_max_ns) / 4;
            }
            self.round_end = nxt;
            self.deviation_max_ns = self.rto_min_ns;
        }
    }

    // The estimator of RFC 6298 section 2.
    fn estimate_rfc(&mut self, rtt_ns: u64) {
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt_ns;
            self.deviation_ns = rtt_ns / 2;
            return;
        }
        let error_ns = rtt_ns.abs_diff(self.srtt_ns);
        self.deviation_ns = (3 * self.deviation_ns + error_ns) / 4;
        self.srtt_ns = (7 * self.srtt_ns + rtt_ns) / 8;
    }

    /// Returns the retransmission timeout, back-off included.
    pub const fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_ns)
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    pub fn back_off(&mut self) {
        self.rto_ns = self.rto_ns.saturating_mul(2).min(self.rto_max_ns);
    }

    /// Ends the back-off: the timeout follows from the estimate alone.
    pub fn reset_backoff(&mut self) {
        if self.srtt_ns == 0 {
            return;
        }
        let rto_ns = match self.rule {
            RtoRule::Linux => self.srtt_ns + self.variation_ns,
            RtoRule::Rfc6298 => (self.srtt_ns + 4 * self.deviation_ns).max(self.rto_min_ns),
        };
        self.rto_ns = rto_ns.min(self.rto_max_ns);
    }

    /// Returns the smoothed round trip; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        (self.srtt_ns > 0).then(|| Duration::from_nanos(self.srtt_ns))
    }

    /// Returns the smallest round trip; `None` before the first sample.
    pub fn min(&self) -> Option<Duration> {
        (self.min_ns < u64::MAX).then(|| Duration::from_nanos(self.min_ns))
    }

    /// Returns the lower bound of the timeout.
    pub const fn rto_min(&self) -> Duration {
        Duration::from_nanos(self.rto_min_ns)
    }

    /// Prepares the estimator for a new flow on the connection, with stream offsets from zero.
    /// Keeps the estimate.
    pub fn rebase(&mut self) {
        self.round_end = 0;
        self.reset_backoff();
    }
}

/// Returns the time at which a timer fires that was started at `now` for `delay`. If `tick` is
/// zero, the result is exactly `now + delay`. Otherwise timers fire as in Linux's timer wheel: at a
/// tick boundary, and never early. For delays of 63 ticks or more, the boundaries are further
/// apart.
pub fn deadline(now: Instant, delay: Duration, tick: Duration) -> Instant {
    let tick_ns = tick.as_nanos();
    if tick_ns == 0 {
        return now + delay;
    }
    let ticks = delay.as_nanos().div_ceil(tick_ns).max(1);
    // Level n of Linux's timer wheel has buckets of 8^n ticks and holds timers of fewer than 64 *
    // 8^n.
    let mut grain = 1;
    while ticks >= 63 * grain && grain < 8_u64.pow(8) {
        grain *= 8;
    }
    let expires = now.as_nanos() / tick_ns + ticks;
    Instant::from_nanos((expires / grain + 1).saturating_mul(grain).saturating_mul(tick_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn estimator(rule: RtoRule, rto_min_ms: u64) -> RttEstimator {
        RttEstimator::new(&TcpConfig {
            rto_rule: rule,
            rto_min: Duration::from_millis(rto_min_ms),
            ..TcpConfig::default()
        })
    }

    #[test]
    fn rfc_6298_sequence() {
        let mut e = estimator(RtoRule::Rfc6298, 1);
        assert_eq!(e.rto(), Duration::from_secs(1));
        // First sample R = 100 ms: srtt 100, rttvar 50, RTO 300.
        e.on_sample(Duration::from_millis(100), 0, 0);
        assert_eq!(e.rto(), Duration::from_millis(300));
        // Sample R' = 140 ms: rttvar = 3/4 * 50 + 1/4 * 40 = 47.5; srtt = 105; RTO = 295.
        e.on_sample(Duration::from_millis(140), 0, 0);
        assert_eq!(e.rto(), Duration::from_millis(295));
        // Sample R' = 105 ms: rttvar = 35.625; RTO = 105 + 142.5.
        e.on_sample(Duration::from_millis(105), 0, 0);
        assert_eq!(e.rto(), Duration::from_micros(247_500));
        e.back_off();
        e.back_off();
        assert_eq!(e.rto(), Duration::from_millis(990));
        e.on_sample(Duration::from_millis(105), 0, 0);
        assert!(e.rto() < Duration::from_millis(248), "a sample ends the back-off");
    }

    #[test]
    fn rfc_floor_is_on_the_sum_and_linux_floor_on_the_variation() {
        let mut rfc = estimator(RtoRule::Rfc6298, 200);
        let mut linux = estimator(RtoRule::Linux, 200);
        for k in 0..50 {
            rfc.on_sample(Duration::from_millis(2), k, k + 1);
            linux.on_sample(Duration::from_millis(2), k, k + 1);
        }
        assert_eq!(rfc.rto(), Duration::from_millis(200));
        assert_eq!(linux.rto(), Duration::from_millis(202));
    }

    #[test]
    fn linux_variation_jumps_with_the_largest_deviation_and_decays_per_round_trip() {
        let mut e = estimator(RtoRule::Linux, 5);
        e.on_sample(Duration::from_millis(1), 0, 100);
        assert_eq!(e.rto(), Duration::from_millis(6));
        // One sample of 41 ms: error 40, deviation 2 + (40 - 0.5) = 41.5; srtt 6; RTO 47.5.
        e.on_sample(Duration::from_millis(41), 50, 150);
        assert_eq!(e.rto(), Duration::from_micros(47_500));
        let mut last = e.rto();
        for round in 2..40_u64 {
            e.on_sample(Duration::from_millis(1), 100 * round, 100 * round + 50);
            assert!(e.rto() <= last);
            last = e.rto();
        }
        assert!(last < Duration::from_millis(7), "{last:?}");
    }

    #[test]
    fn assumed_round_trip_sets_the_timeout_but_not_the_minimum() {
        let mut e = estimator(RtoRule::Linux, 200);
        e.assume(Duration::from_millis(1));
        assert_eq!(e.rto(), Duration::from_millis(201));
        assert_eq!(e.min(), None);
    }

    #[test]
    fn back_off_stops_at_the_ceiling() {
        let mut e = estimator(RtoRule::Linux, 200);
        for _ in 0..20 {
            e.back_off();
        }
        assert_eq!(e.rto(), Duration::from_secs(120));
    }

    #[test]
    fn timer_fires_on_the_tick_after_and_never_early() {
        let tick = Duration::from_millis(4);
        let at = |now_ns, delay_ms| {
            deadline(Instant::from_nanos(now_ns), Duration::from_millis(delay_ms), tick).as_nanos()
        };
        assert_eq!(at(0, 200), 204 * MS);
        assert_eq!(at(3_999_999, 200), 204 * MS);
        assert_eq!(at(4 * MS, 2), 12 * MS);
        // 100 ticks lie in the second level, whose buckets are 8 ticks.
        assert_eq!(at(0, 400), 13 * 8 * 4 * MS);
        let exact = deadline(Instant::from_nanos(7), Duration::from_nanos(3), Duration::ZERO);
        assert_eq!(exact, Instant::from_nanos(10));
    }
}
