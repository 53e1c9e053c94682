//! The store: a durable copy of the state, as values under keys.
//!
//! Each request is one transaction: either all of its changes are in the store, or none. A request
//! is acknowledged after its transaction is durable. Several controllers can use one store: a
//! transaction is made only if its controller has read all earlier ones.
//!
//! | key | value |
//! |---|---|
//! | `object/ACCOUNT/REGION/IDENTIFIER` | an object: prefix of its table, row number, JSON |
//! | `access/IDENTIFIER` | an access key in JSON: its secret, and whether it is active |
//! | `hosts/…` | hosts and enrolment tokens: [`crate::hosts`] |
//! | `authority` | the authority that issues certificates of servers, in JSON |
//! | `copying` | present while a copy into the store is incomplete |
//!
//! | module | content |
//! |---|---|
//! | [`memory`] | a store that ends with the process |
//! | [`embedded`] | a store in one file, for one controller |
//! | [`etcd`] | a store in an etcd cluster, for several controllers |
//! | [`copy`] | copies of a store in another one |

pub mod copy;
pub mod embedded;
pub mod etcd;
#[cfg(test)]
pub(crate) mod laws;
pub mod memory;

use std::fmt;
use std::sync::Arc;

use tokio::sync::Notify;

pub use memory::MemoryStore;

/// Version of the keys and values. A store of another version is refused.
pub const FORMAT: u64 = 1;

/// A change of one key: the new value, or `None` to remove it.
pub type KeyChange = (String, Option<String>);

/// Causes for which a transaction was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// Another controller has changed the state, and nothing was made. The caller calls
    /// [`Store::refresh`], and repeats its request.
    Conflict,
    /// Nothing was made.
    Failed(String),
    /// The outcome is unknown. If the changes were made, [`Store::refresh`] returns them.
    Unknown(String),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another controller has changed the state"),
            Self::Failed(why) => write!(f, "nothing was changed: {why}"),
            Self::Unknown(why) => write!(f, "the outcome of the change is unknown: {why}"),
        }
    }
}

/// Changes that the caller has not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The changes in their order.
    Changes(Vec<KeyChange>),
    /// All keys and values. The store no longer has the separate changes.
    All(Vec<(String, String)>),
}

/// A durable copy of the state.
pub trait Store: Send {
    /// Returns all keys and values. The first call comes before all other calls.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn load(&mut self) -> Result<Vec<(String, String)>, String>;

    /// Makes all changes, or none of them. When the call returns, they are durable. Each key has at
    /// most one change.
    ///
    /// # Errors
    /// If the changes were not made, or it is unknown whether they were.
    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError>;

    /// Returns the changes since the last [`Self::load`], [`Self::refresh`] or successful
    /// [`Self::commit`] of this value: all that any controller has acknowledged before this call.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn refresh(&mut self) -> Result<News, String> {
        Ok(News::Changes(Vec::new()))
    }

    /// Makes this controller the only one that runs the machines of instances.
    ///
    /// # Errors
    /// If another controller runs the machines.
    fn claim_machines(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Whether another controller has taken over the machines that [`Self::claim_machines`] had
    /// claimed. From then on, [`Self::refresh`] fails. [`Self::news`] signals the loss.
    fn has_lost_machines(&self) -> bool {
        false
    }

    /// Returns the signal that [`Self::refresh`] may have something to return; `None` if no other
    /// controller can use the store.
    fn news(&self) -> Option<Arc<Notify>> {
        None
    }

    /// Removes all keys.
    ///
    /// # Errors
    /// If the keys cannot be removed.
    fn clear(&mut self) -> Result<(), String> {
        let all = self.load()?;
        let changes = all.into_iter().map(|(key, _)| (key, None)).collect();
        self.commit(changes).map_err(|error| error.to_string())
    }
}
