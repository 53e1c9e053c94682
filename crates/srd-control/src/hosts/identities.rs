//! Limit of the connections of one identity, whose older sessions may still be closing.
//!
//! Bounds: one entry for each identity that has a connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use srd_enrol::Fingerprint;

/// Largest number of connections of one identity.
pub(super) const CONNECTIONS_OF_IDENTITY_MAX: usize = 8;

/// Number of connections of each identity.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities(Arc<Mutex<BTreeMap<Fingerprint, usize>>>);

/// A connection of an identity, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct IdentitySlot {
    identities: Identities,
    identity: Fingerprint,
}

impl Identities {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection; `None` if the identity has too many.
    pub(super) fn admit(&self, identity: Fingerprint) -> Option<IdentitySlot> {
        let mut counts = self.counts();
        let count = counts.entry(identity).or_default();
        if *count >= CONNECTIONS_OF_IDENTITY_MAX {
            return None;
        }
        *count += 1;
        Some(IdentitySlot { identities: self.clone(), identity })
    }
}

impl Drop for IdentitySlot {
    fn drop(&mut self) {
        let mut counts = self.identities.counts();
        if let Some(count) = counts.get_mut(&self.identity) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_enrol::Identity;

    #[test]
    fn each_identity_has_a_limited_number_of_connections() {
        let identities = Identities::default();
        let [own, other] = [(); 2].map(|()| Identity::draw().unwrap().fingerprint());
        let admit = || identities.admit(own);
        let mut slots: Vec<_> = (0..CONNECTIONS_OF_IDENTITY_MAX).map(|_| admit()).collect();
        assert!(slots.iter().all(Option::is_some) && admit().is_none());
        assert!(identities.admit(other).is_some());
        slots.pop();
        assert!(admit().is_some());
        drop(slots);
        assert!(identities.counts().is_empty());
    }
}
