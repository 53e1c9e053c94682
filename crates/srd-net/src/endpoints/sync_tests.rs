//! Oneshot channels, permits and the inbox, with real threads.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::endpoints::sync::*;

const SOON: Duration = Duration::from_millis(5);

#[test]
fn an_answer_reaches_a_blocked_thread_once() {
    let (sender, reply) = oneshot();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(SOON);
        sender.send(7);
    });
    assert_eq!(reply.wait(None), Some(7));
    thread.join().unwrap();
    assert_eq!(reply.wait(deadline(Some(SOON))), None);
}

#[test]
fn an_answer_that_nobody_gives_ends_the_wait() {
    let (sender, waiting) = oneshot::<u32>();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(SOON);
        drop(sender);
    });
    assert_eq!(waiting.wait(None), None);
    thread.join().unwrap();
}

#[test]
fn room_runs_out_and_comes_back_by_quarters() {
    let permits = Arc::new(Semaphore::new(8));
    for _ in 0..8 {
        assert_eq!(permits.try_acquire(), Acquired::Yes);
    }
    assert_eq!(permits.try_acquire(), Acquired::Full);
    assert_eq!(permits.outstanding(), 8);
    assert!(!permits.wait_idle(deadline(Some(SOON))));
    let waiting = permits.clone();
    let thread = std::thread::spawn(move || waiting.acquire());
    std::thread::sleep(SOON);
    for _ in 0..3 {
        permits.release(1);
    }
    assert!(thread.join().unwrap());
    permits.release(6);
    assert!(permits.is_idle() && permits.wait_idle(None));
}

#[test]
fn closing_frees_whoever_waits() {
    let permits = Arc::new(Semaphore::new(1));
    assert_eq!(permits.try_acquire(), Acquired::Yes);
    let waiting = permits.clone();
    let sender = std::thread::spawn(move || waiting.acquire());
    let waiting = permits.clone();
    let flusher = std::thread::spawn(move || waiting.wait_idle(None));
    std::thread::sleep(SOON);
    permits.close();
    assert!(!sender.join().unwrap());
    assert!(!flusher.join().unwrap());
    assert_eq!(permits.try_acquire(), Acquired::Closed);
}

#[test]
fn an_inbox_keeps_order_and_yields_its_rest_after_closing() {
    let inbox = Arc::new(Inbox::new());
    let taking = inbox.clone();
    let thread = std::thread::spawn(move || {
        (0..1000).map(|_| taking.take(None).unwrap().unwrap()).collect::<Vec<u32>>()
    });
    for i in 0..500 {
        inbox.append(&mut VecDeque::from([2 * i, 2 * i + 1]));
    }
    assert_eq!(thread.join().unwrap(), (0..1000).collect::<Vec<_>>());
    inbox.append(&mut VecDeque::from([5]));
    inbox.close();
    assert_eq!(inbox.try_take(), Some(Ok(5)));
    assert_eq!(inbox.take(None), Some(Err(InboxClosed)));
}

#[test]
fn room_survives_many_threads() {
    let permits = Arc::new(Semaphore::new(4));
    let takers: Vec<_> = (0..4)
        .map(|_| {
            let permits = permits.clone();
            std::thread::spawn(move || {
                for _ in 0..5000 {
                    assert!(permits.acquire());
                    permits.release(1);
                }
            })
        })
        .collect();
    for taker in takers {
        taker.join().unwrap();
    }
    assert!(permits.is_idle());
}

