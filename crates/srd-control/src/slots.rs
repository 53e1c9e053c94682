//! Limit of the connections of one owner, for example of a client address or of an identity.
//!
//! Bounds: one entry for each owner that has a connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of connections of each owner.
#[derive(Clone, Debug)]
pub(crate) struct Slots<K> {
    counts: Arc<Mutex<BTreeMap<K, usize>>>,
    max: usize,
}

/// A connection of an owner, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Slot<K: Ord + Copy> {
    slots: Slots<K>,
    owner: K,
}

impl<K: Ord + Copy> Slots<K> {
    /// Owners of which each has at most this number of connections.
    pub(crate) fn new(max: usize) -> Self {
        Self { counts: Arc::default(), max }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<K, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection; `None` if the owner has too many.
    pub(crate) fn admit(&self, owner: K) -> Option<Slot<K>> {
        let mut counts = self.counts();
        let count = counts.entry(owner).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Slot { slots: self.clone(), owner })
    }

    /// Returns the number of owners that have a connection.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> usize {
        self.counts().len()
    }
}

impl<K: Ord + Copy> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut counts = self.slots.counts();
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.owner);
            }
        }
    }
}
