//! Validity of verdicts: a verdict is valid if no later change of rules concerned the objects on
//! which it depends (V4).
//!
//! Changes of rules are numbered. A verdict contains the number of the last change before it. An
//! interface stores the number of the last change of its routes, and that of the last change of its
//! routes or security groups. For remote addresses, all addresses with the same hash share one
//! number. So some verdicts become invalid without need, but none stays valid too long.
//!
//! Bound: [`BUCKETS`] numbers for addresses. A flow stores only the low half of a number. When the
//! low half begins anew, the verdicts of all flows are removed ([`Epochs::begin`]).

use alloc::boxed::Box;
use core::net::IpAddr;

use crate::track::Key;

/// Number of hash buckets of addresses.
const BUCKETS: usize = 1024;

/// Numbers of the last changes of rules that concern an interface, or one of its flows.
#[derive(Clone, Copy, Debug)]
pub(in crate::vpc) struct Since {
    /// Number of the last change of the interface's addresses, network ACLs, routes or gateways,
    /// which concerns all of its flows.
    pub(in crate::vpc) ways: u64,
    /// Number of the last change of the interface's addresses, network ACLs, routes, gateways or
    /// security groups, which concerns its flows that are not tracked. // V2
    pub(in crate::vpc) groups: u64,
}

impl Since {
    /// Returns the numbers after a change that concerns all flows.
    pub(in crate::vpc) fn all(now: u64) -> Self {
        Self { ways: now, groups: now }
    }

    /// Whether a verdict is still valid. `epoch` is the low half of the verdict's number, and
    /// `tracked` states whether the flow is tracked.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // both are of one turn of the low half
    pub(in crate::vpc) fn holds(self, epoch: u32, tracked: bool) -> bool {
        epoch >= if tracked { self.ways as u32 } else { self.groups as u32 }
    }

    /// Returns the numbers with the last change at the remote address taken into account.
    #[inline]
    pub(in crate::vpc) fn and(self, address: u64) -> Self {
        Self { ways: self.ways.max(address), groups: self.groups.max(address) }
    }
}

/// Numbers of the changes of rules.
#[derive(Debug)]
pub(in crate::vpc) struct Epochs {
    now: u64,
    addresses: Box<[u64; BUCKETS]>,
}

impl Epochs {
    pub(in crate::vpc) fn new() -> Self {
        Self { now: 1, addresses: Box::new([0; BUCKETS]) }
    }

    /// Number of the last change of rules.
    pub(in crate::vpc) fn now(&self) -> u64 {
        self.now
    }

    /// Low half of the number of the last change, which verdicts contain. The low half is never
    /// zero, so zero stands for no verdict.
    #[allow(clippy::cast_possible_truncation)] // the low half
    pub(in crate::vpc) fn kept(&self) -> u32 {
        self.now as u32
    }

    /// Begins another change of rules. Returns whether the low half of the numbers begins anew;
    /// then the caller has to remove all verdicts.
    pub(in crate::vpc) fn begin(&mut self) -> bool {
        self.now += 1;
        let anew = self.kept() == 0;
        self.now += u64::from(anew);
        anew
    }

    /// Records that the last change concerns the object at an address.
    pub(in crate::vpc) fn concern(&mut self, address: IpAddr) {
        self.addresses[bucket(Key::words(address))] = self.now;
    }

    /// Returns the number of the last change that concerns the remote address of a flow.
    #[inline]
    pub(in crate::vpc) fn of_remote(&self, key: &Key) -> u64 {
        self.addresses[bucket(key.remote_words())]
    }
}

/// Bucket of an address, by a hash of its bits.
#[inline]
fn bucket(words: [u64; 2]) -> usize {
    let mixed = (words[0].rotate_left(32) ^ words[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize % BUCKETS
}

#[cfg(test)]
impl Epochs {
    /// Sets the number of the last change.
    pub(in crate::vpc) fn set(&mut self, now: u64) {
        self.now = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_half_begins_anew_and_is_never_zero() {
        let mut epochs = Epochs::new();
        epochs.now = u64::from(u32::MAX) - 1;
        assert!(!epochs.begin());
        assert_eq!(epochs.kept(), u32::MAX);
        assert!(epochs.begin());
        assert_eq!((epochs.now(), epochs.kept()), ((1 << 32) + 1, 1));
        assert!(!Since::all(epochs.now()).holds(0, true));
    }

    #[test]
    fn addresses_of_a_subnet_have_buckets_of_their_own() {
        let mut buckets: std::vec::Vec<usize> =
            (0..=255).map(|last| bucket(Key::words(IpAddr::from([10, 0, 0, last])))).collect();
        buckets.sort_unstable();
        buckets.dedup();
        assert!(buckets.len() > 200, "{}", buckets.len());
    }
}
