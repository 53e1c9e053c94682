//! CUBIC (RFC 9438) with the parameters of Linux: beta 717/1024, C 0.4, fast convergence, the
//! Reno-friendly region, and HyStart to leave slow start.

use srd_proto::time::{Duration, Instant};

use crate::machines::tcp::congestion_control::hystart::HyStart;
use crate::machines::tcp::congestion_control::window::{RttSample, Window};

/// The constant C of RFC 9438, in segments per cubic second.
const SCALE: f64 = 0.4;
/// Numerator of Linux's reduction factor beta, 717/1024 = 0.7002.
const BETA_NUMERATOR: u64 = 717;
const BETA_DENOMINATOR: u64 = 1024;
/// Time for which the result of a computation is used again while the window does not change
/// (Linux: HZ/32).
const UPDATE_INTERVAL: Duration = Duration::from_nanos(31_250_000);
/// Time after a reduction during which HyStart ignores round-trip samples (Linux: one second).
const HYSTART_HOLDOFF: Duration = Duration::from_secs(1);

/// State of CUBIC for one connection. Windows are in segments.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    hystart: Option<HyStart>,
    // Window before the last reduction, lowered by fast convergence.
    window_max: u32,
    // Start of the present period of congestion avoidance.
    epoch_start: Option<Instant>,
    // Window at the plateau of the cubic curve, and seconds from the epoch's start to the plateau.
    origin: u32,
    plateau_s: f64,
    // Window that Reno would have in this situation, and acknowledged segments towards its next
    // increase.
    reno_window: u32,
    reno_credit: u32,
    // Last result of `segments_per_increase`, the window for which it was computed, and the time.
    per: u32,
    window_last: u32,
    updated_at: Instant,
    rtt_min: Option<Duration>,
}

impl Cubic {
    /// Creates the state of a connection without losses.
    pub fn new(hystart: bool) -> Self {
        Self {
            hystart: hystart.then(HyStart::default),
            window_max: 0,
            epoch_start: None,
            origin: 0,
            plateau_s: 0.0,
            reno_window: 0,
            reno_credit: 0,
            per: 0,
            window_last: 0,
            updated_at: Instant::ZERO,
            rtt_min: None,
        }
    }

    /// Processes a round-trip sample. HyStart may end slow start.
    pub fn on_rtt(&mut self, window: &mut Window, sample: &RttSample) {
        if self.epoch_start.is_some_and(|start| sample.now.since(start) < HYSTART_HOLDOFF) {
            return;
        }
        let rtt_min = self.rtt_min.map_or(sample.rtt, |min| min.min(sample.rtt));
        self.rtt_min = Some(rtt_min);
        if let Some(hystart) = &mut self.hystart
            && window.in_slow_start()
            && hystart.on_rtt(sample, rtt_min, window.segments)
        {
            window.threshold = window.segments;
        }
    }

    /// Returns the number of acknowledged segments after which the window grows by one segment
    /// (Linux's `bictcp_update`).
    pub fn segments_per_increase(&mut self, segments: u32, now: Instant, acked: u32) -> u32 {
        self.reno_credit += acked;
        if self.window_last == segments && now.since(self.updated_at) <= UPDATE_INTERVAL {
            return self.per;
        }
        self.window_last = segments;
        self.updated_at = now;
        let epoch_start =
            self.epoch_start.unwrap_or_else(|| self.start_epoch(segments, now, acked));
        let ahead = now.since(epoch_start) + self.rtt_min.unwrap_or_default();
        let target = self.window_at(seconds(ahead));
        let mut per = if target > segments {
            segments / (target - segments)
        } else {
            100 * segments // very slowly
        };
        if self.window_max == 0 {
            per = per.min(20); // no loss yet: explore
        }
        self.per = per.min(self.reno_segments_per_increase(segments)).max(2);
        self.per
    }

    fn start_epoch(&mut self, segments: u32, now: Instant, acked: u32) -> Instant {
        self.epoch_start = Some(now);
        self.reno_credit = acked;
        self.reno_window = segments;
        if self.window_max <= segments {
            self.plateau_s = 0.0;
            self.origin = segments;
        } else {
            self.plateau_s = cube_root(f64::from(self.window_max - segments) / SCALE);
            self.origin = self.window_max;
        }
        now
    }

    // W_cubic(t) = C (t - K)^3 + W_max (RFC 9438 section 4.2).
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped before
    fn window_at(&self, t_s: f64) -> u32 {
        let offset_s = t_s - self.plateau_s;
        let window = f64::from(self.origin) + SCALE * offset_s * offset_s * offset_s;
        window.clamp(0.0, f64::from(u32::MAX >> 8)) as u32
    }

    // RFC 9438 section 4.3, with Linux's integer alpha: Reno's window grows by one segment for
    // every 15/8 windows acknowledged, and CUBIC grows at least as fast.
    fn reno_segments_per_increase(&mut self, segments: u32) -> u32 {
        let per = (segments * 15 / 8).max(1);
        self.reno_window += self.reno_credit.saturating_sub(1) / per;
        self.reno_credit -= self.reno_credit.saturating_sub(1) / per * per;
        match self.reno_window.checked_sub(segments) {
            None | Some(0) => u32::MAX,
            Some(behind) => segments / behind,
        }
    }

