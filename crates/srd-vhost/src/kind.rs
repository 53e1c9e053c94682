//! Kinds of descriptors that front ends hand over.
//!
//! A descriptor may be of a file whose file system is a program of the front end's (FUSE), or of
//! another machine: a call that reaches the file system may wait for any time. So no such call is
//! made before the kind of a descriptor is known. The kind is found by calls that the kernel
//! answers itself: the name in `/proc/self/fd`, and `F_GET_SEALS`, which only files in memory
//! support (memfd, tmpfs, hugetlbfs). Even closing a descriptor calls its file system. So
//! descriptors of other kinds are closed on a thread of their own, which may wait
//! ([`srd_trust::closing`]).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{CWD, SealFlags, fcntl_get_seals, readlinkat};

/// Bytes of a descriptor's name that are shown.
const NAME_BYTES_MAX: usize = 80;

/// A descriptor that nothing waits for.
#[derive(Debug)]
pub(crate) enum AcceptedDescriptor {
    Event(OwnedFd),
    Memory(OwnedFd, SealFlags),
}

/// A descriptor of another kind, and its name for people.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) descriptor: OwnedFd,
    pub(crate) name: String,
}

impl AcceptedDescriptor {
    /// Finds the kind of a descriptor, without a call to its file system.
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
