//! Copies of the content of one store into another store.
//!
//! A large copy is made in several transactions. From the first to the last one, the target has the
//! key [`COPYING`], and no controller uses the target.

use super::{CommitError, KeyChange, Store};

/// Key that a store has while a copy into it is incomplete.
pub const COPYING: &str = "copying";
/// If a transaction has at least this many bytes, the next key begins another transaction.
const TRANSACTION_BYTES: usize = 8 << 20;

/// Copies all keys and values into an empty store, and returns their number. The target may also
/// contain an incomplete copy, which is removed.
///
/// # Errors
/// If the target contains a state, the source is an incomplete copy, or a store fails.
pub fn copy(from: &mut dyn Store, to: &mut dyn Store) -> Result<usize, String> {
    let there = to.load()?;
    if there.iter().any(|(key, _)| key == COPYING) {
        to.clear()?;
    } else if !there.is_empty() {
        return Err("the target contains a state already: use an empty one".to_owned());
    }
    let all = from.load()?;
    check(&all)?;
    let count = all.len();
    let mut changes = Vec::new();
    let (mut bytes, mut is_marked) = (0, false);
    for (key, value) in all {
        if bytes >= TRANSACTION_BYTES {
            if !std::mem::replace(&mut is_marked, true) {
                changes.push((COPYING.to_owned(), Some(String::new())));
            }
            commit(to, std::mem::take(&mut changes))?;
            bytes = 0;
        }
        bytes += key.len() + value.len();
        changes.push((key, Some(value)));
    }
    if is_marked {
        changes.push((COPYING.to_owned(), None));
    }
    commit(to, changes)?;
    Ok(count)
}

fn commit(to: &mut dyn Store, changes: Vec<KeyChange>) -> Result<(), String> {
    to.commit(changes).map_err(|error| match error {
        CommitError::Conflict => "a controller uses the target".to_owned(),
        error => error.to_string(),
    })
}

/// Checks that the content of a store is complete.
///
/// # Errors
/// If a copy into the store did not end.
pub fn check(all: &[(String, String)]) -> Result<(), String> {
    if all.iter().any(|(key, _)| key == COPYING) {
        return Err(
            "a copy into this store did not end: repeat `srd control store copy`".to_owned()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::MemoryStore;

    fn filled(count: usize) -> MemoryStore {
        let mut store = MemoryStore::default();
        let value = "x".repeat(TRANSACTION_BYTES / 3);
        let change = |n| (format!("object/{n}"), Some(value.clone()));
        store.commit((0..count).map(change).collect()).unwrap();
        store
    }

    /// A store that fails after this number of commits.
    struct Fails(MemoryStore, usize);

    impl Store for Fails {
        fn load(&mut self) -> Result<Vec<(String, String)>, String> {
            self.0.load()
        }

        fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
            let keys: BTreeSet<_> = changes.iter().map(|(key, _)| key).collect();
            assert_eq!(keys.len(), changes.len(), "a key has several changes");
            let left = self.1.checked_sub(1);
            self.1 = left.ok_or_else(|| CommitError::Failed("full".to_owned()))?;
            self.0.commit(changes)
        }
    }

    #[test]
    fn a_copy_that_did_not_end_is_refused_and_can_be_repeated() {
        let mut from = filled(7);
        for commits in 0.. {
            let mut to = Fails(MemoryStore::default(), commits);
            let copied = copy(&mut from, &mut to);
            let there = to.load().unwrap();
            if copied.is_ok() {
                assert_eq!(there, from.load().unwrap());
                assert_eq!(commits, 3, "the copy is made in several transactions");
                break;
            }
            assert!(there.is_empty() || check(&there).is_err());
            to.1 = usize::MAX;
            assert_eq!(copy(&mut from, &mut to), Ok(7));
            assert_eq!(to.load().unwrap(), from.load().unwrap());
        }
        // A small copy is one transaction.
        let mut to = Fails(MemoryStore::default(), 1);
        assert_eq!(copy(&mut filled(2), &mut to), Ok(2));
        assert_eq!(to.load().unwrap().len(), 2);
        let mut to = filled(1);
        assert!(copy(&mut from, &mut to).unwrap_err().contains("contains a state"));
        from.commit(vec![(COPYING.to_owned(), Some(String::new()))]).unwrap();
        assert!(copy(&mut from, &mut MemoryStore::default()).unwrap_err().contains("did not end"));
    }
}
