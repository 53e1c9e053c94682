//! Copies of a store in another one.
//!
//! A copy of any size is made in several transactions. Until the last one, the target has the key
//! [`COPYING`], and no controller uses it.

use super::{CommitError, KeyChange, Store};

/// Key that a store has while a copy into it is incomplete.
pub const COPYING: &str = "copying";
/// Size of a transaction, from which on the next one begins, in bytes.
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
    let mut changes: Vec<KeyChange> = vec![(COPYING.to_owned(), Some(String::new()))];
    let mut bytes = 0;
    for (key, value) in all {
        bytes += key.len() + value.len();
        changes.push((key, Some(value)));
        if bytes >= TRANSACTION_BYTES {
            commit(to, std::mem::take(&mut changes))?;
            bytes = 0;
        }
    }
    changes.push((COPYING.to_owned(), None));
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
    use super::*;
    use crate::store::MemoryStore;

    fn filled(count: usize) -> MemoryStore {
        let mut store = MemoryStore::default();
        let value = "x".repeat(TRANSACTION_BYTES / 3);
        let change = |n| (format!("object/{n}"), Some(value.clone()));
        store.commit((0..count).map(change).collect()).unwrap();
        store
    }

    /// A store that fails after a number of commits.
    struct Fails(MemoryStore, usize);

    impl Store for Fails {
        fn load(&mut self) -> Result<Vec<(String, String)>, String> {
            self.0.load()
        }

        fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
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
        let mut to = filled(1);
        assert!(copy(&mut from, &mut to).unwrap_err().contains("contains a state"));
        from.commit(vec![(COPYING.to_owned(), Some(String::new()))]).unwrap();
        assert!(copy(&mut from, &mut MemoryStore::default()).unwrap_err().contains("did not end"));
    }
}
