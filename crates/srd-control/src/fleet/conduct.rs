//! Bounds of the harm that one host does to the requests of all others: how long requests wait for
//! the host, and how many launches fail because of it.

use std::time::{Duration, Instant};

/// Longest time that each request waits for a host without a credit.
pub(super) const PROMPT: Duration = Duration::from_millis(50);
/// Largest credit of a host.
pub(super) const CREDIT_MAX: Duration = Duration::from_secs(20);
/// Time in which a host gains one unit of credit: it delays requests for a hundredth of the time.
const REFILL: u32 = 100;

/// Credit of a host: the time for which requests still wait for it, beyond [`PROMPT`] of each. The
/// credit outlives the sessions of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Credit {
    /// Time at which the credit is whole again.
    full_at: Option<Instant>,
}

impl Credit {
    /// Returns the longest time that a request waits for the host.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        let missing = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        PROMPT + CREDIT_MAX.saturating_sub(missing / REFILL)
    }

    /// Records that a request has waited for the host for this time.
    pub(super) fn charge(&mut self, waited: Duration, now: Instant) {
        let cost = waited.saturating_sub(PROMPT).min(CREDIT_MAX) * REFILL;
        self.full_at = Some(self.full_at.map_or(now, |at| at.max(now)) + cost);
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
                credit.charge(waited, now);
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
        (0..100_000).for_each(|_| credit.charge(PROMPT, now));
        assert_eq!(credit.patience(now), PROMPT + CREDIT_MAX);
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
