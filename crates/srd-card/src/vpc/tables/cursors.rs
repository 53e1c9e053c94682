//! Positions at which searches for expired entries continue, one for each owner of entries.
//!
//! An owner that has as many entries as it may have gets a new one if one of its own has expired. A
//! search examines a few entries and continues at the next refusal, so that it examines each entry
//! in turn, however many owners search by turns.
//!
//! Bound: [`OWNERS_MAX`] positions. If there are more owners, all searches begin anew.

use alloc::collections::BTreeMap;

/// Largest number of owners whose positions are stored. Few owners can have many entries at a time.
const OWNERS_MAX: usize = 16;

/// The entry that was examined last, for each owner.
#[derive(Debug)]
pub(in crate::vpc) struct Cursors<O, K>(BTreeMap<O, K>);

impl<O, K> Default for Cursors<O, K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<O: Ord + Clone, K> Cursors<O, K> {
    /// Returns the entry after which the search for an owner continues; `None` for a search that
    /// begins with the owner's first entry.
    pub(in crate::vpc) fn after(&self, owner: &O) -> Option<&K> {
        self.0.get(owner)
    }

    /// Stores the entry that was examined last; `None` after the owner's last entry.
    pub(in crate::vpc) fn set(&mut self, owner: &O, last: Option<K>) {
        self.0.remove(owner);
        if let Some(last) = last {
            if self.0.len() >= OWNERS_MAX {
                self.0.clear();
            }
            self.0.insert(owner.clone(), last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_its_position_up_to_the_bound() {
        let mut cursors = Cursors::default();
        assert_eq!(cursors.after(&1), None);
        cursors.set(&1, Some('a'));
        cursors.set(&2, Some('b'));
        assert_eq!((cursors.after(&1), cursors.after(&2)), (Some(&'a'), Some(&'b')));
        cursors.set(&1, None);
        assert_eq!((cursors.after(&1), cursors.after(&2)), (None, Some(&'b')));
        for owner in 0..100 {
            cursors.set(&owner, Some('c'));
            assert_eq!(cursors.after(&owner), Some(&'c'));
            assert!(cursors.0.len() <= OWNERS_MAX);
        }
    }
}
