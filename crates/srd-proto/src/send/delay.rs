//! Delay and round-trip estimators.
//!
//! The forward one-way delay is measured relative to its own minimum over all paths. So the clock
//! offset cancels, and the return path is not included. Packets of different sizes take different
//! times to serialise, therefore each size class (powers of two) has its own minimum. A minimum is
//! remembered for five to ten seconds: long enough to be found, short enough for clocks that drift.

use crate::time::{Duration, Instant};

/// Duration of a generation of minima. The minima of the present and the previous generation count.
const GENERATION: Duration = Duration::from_secs(5);
/// Number of size classes of packets. The classes are powers of two, from 64 bytes.
const CLASSES: usize = 11;
/// Number of newest samples of which the median is taken.
const SAMPLES: usize = 16;
/// Number of round trips measured before the least of them counts as the base (R10).
const BASE_SAMPLES: u8 = 8;
/// Upper bound of the reported round trip until [`BASE_SAMPLES`] samples exist, in percent of the
/// configured `rtt_initial`. It is large enough that a receiver does not give its senders too small
/// a share, and too small for these senders to fill a switch's queue (`docs/perf-notes.md`,
/// 2026-11-23).
const FEW_SAMPLES_PERCENT: u64 = 275;
/// With each acknowledged packet, the longest recent overtaking decreases by the fraction
/// 1/`OVERTAKEN_PART`.
const OVERTAKEN_PART: u64 = 64;
/// Upper bound of the spread by order, as a multiple of the longest recent overtaking.
const OVERTAKEN_TIMES: u64 = 2;

/// Estimates the forward one-way delays of the packets of a context.
#[derive(Debug)]
pub(crate) struct DelayEstimator {
    /// For each size class, the least raw clock difference of the present and of the previous
    /// generation.
    minima: [[Option<u32>; 2]; CLASSES],
    /// Longest queueing delay in the present and in the previous generation.
    longest: [Option<u32>; 2],
    generation_ends: Instant,
    recent: [u32; SAMPLES],
    recent_len: usize,
    recent_at: usize,
    median: u32,
    newest: u32,
    /// Smoothed difference between the delays of one sample and the next, in nanoseconds, times
    /// eight.
    difference_x8: u64,
    /// Longest recent overtaking, in nanoseconds: how much later a packet was sent than one that
    /// arrived after it.
    overtaken_ns: u64,
}

