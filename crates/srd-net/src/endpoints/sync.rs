//! Synchronisation between the driver thread and application threads: oneshot channels, a
//! semaphore, and an inbox. A thread can wait by blocking, and a future without a particular
//! runtime.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::primitives::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::primitives::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time that is `timeout` from now. Returns `None`, which means no limit, if `timeout`
/// is `None` or if the time cannot be represented.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|t| Instant::now().checked_add(t))
}

/// Threads and futures that wait for a condition of a locked state. All of them are woken together,
/// so that a waiter that is dropped after its wake-up takes no wake-up from the others.
///
/// Bound: one entry for each thread and future that exists, since a future that is dropped removes
/// its waker; and one waker of a poll function.
#[derive(Debug, Default)]
struct Waiters {
    condvar: Condvar,
    threads: AtomicU32,
    futures: Mutex<Futures>,
    has_futures: AtomicBool,
}

/// Wakers of futures that wait, each under the key of its future.
#[derive(Debug, Default)]
struct Futures {
    wakers: BTreeMap<u64, Waker>,
    next: u64,
    /// Waker of the last call of a poll function. It stays until it is woken, because no future
    /// exists that could remove it when dropped.
    polled: Option<Waker>,
}

impl Futures {
    fn are_none(&self) -> bool {
        self.wakers.is_empty() && self.polled.is_none()
    }
}

impl Waiters {
    /// Blocks until `ready` returns a value or the deadline has passed.
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
            // Another thread may have changed the state, without the lock, since the first check.
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

    /// Stores the waker of a future under its key; assigns the key at the first call. The caller
    /// must check the state again afterwards, since it may have changed before this call.
    fn register(&self, key: &mut Option<u64>, waker: &Waker) {
        let mut futures = lock(&self.futures);
        let key = *key.get_or_insert_with(|| {
            futures.next += 1;
            futures.next
        });
        let is_known = futures.wakers.get(&key).is_some_and(|known| known.will_wake(waker));
        let old = if is_known { None } else { futures.wakers.insert(key, waker.clone()) };
        self.has_futures.store(true, Ordering::SeqCst);
        // Dropping a waker runs code of the executor. That code must not run under the lock.
        drop(futures);
        drop(old);
    }

    /// Stores the waker of the caller of a poll function, in place of the previous waker. The
    /// caller must check the state again afterwards, since it may have changed before this call.
    fn register_polled(&self, waker: &Waker) {
        let mut futures = lock(&self.futures);
        let is_known = futures.polled.as_ref().is_some_and(|known| known.will_wake(waker));
        let old = if is_known { None } else { futures.polled.replace(waker.clone()) };
        self.has_futures.store(true, Ordering::SeqCst);
        drop(futures);
        drop(old);
    }

    /// Returns the value that `ready` returns. If there is no value yet, the caller of the poll
    /// function is woken later.
    fn poll<T>(&self, context: &mut Context<'_>, mut ready: impl FnMut() -> Option<T>) -> Poll<T> {
        if let Some(value) = ready() {
            return Poll::Ready(value);
        }
        self.register_polled(context.waker());
        ready().map_or(Poll::Pending, Poll::Ready)
    }

    /// Removes the waker of a future that no longer waits.
    fn take_out(&self, key: Option<u64>) {
        let Some(key) = key else { return };
        let mut futures = lock(&self.futures);
        let waker = futures.wakers.remove(&key);
        self.has_futures.store(!futures.are_none(), Ordering::SeqCst);
        drop(futures);
        drop(waker);
    }

    /// Returns a future that waits until `ready` returns a value.
    fn until<T, F: FnMut() -> Option<T>>(&self, ready: F) -> Until<'_, F> {
        Until { waiters: self, key: None, ready }
    }

    /// Whether a thread or a future waits.
    fn any(&self) -> bool {
        self.threads.load(Ordering::SeqCst) > 0 || self.has_futures.load(Ordering::SeqCst)
    }

    /// Wakes every waiter. `state` is the lock that the threads wait under.
    fn wake<S>(&self, state: &Mutex<S>) {
        if self.threads.load(Ordering::SeqCst) > 0 {
            // A thread that has checked the state but does not sleep yet holds the lock. Taking the
            // lock waits until the thread sleeps.
            drop(lock(state));
            self.condvar.notify_all();
        }
        if self.has_futures.load(Ordering::SeqCst) {
            let futures = {
                let mut futures = lock(&self.futures);
                self.has_futures.store(false, Ordering::SeqCst);
                (std::mem::take(&mut futures.wakers), futures.polled.take())
            };
            for waker in futures.0.into_values().chain(futures.1) {
                waker.wake();
            }
        }
    }
}

