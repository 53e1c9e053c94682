//! The rate of a connection: the reaction point of DCQCN (Zhu et al., SIGCOMM 2015, section 3.1).
//! The increase of the rate is that of QCN, IEEE 802.1Qau.
//!
//! ```text
//! CNP:   target = rate;  rate *= 1 - alpha/2;  alpha = (1-g) alpha + g;  both counters to zero
//! quiet: alpha *= 1-g, after every alpha_timer without a CNP
//! step:  of the timer or of the byte counter
//!        both counters up to F:  rate = (target + rate) / 2                    fast recovery
//!        one of them beyond F:   target += additive, rate as above             additive increase
//!        both beyond F:          target += hyper * steps beyond F, as above    hyper increase
//! ```
//! A connection without a limit sends at the speed of its link, as it does at its start. The first
//! CNP sets a limit, which is removed when the rate reaches the link's speed again. The decay of
//! alpha is computed when the next CNP arrives.

use srd_proto::time::{Duration, Instant};

use super::config::DcqcnConfig;

/// Number of steps of decay after which alpha counts as zero: (255/256)^8192 is 1e-14.
const DECAYS_MAX: u64 = 8192;

/// Rate of a connection, with the state from which changes of the rate are computed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    config: DcqcnConfig,
    line_bps: f64,
    rate_bps: f64,
    target_bps: f64,
    alpha: f64,
    alpha_since: Instant,
    /// Time of the timer's next step; `None` while the connection has no limit.
    step_at: Option<Instant>,
    bytes_left: u64,
    timer_steps: u32,
    byte_steps: u32,
}

impl Rate {
    /// Creates the rate of a new connection: the speed of its link.
    pub fn new(config: DcqcnConfig, line_bps: u64) -> Self {
        Self {
            config,
            line_bps: line_bps as f64,
            rate_bps: line_bps as f64,
            target_bps: line_bps as f64,
            alpha: 1.0,
            alpha_since: Instant::ZERO,
            step_at: None,
            bytes_left: config.rate_bytes,
            timer_steps: 0,
            byte_steps: 0,
        }
    }

    /// Returns the rate that limits the connection, in bits per second; `None` if it has no limit.
    pub fn limit_bps(&self) -> Option<f64> {
        self.step_at.map(|_| self.rate_bps)
    }

    /// Returns alpha, the estimate of congestion, from 0 to 1.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Returns the time when [`Rate::on_timer`] has to be called; `None` while the connection has
    /// no limit.
    pub fn deadline(&self) -> Option<Instant> {
        self.step_at
    }

    /// Reduces the rate after a congestion notification.
    pub fn on_cnp(&mut self, now: Instant) {
        if self.step_at.is_some() {
            self.decay(now);
        } else {
            // The first notification begins a new limit, and a new estimate of congestion.
            self.alpha = 1.0;
            self.rate_bps = self.line_bps;
        }
        self.target_bps = self.rate_bps;
        let least = self.config.rate_min_bps as f64;
        self.rate_bps = (self.rate_bps * (1.0 - self.alpha / 2.0)).max(least);
        self.alpha = (1.0 - self.config.gain) * self.alpha + self.config.gain;
        self.alpha_since = now;
        self.step_at = Some(now + self.config.rate_timer);
        self.bytes_left = self.config.rate_bytes;
        self.timer_steps = 0;
        self.byte_steps = 0;
    }

    /// Reduces alpha for the time that has passed without a notification.
    fn decay(&mut self, now: Instant) {
        let timer_ns = self.config.alpha_timer.as_nanos().max(1);
        let times = now.since(self.alpha_since).as_nanos() / timer_ns;
        for _ in 0..times.min(DECAYS_MAX) {
            self.alpha *= 1.0 - self.config.gain;
        }
        self.alpha_since += Duration::from_nanos(times * timer_ns);
    }

    /// Counts bytes that the connection has sent. After `rate_bytes` the rate increases by a step.
    pub fn on_sent(&mut self, bytes: u64) {
        if self.step_at.is_none() {
            return;
        }
        if self.bytes_left > bytes {
            self.bytes_left -= bytes;
            return;
        }
        self.bytes_left = self.config.rate_bytes;
        self.byte_steps += 1;
        self.step();
    }