impl DelayEstimator {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            minima: [[None; 2]; CLASSES],
            longest: [None; 2],
            generation_ends: now + GENERATION,
            recent: [0; SAMPLES],
            recent_len: 0,
            recent_at: 0,
            median: 0,
            newest: 0,
            difference_x8: 0,
            overtaken_ns: 0,
        }
    }

    /// Records a raw sample (receive clock minus send clock, modulo 2^32 ns) of a packet of
    /// `bytes`. `most`: the time since the packet left. Returns its queueing delay in nanoseconds.
    #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)] // modular difference
    pub(crate) fn sample(&mut self, now: Instant, bytes: u16, raw: u32, most: Duration) -> u32 {
        if now >= self.generation_ends {
            self.generation_ends = now + GENERATION;
            for class in &mut self.minima {
                *class = [None, class[0]];
            }
            self.longest = [None, self.longest[0]];
        }
        // C1: One-way queueing delay
        let class = (bytes.max(64).ilog2() as usize - 6).min(CLASSES - 1);
        let [current, previous] = &mut self.minima[class];
        let least = match (*current, *previous) {
            (Some(a), Some(b)) => {
                if (a.wrapping_sub(b) as i32) < 0 {
                    a
                } else {
                    b
                }
            }
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => raw,
        };
        let delay = raw.wrapping_sub(least) as i32;
        if current.is_none_or(|c| (raw.wrapping_sub(c) as i32) < 0) {
            *current = Some(raw);
        }
        let mut delay = delay.max(0) as u32;
        // The delay of a packet is a part of its round trip. A longer delay shows that the minimum
        // is wrong: the clock of a host has jumped, or a packet waited in its receiver for seconds.
        if u64::from(delay) > most.as_nanos() {
            self.minima[class] = [Some(raw), None];
            delay = 0;
        }
        self.longest[0] = self.longest[0].max(Some(delay));
        self.keep(delay);
        delay
    }

    fn keep(&mut self, delay: u32) {
        if self.recent_len > 0 {
            let difference = u64::from(delay.abs_diff(self.newest));
            self.difference_x8 = self.difference_x8 - self.difference_x8 / 8 + difference;
        }
        self.newest = delay;
        self.recent[self.recent_at] = delay;
        self.recent_at = (self.recent_at + 1) % SAMPLES;
        self.recent_len = (self.recent_len + 1).min(SAMPLES);
        // C3: Median of sixteen observations
        if self.recent_at.is_multiple_of(4) || self.recent_len < 4 {
            let mut sorted = self.recent;
            let sorted = &mut sorted[..self.recent_len];
            sorted.sort_unstable();
            self.median = sorted[(self.recent_len - 1) / 2];
        }
    }

    /// Median queueing delay of the last sixteen samples: the delay of most paths.
    pub(crate) fn median(&self) -> Duration {
        Duration::from_nanos(self.median.into())
    }

    /// Longest queueing delay of the last five to ten seconds; `None` before the first sample.
    pub(crate) fn longest(&self) -> Option<Duration> {
        let [newer, older] = self.longest;
        newer.max(older).map(|ns| Duration::from_nanos(ns.into()))
    }

    /// Records the arrival of a packet. `overtaken` is how much later the newest packet that
    /// arrived before it was sent; zero if no packet overtook it.
    pub(crate) fn on_arrival(&mut self, overtaken: Duration) {
        let kept = self.overtaken_ns - self.overtaken_ns / OVERTAKEN_PART;
        self.overtaken_ns = kept.max(overtaken.as_nanos());
    }

    /// Difference between the delays of paths (C4): four times the smoothed difference between the
    /// delays of one packet and of the next, which use different paths. A queue that all paths
    /// share changes both delays equally and does not count.
    pub(crate) fn spread(&self) -> Duration {
        Duration::from_nanos(self.difference_x8 / 2)
    }

    /// The spread (C4), but at most [`OVERTAKEN_TIMES`] the longest recent overtaking. A queue of
    /// all paths that grows from one packet to the next increases the spread, but does not change
    /// the order of packets.
    pub(crate) fn spread_by_order(&self) -> Duration {
        self.spread().min(Duration::from_nanos(OVERTAKEN_TIMES * self.overtaken_ns))
    }
}

/// Estimates the round trip of a context: smoothed (RFC 6298), and the least of the last five to
/// ten seconds.
#[derive(Debug)]
pub(crate) struct RttEstimator {
    smoothed_ns: u64,
    variance_ns: u64,
    least: [Option<u64>; 2],
    generation_ends: Instant,
    initial: Duration,
    /// Size of the largest packet of a sample, in bytes.
    largest_bytes: u16,
    /// Number of samples, up to [`BASE_SAMPLES`].
    samples: u8,
}

impl RttEstimator {
    pub(crate) fn new(now: Instant, initial: Duration) -> Self {
        Self {
            smoothed_ns: 0,
            variance_ns: 0,
            least: [None; 2],
            generation_ends: now + GENERATION,
            initial,
            largest_bytes: 0,
            samples: 0,
        }
    }

