//! How the endpoint's thread tells an event loop that there is something to do: a descriptor that
//! the loop watches, and notes of what has happened.
//!
//! However much happens between two looks of the loop, the descriptor is written once. Notes are
//! bounded: two flags, and one number for each operation that is under way.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

/// What has happened since the last look.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Something arrived, or the endpoint has ended.
    pub(crate) arrival: bool,
    /// A peer has room again for datagrams.
    pub(crate) room: bool,
    /// Operations that can go on.
    pub(crate) operations: BTreeSet<u64>,
    /// The descriptor was written for this.
    rung: bool,
}

/// The descriptor and the notes.
#[derive(Debug)]
pub(crate) struct Bell {
    descriptor: OwnedFd,
    heard: Mutex<Heard>,
}

/// What a note is about.
#[derive(Clone, Copy, Debug)]
enum News {
    Arrival,
    Room,
    Operation(u64),
}

/// What the transport calls.
struct Caller {
    bell: Arc<Bell>,
    news: News,
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.bell.ring(self.news);
    }
}

impl Bell {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { descriptor, heard: Mutex::default() }))
    }

    /// The descriptor that is readable while there are notes.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Called when something has arrived.
    pub(crate) fn arrival(self: &Arc<Self>) -> Waker {
        self.waker(News::Arrival)
    }

    /// Called when there is room.
    pub(crate) fn room(self: &Arc<Self>) -> Waker {
        self.waker(News::Room)
    }

    /// Called when the operation of this number can go on.
    pub(crate) fn operation(self: &Arc<Self>, number: u64) -> Waker {
        self.waker(News::Operation(number))
    }

    fn waker(self: &Arc<Self>, news: News) -> Waker {
        Waker::from(Arc::new(Caller { bell: Arc::clone(self), news }))
    }

    fn notes(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, news: News) {
        let first = {
            let mut heard = self.notes();
            match news {
                News::Arrival => heard.arrival = true,
                News::Room => heard.room = true,
                News::Operation(number) => {
                    heard.operations.insert(number);
                }
            }
            !std::mem::replace(&mut heard.rung, true)
        };
        if first {
            // The counter cannot overflow: there is one write between two reads.
            let _ = rustix::io::write(self.descriptor.as_fd(), &1_u64.to_ne_bytes());
        }
    }

    /// Takes the notes. What is noted from now on makes the descriptor readable again.
    pub(crate) fn hear(&self) -> Heard {
        let mut count = [0; 8];
        // Nothing to read: a look without a call, or before the caller has written. Then the next
        // look finds no notes.
        let _ = rustix::io::read(self.descriptor.as_fd(), &mut count);
        std::mem::take(&mut self.notes())
    }
}
