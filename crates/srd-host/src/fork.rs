//! Detection that this process is the child of a fork, with one load and no system call.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the first process that called [`Process::current`] and this process.
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
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // SAFETY: the handler only changes an atomic number, which is allowed in the child of a
            // fork, and the library that holds it is never unloaded. If there is no memory for the
            // handler, forks are not detected, as in most libraries.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns the number of forks between the first process that called [`Process::current`] and
    /// this process.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_of_a_fork_is_another_process() {
        let parent = Process::current();
        // SAFETY: the child only reads an atomic and ends, without running any destructor.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: ends the child without running any destructor.
            unsafe { libc::_exit(i32::from(parent.is_current())) };
        }
        let mut status = -1;
        // SAFETY: waits for our own child, and writes to our own integer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child took itself for its parent");
        assert!(parent.is_current());
    }
}
