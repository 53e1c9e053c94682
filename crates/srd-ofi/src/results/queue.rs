//! A bounded queue that callers can wait on. Completion queues and event queues use it.
//!
//! The file descriptor of a queue is readable exactly while the queue has entries. So `poll`
//! returns at once if there is an entry, and does not wake up without one.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use srd_host::ReadyFd;

use crate::abi::cq::{FI_WAIT_FD, FI_WAIT_NONE, FI_WAIT_UNSPEC};
use crate::abi::errno::{FI_EINVAL, FI_ENOMEM, FI_ENOSYS};
use crate::{Errno, Outcome};

/// Ways of waiting that a queue supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Waiting is not supported.
    None,
    /// Waiting in calls of libfabric.
    Calls,
    /// Waiting in calls of libfabric, and with a file descriptor.
    Descriptor,
}

impl WaitMode {
    /// Converts a number of `enum fi_wait_obj`.
    ///
    /// # Errors
    /// `FI_ENOSYS` for wait sets and other objects that are not supported.
    pub fn from_object(object: c_int) -> Outcome<Self> {
        match object {
            FI_WAIT_NONE => Ok(Self::None),
            FI_WAIT_UNSPEC => Ok(Self::Calls),
            FI_WAIT_FD => Ok(Self::Descriptor),
            _ => Err(Errno(FI_ENOSYS)),
        }
    }

    /// Returns the number in `enum fi_wait_obj`.
    #[must_use]
    pub fn object(self) -> c_int {
        match self {
            Self::None => FI_WAIT_NONE,
            Self::Calls => FI_WAIT_UNSPEC,
            Self::Descriptor => FI_WAIT_FD,
        }
    }
}

/// Result of waiting for entries of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The queue has entries.
    Ready,
    /// [`Queue::signal`] was called.
    Signalled,
    /// No entry arrived before the timeout.
    TimedOut,
}

/// A queue with a limit of entries.
#[derive(Debug)]
pub struct Queue<T> {
    entries: Mutex<Entries<T>>,
    arrived: Condvar,
    limit: usize,
    waiting: WaitMode,
    descriptor: Option<ReadyFd>,
}

#[derive(Debug)]
struct Entries<T> {
    waiting: VecDeque<T>,
    signalled: bool,
}

impl<T> Queue<T> {
    /// Returns an empty queue for `limit` entries.
    ///
    /// # Errors
    /// `FI_ENOMEM` if the system cannot create the file descriptor.
    pub fn new(limit: usize, waiting: WaitMode) -> Outcome<Self> {
        let descriptor = match waiting {
            WaitMode::Descriptor => Some(ReadyFd::new().map_err(|_| Errno(FI_ENOMEM))?),
            WaitMode::None | WaitMode::Calls => None,
        };
        let entries = Mutex::new(Entries { waiting: VecDeque::new(), signalled: false });
        Ok(Self { entries, arrived: Condvar::new(), limit, waiting, descriptor })
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// Returns the entry, if the queue is full.
    pub fn push(&self, entry: T) -> Result<(), T> {
        let mut entries = self.entries.lock();
        if entries.waiting.len() >= self.limit {
            return Err(entry);
        }
        entries.waiting.push_back(entry);
        self.show(&entries);
        self.arrived.notify_all();
        Ok(())
    }

    /// Appends an entry, also beyond the limit: for callers that limit the entries themselves, with
    /// [`Queue::excess`]. Returns the number of entries beyond the limit.
    pub fn push_over(&self, entry: T) -> usize {
        let mut entries = self.entries.lock();
        entries.waiting.push_back(entry);
        self.show(&entries);
        self.arrived.notify_all();
        entries.waiting.len().saturating_sub(self.limit)
    }

    /// Returns the number of entries beyond the limit.
    pub fn excess(&self) -> usize {
        self.entries.lock().waiting.len().saturating_sub(self.limit)
    }

    /// Calls `take` with the entries and returns its result.
    pub fn with<R>(&self, take: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let mut entries = self.entries.lock();
        let result = take(&mut entries.waiting);
        self.show(&entries);
        result
    }

    /// Waits until there are entries, at most for `timeout`; `None` means without limit.
    ///
    /// # Errors
    /// `FI_EINVAL` for a queue that does not support waiting.
    pub fn wait(&self, timeout: Option<Duration>) -> Outcome<Waited> {
        if self.waiting == WaitMode::None {
            return Err(Errno(FI_EINVAL));
        }
        let idle = |entries: &mut Entries<T>| entries.waiting.is_empty() && !entries.signalled;
        let mut entries = self.entries.lock();
        match timeout {
            None => self.arrived.wait_while(&mut entries, idle),
            Some(timeout) => {
                self.arrived.wait_while_for(&mut entries, idle, timeout);
            }
        }
        Ok(if !entries.waiting.is_empty() {
            Waited::Ready
        } else if std::mem::take(&mut entries.signalled) {
            Waited::Signalled
        } else {
            Waited::TimedOut
        })
    }

    /// Ends the current wait with [`Waited::Signalled`] or, if no thread waits, the next wait.
    pub fn signal(&self) {
        self.entries.lock().signalled = true;
        self.arrived.notify_all();
    }

    /// Whether the queue has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.lock().waiting.is_empty()
    }

