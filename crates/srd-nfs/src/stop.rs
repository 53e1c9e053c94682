//! A flag that notifies all parts of a process of its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the process is to end. Clones share the flag.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Notifies all parts of the process that it is to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the process is to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
