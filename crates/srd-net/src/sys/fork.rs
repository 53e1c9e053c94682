//! Detection that this process is the child of a fork, with one load and no system call.
//!
//! A child has only the thread that called `fork`. A lock that another thread held at that moment
//! stays locked in the child forever, and so does a `Once` or `OnceLock` that another thread was
//! initialising. Therefore nothing here waits for another thread, and what all endpoints of a
//! process share is in an [`OfProcess`].

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Number of calls of [`forked`] between the first process that called [`Process::current`] and
/// this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Identity of a process with respect to forks. Objects of the parent process are unusable in the
/// child: their threads do not exist there, and a lock that such a thread held at the fork stays
/// locked forever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

impl Process {
    /// Returns the identity of this process.
    #[must_use]
    pub fn current() -> Self {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.load(Ordering::Acquire) {
            // Threads that come here at the same time add one handler each. A fork is then counted
            // several times, which does no harm.
            // SAFETY: the handler only changes an atomic number, which is allowed in the child of a
            // fork, and the library that holds it is never unloaded. If there is no memory for the
            // handler, forks are not detected, as in most libraries.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            WATCHED.store(true, Ordering::Release);
        }
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns a number that each fork increases, beginning with 0 in the first process that called
    /// [`Process::current`]. It wraps around.
    #[must_use]
    pub fn forks(self) -> u32 {
        self.0
    }

    /// Whether the current process has this identity.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// A value that all threads of a process share, for a `static`. The child of a fork gets a new
/// value, because another thread of the parent may have held a lock of the parent's value. A value
/// is never freed, so each fork whose child uses it costs its memory.
pub struct OfProcess<T: 'static>(AtomicPtr<(Process, T)>);

impl<T: Send + Sync> OfProcess<T> {
    /// Returns an empty place for the value.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process. `make` creates it when it is needed for the first time.
    /// If several threads create it at the same time, one of their values is kept.
    pub fn get(&self, make: impl FnOnce(Process) -> T) -> &'static T {
        let before = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or was leaked below.
        if let Some((process, value)) = unsafe { before.as_ref() }
            && process.is_current()
        {
            return value;
        }
        let process = Process::current();
        let new = Box::into_raw(Box::new((process, make(process))));
        let set = self.0.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire);
        let now = match set {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: the pointer was created above, and never published.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
        // SAFETY: the pointer is not null, and a published value is never freed.
        &unsafe { &*now }.1
    }
}

impl<T: Send + Sync> Default for OfProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for OfProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfProcess").finish_non_exhaustive()
    }
}

/// Runs `f` in the child of a fork. Returns the exit code of the child, which ends without running
/// any destructor, or `None` if a signal ended it. A child that hangs is ended after `seconds`.
#[cfg(test)]
pub(crate) fn in_child(seconds: u32, f: impl FnOnce() -> u8) -> Option<i32> {
    // SAFETY: the child calls `f` and ends. `f` is called in tests only, and a child that waits for
    // something that does not exist there is ended by the alarm.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: the alarm ends this process, and so does the other call, at once.
        unsafe {
            libc::alarm(seconds);
            libc::_exit(f().into());
        }
    }
    let mut status = -1;
    // SAFETY: waits for our own child, and writes to our own integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_child_of_a_fork_is_another_process() {
        let parent = Process::current();
        let code = in_child(60, || u8::from(parent.is_current()));
        assert_eq!(code, Some(0), "the child took itself for its parent");
        assert!(parent.is_current());
    }

    #[test]
    fn a_process_has_one_value_and_its_child_another_one_without_a_lock() {
        static VALUE: OfProcess<Mutex<u8>> = OfProcess::new();
        let value = || VALUE.get(|_| Mutex::new(1));
        let mut held = value().lock().unwrap();
        *held = 7;
        let code = in_child(60, || *value().lock().unwrap());
        assert_eq!(code, Some(1), "the child has no value of its own");
        drop(held);
        assert_eq!(*value().lock().unwrap(), 7);
    }
}
