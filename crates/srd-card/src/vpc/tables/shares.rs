//! Number of entries of a table for each owner, so that no owner uses the entries of another owner.
//!
//! Bound: as many owners as the table has entries.

use alloc::collections::{BTreeMap, BTreeSet};

/// Number of entries of each owner in a table, and the owners sorted by this number.
#[derive(Debug)]
pub(in crate::vpc) struct Shares<O> {
    of: BTreeMap<O, usize>,
    by_count: BTreeSet<(usize, O)>,
}

impl<O> Default for Shares<O> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), by_count: BTreeSet::new() }
    }
}

impl<O: Ord + Clone> Shares<O> {
    /// Number of entries of an owner.
    pub(in crate::vpc) fn get(&self, owner: &O) -> usize {
        self.of.get(owner).copied().unwrap_or_default()
    }

    /// Adds an entry of an owner.
    pub(in crate::vpc) fn add(&mut self, owner: &O) {
        self.set(owner, self.get(owner) + 1);
    }

    /// Removes an entry of an owner.
    pub(in crate::vpc) fn remove(&mut self, owner: &O) {
        self.set(owner, self.get(owner).saturating_sub(1));
    }

    fn set(&mut self, owner: &O, count: usize) {
        let before = self.of.insert(owner.clone(), count).unwrap_or_default();
        self.by_count.remove(&(before, owner.clone()));
        if count == 0 {
            self.of.remove(owner);
        } else {
            self.by_count.insert((count, owner.clone()));
        }
    }

    /// Returns the owner that loses an entry to a new entry of `owner`: the owner with the most
    /// entries, if it still has more entries than `owner` afterwards.
    pub(in crate::vpc) fn gives_way_to(&self, owner: &O) -> Option<&O> {
        let (most, of) = self.by_count.last()?;
        (*most > self.get(owner) + 1).then_some(of)
    }

    /// Returns an owner with the most entries; `None` if there are no entries.
    pub(in crate::vpc) fn most(&self) -> Option<&O> {
        self.by_count.last().map(|(_, owner)| owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_that_has_most_gives_way_to_one_that_has_fewer() {
        let mut shares = Shares::default();
        assert_eq!((shares.most(), shares.gives_way_to(&1)), (None, None));
        for owner in [1, 1, 1, 2] {
            shares.add(&owner);
        }
        assert_eq!((shares.get(&1), shares.get(&2), shares.get(&3)), (3, 1, 0));
        assert_eq!((shares.most(), shares.gives_way_to(&2)), (Some(&1), Some(&1)));
        shares.remove(&1);
        assert_eq!(shares.gives_way_to(&2), None, "they would change places");
        assert_eq!(shares.gives_way_to(&3), Some(&1));
        for owner in [1, 1, 2, 3] {
            shares.remove(&owner);
        }
        assert!(shares.of.is_empty() && shares.by_count.is_empty());
    }
}
