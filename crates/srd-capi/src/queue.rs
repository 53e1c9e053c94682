//! Queue of events to be polled, with a descriptor on which a program can wait for them.
//!
//! After the program has requested the descriptor, the descriptor is readable exactly while events
//! are in the queue, or the queue has ended. Before this request it costs nothing: a program that
//! polls without waiting makes no system call here. Bound: the limit of events with which the queue
//! was created. Callers check the limit before they push an event.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use srd_host::ReadyFd;

use crate::event::Event;
use crate::{Outcome, Status};

/// Events to be polled.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    limit: usize,
    descriptor: ReadyFd,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// Reason why no more events will arrive; `None` while the queue has not ended.
    over: Option<Status>,
    /// Whether the program has requested the descriptor.
    watched: bool,
    /// Number of threads that wait.
    waiters: u32,
}

impl Queue {
    /// Returns an empty queue for `limit` events.
    ///
    /// # Errors
    /// An error of the operating system, if there is no free descriptor.
    pub fn new(limit: usize) -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), limit, descriptor: ReadyFd::new()? })
    }

    /// Whether the queue has space for another event.
    pub fn has_room(&self) -> bool {
        self.lock().events.len() < self.limit
    }

    /// Appends an event.
    pub fn push(&self, event: Event) {
        let mut state = self.lock();
        state.events.push_back(event);
        self.show(&state);
    }

    /// Ends the queue: no more events will arrive. If the queue has already ended, the first reason
    /// is kept.
    pub fn end(&self, why: Status) {
        let mut state = self.lock();
        state.over.get_or_insert(why);
        self.show(&state);
    }

    /// Returns the reason why no more events will arrive; `None` if the queue has not ended.
    pub fn over(&self) -> Option<Status> {
        self.lock().over
    }

    /// Passes the oldest events to `each`, at most `most`. Returns their number.
    ///
    /// # Errors
    /// The reason why no more events will arrive, if the queue is empty and has ended.
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

    /// Returns the descriptor on which the program can wait for events. It belongs to the queue.
    pub fn watch(&self) -> RawFd {
        let mut state = self.lock();
        state.watched = true;
        self.show(&state);
        self.descriptor.as_raw()
    }

    /// Whether the program has requested the descriptor.
    pub fn is_watched(&self) -> bool {
        self.lock().watched
    }

    /// Waits until there is an event, or the queue has ended, for at most `timeout`; `None`:
    /// without limit. Another thread may take the event first.
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
            // `poll` has no other error for an open descriptor, and the caller's timeout limits the
            // wait.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Updates the descriptor. It becomes readable only if the program has requested it or a thread
    /// waits. It stays readable until the queue is empty.
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
