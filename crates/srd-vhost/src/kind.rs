//! Kinds of descriptors that front ends hand over.
//!
//! A descriptor may be of a file whose file system is a program of the front end's (FUSE), or of
//! another machine: a call that asks the file system waits for as long as that one likes. So a
//! descriptor is asked nothing before its kind is known, and its kind is found by calls that the
//! kernel answers itself: the name in `/proc/self/fd`, and `F_GET_SEALS`, which files in memory
//! alone know (memfd, tmpfs, hugetlbfs). Even the end of a descriptor asks a file system, so that
//! those of other kinds are closed on a thread of their own, which may wait ([`Closing`]).

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::fs::{CWD, SealFlags, fcntl_get_seals, readlinkat};

/// Bytes of a descriptor's name that are shown.
const NAME_BYTES_MAX: usize = 80;

/// A descriptor that nothing waits for.
#[derive(Debug)]
pub(crate) enum Known {
    Event(OwnedFd),
    Memory(OwnedFd, SealFlags),
}

/// A descriptor of another kind, and its name for people.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) descriptor: OwnedFd,
    pub(crate) name: String,
}

impl Known {
    /// Finds the kind of a descriptor, without asking its file system.
    pub(crate) fn of(descriptor: OwnedFd) -> Result<Self, Foreign> {
        if let Ok(seals) = fcntl_get_seals(&descriptor) {
            return Ok(Self::Memory(descriptor, seals));
        }
        // Names of files begin with a slash: none of them is mistaken for this.
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        match readlinkat(CWD, link, Vec::new()) {
            Ok(name) if name.as_bytes() == b"anon_inode:[eventfd]" => Ok(Self::Event(descriptor)),
            Ok(name) => {
                let name: String = name.to_string_lossy().chars().take(NAME_BYTES_MAX).collect();
                Err(Foreign { descriptor, name })
            }
            Err(error) => {
                let name = format!("of which /proc says nothing ({error})");
                Err(Foreign { descriptor, name })
            }
        }
    }
}

/// Descriptors that are closed on a thread of their own: their file systems may hold that up for
/// ever.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    left: Arc<Mutex<Vec<OwnedFd>>>,
    thread: Option<JoinHandle<()>>,
}

impl Closing {
    /// Closes these, some time.
    pub(crate) fn add(&mut self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        lock(&self.left).extend(descriptors);
    }

    /// Whether all of them are closed. If not, a thread is at work, or is started now.
    pub(crate) fn is_done(&mut self) -> bool {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return false;
        }
        self.thread = None;
        if lock(&self.left).is_empty() {
            return true;
        }
        let left = Arc::clone(&self.left);
        let close = move || {
            // The lock is not held while one of them is closed.
            while let Some(descriptor) = { lock(&left).pop() } {
                drop(descriptor);
            }
        };
        // Without a thread they stay open, until there is one at the next call.
        self.thread = Builder::new().name(String::from("srd-vhost-close")).spawn(close).ok();
        false
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if !self.is_done() && self.thread.is_none() {
            // The process ends before a thread was to be had: closing them here could wait.
            std::mem::take(&mut *lock(&self.left)).into_iter().for_each(std::mem::forget);
        }
    }
}

fn lock(left: &Mutex<Vec<OwnedFd>>) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}
