//! The hand-written synchronisation under a scheduler that tries many orders of the threads' steps:
//! the unchanged `src/sync.rs` and `src/wake.rs`, with `shuttle` in place of the standard library.
//!
//! Shuttle is sequentially consistent, as the code of both files requires (`SeqCst` throughout). It
//! finds wake-ups that are lost because of an order of steps. It does not find wake-ups that would
//! be lost because of a weaker memory order.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used)]
#![allow(clippy::large_enum_variant, reason = "the wake-up of this test is empty")]

mod primitives {
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use std::sync::PoisonError;
}

/// The part of `sys` that `wake.rs` uses: a wake-up that stays until it is read.
mod sys {
    pub(crate) mod os {
        use std::io;
        use std::os::fd::BorrowedFd;

        #[derive(Debug)]
        pub(crate) struct Wake;

        impl Wake {
            pub(crate) fn new() -> io::Result<Self> {
                Err(io::Error::other("no descriptors under the scheduler"))
            }

            pub(crate) fn signal(&self) {}

            pub(crate) fn reset(&self) {}

            pub(crate) fn fd(&self) -> BorrowedFd<'_> {
                unreachable!("never made")
            }
        }
    }
}

#[path = "../src/endpoints/sync.rs"]
mod sync;
#[path = "../src/endpoints/wake.rs"]
mod wake;

use std::collections::VecDeque;

use primitives::Arc;
use shuttle::thread;
use sync::{Acquired, Inbox, Semaphore, oneshot};
use wake::IoWaker;

/// Number of orders that are tried for each test. A wait that never ends is a deadlock, which fails
/// the test.
const SCHEDULES: usize = 2000;

fn in_many_orders(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, SCHEDULES);
}

#[test]
fn an_answer_and_its_loss_end_the_wait() {
    in_many_orders(|| {
        let ((sender, waiting), (lost, forlorn)) = (oneshot::<u32>(), oneshot::<u32>());
        let give = thread::spawn(move || {
            sender.send(7);
            drop(lost);
        });
        assert_eq!(waiting.wait(None), Some(7));
        assert_eq!(forlorn.wait(None), None);
        give.join().unwrap();
    });
}

#[test]
fn a_future_is_woken_by_its_answer() {
    in_many_orders(|| {
        let (sender, waiting) = oneshot::<u32>();
        let give = thread::spawn(move || sender.send(7));
        assert_eq!(shuttle::future::block_on(waiting), Some(7));
        give.join().unwrap();
    });
}

#[test]
fn room_that_is_given_back_reaches_who_waits_and_closing_reaches_all() {
    in_many_orders(|| {
        let permits = Arc::new(Semaphore::new(1));
        assert_eq!(permits.try_acquire(), Acquired::Yes);
        let sender = {
            let permits = permits.clone();
            thread::spawn(move || permits.acquire())
        };
        let flusher = {
            let permits = permits.clone();
            thread::spawn(move || permits.wait_idle(None))
        };
        permits.release(1);
        assert!(sender.join().unwrap(), "a permit was free");
        permits.close();
        // The semaphore was idle for a moment, or was closed: the wait ends in both cases.
        let _ = flusher.join().unwrap();
    });
}

#[test]
fn what_is_put_into_an_inbox_reaches_who_waits() {
    in_many_orders(|| {
        let inbox = Arc::new(Inbox::new());
        let taking = inbox.clone();
        let taker = thread::spawn(move || {
            let mut taken = Vec::new();
            while let Some(Ok(item)) = taking.take(None) {
                taken.push(item);
            }
            taken
        });
        inbox.append(&mut VecDeque::from([1, 2]));
        inbox.append(&mut VecDeque::from([3]));
        inbox.close();
        assert_eq!(taker.join().unwrap(), [1, 2, 3]);
    });
}

#[test]
fn no_call_is_lost_by_a_sleeper() {
    in_many_orders(|| {
        let waker = Arc::new(IoWaker::with_condition());
        let work = Arc::new(primitives::atomic::AtomicBool::new(false));
        let caller = {
            let (waker, work) = (waker.clone(), work.clone());
            thread::spawn(move || {
                work.store(true, primitives::atomic::Ordering::SeqCst);
                waker.wake();
            })
        };
        // As in a driver: a check for work after each sleep, and a sleep after each check.
        while !work.load(primitives::atomic::Ordering::SeqCst) {
            if waker.prepare_sleep() {
                waker.sleep(std::time::Duration::from_secs(3600));
                waker.finish_sleep(false);
            }
        }
        caller.join().unwrap();
    });
}