/// A task whose waker does nothing.
struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// Polls a new future once, as a separate task, and drops it. Returns the task: after its last
/// waker was dropped, the caller has the only reference.
fn attempt(future: impl Future) -> Arc<Task> {
    let task = Arc::new(Task);
    let waker = Waker::from(task.clone());
    let mut future = pin!(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(Arc::strong_count(&task) > 1, "it waits");
    task
}

/// Regression: in a program that makes a task for each attempt, each attempt left a waker behind.
#[test]
fn regression_a_future_that_is_dropped_leaves_no_waker() {
    let inbox = Inbox::<u32>::new();
    let permits = Semaphore::new(1);
    assert_eq!(permits.try_acquire(), Acquired::Yes);
    for _ in 0..3 {
        let (sender, waiting) = oneshot::<u32>();
        for task in [
            attempt(inbox.take_async()),
            attempt(permits.acquire_async()),
            attempt(permits.idle_async()),
            attempt(waiting),
        ] {
            assert_eq!(Arc::strong_count(&task), 1, "its waker is still there");
        }
        drop(sender);
    }
}

#[test]
fn the_others_are_woken_when_one_is_dropped() {
    let inbox = Inbox::<u32>::new();
    let (one, other) = (Arc::new(Task), Arc::new(Task));
    let (waker, other_waker) = (Waker::from(one.clone()), Waker::from(other.clone()));
    let mut waits = pin!(inbox.take_async());
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // The future is polled again by another task: only this task is woken.
    assert!(waits.as_mut().poll(&mut Context::from_waker(&other_waker)).is_pending());
    assert_eq!(Arc::strong_count(&one), 2);
    drop(attempt(inbox.take_async()));
    inbox.append(&mut VecDeque::from([7]));
    assert_eq!(Arc::strong_count(&other), 2, "it was woken, and waits no more");
    assert_eq!(waits.poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(7)));
}

/// A task that counts how often it was woken.
#[derive(Default)]
struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A caller of a poll function is woken although it has no future that still exists. (An event loop
/// polls, and waits for its descriptor. When wakers were dropped together with futures that were
/// polled once, the loop waited forever.)
#[test]
fn regression_a_caller_of_a_poll_function_is_woken_after_it_has_returned() {
    let inbox = Inbox::<u32>::new();
    let permits = Semaphore::new(1);
    assert_eq!(permits.try_acquire(), Acquired::Yes);
    let task = Arc::new(Counting::default());
    let waker = Waker::from(task.clone());
    let mut context = Context::from_waker(&waker);
    let woken = || task.0.load(Ordering::SeqCst);
    for turn in 1..=3 {
        assert!(inbox.poll_take(&mut context).is_pending());
        // Other futures that are made and dropped change nothing.
        drop(attempt(inbox.take_async()));
        inbox.append(&mut VecDeque::from([7]));
        assert_eq!(woken(), 2 * turn - 1);
        assert_eq!(inbox.poll_take(&mut context), Poll::Ready(Ok(7)));
        assert!(permits.poll_acquire(&mut context).is_pending());
        drop(attempt(permits.acquire_async()));
        permits.release(1);
        assert_eq!(woken(), 2 * turn);
        assert_eq!(permits.poll_acquire(&mut context), Poll::Ready(true));
    }
    permits.close();
    inbox.close();
    assert_eq!(permits.poll_acquire(&mut context), Poll::Ready(false));
    assert_eq!(inbox.poll_take(&mut context), Poll::Ready(Err(InboxClosed)));
    // For any number of callers, only the waker of the last one is stored.
    let inbox = Inbox::<u32>::new();
    let tasks: Vec<_> = (0..100).map(|_| Arc::new(Task)).collect();
    for task in &tasks {
        let waker = Waker::from(task.clone());
        assert!(inbox.poll_take(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(tasks.iter().filter(|task| Arc::strong_count(task) > 1).count(), 1);
}

/// One item wakes all waiting tasks, so that a task that is dropped takes no wake-up from the other
/// tasks.
#[test]
fn a_future_that_is_dropped_after_its_wake_up_takes_none_from_others() {
    let inbox = Inbox::<u32>::new();
    let (gone, stays) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
    let (waker, other) = (Waker::from(gone.clone()), Waker::from(stays.clone()));
    let mut first = Box::pin(inbox.take_async());
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut second = pin!(inbox.take_async());
    assert!(second.as_mut().poll(&mut Context::from_waker(&other)).is_pending());
    inbox.append(&mut VecDeque::from([7]));
    assert_eq!([&gone, &stays].map(|task| task.0.load(Ordering::SeqCst)), [1, 1]);
    drop(first);
    assert_eq!(second.poll(&mut Context::from_waker(&other)), Poll::Ready(Ok(7)));
}
