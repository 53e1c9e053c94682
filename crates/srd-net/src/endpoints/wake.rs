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

/// Ends the wait of one thread in [`crate::PacketIo::receive`].
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

    /// Ends the current or the next wait.
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

    /// Whether another thread has called [`IoWaker::wake`]; clears the call.
    pub(crate) fn take(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::SeqCst)
    }

    /// Announces that this thread will sleep. Returns false if there was a call, which is now
    /// cleared: then the thread must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.pending.swap(false, Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Ends a sleep; `rung`: the descriptor was readable. (Another thread may have cleared
    /// `sleeping` and not written to the descriptor yet; then the next sleep ends immediately, and
    /// resets the descriptor.)
    pub(crate) fn finish_sleep(&self, rung: bool) {
        self.sleeping.store(false, Ordering::SeqCst);
        if rung && let Bell::Descriptor(wake) = &self.bell {
            wake.reset();
        }
        self.pending.swap(false, Ordering::SeqCst);
    }

    /// Returns the descriptor that becomes readable on a call, if there is one.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.bell {
            Bell::Descriptor(wake) => Some(wake.fd()),
            Bell::Condition(..) => None,
        }
    }

    /// Sleeps on the condition variable for at most `limit`. Returns whether there was a call.
    pub(crate) fn sleep(&self, limit: std::time::Duration) -> bool {
        let Bell::Condition(rung, condition) = &self.bell else { return false };
        let guard = rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut guard, _) = condition
            .wait_timeout_while(guard, limit, |rung| !*rung)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *guard)
    }
}
