//! Kinds of descriptors that front ends hand over.
//!
//! The file system of a descriptor may be a program of the front end (FUSE), or may be on another
//! machine. A call that reaches such a file system may block for any time. So the kind of a
//! descriptor is determined first, by calls that the kernel answers without the file system: the
//! name in `/proc/self/fd`, and `F_GET_SEALS`, which only files in memory support (memfd, tmpfs,
//! hugetlbfs). Even closing a descriptor calls its file system. So descriptors of other kinds are
//! closed on a separate thread, which may block ([`srd_trust::closing`]).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{CWD, SealFlags, fcntl_get_seals, readlinkat};

/// Largest number of bytes of a descriptor's name in messages.
const NAME_BYTES_MAX: usize = 80;

/// A descriptor of a kind on which no call blocks.
#[derive(Debug)]
pub(crate) enum AcceptedDescriptor {
    Event(OwnedFd),
    Memory(OwnedFd, SealFlags),
}

/// A descriptor of a kind on which a call may block, with its name for messages.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) descriptor: OwnedFd,
    pub(crate) name: String,
}

impl AcceptedDescriptor {
    /// Determines the kind of a descriptor, without a call to its file system.
    pub(crate) fn of(descriptor: OwnedFd) -> Result<Self, Foreign> {
        if let Ok(seals) = fcntl_get_seals(&descriptor) {
            return Ok(Self::Memory(descriptor, seals));
        }
        // Names of files begin with a slash, so no file can have this name.
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
