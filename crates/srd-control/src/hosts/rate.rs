//! Limits of the changes that one host causes in the store. Each change is a transaction.
//!
//! A change of a host itself is also a message to all other hosts: a host may make [`BURST`] of
//! them at once, and then one in [`INTERVAL`]. Of requests about its pods, a host may send
//! [`POD_BURST`] at once, and then one in [`POD_INTERVAL`]. At most [`HOSTS_MAX`] hosts are
//! remembered beyond those that wait for the end of an interval.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use srd_enrol::Fingerprint;

use super::HOSTS_MAX;

/// Average time between two changes of a host.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Number of changes that a host may make at once.
pub(super) const BURST: u32 = 10;

/// Average time between two requests of a host about its pods.
const POD_INTERVAL: Duration = Duration::from_millis(100);
/// Number of requests about its pods that a host may send at once.
const POD_BURST: u32 = 200;

/// The rates of all hosts.
#[derive(Debug)]
pub(super) struct ChangeRates {
    interval: Duration,
    burst: u32,
    /// Time at which each host has its whole burst again.
    full_at: BTreeMap<Fingerprint, Instant>,
}

impl Default for ChangeRates {
    fn default() -> Self {
        Self { interval: INTERVAL, burst: BURST, full_at: BTreeMap::new() }
    }
}

impl ChangeRates {
    /// Rates of requests about pods.
    pub(super) fn of_pods() -> Self {
        Self { interval: POD_INTERVAL, burst: POD_BURST, full_at: BTreeMap::new() }
    }

    /// Counts a change of a host. Returns whether the host may make it.
    pub(super) fn admit(&mut self, host: Fingerprint, now: Instant) -> bool {
        if self.full_at.len() >= HOSTS_MAX {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let full_at = self.full_at.get(&host).copied().unwrap_or(now).max(now) + self.interval;
        let is_admitted = full_at.duration_since(now) <= self.interval * self.burst;
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
    fn requests_about_pods_have_a_rate_of_their_own() {
        let (mut rates, begin, own) = (ChangeRates::of_pods(), Instant::now(), host());
        let mut count = |now: Instant| (0..1000).filter(|_| rates.admit(own, now)).count();
        assert_eq!(count(begin), 200);
        assert_eq!(count(begin + Duration::from_secs(1)), 10);
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
