//! Events that wait to be polled, and a descriptor to wait for them.
//!
//! From its first request by the program on, the descriptor is readable exactly as long as events
//! wait, or the queue is over. Until then it costs nothing: a program that polls without waiting
//! makes no system call here. Bound: the number of events that the queue was made for, which
//! callers check before they push one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use srd_host::ReadyFd;

use crate::event::Event;
use crate::{Outcome, Status};

/// Events that wait.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    limit: usize,
    descriptor: ReadyFd,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// Reason why there will be no more events.
    over: Option<Status>,
    /// Whether the program has the descriptor.
    watched: bool,
    /// Threads that wait.
    waiters: u32,
}

impl Queue {
    /// An empty queue for `limit` events.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn new(limit: usize) -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), limit, descriptor: ReadyFd::new()? })
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.lock().events.len() < self.limit
    }

    /// Appends an event.
    pub fn push(&self, event: Event) {
        let mut state = self.lock();
        state.events.push_back(event);
        self.show(&state);
    }

    /// There will be no more events. The first reason counts.
    pub fn end(&self, why: Status) {
        let mut state = self.lock();
        state.over.get_or_insert(why);
        self.show(&state);
    }

    /// Reason why there will be no more events.
    pub fn over(&self) -> Option<Status> {
        self.lock().over
    }

    /// Passes the oldest events to `each`, `most` at most. Returns their number.
    ///
    /// # Errors
    /// The reason why there will be no more events, when all are taken.
    pub fn take(&self, most: usize, mut each: impl FnMut(usize, Event)) -> Outcome<usize> {
        let mut state = self.lock();
        let count = most.min(state.events.len());
        for (at, event) in state.events.drain(..count).enumerate() {
            each(at, event);
        }
        if count == 0
            && let Some(why) = state.over
        {
            return Err(why.into());
        }
        self.show(&state);
        Ok(count)
    }

    /// The descriptor. It belongs to the queue.
    pub fn watch(&self) -> RawFd {
        let mut state = self.lock();
        state.watched = true;
        self.show(&state);
        self.descriptor.as_raw()
    }

    /// Whether the program has the descriptor.
    pub fn is_watched(&self) -> bool {
        self.lock().watched
    }

    /// Waits until there is something to take, for `timeout` at most, or for ever. Another
    /// thread may then be faster.
    ///
    /// # Errors
    /// `Interrupted` after a signal.
    pub fn wait(&self, timeout: Option<Duration>) -> Outcome {
        {
            let mut state = self.lock();
            state.waiters += 1;
            self.show(&state);
        }
        let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let polled = poll(&mut fds, limit.as_ref());
        self.lock().waiters -= 1;
        match polled {
            Err(rustix::io::Errno::INTR) => Err(Status::Interrupted.into()),
            // Nothing else can happen to a descriptor that is open; the caller's timeout bounds the
            // wait.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Brings the descriptor in line with the queue. It becomes readable only while the program
    /// has it or a thread waits, and stays so until the queue is empty.
    fn show(&self, state: &State) {
        let due = !state.events.is_empty() || state.over.is_some();
        if !due || state.watched || state.waiters > 0 {
            self.descriptor.set(due);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(context: usize) -> Event {
        Event { context, ..Event::default() }
    }

    fn is_readable(queue: &Queue) -> bool {
        let mut fds = [PollFd::new(&queue.descriptor, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn events_leave_in_order_and_the_limit_is_known() {
        let queue = Queue::new(3).unwrap();
        for context in 0..3 {
            assert!(queue.has_room());
            queue.push(event(context));
        }
        assert!(!queue.has_room());
        let mut seen = Vec::new();
        assert_eq!(queue.take(2, |at, event| seen.push((at, event.context))), Ok(2));
        assert!(queue.has_room());
        assert_eq!(queue.take(9, |at, event| seen.push((at, event.context))), Ok(1));
        assert_eq!(seen, [(0, 0), (1, 1), (0, 2)]);
    }

    #[test]
    fn the_descriptor_is_readable_as_long_as_events_wait() {
        let queue = Queue::new(8).unwrap();
        queue.push(event(1));
        assert!(!is_readable(&queue), "nobody wants to know yet");
        queue.watch();
        assert!(is_readable(&queue));
        queue.push(event(2));
        queue.take(1, |_, _| ()).unwrap();
        assert!(is_readable(&queue));
        queue.take(1, |_, _| ()).unwrap();
        assert!(!is_readable(&queue));
    }

    #[test]
    fn waiting_ends_with_an_event_or_the_timeout() {
        let queue = Queue::new(8).unwrap();
        queue.wait(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(queue.take(1, |_, _| ()), Ok(0));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.wait(None));
            queue.push(event(1));
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
        assert_eq!(queue.take(1, |_, _| ()), Ok(1));
        assert!(!is_readable(&queue));
    }

    #[test]
    fn a_queue_that_is_over_says_why_after_its_last_event_and_ends_every_wait() {
        let queue = Queue::new(8).unwrap();
        queue.push(event(1));
        queue.end(Status::Broken);
        queue.end(Status::Handle);
        assert_eq!(queue.take(8, |_, _| ()), Ok(1));
        for _ in 0..2 {
            queue.wait(None).unwrap();
            assert_eq!(queue.take(8, |_, _| ()).unwrap_err().status, Status::Broken);
        }
    }
}
