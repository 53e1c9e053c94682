//! What driver thread and application threads share: answers, room to send, arrivals. Each
//! can be waited for by blocking a thread or by a future, with no runtime.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::primitives::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::primitives::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A deadline, as far as one can be represented; `None`: for ever.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|t| Instant::now().checked_add(t))
}

/// Threads and futures that wait for a condition of a locked state.
#[derive(Debug, Default)]
struct Waiters {
    condvar: Condvar,
    threads: AtomicU32,
    futures: Mutex<Vec<Waker>>,
    has_futures: AtomicBool,
}

impl Waiters {
    /// Blocks until `ready` yields something or the deadline has passed.
    fn wait<S, T>(
        &self,
        state: &Mutex<S>,
        until: Option<Instant>,
        mut ready: impl FnMut(&mut S) -> Option<T>,
    ) -> Option<T> {
        let mut guard = lock(state);
        loop {
            if let Some(value) = ready(&mut guard) {
                return Some(value);
            }
            self.threads.fetch_add(1, Ordering::SeqCst);
            // Between the look above and here, someone may have passed without the lock.
            if let Some(value) = ready(&mut guard) {
                self.threads.fetch_sub(1, Ordering::SeqCst);
                return Some(value);
            }
            let left = until.map(|t| t.saturating_duration_since(Instant::now()));
            guard = match left {
                Some(Duration::ZERO) => {
                    self.threads.fetch_sub(1, Ordering::SeqCst);
                    return None;
                }
                Some(left) => {
                    let woken = self.condvar.wait_timeout(guard, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
            };
            self.threads.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Registers a future. Look at the state again afterwards.
    fn register(&self, waker: &Waker) {
        let mut futures = lock(&self.futures);
        if !futures.iter().any(|w| w.will_wake(waker)) {
            futures.push(waker.clone());
        }
        self.has_futures.store(true, Ordering::SeqCst);
    }

    /// Whether anyone waits.
    fn any(&self) -> bool {
        self.threads.load(Ordering::SeqCst) > 0 || self.has_futures.load(Ordering::SeqCst)
    }

    /// Wakes everyone. `state` is the lock that the threads wait under.
    fn wake<S>(&self, state: &Mutex<S>) {
        if self.threads.load(Ordering::SeqCst) > 0 {
            // Whoever is between its look and its sleep holds the lock.
            drop(lock(state));
            self.condvar.notify_all();
        }
        if self.has_futures.load(Ordering::SeqCst) {
            let futures = {
                let mut futures = lock(&self.futures);
                self.has_futures.store(false, Ordering::SeqCst);
                std::mem::take(&mut *futures)
            };
            for waker in futures {
                waker.wake();
            }
        }
    }
}

/// The end of an answer that gives it. Dropped without one, it ends the wait all the same.
#[derive(Debug)]
pub(crate) struct Giver<T> {
    shared: Arc<ReplyState<T>>,
}

/// The end of an answer that waits for it: it comes later, once, or not at all.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    shared: Arc<ReplyState<T>>,
}

#[derive(Debug)]
struct ReplyState<T> {
    answer: Mutex<Answer<T>>,
    waiters: Waiters,
}

#[derive(Debug)]
enum Answer<T> {
    Open,
    Given(T),
    /// There will be none, or it was taken.
    Over,
}

impl<T> Answer<T> {
    /// The answer, taken; `Some(None)`: there is none any more.
    fn take(&mut self) -> Option<Option<T>> {
        match std::mem::replace(self, Self::Over) {
            Self::Open => {
                *self = Self::Open;
                None
            }
            Self::Given(value) => Some(Some(value)),
            Self::Over => Some(None),
        }
    }
}

/// Both ends of an answer.
pub(crate) fn reply<T>() -> (Giver<T>, Reply<T>) {
    let state = ReplyState { answer: Mutex::new(Answer::Open), waiters: Waiters::default() };
    let shared = Arc::new(state);
    (Giver { shared: shared.clone() }, Reply { shared })
}

impl<T> Giver<T> {
    /// Gives the answer.
    pub(crate) fn give(self, value: T) {
        *lock(&self.shared.answer) = Answer::Given(value);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        {
            let mut answer = lock(&self.shared.answer);
            if matches!(*answer, Answer::Open) {
                *answer = Answer::Over;
            }
        }
        self.shared.waiters.wake(&self.shared.answer);
    }
}

impl<T> Reply<T> {
    /// Blocks until the answer is there. `None`: there will be none, or the time has passed.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Option<T> {
        self.shared.waiters.wait(&self.shared.answer, until, Answer::take).flatten()
    }
}

impl<T> Future for Reply<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.shared.waiters.register(context.waker());
        lock(&self.shared.answer).take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Room for datagrams that are outstanding to one peer.
///
/// Taking room costs one atomic operation while there is some. Waiters are woken when a
/// quarter of it is free, so that a sender at the limit is not woken for every datagram.
#[derive(Debug)]
pub(crate) struct Room {
    free: AtomicU32,
    capacity: u32,
    closed: AtomicBool,
    gate: Mutex<()>,
    senders: Waiters,
    flushers: Waiters,
}

/// What came of trying to take room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    Yes,
    Full,
    Closed,
}

impl Room {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            free: AtomicU32::new(capacity),
            capacity,
            closed: AtomicBool::new(false),
            gate: Mutex::new(()),
            senders: Waiters::default(),
            flushers: Waiters::default(),
        }
    }

    pub(crate) fn try_take(&self) -> Taken {
        if self.closed.load(Ordering::SeqCst) {
            return Taken::Closed;
        }
        let take = |free: u32| free.checked_sub(1);
        match self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => Taken::Yes,
            Err(_) => Taken::Full,
        }
    }

    /// Blocks for room. False: there will be none any more.
    pub(crate) fn take(&self) -> bool {
        let ready = |_: &mut ()| match self.try_take() {
            Taken::Yes => Some(true),
            Taken::Closed => Some(false),
            Taken::Full => None,
        };
        self.senders.wait(&self.gate, None, ready).unwrap_or(false)
    }

    pub(crate) fn poll_take(&self, context: &mut Context<'_>) -> Poll<bool> {
        for look in 0..2 {
            match self.try_take() {
                Taken::Yes => return Poll::Ready(true),
                Taken::Closed => return Poll::Ready(false),
                Taken::Full if look == 0 => self.senders.register(context.waker()),
                Taken::Full => {}
            }
        }
        Poll::Pending
    }

    /// Gives room back.
    pub(crate) fn release(&self, n: u32) {
        let free = self.free.fetch_add(n, Ordering::SeqCst) + n;
        debug_assert!(free <= self.capacity, "more was given back than taken");
        if free > self.capacity / 4 && self.senders.any() {
            self.senders.wake(&self.gate);
        }
        if free >= self.capacity && self.flushers.any() {
            self.flushers.wake(&self.gate);
        }
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.load(Ordering::SeqCst) >= self.capacity
    }

    /// How much is outstanding.
    pub(crate) fn outstanding(&self) -> u32 {
        self.capacity.saturating_sub(self.free.load(Ordering::SeqCst))
    }

    /// Blocks until nothing is outstanding. False: the time has passed, or the room is closed
    /// with something outstanding.
    pub(crate) fn wait_idle(&self, until: Option<Instant>) -> bool {
        let ready = |_: &mut ()| self.idle_or_closed();
        self.flushers.wait(&self.gate, until, ready).unwrap_or(false)
    }

    pub(crate) fn poll_idle(&self, context: &mut Context<'_>) -> Poll<bool> {
        self.flushers.register(context.waker());
        self.idle_or_closed().map_or(Poll::Pending, Poll::Ready)
    }

    fn idle_or_closed(&self) -> Option<bool> {
        let closed = self.closed.load(Ordering::SeqCst);
        if self.is_idle() { Some(true) } else { closed.then_some(false) }
    }

    /// No more room for anyone.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.senders.wake(&self.gate);
        self.flushers.wake(&self.gate);
    }
}

