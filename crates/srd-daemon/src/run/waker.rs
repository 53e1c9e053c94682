//! Ends the control thread's pause, from any thread and without a lock.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// Wakes the thread that pauses here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waker(Arc<OnceLock<Thread>>);

impl Waker {
    /// Ends the present pause or the next one. Before the thread is attached the call does nothing:
    /// the thread checks everything before its first pause.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }

    /// Attaches the calling thread as the one that pauses. Call it before that thread checks
    /// anything.
    pub(crate) fn attach(&self) {
        let _ = self.0.set(std::thread::current());
    }

    /// Waits for a call of [`Waker::wake`], for at most `limit`. May return early without a reason.
    pub(crate) fn pause(&self, limit: Duration) {
        std::thread::park_timeout(limit);
    }
}