    /// Records the round trip of a packet of `bytes`.
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration, bytes: u16) {
        self.samples = self.samples.saturating_add(1).min(BASE_SAMPLES);
        let ns = rtt.as_nanos();
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.variance_ns) = (ns, ns / 2);
        } else {
            let error = self.smoothed_ns.abs_diff(ns);
            self.variance_ns = (3 * self.variance_ns + error) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + ns) / 8;
        }
        // A7. The earlier samples would not count now. Only a shorter round trip replaces them:
        // the first long packets of many senders may have waited in a queue. The variance is not
        // replaced, so one sample does not shorten the timeout much.
        if u32::from(bytes) > 2 * u32::from(self.largest_bytes) {
            self.smoothed_ns = self.smoothed_ns.min(ns.max(1));
        }
        self.largest_bytes = self.largest_bytes.max(bytes);
        if now >= self.generation_ends {
            self.generation_ends = now + GENERATION;
            self.least = [None, self.least[0]];
        }
        self.least[0] = Some(self.least[0].map_or(ns, |l| l.min(ns)));
    }

    /// Whether a round trip has been measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.smoothed_ns != 0
    }

    /// Base round trip: the least sample of the last five to ten seconds, or `rtt_initial` without
    /// a sample.
    pub(crate) fn base(&self) -> Duration {
        // A7: Round-trip samples
        let least = self.least[0].into_iter().chain(self.least[1]).min();
        least.map_or(self.initial, Duration::from_nanos)
    }

    /// Base round trip that packets carry to the peer; `None` before the first sample. The least of
    /// a few samples is bounded, because it may be too large: when many senders begin at once, the
    /// first packet of most of them has waited in a queue.
    pub(crate) fn reported(&self) -> Option<Duration> {
        let most = self.initial.times(FEW_SAMPLES_PERCENT).over(100);
        match self.samples {
            0 => None,
            BASE_SAMPLES.. => Some(self.base()),
            _ => Some(self.base().min(most)),
        }
    }

    /// Smoothed round trip (`srtt` of RFC 6298), or `rtt_initial` without a sample.
    pub(crate) fn smoothed(&self) -> Duration {
        if self.is_measured() { Duration::from_nanos(self.smoothed_ns) } else { self.initial }
    }

    /// Retransmission timeout before its lower bound and back-off apply: 2 srtt + 4 var, or four
    /// times `rtt_initial` without a sample.
    pub(crate) fn timeout(&self) -> Duration {
        if self.is_measured() {
            Duration::from_nanos(2 * self.smoothed_ns + 4 * self.variance_ns)
        } else {
            self.initial.times(4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time since the sending of a packet that makes every delay of these tests possible.
    const LONG: Duration = Duration::from_secs(1);

    #[test]
    fn delay_is_relative_to_the_least_and_survives_clock_wrap() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        let base = u32::MAX - 100;
        assert_eq!(d.sample(Instant::ZERO, 4000, base, LONG), 0);
        assert_eq!(d.sample(Instant::ZERO, 4000, base.wrapping_add(500), LONG), 500);
        assert_eq!(d.sample(Instant::ZERO, 4000, base.wrapping_sub(50), LONG), 0);
        assert_eq!(d.sample(Instant::ZERO, 4000, base, LONG), 50);
    }

    #[test]
    fn a_delay_longer_than_the_round_trip_replaces_the_minimum() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        let most = Duration::from_nanos(500);
        d.sample(Instant::ZERO, 4000, 1000, most);
        assert_eq!(d.sample(Instant::ZERO, 4000, 1500, most), 500);
        assert_eq!(d.sample(Instant::ZERO, 4000, 1501, most), 0);
        assert_eq!(d.sample(Instant::ZERO, 4000, 1601, most), 100);
        assert_eq!(d.longest(), Some(Duration::from_nanos(500)));
    }

    #[test]
    fn sizes_do_not_share_a_minimum() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        d.sample(Instant::ZERO, 64, 1000, LONG);
        assert_eq!(d.sample(Instant::ZERO, 8900, 50_000, LONG), 0);
    }

    #[test]
    fn one_late_path_does_not_move_the_median_but_shows_in_the_spread() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        for i in 0..16 {
            d.sample(Instant::ZERO, 4000, if i == 7 { 90_000 } else { 10 }, LONG);
        }
        assert_eq!(d.median(), Duration::ZERO);
        assert!(d.spread() > Duration::from_micros(10));
    }

    /// The paper sees congestion if the majority of paths is late. Observations come from sixteen
    /// paths in turn here, so the median is that of the paths.
    #[test]
    fn a_minority_of_late_paths_does_not_move_the_median_and_a_majority_does() {
        for (late, median) in [(7, 0), (8, 0), (9, 90_000)] {
            let mut d = DelayEstimator::new(Instant::ZERO);
            for observation in 0..64 {
                // The late paths are spread over the sixteen: 7 has no common divisor with 16.
                let is_late = observation * 7 % 16 < late;
                // Before the first turn ends, no path is late: minima are those of idle paths.
                let raw = if is_late && observation >= 16 { 90_010 } else { 10 };
                d.sample(Instant::ZERO, 4000, raw, LONG);
            }
            assert_eq!(d.median(), Duration::from_nanos(median), "{late} late paths");
        }
    }

    /// Simulates a burst of many senders: each packet of a sender meets a much longer queue than
    /// the sender's previous packet.
    #[test]
    fn regression_a_queue_that_grows_is_no_spread_of_paths() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        for i in 0..16 {
            d.sample(Instant::ZERO, 4000, 20_000 * i, LONG);
            d.on_arrival(Duration::from_nanos(300));
        }
        assert!(d.spread() > Duration::from_micros(40));
        assert_eq!(d.spread_by_order(), Duration::from_nanos(600));
    }

    #[test]
    fn what_was_overtaken_is_forgotten_bit_by_bit() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        for i in 0..200 {
            d.sample(Instant::ZERO, 4000, 90_000 * (i % 2), LONG);
            d.on_arrival(Duration::from_micros(if i == 0 { 60 } else { 0 }));
        }
        let spread = d.spread_by_order();
        assert!(spread < Duration::from_micros(6), "{spread:?}");
    }

    #[test]
    fn an_old_minimum_is_forgotten_after_two_generations() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        d.sample(Instant::ZERO, 4000, 100, LONG);
        let later = Instant::ZERO + GENERATION;
        assert_eq!(d.sample(later, 4000, 400, LONG), 300);
        assert_eq!(d.sample(later + GENERATION, 4000, 400, LONG), 0);
    }

    #[test]
    fn the_longest_delay_is_remembered_as_long_as_the_least() {
        let mut d = DelayEstimator::new(Instant::ZERO);
        assert_eq!(d.longest(), None);
        for raw in [100, 900, 300] {
            d.sample(Instant::ZERO, 4000, raw, LONG);
        }
        assert_eq!(d.longest(), Some(Duration::from_nanos(800)));
        d.sample(Instant::ZERO + GENERATION, 4000, 300, LONG);
        assert_eq!(d.longest(), Some(Duration::from_nanos(800)));
        d.sample(Instant::ZERO + GENERATION.times(2), 4000, 400, LONG);
        assert_eq!(d.longest(), Some(Duration::from_nanos(200)));
    }

    #[test]
    fn rtt_follows_rfc_6298_and_keeps_its_least() {
        let mut r = RttEstimator::new(Instant::ZERO, Duration::from_micros(14));
        assert_eq!(r.timeout(), Duration::from_micros(56));
        r.sample(Instant::ZERO, Duration::from_micros(20), 1400);
        assert_eq!(r.timeout(), Duration::from_micros(80));
        r.sample(Instant::ZERO, Duration::from_micros(12), 1400);
        assert_eq!(
            (r.base(), r.smoothed()),
            (Duration::from_micros(12), Duration::from_micros(19))
        );
    }

    #[test]
    fn the_first_sample_of_much_larger_packets_lowers_the_smoothed_round_trip() {
        let us = Duration::from_micros;
        let smoothed = |before: u64, bytes: u16, after: u64| {
            let mut r = RttEstimator::new(Instant::ZERO, us(14));
            for _ in 0..20 {
                r.sample(Instant::ZERO, us(before), 100);
            }
            r.sample(Instant::ZERO, us(after), bytes);
            (r.smoothed(), r.timeout())
        };
        let (lowered, timeout) = smoothed(700, 1400, 12);
        assert_eq!(lowered, us(12));
        assert!(timeout > us(700), "answers as late as before cause no timeout: {timeout:?}");
        // Packets of at most twice the size, and a round trip that is longer.
        assert_eq!(smoothed(700, 200, 12).0, us(614));
        assert_eq!(smoothed(12, 1400, 100).0, us(23));
    }

    #[test]
    fn further_samples_of_the_larger_packets_are_smoothed() {
        let us = Duration::from_micros;
        let mut r = RttEstimator::new(Instant::ZERO, us(14));
        for (rtt, bytes) in [(700, 100), (16, 1400), (8, 1400), (7, 2800)] {
            r.sample(Instant::ZERO, us(rtt), bytes);
        }
        assert_eq!(r.smoothed(), us(14));
    }

    #[test]
    fn regression_the_first_round_trips_in_a_crowd_are_not_told_as_the_base() {
        let guess = Duration::from_micros(10);
        let mut r = RttEstimator::new(Instant::ZERO, guess);
        assert_eq!(r.reported(), None);
        for n in 1..=BASE_SAMPLES {
            r.sample(Instant::ZERO, guess.times(12), 1400);
            let told = if n < BASE_SAMPLES { Duration::from_nanos(27_500) } else { r.base() };
            assert_eq!(r.reported(), Some(told), "after {n}");
        }
        let mut r = RttEstimator::new(Instant::ZERO, guess);
        r.sample(Instant::ZERO, guess.over(2), 1400);
        assert_eq!(r.reported(), Some(guess.over(2)));
    }
}
