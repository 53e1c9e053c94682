//! Notification of an event loop by the endpoint's thread: a descriptor that the loop watches,
//! and the events since the loop last ran.
//!
//! However many events there are in between, the descriptor is written once. The bound: two
//! flags, and one number for each operation that is under way.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

/// Events since the last look.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Something arrived, or the endpoint has ended.
    pub(crate) arrival: bool,
    /// A peer has room again for datagrams.
    pub(crate) room: bool,
    /// Operations that can go on.
    pub(crate) operations: BTreeSet<u64>,
    /// The descriptor was written for this.
    signalled: bool,
}

/// The descriptor, and what is pending.
#[derive(Debug)]
pub(crate) struct Notifier {
    descriptor: OwnedFd,
    pending: Mutex<Pending>,
}

/// Source of a waker's notification.
#[derive(Clone, Copy, Debug)]
enum Source {
    Arrival,
    Room,
    Operation(u64),
}

/// The waker that the transport calls.
struct Callback {
    notifier: Arc<Notifier>,
    source: Source,
}

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        self.notifier.notify(self.source);
    }
}

impl Notifier {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { descriptor, pending: Mutex::default() }))
    }

    /// The descriptor that is readable while something is pending.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Called when something has arrived.
    pub(crate) fn arrival(self: &Arc<Self>) -> Waker {
        self.waker(Source::Arrival)
    }

    /// Called when there is room.
    pub(crate) fn room(self: &Arc<Self>) -> Waker {
        self.waker(Source::Room)
    }

    /// Called when the operation of this number can go on.
    pub(crate) fn operation(self: &Arc<Self>, number: u64) -> Waker {
        self.waker(Source::Operation(number))
    }

    fn waker(self: &Arc<Self>, source: Source) -> Waker {
        Waker::from(Arc::new(Callback { notifier: Arc::clone(self), source }))
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, source: Source) {
        let first = {
            let mut pending = self.pending();
            match source {
                Source::Arrival => pending.arrival = true,
                Source::Room => pending.room = true,
                Source::Operation(number) => {
                    pending.operations.insert(number);
                }
            }
            !std::mem::replace(&mut pending.signalled, true)
        };
        if first {
            // The counter cannot overflow: there is one write between two reads.
            let _ = rustix::io::write(self.descriptor.as_fd(), &1_u64.to_ne_bytes());
        }
    }

    /// Takes what is pending. What happens from now on makes the descriptor readable again.
    pub(crate) fn take_pending(&self) -> Pending {
        let mut count = [0; 8];
        // Reading comes first: what is added between the two calls is taken by the second. If there
        // is nothing to read, the write follows, and the next call finds nothing pending.
        let _ = rustix::io::read(self.descriptor.as_fd(), &mut count);
        std::mem::take(&mut self.pending())
    }
}
