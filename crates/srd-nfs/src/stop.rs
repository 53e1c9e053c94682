//! The end of a process, signalled to all of its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the process is to end. Clones share the flag.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on, yes.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether it is to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
