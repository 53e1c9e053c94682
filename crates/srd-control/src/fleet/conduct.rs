//! Bounds of the harm that one host does to the requests of all others: how long requests wait for
//! the host, and how many launches fail because of it.

use std::time::{Duration, Instant};

/// Longest time that each request waits for a host without a credit.
pub(super) const PROMPT: Duration = Duration::from_millis(50);
/// Largest credit of a host.
pub(super) const CREDIT_MAX: Duration = Duration::from_secs(20);
/// Time in which a host gains one unit of credit: it delays requests for a hundredth of the time.
const REFILL: u32 = 100;

/// Credit of a host: the time for which requests still wait for it, beyond [`PROMPT`] of each. Time
/// in which several requests wait counts once, because they do not delay each other. The credit
/// outlives the sessions of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Credit {
    /// Time at which the credit is whole again.
    full_at: Option<Instant>,
    /// Time until which delays are charged.
    charged_until: Option<Instant>,
}

impl Credit {
    /// Returns the longest time that a request waits for the host.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        let missing = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        PROMPT + CREDIT_MAX.saturating_sub(missing / REFILL)
    }

    /// Records that a request has waited for the host from `begin` until `now`. Waits are recorded
    /// in the order of their ends.
    pub(super) fn charge(&mut self, begin: Instant, now: Instant) {
        let late = begin + PROMPT;
        if late >= now {
            return;
        }
        let from = self.charged_until.map_or(late, |until| until.max(late));
        let cost = now.saturating_duration_since(from).min(CREDIT_MAX) * REFILL;
        self.full_at = Some(self.full_at.map_or(now, |at| at.max(now)) + cost);
        self.charged_until = Some(now);
    }
}

/// Time for which a host that has refused an instance is the last choice.
const AVOID_MIN: Duration = Duration::from_secs(60);
/// Longest such time.
const AVOID_MAX: Duration = Duration::from_secs(3600);

/// Instances that a host has refused since it has accepted one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Refusals {
    count: u32,
    /// Time from which the host is a choice as all others.
    avoided_until: Option<Instant>,
}

impl Refusals {
    /// Records whether the host has accepted the instances that a request has started there.
    pub(super) fn started(&mut self, is_accepted: bool, now: Instant) {
        if is_accepted {
            *self = Self::default();
            return;
        }
        let avoid = AVOID_MIN.saturating_mul(1 << self.count.min(16)).min(AVOID_MAX);
        *self = Self { count: self.count.saturating_add(1), avoided_until: Some(now + avoid) };
    }

    /// Whether other hosts come first.
    pub(super) fn is_avoided(&self, now: Instant) -> bool {
        self.avoided_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that acknowledged after 1.9 seconds, or after 2.1 seconds, delayed each request by
    /// two seconds.
    #[test]
    fn regression_a_slow_host_delays_requests_for_a_bounded_share_of_the_time() {
        let hour = Duration::from_secs(3600);
        for answers_after in [Duration::from_millis(1900), Duration::from_millis(2100)] {
            let (mut credit, begin) = (Credit::default(), Instant::now());
            let (mut now, mut delayed, mut requests) = (begin, Duration::ZERO, 0);
            while now < begin + hour {
                let waited = answers_after.min(credit.patience(now)).min(Duration::from_secs(2));
                now += waited;
                credit.charge(now - waited, now);
                delayed += waited.saturating_sub(PROMPT);
                requests += 1;
                now += Duration::from_millis(100);
            }
            assert!(requests > 20_000, "{requests}");
            assert!(delayed <= CREDIT_MAX + hour / 90, "{} s", delayed.as_secs());
            assert_eq!(credit.patience(now + hour), PROMPT + CREDIT_MAX);
        }
    }

    #[test]
    fn a_prompt_host_keeps_its_credit() {
        let (mut credit, now) = (Credit::default(), Instant::now());
        (0..100_000).for_each(|_| credit.charge(now, now + PROMPT));
        assert_eq!(credit.patience(now), PROMPT + CREDIT_MAX);
    }

    /// One pause of two seconds, in which 16 requests waited, used up the credit of a host for more
    /// than half an hour.
    #[test]
    fn regression_requests_that_wait_at_the_same_time_are_charged_once() {
        let (mut credit, begin) = (Credit::default(), Instant::now());
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        (0..16).for_each(|number| credit.charge(at(number), at(2000)));
        let charged = Duration::from_millis(2000) - PROMPT;
        assert_eq!(credit.patience(at(2000)), PROMPT + CREDIT_MAX - charged);
        // A wait that ends later is charged for the time after the others.
        credit.charge(at(15), at(2100));
        let charged = Duration::from_millis(2100) - PROMPT;
        let gained = Duration::from_millis(1);
        assert_eq!(credit.patience(at(2100)), PROMPT + CREDIT_MAX - charged + gained);
    }

    #[test]
    fn a_host_that_refuses_instances_is_avoided_for_longer_each_time() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(!refusals.is_avoided(begin));
        refusals.started(false, begin);
        assert!(refusals.is_avoided(at(59)) && !refusals.is_avoided(at(60)));
        refusals.started(false, begin);
        assert!(refusals.is_avoided(at(119)) && !refusals.is_avoided(at(120)));
        (0..100).for_each(|_| refusals.started(false, begin));
        assert!(refusals.is_avoided(at(3599)) && !refusals.is_avoided(at(3600)));
        refusals.started(true, begin);
        assert!(!refusals.is_avoided(begin));
        refusals.started(false, begin);
        assert!(!refusals.is_avoided(at(60)));
    }
}
