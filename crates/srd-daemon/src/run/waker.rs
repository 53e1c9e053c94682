//! Ends the control thread's pause, from any thread and without a lock.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// Wakes the thread that pauses here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waker(Arc<OnceLock<Thread>>);

impl Waker {
    /// Ends the present pause or the next. Before the first pause there is nobody to wake: a
    /// thread looks at everything before it pauses.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }

    /// The calling thread is the one that pauses. To be called before it looks at anything.
    pub(crate) fn attach(&self) {
        let _ = self.0.set(std::thread::current());
    }

    /// Waits until a call of [`Waker::wake`], for at most `limit`. (It may end early for no
    /// reason.)
    pub(crate) fn pause(&self, limit: Duration) {
        std::thread::park_timeout(limit);
    }
}
