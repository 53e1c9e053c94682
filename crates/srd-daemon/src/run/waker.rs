//! Ends a pause of the control thread, from any thread and without a lock.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// Wakes the control thread when it pauses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waker(Arc<OnceLock<Thread>>);

impl Waker {
    /// Ends the present pause, or the next pause if the thread is not pausing. Before a thread was
    /// attached, the call does nothing: the thread checks for all work before its first pause.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }

    /// Attaches the calling thread as the thread that pauses. Call it before that thread checks for
    /// work.
    pub(crate) fn attach(&self) {
        let _ = self.0.set(std::thread::current());
    }

    /// Waits for a call of [`Waker::wake`], for at most `limit`. May return earlier.
    pub(crate) fn pause(&self, limit: Duration) {
        std::thread::park_timeout(limit);
    }
}
