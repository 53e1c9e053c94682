//! Ending a driver's sleep from another thread, without a system call if the driver does not sleep.
//!
//! The sleeping thread sets `sleeping`, then checks `pending` once more, then sleeps. The waking
//! thread sets `pending`, then checks `sleeping`. Both orders are sequentially consistent, so at
//! least one of the two threads always sees the flag of the other.

use std::io;
use std::os::fd::BorrowedFd;

use crate::primitives::atomic::{AtomicBool, Ordering};
use crate::primitives::{Condvar, Mutex, PoisonError};
use crate::sys::os::Wake;

/// A handle with which other threads end the wait of one thread in [`crate::PacketIo::receive`].
#[derive(Debug)]
pub struct IoWaker {
    pending: AtomicBool,
    sleeping: AtomicBool,
    bell: Bell,
}

/// Object that the thread sleeps on.
#[derive(Debug)]
enum Bell {
    Descriptor(Wake),
    Condition(Mutex<bool>, Condvar),
}

impl IoWaker {
    /// Makes a waker for a thread that sleeps on descriptors.
    pub(crate) fn with_descriptor() -> io::Result<Self> {
        Ok(Self::new(Bell::Descriptor(Wake::new()?)))
    }

    /// Makes a waker for a thread that sleeps on a condition variable.
    pub(crate) fn with_condition() -> Self {
        Self::new(Bell::Condition(Mutex::new(false), Condvar::new()))
    }

    fn new(bell: Bell) -> Self {
        Self { pending: AtomicBool::new(false), sleeping: AtomicBool::new(false), bell }
    }

    /// Ends the current wait of the thread; if it does not wait now, ends its next wait.
    pub fn wake(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            match &self.bell {
                Bell::Descriptor(wake) => wake.signal(),
                Bell::Condition(rung, condition) => {
                    *rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    condition.notify_one();
                }
            }
        }
    }

    /// Whether [`IoWaker::wake`] was called since the last wait. The call counts once: it is
    /// cleared.
    pub(crate) fn take(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::SeqCst)
    }

    /// Announces that this thread will sleep. Returns false if [`IoWaker::wake`] was called since
    /// the last wait. In this case the thread must not sleep, and the call is cleared.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.pending.swap(false, Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Must be called after a sleep. `rung`: whether the descriptor was readable. (Another thread
    /// may have cleared `sleeping` and not written to the descriptor yet. In this case the next
    /// sleep ends immediately, and resets the descriptor.)
    pub(crate) fn finish_sleep(&self, rung: bool) {
        self.sleeping.store(false, Ordering::SeqCst);
        if rung && let Bell::Descriptor(wake) = &self.bell {
            wake.reset();
        }
        self.pending.swap(false, Ordering::SeqCst);
    }

    /// Returns the descriptor that [`IoWaker::wake`] makes readable; `None` if the thread sleeps on
    /// a condition variable.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.bell {
            Bell::Descriptor(wake) => Some(wake.fd()),
            Bell::Condition(..) => None,
        }
    }

    /// Sleeps on the condition variable for at most `limit`. Returns whether [`IoWaker::wake`]
    /// ended the sleep.
    pub(crate) fn sleep(&self, limit: std::time::Duration) -> bool {
        let Bell::Condition(rung, condition) = &self.bell else { return false };
        let guard = rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut guard, _) = condition
            .wait_timeout_while(guard, limit, |rung| !*rung)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *guard)
    }
}
