//! A descriptor that a program can wait for with `poll`. It is readable exactly while an object of
//! the program, such as a completion queue, is ready.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd. Its counter is 0 or 1, so that a write never fails because the counter is full.
#[derive(Debug)]
pub struct ReadyFd {
    descriptor: OwnedFd,
    readable: AtomicBool,
}

impl ReadyFd {
    /// Returns a descriptor that is not readable.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { descriptor, readable: AtomicBool::new(false) })
    }

    /// Makes the descriptor readable or not readable, with a system call only if the state changes.
    /// The caller holds the lock of the object whose state the descriptor shows.
    pub fn set(&self, readable: bool) {
        if self.readable.swap(readable, Ordering::Relaxed) == readable {
            return;
        }
        if readable {
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
        } else {
            let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        }
    }

    /// Returns the number of the descriptor, which still belongs to this value.
    pub fn as_raw(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl AsFd for ReadyFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(fd: &ReadyFd) -> bool {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn it_is_readable_from_the_first_set_until_it_is_taken_back() {
        let fd = ReadyFd::new().unwrap();
        assert!(!is_readable(&fd));
        for readable in [true, true, false, false, true] {
            fd.set(readable);
            assert_eq!(is_readable(&fd), readable);
        }
    }
}
