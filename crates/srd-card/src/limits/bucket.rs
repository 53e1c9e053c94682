//! One token bucket in exact integers: no rounding, hence no drift.
//!
//! The level is kept in billionths of a token. A rate of `r` tokens per second earns exactly `r`
//! billionths in a nanosecond, so earning is one multiplication without any division. A token is a
//! bit or a packet. The level may go below zero: this debt is the queue before the bucket, in
//! tokens.

use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use crate::store::{Reader, Stored, StoredError};

/// Number of billionths of a token in one token. A second has the same number of nanoseconds.
const NANO: i128 = 1_000_000_000;

/// A token bucket that is full when it is created.
///
/// A caller that has not polled for some time reads all packets that arrived meanwhile at once. For
/// this time, the bucket keeps the tokens that it earns beyond its depth (`set_late`). So it admits
/// as many packets as if each had been read on arrival.
///
/// Bound: the debt never exceeds what the rate earns in the delay that [`take`](Self::take)
/// allows, or the tokens of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Tokens in the bucket, in billionths of a token; negative while packets wait.
    level: i128,
    /// Maximum of `level` for a caller that polls in time: the depth.
    full: i128,
    /// Amount by which `level` may exceed `full`: the tokens that are earned in the time by which
    /// the caller is late.
    late: i128,
    /// Tokens earned in a second, at least one.
    rate: u64,
    /// Time up to which tokens have been earned.
    at: Instant,
    /// Whether the bucket earns no tokens at present.
    stopped: bool,
}

/// Error: the packet would wait longer than allowed. The bucket is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl Bucket {
    /// Creates a full bucket of `depth` tokens that earns `rate` tokens per second (at least one).
    pub fn new(rate: u64, depth: u64, now: Instant) -> Self {
        let full = i128::from(depth) * NANO;
        Self { level: full, full, late: 0, rate: rate.max(1), at: now, stopped: false }
    }

    /// Creates a bucket whose level at the time `at` is `level`, in billionths of a token. Packets
    /// reach the bucket up to `late` after their time.
    pub(super) fn resume(rate: u64, depth: u64, level: i128, at: Instant, late: Duration) -> Self {
        let mut bucket = Self::new(rate, depth, at);
        bucket.set_late(late);
        Self { level: level.min(bucket.full.saturating_add(bucket.late)), ..bucket }
    }

    /// Sets the time by which the caller is late: a packet may have arrived this long before the
    /// call that takes tokens for it (L11). When the time is zero again, tokens above the depth are
    /// lost.
    #[inline]
    pub(super) fn set_late(&mut self, late: Duration) {
        self.late = i128::from(late.as_nanos()) * i128::from(self.rate);
    }

    /// Whether the bucket has this number of tokens. If so, [`Bucket::pay`] does all that `take`
    /// would do.
    #[inline]
    pub(super) fn has(&mut self, now: Instant, tokens: u64) -> bool {
        self.earn(now);
        self.level >= cost(tokens)
    }

    /// Takes tokens from the bucket. The caller has checked by [`Bucket::has`] that the bucket has
    /// them.
    #[inline]
    pub(super) fn pay(&mut self, tokens: u64) {
        self.level -= cost(tokens);
    }

    /// Takes `tokens`, and returns how long from `now` the packet waits for them: zero if the
    /// bucket has them. Packets are served in the order of the calls (L1).
    ///
    /// # Errors
    /// [`TooLong`] if [`admits`](Self::admits) returns `false`; nothing is taken then.
    pub fn take(
        &mut self,
        now: Instant,
        tokens: u64,
        wait_max: Duration,
    ) -> Result<Duration, TooLong> {
        if self.has(now, tokens) {
            self.pay(tokens);
            return Ok(Duration::ZERO);
        }
        if !self.admits(now, tokens, wait_max) {
            return Err(TooLong);
        }
        self.level = self.level.saturating_sub(cost(tokens));
        Ok(self.time_to_earn(self.level.saturating_neg()))
    }

    /// Whether a packet of `tokens` may wait for them, at most `wait_max`. A packet that finds no
    /// debt may always wait; otherwise a packet that is larger than the queue would never pass. If
    /// `wait_max` is zero, no packet waits (L5).
    pub fn admits(&mut self, now: Instant, tokens: u64, wait_max: Duration) -> bool {
        self.earn(now);
        let missing = cost(tokens).saturating_sub(self.level);
        let first = self.level >= 0 && wait_max > Duration::ZERO;
        first || self.time_to_earn(missing) <= wait_max
    }

    /// Returns the level in billionths of a token, and the time at which the bucket had this level.
    pub(super) fn level(&self) -> (i128, Instant) {
        (self.level, self.at)
    }

    /// Returns the whole tokens in the bucket; zero while packets wait.
    pub fn tokens(&mut self, now: Instant) -> u64 {
        self.earn(now);
        u64::try_from(self.level.max(0) / NANO).unwrap_or(u64::MAX)
    }

    /// Stops earning tokens, until [`Bucket::start`] (L3).
    pub fn stop(&mut self, now: Instant) {
        self.earn(now);
        self.stopped = true;
    }

    /// Earns tokens again after [`Bucket::stop`].
    pub fn start(&mut self, now: Instant) {
        self.earn(now);
        self.stopped = false;
    }

    /// Adds the tokens earned up to `now`. A time before the time of an earlier call changes
    /// nothing.
    #[inline]
    fn earn(&mut self, now: Instant) {
        // Packets of one batch have the same time.
        if now <= self.at {
            return;
        }
        let elapsed = now.since(self.at).as_nanos();
        self.at = now;
        if !self.stopped {
            // The product of two 64-bit words is one multiplication.
            let earned = u128::from(elapsed) * u128::from(self.rate);
            let earned = i128::try_from(earned).unwrap_or(i128::MAX);
            let most = self.full.saturating_add(self.late);
            self.level = most.min(self.level.saturating_add(earned));
        }
    }

    /// Time in which `missing` billionths of a token are earned, in whole nanoseconds, rounded up.
    fn time_to_earn(&self, missing: i128) -> Duration {
        if missing <= 0 {
            return Duration::ZERO;
        }
        let rate = i128::from(self.rate);
        u64::try_from(missing.saturating_add(rate - 1) / rate)
            .map_or(Duration::MAX, Duration::from_nanos)
    }
}

