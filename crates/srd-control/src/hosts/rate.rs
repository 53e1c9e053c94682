//! Limit of the changes that one host causes in the store. Each change is a transaction, and a
//! message to all other hosts.
//!
//! A host may make [`BURST`] changes at once, and then one in [`INTERVAL`]. At most [`HOSTS_MAX`]
//! hosts are remembered beyond those that wait for the end of an interval.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use srd_enrol::Fingerprint;

use super::HOSTS_MAX;

/// Average time between two changes of a host.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Number of changes that a host may make at once.
pub(super) const BURST: u32 = 10;

/// The rates of all hosts.
#[derive(Debug, Default)]
pub(super) struct ChangeRates {
    /// Time at which each host has its whole burst again.
    full_at: BTreeMap<Fingerprint, Instant>,
}

impl ChangeRates {
    /// Counts a change of a host. Returns whether the host may make it.
    pub(super) fn admit(&mut self, host: Fingerprint, now: Instant) -> bool {
        if self.full_at.len() >= HOSTS_MAX {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let full_at = self.full_at.get(&host).copied().unwrap_or(now).max(now) + INTERVAL;
        let is_admitted = full_at.duration_since(now) <= INTERVAL * BURST;
        if is_admitted {
            self.full_at.insert(host, full_at);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_enrol::Identity;

    fn host() -> Fingerprint {
        Identity::draw().unwrap().fingerprint()
    }

    #[test]
    fn a_host_makes_a_burst_of_changes_and_then_one_in_each_interval() {
        let (mut rates, begin, own) = (ChangeRates::default(), Instant::now(), host());
        let mut count = |now: Instant| (0..100).filter(|_| rates.admit(own, now)).count();
        assert_eq!(count(begin), 10);
        assert_eq!(count(begin + INTERVAL - Duration::from_millis(1)), 0);
        assert_eq!(count(begin + INTERVAL), 1);
        assert_eq!(count(begin + INTERVAL * 4), 3);
        assert_eq!(count(begin + INTERVAL * 1000), 10);
        assert!(rates.admit(host(), begin), "another host has its own rate");
    }

    #[test]
    fn hosts_that_have_been_quiet_are_forgotten() {
        let (mut rates, begin) = (ChangeRates::default(), Instant::now());
        for number in 0..HOSTS_MAX {
            assert!(rates.admit(host(), begin + INTERVAL * u32::from(number >= HOSTS_MAX / 2)));
        }
        assert!(rates.admit(host(), begin + INTERVAL));
        assert_eq!(rates.full_at.len(), HOSTS_MAX - HOSTS_MAX / 2 + 1);
    }
}