/// Future that [`Waiters::until`] returns.
#[derive(Debug)]
struct Until<'a, F> {
    waiters: &'a Waiters,
    key: Option<u64>,
    ready: F,
}

impl<T, F: FnMut() -> Option<T> + Unpin> Future for Until<'_, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if let Some(value) = (this.ready)() {
            return Poll::Ready(value);
        }
        this.waiters.register(&mut this.key, context.waker());
        (this.ready)().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<F> Drop for Until<'_, F> {
    fn drop(&mut self) {
        self.waiters.take_out(self.key);
    }
}

/// The sender of one value. If the sender is dropped without a value, the receiver stops waiting.
#[derive(Debug)]
pub(crate) struct OneshotSender<T> {
    shared: Arc<OneshotState<T>>,
}

/// The receiver of one value. It receives `None` if the sender is dropped without a value.
#[derive(Debug)]
pub(crate) struct OneshotReceiver<T> {
    shared: Arc<OneshotState<T>>,
    key: Option<u64>,
}

#[derive(Debug)]
struct OneshotState<T> {
    value: Mutex<Value<T>>,
    waiters: Waiters,
}

#[derive(Debug)]
enum Value<T> {
    Open,
    Sent(T),
    /// The sender was dropped, or the value was taken.
    Over,
}

impl<T> Value<T> {
    /// Takes the value. `None`: the value has not arrived yet; `Some(None)`: no value will arrive.
    fn take(&mut self) -> Option<Option<T>> {
        match std::mem::replace(self, Self::Over) {
            Self::Open => {
                *self = Self::Open;
                None
            }
            Self::Sent(value) => Some(Some(value)),
            Self::Over => Some(None),
        }
    }
}

/// Returns a channel for one value.
pub(crate) fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let state = OneshotState { value: Mutex::new(Value::Open), waiters: Waiters::default() };
    let shared = Arc::new(state);
    (OneshotSender { shared: shared.clone() }, OneshotReceiver { shared, key: None })
}

impl<T> OneshotSender<T> {
    /// Sends the value, and wakes the receiver.
    pub(crate) fn send(self, value: T) {
        *lock(&self.shared.value) = Value::Sent(value);
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        {
            let mut value = lock(&self.shared.value);
            if matches!(*value, Value::Open) {
                *value = Value::Over;
            }
        }
        self.shared.waiters.wake(&self.shared.value);
    }
}

impl<T> OneshotReceiver<T> {
    /// Blocks until the value has arrived. Returns `None` if no value will arrive, or if the time
    /// has passed.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Option<T> {
        self.shared.waiters.wait(&self.shared.value, until, Value::take).flatten()
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let Self { shared, key } = &mut *self;
        shared.waiters.register(key, context.waker());
        lock(&shared.value).take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        self.shared.waiters.take_out(self.key);
    }
}

/// A semaphore: permits for datagrams that are outstanding to one peer.
///
/// Acquiring a free permit costs one atomic operation. Waiters are woken when a quarter of the
/// permits are free, so that a sender at the limit is not woken for every datagram.
#[derive(Debug)]
pub(crate) struct Semaphore {
    free: AtomicU32,
    capacity: u32,
    closed: AtomicBool,
    gate: Mutex<()>,
    senders: Waiters,
    flushers: Waiters,
}

/// The result of an attempt to acquire a permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acquired {
    Yes,
    Full,
    Closed,
}

impl Semaphore {
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

