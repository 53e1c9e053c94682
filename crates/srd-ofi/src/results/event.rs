//! Event queues: events other than completions. The application writes them; a later version of the
//! provider may write some.

use crate::abi::errno::{FI_EAGAIN, FI_EINVAL, FI_ETOOSMALL};
use crate::objects::fabric::same_process;
use crate::results::queue::{Queue, WaitMode, Waited};
use crate::{Errno, Outcome};

/// Capacity, in events, of a queue that was requested without a size.
const EVENTS_DEFAULT: usize = 256;
/// Largest capacity of a queue, in events.
pub const EVENTS_MAX: usize = 1 << 16;
/// Largest number of bytes of an event.
pub const EVENT_BYTES_MAX: usize = 1024;

/// An entry of an event queue, as the application reads it by `fi_eq_read`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Kind of the event, as a number that the application chooses.
    pub kind: u32,
    /// Content of the event: a structure of libfabric, as bytes.
    pub bytes: Vec<u8>,
}

/// An event queue.
#[derive(Debug)]
pub struct EventQueue {
    /// The fabric that the queue belongs to. It stays open while the queue is open.
    pub fabric: std::sync::Arc<crate::objects::fabric::Fabric>,
    /// Whether the application may write events.
    pub writable: bool,
    queue: Queue<Event>,
}

impl EventQueue {
    /// Returns an empty queue; size zero selects the default.
    ///
    /// # Errors
    /// `FI_EINVAL` beyond [`EVENTS_MAX`]; the errors of [`Queue::new`].
    pub fn new(
        fabric: std::sync::Arc<crate::objects::fabric::Fabric>,
        size: usize,
        writable: bool,
        waiting: WaitMode,
    ) -> Outcome<Self> {
        if size > EVENTS_MAX {
            return Err(Errno(FI_EINVAL));
        }
        let size = if size == 0 { EVENTS_DEFAULT } else { size };
        Ok(Self { fabric, writable, queue: Queue::new(size, waiting)? })
    }

    /// Returns the underlying queue, to wait on.
    #[must_use]
    pub fn queue(&self) -> &Queue<Event> {
        &self.queue
    }

    /// Returns whether the queue has no events.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` in the child of a fork.
    pub fn is_idle(&self) -> Outcome<bool> {
        same_process(self.fabric.process)?;
        Ok(self.queue.is_empty())
    }

    /// Waits until there are events, at most for `timeout`; `None` means without limit.
    ///
    /// # Errors
    /// The errors of [`Queue::wait`]; `FI_EOPBADSTATE` in the child of a fork.
    pub fn wait(&self, timeout: Option<std::time::Duration>) -> Outcome<Waited> {
        same_process(self.fabric.process)?;
        self.queue.wait(timeout)
    }

    /// Appends an event of the application.
    ///
    /// # Errors
    /// `FI_EINVAL` if the queue is not writable or the event is too long; `FI_EAGAIN` if the queue
    /// is full.
    pub fn write(&self, kind: u32, bytes: &[u8]) -> Outcome {
        same_process(self.fabric.process)?;
        if !self.writable || bytes.len() > EVENT_BYTES_MAX {
            return Err(Errno(FI_EINVAL));
        }
        let event = Event { kind, bytes: bytes.to_vec() };
        self.queue.push(event).map_err(|_| Errno(FI_EAGAIN))
    }

    /// Returns the next event, if it fits into `room` bytes. With `peek` the event stays in the
    /// queue.
    ///
    /// # Errors
    /// `FI_EAGAIN` if the queue is empty; `FI_ETOOSMALL` if the event does not fit, and then stays
    /// in the queue.
    pub fn read(&self, room: usize, peek: bool) -> Outcome<Event> {
        same_process(self.fabric.process)?;
        self.queue.with(|events| {
            let next = events.front().ok_or(Errno(FI_EAGAIN))?;
            if next.bytes.len() > room {
                return Err(Errno(FI_ETOOSMALL));
            }
            let event = next.clone();
            if !peek {
                events.pop_front();
            }
            Ok(event)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::fabric::tests::fabric;

    #[test]
    fn events_are_peeked_at_read_and_kept_when_there_is_no_room() {
        let queue = EventQueue::new(fabric(), 4, true, WaitMode::None).unwrap();
        queue.write(7, b"event").unwrap();
        assert_eq!(queue.read(4, false), Err(Errno(FI_ETOOSMALL)));
        assert_eq!(queue.read(5, true).unwrap().kind, 7);
        assert_eq!(queue.read(5, false).unwrap().bytes, b"event");
        assert_eq!(queue.read(5, false), Err(Errno(FI_EAGAIN)));
    }

    #[test]
    fn size_length_and_permission_have_limits() {
        let queue = EventQueue::new(fabric(), 2, true, WaitMode::None).unwrap();
        assert_eq!(queue.write(0, &[0; EVENT_BYTES_MAX + 1]), Err(Errno(FI_EINVAL)));
        for _ in 0..2 {
            queue.write(0, &[0; EVENT_BYTES_MAX]).unwrap();
        }
        assert_eq!(queue.write(0, &[]), Err(Errno(FI_EAGAIN)));
        let silent = EventQueue::new(fabric(), 0, false, WaitMode::None).unwrap();
        assert_eq!(silent.write(0, &[]), Err(Errno(FI_EINVAL)));
        let refused = EventQueue::new(fabric(), EVENTS_MAX + 1, true, WaitMode::None);
        assert_eq!(refused.unwrap_err(), Errno(FI_EINVAL));
    }
}