    /// Returns the slow-start threshold after a loss, with fast convergence (RFC 9438 section 4.7).
    pub fn threshold_on_loss(&mut self, segments: u32) -> u32 {
        self.epoch_start = None;
        self.window_max = if segments < self.window_max {
            times(segments, BETA_DENOMINATOR + BETA_NUMERATOR, 2 * BETA_DENOMINATOR)
        } else {
            segments
        };
        times(segments, BETA_NUMERATOR, BETA_DENOMINATOR)
    }

    /// Processes a retransmission timeout: ends the epoch, and discards the measurements of the
    /// path.
    pub fn on_timeout(&mut self, now: Instant, nxt: u64) {
        let mut fresh = Self::new(false);
        fresh.hystart = self.hystart.map(|_| HyStart::starting(now, nxt));
        *self = fresh;
    }

    /// Moves the start of the epoch by the idle time, so that the curve continues where it stopped.
    pub fn on_resumed(&mut self, now: Instant, idle: Duration) {
        if let Some(start) = &mut self.epoch_start {
            *start = (*start + idle).min(now);
        }
    }

    /// Prepares the state for a new flow on the connection, with stream offsets from zero.
    pub fn rebase(&mut self, now: Instant) {
        if let Some(hystart) = &mut self.hystart {
            hystart.rebase(now);
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // a fraction of a u32
fn times(value: u32, numerator: u64, denominator: u64) -> u32 {
    debug_assert!(numerator <= denominator);
    (u64::from(value) * numerator / denominator) as u32
}

#[allow(clippy::cast_precision_loss)] // exact to 104 days
fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e9
}

// Newton's method, starting from above. The cube root of the standard library differs between
// platforms in the last bit, but a seed must give one result on all platforms.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    loop {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next >= root {
            return root;
        }
        root = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn cube_roots() {
        for (x, root) in [(0.0, 0.0), (1.0, 1.0), (27.0, 3.0), (1e9, 1e3), (0.001, 0.1)] {
            assert!((cube_root(x) - root).abs() < 1e-9, "{x}");
        }
    }

    // After a loss at 1000 segments, a window of segments is acknowledged in each round trip of 100
    // ms. With this round trip Reno is slower than CUBIC.
    #[test]
    fn window_follows_the_closed_form() {
        let mut cubic = Cubic::new(false);
        let mut window = Window { threshold: 2, ..Window::new(1000) };
        let threshold = cubic.threshold_on_loss(1000);
        assert_eq!(threshold, 700);
        window.segments = threshold;
        window.threshold = threshold;
        // K = cbrt(300 / 0.4) = 9.0856 s.
        let rtt_ns = 100 * MS;
        let (mut now_ns, mut checked) = (0, 0);
        while now_ns < 14_000 * MS {
            let acks = window.segments / 2;
            for k in 0..u64::from(acks) {
                let now = Instant::from_nanos(now_ns + k * rtt_ns / u64::from(acks));
                let per = cubic.segments_per_increase(window.segments, now, 2);
                window.avoid(per, 2);
            }
            now_ns += rtt_ns;
            let t_s = now_ns as f64 / 1e9;
            let expected = 1000.0 + 0.4 * (t_s - 9.0856_f64).powi(3);
            let error = (f64::from(window.segments) - expected).abs() / expected;
            assert!(error < 0.02, "{t_s} s: {} instead of {expected}", window.segments);
            checked += 1;
        }
        assert_eq!(checked, 140);
        assert!(window.segments > 1030);
    }

    #[test]
    fn short_round_trips_follow_reno_with_the_lag_of_the_update_interval() {
        // With 20 segments at 200 us, CUBIC's own curve gains nothing for a second. Reno's share is
        // 0.53 segments per round trip, updated every 31 ms.
        let mut cubic = Cubic::new(false);
        let mut window = Window { threshold: 2, ..Window::new(20) };
        window.segments = cubic.threshold_on_loss(28);
        assert_eq!(window.segments, 19);
        let mut now_ns = 0;
        for round in 0..1000 {
            for _ in 0..window.segments {
                now_ns += 200_000 / u64::from(window.segments);
                let now = Instant::from_nanos(now_ns);
                let per = cubic.segments_per_increase(window.segments, now, 1);
                window.avoid(per, 1);
            }
            let lag = 156.0 * 0.54;
            let reno = 19.0 + f64::from(round) * 8.0 / 15.0;
            let window = f64::from(window.segments);
            assert!(window <= reno + 2.0 && window >= reno - lag, "{round}: {window}, {reno}");
        }
        assert!(window.segments > 400, "{}", window.segments);
    }

    #[test]
    fn second_loss_below_the_first_gives_room_away() {
        let mut cubic = Cubic::new(false);
        assert_eq!(cubic.threshold_on_loss(100), 70);
        assert_eq!(cubic.window_max, 100);
        assert_eq!(cubic.threshold_on_loss(80), 56);
        // 80 (1 + 0.7) / 2.
        assert_eq!(cubic.window_max, 68);
    }

    #[test]
    fn idle_time_shifts_the_epoch() {
        let mut cubic = Cubic::new(false);
        cubic.threshold_on_loss(100);
        cubic.segments_per_increase(70, Instant::from_nanos(MS), 1);
        cubic.on_resumed(Instant::from_nanos(900 * MS), Duration::from_millis(500));
        assert_eq!(cubic.epoch_start, Some(Instant::from_nanos(501 * MS)));
    }
}