    /// Performs the steps of the timer that are due, which increase the rate.
    pub fn on_timer(&mut self, now: Instant) {
        while let Some(at) = self.step_at.filter(|at| *at <= now) {
            self.step_at = Some(at + self.config.rate_timer);
            self.timer_steps += 1;
            self.step();
        }
    }

    fn step(&mut self) {
        let (fast, least) = (self.config.fast_steps, self.timer_steps.min(self.byte_steps));
        if least > fast {
            let beyond = f64::from(least - fast);
            self.target_bps += self.config.hyper_bps as f64 * beyond;
        } else if self.timer_steps.max(self.byte_steps) > fast {
            self.target_bps += self.config.additive_bps as f64;
        }
        self.target_bps = self.target_bps.min(self.line_bps);
        self.rate_bps = f64::midpoint(self.target_bps, self.rate_bps);
        if self.rate_bps >= self.line_bps * 0.999 {
            self.step_at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 40_000_000_000;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    fn gbps(rate: &Rate) -> f64 {
        rate.limit_bps().expect("a limit") / 1e9
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6 * expected, "{value}, not {expected}");
    }

    #[test]
    fn first_notification_halves_the_rate_and_each_further_one_cuts_by_alpha() {
        let mut rate = Rate::new(DcqcnConfig::of_link(LINE), LINE);
        assert_eq!((rate.limit_bps(), rate.deadline()), (None, None));
        rate.on_cnp(at(0));
        near(gbps(&rate), 20.0);
        // Alpha was 1 at the beginning. It stays 1 while notifications arrive.
        rate.on_cnp(at(50));
        near(gbps(&rate), 10.0);
        // Two periods of 55 us pass without a notification.
        rate.on_cnp(at(50 + 111));
        near(gbps(&rate), 10.0 * (1.0 - 0.5 * (255.0_f64 / 256.0).powi(2)) * 1.0);
        for n in 0..100 {
            rate.on_cnp(at(200 + n));
        }
        near(gbps(&rate), 0.04);
    }

    #[test]
    fn recovery_halves_the_distance_five_times_and_then_the_target_grows() {
        let mut rate = Rate::new(DcqcnConfig::of_link(LINE), LINE);
        rate.on_cnp(at(0));
        rate.on_cnp(at(0));
        // The target is 20 Gb/s and the rate 10 Gb/s.
        for (steps, expected) in [(1, 15.0), (2, 17.5), (3, 18.75), (4, 19.375), (5, 19.6875)] {
            assert_eq!(rate.deadline(), Some(at(55 * steps)));
            rate.on_timer(at(55 * steps));
            near(gbps(&rate), expected);
        }
        rate.on_timer(at(55 * 6));
        near(gbps(&rate), (20.04 + 19.6875) / 2.0);
        rate.on_timer(at(55 * 7));
        near(gbps(&rate), (20.08 + (20.04 + 19.6875) / 2.0) / 2.0);
    }

    #[test]
    fn bytes_count_as_time_does_and_both_beyond_five_make_it_hyper() {
        let mut rate = Rate::new(DcqcnConfig::of_link(LINE), LINE);
        rate.on_cnp(at(0));
        rate.on_cnp(at(0));
        rate.on_sent(9_999_999);
        near(gbps(&rate), 10.0);
        rate.on_sent(1);
        near(gbps(&rate), 15.0);
        for _ in 0..5 {
            rate.on_sent(10_000_000);
        }
        near(gbps(&rate), (20.04 + 19.6875) / 2.0);
        let before = gbps(&rate);
        rate.on_timer(at(55 * 5));
        // Five more steps follow, with a target that grows by 40 Mb/s in each.
        assert!(gbps(&rate) > before && gbps(&rate) < 20.3, "{}", gbps(&rate));
        let before = gbps(&rate);
        rate.on_timer(at(55 * 6));
        let hyper = 20.0 + 6.0 * 0.04 + 0.4;
        near(gbps(&rate), f64::midpoint(hyper, before));
    }

    #[test]
    fn limit_is_lifted_at_the_speed_of_the_link() {
        let mut rate = Rate::new(DcqcnConfig::of_link(LINE), LINE);
        rate.on_cnp(at(0));
        rate.on_timer(at(55 * 100));
        assert_eq!((rate.limit_bps(), rate.deadline()), (None, None));
        rate.on_cnp(at(10_000));
        near(gbps(&rate), 20.0);
    }
}
