//! Closing of descriptors that another process has chosen, without blocking.
//!
//! Closing a descriptor calls its file system, which may be a program of the other process (FUSE).
//! Closing a socket may wait until its bytes are sent (`SO_LINGER`). So a descriptor that another
//! process has chosen is closed on a separate thread, which may block.
//!
//! Bound: the owner accepts no more descriptors until the earlier descriptors are closed.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Descriptors that are closed on a separate thread, because their file systems may block the
/// thread forever.
#[derive(Debug, Default)]
pub struct Closing {
    left: Arc<Mutex<Vec<OwnedFd>>>,
    thread: Option<JoinHandle<()>>,
}

impl Closing {
    /// Adds descriptors that are to be closed. A thread closes them, which a call of
    /// [`Closing::is_done`] starts. The caller has to check [`Closing::is_done`] before it adds
    /// more.
    pub fn add(&mut self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        lock(&self.left).extend(descriptors);
    }

    /// Whether all descriptors are closed. If there are open ones and no thread is closing them,
    /// starts a thread.
    pub fn is_done(&mut self) -> bool {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return false;
        }
        self.thread = None;
        if lock(&self.left).is_empty() {
            return true;
        }
        let left = Arc::clone(&self.left);
        let close = move || {
            // The lock is not held while a descriptor is closed.
            while let Some(descriptor) = { lock(&left).pop() } {
                drop(descriptor);
            }
        };
        // If no thread can be started, the descriptors stay open until a later call starts one.
        self.thread = Builder::new().name(String::from("srd-close")).spawn(close).ok();
        false
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if !self.is_done() && self.thread.is_none() {
            // No thread could be started. Closing the descriptors in this function could block, so
            // they stay open until the process ends.
            std::mem::take(&mut *lock(&self.left)).into_iter().for_each(std::mem::forget);
        }
    }
}

fn lock(left: &Mutex<Vec<OwnedFd>>) -> MutexGuard<'_, Vec<OwnedFd>> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    #[test]
    fn descriptors_are_closed_and_more_may_follow() {
        let mut closing = Closing::default();
        assert!(closing.is_done());
        for _ in 0..3 {
            let (mut read, write) = std::io::pipe().unwrap();
            closing.add([write.into()]);
            let start = Instant::now();
            while !closing.is_done() {
                assert!(start.elapsed() < Duration::from_secs(60), "it is not closed");
                std::thread::yield_now();
            }
            // The read would block if the write end were still open.
            let mut ends = [PollFd::new(&read, PollFlags::IN)];
            let ready = poll(&mut ends, Some(&Timespec::default())).unwrap();
            assert_eq!(ready, 1, "the write end is still open");
            assert_eq!(read.read(&mut [0]).unwrap(), 0, "the end");
        }
    }
}