    /// Returns the ways of waiting that the queue supports.
    pub fn waiting(&self) -> WaitMode {
        self.waiting
    }

    /// Returns the file descriptor that is readable while the queue has entries. The queue owns it.
    ///
    /// # Errors
    /// `FI_ENOSYS` if the queue was made without a descriptor.
    pub fn descriptor(&self) -> Outcome<RawFd> {
        self.descriptor.as_ref().map(ReadyFd::as_raw).ok_or(Errno(FI_ENOSYS))
    }

    /// Makes the descriptor readable if there are entries, otherwise unreadable.
    fn show(&self, entries: &Entries<T>) {
        if let Some(descriptor) = &self.descriptor {
            descriptor.set(!entries.waiting.is_empty());
        }
    }
}

/// Converts libfabric's timeout in milliseconds; a negative value means no limit (`None`).
#[must_use]
pub fn timeout(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn is_readable(queue: &Queue<u32>) -> bool {
        let descriptor = queue.descriptor.as_ref().unwrap();
        let mut fds = [PollFd::new(descriptor, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_full_queue_refuses() {
        let queue = Queue::new(3, WaitMode::None).unwrap();
        for n in 0..3 {
            queue.push(n).unwrap();
        }
        assert_eq!(queue.push(3), Err(3));
        assert_eq!(queue.with(VecDeque::pop_front), Some(0));
        queue.push(3).unwrap();
    }

    #[test]
    fn the_descriptor_is_readable_as_long_as_something_waits() {
        let queue = Queue::new(8, WaitMode::Descriptor).unwrap();
        assert!(!is_readable(&queue));
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        queue.with(VecDeque::pop_front);
        assert!(is_readable(&queue));
        queue.with(VecDeque::pop_front);
        assert!(!is_readable(&queue));
    }

    #[test]
    fn waiting_ends_with_news_a_signal_or_the_timeout() {
        let queue = Queue::new(8, WaitMode::Calls).unwrap();
        assert_eq!(queue.wait(Some(Duration::ZERO)), Ok(Waited::TimedOut));
        queue.signal();
        assert_eq!(queue.wait(None), Ok(Waited::Signalled));
        assert_eq!(queue.wait(timeout(0)), Ok(Waited::TimedOut));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.wait(timeout(-1)));
            queue.push(1).unwrap();
            assert_eq!(waiter.join().unwrap(), Ok(Waited::Ready));
        });
    }

    #[test]
    fn what_cannot_be_waited_for_says_so() {
        let queue = Queue::<u32>::new(8, WaitMode::None).unwrap();
        assert_eq!(queue.wait(None), Err(Errno(FI_EINVAL)));
        assert_eq!(queue.descriptor(), Err(Errno(FI_ENOSYS)));
        assert_eq!(WaitMode::from_object(2), Err(Errno(FI_ENOSYS)));
    }
}