    pub(crate) fn try_acquire(&self) -> Acquired {
        if self.closed.load(Ordering::SeqCst) {
            return Acquired::Closed;
        }
        let take = |free: u32| free.checked_sub(1);
        match self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => Acquired::Yes,
            Err(_) => Acquired::Full,
        }
    }

    /// Blocks until a permit is free, and acquires it. Returns false if the semaphore is closed.
    pub(crate) fn acquire(&self) -> bool {
        self.senders.wait(&self.gate, None, |()| self.acquired_or_closed()).unwrap_or(false)
    }

    /// Waits for a permit, and acquires it. The result is false if the semaphore is closed.
    pub(crate) fn acquire_async(&self) -> impl Future<Output = bool> + '_ {
        self.senders.until(|| self.acquired_or_closed())
    }

    /// Acquires a permit, if one is free; otherwise the caller is woken when permits are free. The
    /// result is false if the semaphore is closed.
    pub(crate) fn poll_acquire(&self, context: &mut Context<'_>) -> Poll<bool> {
        self.senders.poll(context, || self.acquired_or_closed())
    }

    fn acquired_or_closed(&self) -> Option<bool> {
        match self.try_acquire() {
            Acquired::Yes => Some(true),
            Acquired::Closed => Some(false),
            Acquired::Full => None,
        }
    }

    /// Releases `n` permits.
    pub(crate) fn release(&self, n: u32) {
        let free = self.free.fetch_add(n, Ordering::SeqCst) + n;
        debug_assert!(free <= self.capacity, "more permits were given back than acquired");
        if free > self.capacity / 4 && self.senders.any() {
            self.senders.wake(&self.gate);
        }
        if free >= self.capacity && self.flushers.any() {
            self.flushers.wake(&self.gate);
        }
    }

    /// Whether no permit is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.load(Ordering::SeqCst) >= self.capacity
    }

    /// Returns the number of outstanding permits.
    pub(crate) fn outstanding(&self) -> u32 {
        self.capacity.saturating_sub(self.free.load(Ordering::SeqCst))
    }

    /// Blocks until no permit is outstanding. Returns false if the time `until` passes first, or if
    /// the semaphore was closed while permits were outstanding.
    pub(crate) fn wait_idle(&self, until: Option<Instant>) -> bool {
        let ready = |_: &mut ()| self.idle_or_closed();
        self.flushers.wait(&self.gate, until, ready).unwrap_or(false)
    }

    /// Waits until no permit is outstanding. The result is false if the semaphore was closed while
    /// permits were outstanding.
    pub(crate) fn idle_async(&self) -> impl Future<Output = bool> + '_ {
        self.flushers.until(|| self.idle_or_closed())
    }

    fn idle_or_closed(&self) -> Option<bool> {
        let closed = self.closed.load(Ordering::SeqCst);
        if self.is_idle() { Some(true) } else { closed.then_some(false) }
    }

    /// Closes the semaphore: from now on no permit can be acquired.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.senders.wake(&self.gate);
        self.flushers.wake(&self.gate);
    }
}

/// A queue of items that have arrived and were not taken yet.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    state: Mutex<InboxState<T>>,
    /// Length of the queue, for checks without the lock.
    length: AtomicU32,
    closed: AtomicBool,
    waiters: Waiters,
}

#[derive(Debug)]
struct InboxState<T> {
    queue: VecDeque<T>,
}

/// Error: the inbox is empty and closed.
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

    /// Moves all `items` to the end of the queue, and wakes waiting threads and futures.
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

    /// Whether the queue is empty, as read without the lock.
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

    /// Whether the inbox is closed, so that no item will be appended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Takes the first item. Returns `None` if the inbox is empty and not closed.
    pub(crate) fn try_take(&self) -> Option<Result<T, InboxClosed>> {
        self.pop(&mut lock(&self.state))
    }

    /// Blocks until there is an item, and takes it. Returns `None` if the time has passed.
    pub(crate) fn take(&self, until: Option<Instant>) -> Option<Result<T, InboxClosed>> {
        self.waiters.wait(&self.state, until, |state| self.pop(state))
    }

    /// Waits until there is an item, and takes it.
    pub(crate) fn take_async(&self) -> impl Future<Output = Result<T, InboxClosed>> + '_ {
        self.waiters.until(|| self.try_take())
    }

    /// Takes the first item, if there is one; otherwise the caller is woken when an item arrives.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>) -> Poll<Result<T, InboxClosed>> {
        self.waiters.poll(context, || self.try_take())
    }

    /// Closes the inbox: from now on no item is appended. Items in the queue can still be taken.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.waiters.wake(&self.state);
    }
}
