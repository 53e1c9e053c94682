//! A store in memory, which ends with the process.

use std::collections::BTreeMap;

use super::{CommitError, KeyChange, Store};

/// A store in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(BTreeMap<String, String>);

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        Ok(self.0.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        for (key, value) in changes {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::store::laws;

    /// A store that outlives its controller.
    #[derive(Clone, Default)]
    struct KeptStore(Arc<Mutex<MemoryStore>>);

    impl Store for KeptStore {
        fn load(&mut self) -> Result<Vec<(String, String)>, String> {
            self.0.lock().unwrap().load()
        }

        fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
            self.0.lock().unwrap().commit(changes)
        }
    }

    #[test]
    fn memory_obeys_the_laws_of_stores() {
        laws::check(200, 1, || {
            let store = KeptStore::default();
            move || Box::new(store.clone()) as Box<dyn Store>
        });
    }
}
