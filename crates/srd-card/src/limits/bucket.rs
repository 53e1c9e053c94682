//! One token bucket in exact integers: no rounding, hence no drift.
//!
//! The level is kept in billionths of a token. A rate of `r` tokens a second earns exactly `r`
//! billionths in a nanosecond, so earning is one multiplication and nothing is ever divided. A
//! token is a bit or a packet. The level may go below zero: that debt is the queue before the
//! bucket, in tokens.

use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use crate::store::{Reader, Stored, StoredError};

/// Billionths of a token in a token, which is also nanoseconds in a second.
const NANO: i128 = 1_000_000_000;

/// A token bucket that is full when it is made.
///
/// A caller that was late reads at once what arrived over a time in which the bucket earned. So
/// long the bucket keeps what it earns beyond its depth (`set_late`): no more passes than
/// the rate and the depth allow from the time of arrival.
///
/// Bound: the debt never exceeds what the rate earns in the delay that [`take`](Self::take) allows,
/// or the tokens of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Billionths of a token; negative while packets wait.
    level: i128,
    /// Most that `level` can be, of a caller that is not late.
    full: i128,
    /// The level above the depth: the rate's earnings in the time by which the caller is late.
    late: i128,
    /// Tokens earned in a second, at least one.
    rate: u64,
    /// Up to when the rate was earned.
    at: Instant,
    /// Whether nothing is earned.
    stopped: bool,
}

/// A packet that would wait longer than it may. The bucket is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl Bucket {
    /// A full bucket of `depth` tokens that earns `rate` tokens a second (at least one).
    pub fn new(rate: u64, depth: u64, now: Instant) -> Self {
        let full = i128::from(depth) * NANO;
        Self { level: full, full, late: 0, rate: rate.max(1), at: now, stopped: false }
    }

    /// A bucket that continues from a level, in billionths of a token, at a time, of a caller that
    /// is late.
    pub(super) fn resume(rate: u64, depth: u64, level: i128, at: Instant, late: Duration) -> Self {
        let mut bucket = Self::new(rate, depth, at);
        bucket.set_late(late);
        Self { level: level.min(bucket.full.saturating_add(bucket.late)), ..bucket }
    }

    /// From now on packets may have arrived so long before they are offered (L11). What is kept
    /// beyond the depth is lost when this is zero again.
    #[inline]
    pub(super) fn set_late(&mut self, late: Duration) {
        self.late = i128::from(late.as_nanos()) * i128::from(self.rate);
    }

    /// Whether so many tokens are there: then [`Bucket::pay`] is all that `take` would do.
    #[inline]
    pub(super) fn has(&mut self, now: Instant, tokens: u64) -> bool {
        self.earn(now);
        self.level >= cost(tokens)
    }

    /// Takes tokens that are there.
    #[inline]
    pub(super) fn pay(&mut self, tokens: u64) {
        self.level -= cost(tokens);
    }

    /// Takes `tokens`, and returns how long from `now` the packet has to wait for them: no time if
    /// they were there. Packets are served in the order of the calls (L1).
    ///
    /// # Errors
    /// [`TooLong`] if [`admits`](Self::admits) says no; nothing is taken then.
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

    /// Whether a packet of `tokens` may wait for them: not longer than `wait_max`; but a packet
    /// that nothing waits before may, so that no packet is too large for ever. If `wait_max` is
    /// zero, none waits (L5).
    pub fn admits(&mut self, now: Instant, tokens: u64, wait_max: Duration) -> bool {
        self.earn(now);
        let missing = cost(tokens).saturating_sub(self.level);
        let first = self.level >= 0 && wait_max > Duration::ZERO;
        first || self.time_to_earn(missing) <= wait_max
    }

    /// The level in billionths of a token, and of which time it is.
    pub(super) fn level(&self) -> (i128, Instant) {
        (self.level, self.at)
    }

    /// Whole tokens in the bucket; none while packets wait.
    pub fn tokens(&mut self, now: Instant) -> u64 {
        self.earn(now);
        u64::try_from(self.level.max(0) / NANO).unwrap_or(u64::MAX)
    }

    /// From now on nothing is earned (L3).
    pub fn stop(&mut self, now: Instant) {
        self.earn(now);
        self.stopped = true;
    }

    /// Earns again, from now on.
    pub fn start(&mut self, now: Instant) {
        self.earn(now);
        self.stopped = false;
    }

    /// Time that runs backwards stands still.
    #[inline]
    fn earn(&mut self, now: Instant) {
        // Packets of one batch have one time.
        if now <= self.at {
            return;
        }
        let elapsed = now.since(self.at).as_nanos();
        self.at = now;
        if !self.stopped {
            // A product of two words is one multiplication.
            let earned = u128::from(elapsed) * u128::from(self.rate);
            let earned = i128::try_from(earned).unwrap_or(i128::MAX);
            let most = self.full.saturating_add(self.late);
            self.level = most.min(self.level.saturating_add(earned));
        }
    }

    /// Whole nanoseconds, rounded up, in which so many billionths are earned.
    fn time_to_earn(&self, missing: i128) -> Duration {
        if missing <= 0 {
            return Duration::ZERO;
        }
        let rate = i128::from(self.rate);
        u64::try_from(missing.saturating_add(rate - 1) / rate)
            .map_or(Duration::MAX, Duration::from_nanos)
    }
}

/// Billionths of so many tokens.
#[inline]
fn cost(tokens: u64) -> i128 {
    i128::from(tokens) * NANO
}

impl Bucket {
    /// Writes what another bucket goes on with.
    pub(super) fn export(&self, out: &mut Vec<u8>) {
        let Self { level, full: _, late: _, rate: _, at, stopped } = self;
        level.write(out);
        at.write(out);
        stopped.write(out);
    }

    /// Goes on where another bucket ended, with this one's rate, and not above its depth.
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

    /// The level as a fraction with the denominator 10^9, from the sums of everything earned and
    /// taken since the beginning: a bucket lacks the net taken less the least that this ever was.
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

    /// L1: no drift over ten million steps, against sums that are never rounded.
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
                // Phases of overload and of idleness, so that both borders are touched.
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

    /// L11: what is read late has been earned for; a caller that is in time keeps the depth.
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

    /// A packet that needs more tokens than the queue may owe would otherwise never pass.
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