/// Billionths of a token in this number of tokens.
#[inline]
fn cost(tokens: u64) -> i128 {
    i128::from(tokens) * NANO
}

impl Bucket {
    /// Writes the state with which another bucket continues.
    pub(super) fn export(&self, out: &mut Vec<u8>) {
        let Self { level, full: _, late: _, rate: _, at, stopped } = self;
        level.write(out);
        at.write(out);
        stopped.write(out);
    }

    /// Reads the level, the time and the stopped state that another bucket exported. The rate and
    /// the depth of `self` do not change; a level above this depth is reduced to it.
    pub(super) fn import(&mut self, from: &mut Reader<'_>) -> Result<(), StoredError> {
        self.level = self.full.min(i128::read(from)?);
        self.at = Instant::read(from)?;
        self.stopped = bool::read(from)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::rng::Rng;

    fn below(rng: &mut Rng, n: u64) -> u64 {
        rng.next_u64() % n
    }

    /// Exact model of the level, as a fraction with the denominator 10^9. It keeps the sums of all
    /// tokens earned and taken since the beginning. The deficit of the bucket is the net amount
    /// taken, less the smallest net amount so far.
    struct Model {
        rate: i128,
        taken: i128,
        least: i128,
    }

    impl Model {
        fn net(&mut self, now_ns: u64) -> i128 {
            let net = self.taken * 1_000_000_000 - self.rate * i128::from(now_ns);
            self.least = self.least.min(net);
            net - self.least
        }
    }

    /// L1: ten million steps show no drift against sums that are never rounded.
    #[test]
    fn ten_million_random_steps_leave_no_drift() {
        for (seed, rate, largest) in [
            (1, 781_000_000, 72_000),
            (2, 12_500_000_007, 524_000),
            (3, 906_250, 45),
            (4, 1024, 45),
            (5, 3, 4),
        ] {
            let depth = 100 * largest;
            let mut rng = Rng::new(seed);
            let mut bucket = Bucket::new(rate, depth, Instant::ZERO);
            let mut model = Model { rate: i128::from(rate), taken: 0, least: 0 };
            let (mut now, mut refused, mut full, mut waited) = (0_u64, 0, 0, 0);
            let span = largest * 1_000_000_000 / rate;
            for step in 0..2_000_000_u64 {
                // Phases of overload and of idleness, so that the level reaches both bounds.
                let pace = if step / 1000 % 3 == 0 { span * 9 } else { span / 2 };
                now += below(&mut rng, pace.max(2));
                let tokens = below(&mut rng, largest);
                let wait_max = Duration::from_nanos(span * 50);
                let at = Instant::from_nanos(now);
                let lacks = model.net(now) + i128::from(tokens) * NANO - i128::from(depth) * NANO;
                let wait = (lacks.max(0) + i128::from(rate) - 1) / i128::from(rate);
                full += u64::from(bucket.tokens(at) == depth);
                let result = bucket.take(at, tokens, wait_max);
                let first = model.net(now) <= i128::from(depth) * NANO;
                if wait > i128::from(wait_max.as_nanos()) && !first {
                    assert_eq!(result, Err(TooLong));
                    refused += 1;
                } else {
                    assert_eq!(i128::from(result.unwrap().as_nanos()), wait, "step {step}");
                    model.taken += i128::from(tokens);
                    waited += u64::from(wait > 0);
                }
            }
            assert!(refused > 0 && full > 0 && waited > 0, "{rate}: {refused} {full} {waited}");
        }
    }

    #[test]
    fn a_stopped_bucket_earns_nothing() {
        let mut bucket = Bucket::new(1000, 10, Instant::ZERO);
        bucket.take(Instant::ZERO, 10, Duration::ZERO).unwrap();
        bucket.stop(Instant::ZERO);
        let later = Instant::ZERO + Duration::from_secs(9);
        assert_eq!(bucket.tokens(later), 0);
        bucket.start(later);
        assert_eq!(bucket.tokens(later + Duration::from_millis(4)), 4);
    }

    /// L11: for a late caller, the bucket keeps the tokens that were earned meanwhile; for a caller
    /// that polls in time, it keeps only its depth.
    #[test]
    fn a_late_caller_keeps_what_was_earned_meanwhile_and_no_more() {
        let ms = Duration::from_millis;
        let mut bucket = Bucket::new(1000, 10, Instant::ZERO);
        assert_eq!(bucket.tokens(Instant::ZERO + ms(100)), 10);
        bucket.set_late(ms(50));
        assert_eq!(bucket.tokens(Instant::ZERO + ms(101)), 11, "no time passes twice");
        assert_eq!(bucket.tokens(Instant::ZERO + ms(150)), 60);
        assert_eq!(bucket.tokens(Instant::ZERO + ms(900)), 60, "the depth, and 50 ms");
        bucket.set_late(Duration::ZERO);
        assert_eq!(bucket.tokens(Instant::ZERO + ms(901)), 10);
    }

    /// A packet may always wait if no other packet waits. Without this rule, a packet that needs
    /// more tokens than the queue may owe would never pass.
    #[test]
    fn a_packet_larger_than_the_queue_passes_when_nothing_waits() {
        let mut bucket = Bucket::new(1000, 0, Instant::ZERO);
        let wait_max = Duration::from_millis(5);
        assert_eq!(bucket.take(Instant::ZERO, 44, wait_max), Ok(Duration::from_millis(44)));
        assert_eq!(bucket.take(Instant::ZERO, 1, wait_max), Err(TooLong));
        let later = Instant::ZERO + Duration::from_millis(44);
        assert_eq!(bucket.take(later, 44, wait_max), Ok(Duration::from_millis(44)));
        let idle = later + Duration::from_secs(1);
        assert_eq!(bucket.take(idle, 44, Duration::ZERO), Err(TooLong), "without a queue");
    }

    #[test]
    fn no_argument_overflows() {
        let mut bucket = Bucket::new(u64::MAX, u64::MAX, Instant::ZERO);
        for now in [Instant::FAR_FUTURE, Instant::ZERO, Instant::FAR_FUTURE] {
            assert!(bucket.take(now, u64::MAX, Duration::MAX).is_ok());
        }
        let mut slow = Bucket::new(0, 0, Instant::ZERO);
        assert_eq!(slow.take(Instant::ZERO, u64::MAX, Duration::ZERO), Err(TooLong));
        assert_eq!(slow.take(Instant::ZERO, u64::MAX, Duration::from_secs(1)), Ok(Duration::MAX));
        assert_eq!(slow.take(Instant::ZERO, 0, Duration::from_secs(1)), Err(TooLong));
    }
}
