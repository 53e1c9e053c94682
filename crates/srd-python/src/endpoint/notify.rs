//! Notification of an event loop by the endpoint's thread: a descriptor that the loop watches, and
//! the events since the loop last read them.
//!
//! Between two reads, the descriptor is written only once, for any number of events. Bound: two
//! flags, and one number for each operation in progress.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

/// Events since the last read.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Whether a datagram has arrived, or the endpoint has ended.
    pub(crate) arrival: bool,
    /// Whether the queue of a peer has space for datagrams again.
    pub(crate) room: bool,
    /// Numbers of operations that can continue.
    pub(crate) operations: BTreeSet<u64>,
    /// Whether the descriptor was written for these events.
    signalled: bool,
}

/// Notifies an event loop: the descriptor that the loop watches, and the pending events.
#[derive(Debug)]
pub(crate) struct Notifier {
    descriptor: OwnedFd,
    pending: Mutex<Pending>,
}

/// Kind of event that a waker reports.
#[derive(Clone, Copy, Debug)]
enum Source {
    Arrival,
    Room,
    Operation(u64),
}

/// Waker that the transport calls when an event has happened.
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

    /// Returns the descriptor that is readable while an event is pending.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Returns the waker for an arrived datagram.
    pub(crate) fn arrival(self: &Arc<Self>) -> Waker {
        self.waker(Source::Arrival)
    }

    /// Returns the waker for space in a peer's queue.
    pub(crate) fn room(self: &Arc<Self>) -> Waker {
        self.waker(Source::Room)
    }

    /// Returns the waker for the operation with this number.
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
            // The counter cannot overflow: there is at most one write between two reads.
            let _ = rustix::io::write(self.descriptor.as_fd(), &1_u64.to_ne_bytes());
        }
    }

    /// Takes the pending events. Later events make the descriptor readable again.
    pub(crate) fn take_pending(&self) -> Pending {
        let mut count = [0; 8];
        // The descriptor is read first, so that an event between the two calls is taken by the
        // second call. If the event's write comes only after this read, the next call may find no
        // event.
        let _ = rustix::io::read(self.descriptor.as_fd(), &mut count);
        std::mem::take(&mut self.pending())
    }
}