/// What has arrived and was not taken yet.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    state: Mutex<InboxState<T>>,
    /// Length of the queue, to look at without the lock.
    length: AtomicU32,
    closed: AtomicBool,
    waiters: Waiters,
}

#[derive(Debug)]
struct InboxState<T> {
    queue: VecDeque<T>,
}

/// An inbox that will never hold anything again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InboxClosed;

impl<T> Inbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(InboxState { queue: VecDeque::new() }),
            length: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            waiters: Waiters::default(),
        }
    }

    /// Appends all of `items`.
    pub(crate) fn append(&self, items: &mut VecDeque<T>) {
        if items.is_empty() {
            return;
        }
        {
            let mut state = lock(&self.state);
            state.queue.append(items);
            self.note_length(&state);
        }
        if self.waiters.any() {
            self.waiters.wake(&self.state);
        }
    }

    fn note_length(&self, state: &InboxState<T>) {
        let length = u32::try_from(state.queue.len()).unwrap_or(u32::MAX);
        self.length.store(length, Ordering::SeqCst);
    }

    /// Whether nothing seems to be there.
    pub(crate) fn seems_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }

    fn pop(&self, state: &mut InboxState<T>) -> Option<Result<T, InboxClosed>> {
        let item = state.queue.pop_front();
        self.note_length(state);
        match item {
            Some(item) => Some(Ok(item)),
            None => self.is_closed().then_some(Err(InboxClosed)),
        }
    }

    /// Whether nothing will be appended any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Takes the first, if there is one.
    pub(crate) fn try_take(&self) -> Option<Result<T, InboxClosed>> {
        self.pop(&mut lock(&self.state))
    }

    /// Blocks for the first. `None`: the time has passed.
    pub(crate) fn take(&self, until: Option<Instant>) -> Option<Result<T, InboxClosed>> {
        self.waiters.wait(&self.state, until, |state| self.pop(state))
    }

    pub(crate) fn poll_take(&self, context: &mut Context<'_>) -> Poll<Result<T, InboxClosed>> {
        if let Some(item) = self.try_take() {
            return Poll::Ready(item);
        }
        self.waiters.register(context.waker());
        self.try_take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Nothing will be appended any more. What is there can still be taken.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.waiters.wake(&self.state);
    }
}
