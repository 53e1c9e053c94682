//! Limit of the connections of one identity, whose older sessions may still be closing.

use srd_enrol::Fingerprint;

use crate::slots::{Slot, Slots};

/// Largest number of connections of one identity.
const CONNECTIONS_OF_IDENTITY_MAX: usize = 8;

/// Number of connections of each identity.
pub(super) type Identities = Slots<Fingerprint>;

/// A connection of an identity, which ends when this value is dropped.
pub(super) type IdentitySlot = Slot<Fingerprint>;

/// Returns identities without connections.
pub(super) fn new() -> Identities {
    Slots::new(CONNECTIONS_OF_IDENTITY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_enrol::Identity;

    #[test]
    fn each_identity_has_a_limited_number_of_connections() {
        let identities = new();
        let [own, other] = [(); 2].map(|()| Identity::draw().unwrap().fingerprint());
        let admit = || identities.admit(own);
        let mut slots: Vec<_> = (0..CONNECTIONS_OF_IDENTITY_MAX).map(|_| admit()).collect();
        assert!(slots.iter().all(Option::is_some) && admit().is_none());
        assert!(identities.admit(other).is_some());
        slots.pop();
        assert!(admit().is_some());
        drop(slots);
        assert!(identities.owners() == 0);
    }
}
