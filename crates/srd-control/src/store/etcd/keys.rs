//! The keys of a state in etcd, and the value of the key that each transaction writes.

use serde::{Deserialize, Serialize};

use crate::store::FORMAT;

/// Number of controllers of which the key `generation` records the last transaction.
pub(super) const LAST_MAX: usize = 16;

/// The keys below a prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys(String);

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self(prefix.to_owned())
    }

    pub(super) fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.0).into_bytes()
    }

    pub(super) fn generation(&self) -> Vec<u8> {
        self.key("generation")
    }

    pub(super) fn machines(&self) -> Vec<u8> {
        self.key("machines")
    }

    pub(super) fn state(&self, key: &str) -> Vec<u8> {
        self.key(&format!("state/{key}"))
    }

    pub(super) fn part(&self, id: &str, number: usize) -> Vec<u8> {
        self.key(&format!("parts/{id}/{number:04}"))
    }

    /// The range of all keys that begin with this name.
    pub(super) fn range(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let begin = self.key(name);
        let mut end = begin.clone();
        // A name ends with an ASCII character, so the last byte can grow.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (begin, end)
    }

    /// The range of all keys.
    pub(super) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        self.range("")
    }

    /// Returns the key that the caller of the store uses for this key in etcd; `None` if the key is
    /// not one of the state.
    pub(super) fn of_state<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let key = std::str::from_utf8(key).ok()?;
        key.strip_prefix(self.0.as_str())?.strip_prefix("state/")
    }
}

/// A large transaction that was made, and whose values are not written yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Large {
    pub(super) id: String,
    pub(super) parts: usize,
}

/// The value of the key `generation`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Generation {
    format: u64,
    /// Controllers with the numbers of their last transactions; the newest is the last one.
    pub(super) last: Vec<(String, u64)>,
    pub(super) large: Option<Large>,
}

impl Default for Generation {
    fn default() -> Self {
        Self { format: FORMAT, last: Vec::new(), large: None }
    }
}

impl Generation {
    pub(super) fn parse(value: &[u8]) -> Result<Self, String> {
        let generation: Self = serde_json::from_slice(value)
            .map_err(|error| format!("the generation in etcd is none: {error}"))?;
        if generation.format != FORMAT {
            let found = generation.format;
            return Err(format!(
                "the state in etcd has the format {found}, and this program reads {FORMAT}"
            ));
        }
        Ok(generation)
    }

    pub(super) fn text(&self) -> Vec<u8> {
        // Numbers and texts can be written as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Number of the last transaction of a controller, if the generation contains this number.
    pub(super) fn last_of(&self, controller: &str) -> Option<u64> {
        self.last.iter().find(|(id, _)| id == controller).map(|(_, number)| *number)
    }

    /// Whether this controller has made the newest transaction.
    pub(super) fn is_last(&self, controller: &str) -> bool {
        self.last.last().is_some_and(|(id, _)| id == controller)
    }

    /// The generation after a transaction.
    pub(super) fn next(&self, controller: &str, number: u64, large: Option<Large>) -> Self {
        let mut last = self.last.clone();
        last.retain(|(id, _)| id != controller);
        last.push((controller.to_owned(), number));
        if last.len() > LAST_MAX {
            last.remove(0);
        }
        Self { format: FORMAT, last, large }
    }
}
