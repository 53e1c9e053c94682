//! The store: a durable copy of the state, as values under keys.
//!
//! Each request is one transaction: either all of its changes are in the store, or none. A key has
//! the form `ACCOUNT/REGION/IDENTIFIER`; a value is the object in JSON, with the prefix of its
//! table and its position there.

use std::collections::BTreeMap;

/// A change of one key: the new value, or `None` to remove it.
pub type KeyChange = (String, Option<String>);

/// A durable copy of the state.
pub trait Store: Send {
    /// Makes all changes, or none of them.
    ///
    /// # Errors
    /// If the changes were not made. The request that caused them fails.
    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), String>;

    /// Returns all keys and values.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn load(&self) -> Result<Vec<(String, String)>, String>;

    /// Removes all keys.
    ///
    /// # Errors
    /// If the store cannot be changed.
    fn clear(&mut self) -> Result<(), String>;
}

/// A store in memory, which ends with the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(BTreeMap<String, String>);

impl Store for MemoryStore {
    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), String> {
        for (key, value) in changes {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
        Ok(())
    }

    fn load(&self) -> Result<Vec<(String, String)>, String> {
        Ok(self.0.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn clear(&mut self) -> Result<(), String> {
        self.0.clear();
        Ok(())
    }
}
