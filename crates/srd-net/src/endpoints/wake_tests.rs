//! Wake-ups, with real threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::endpoints::wake::IoWaker;

#[test]
fn a_call_before_the_sleep_prevents_it() {
    let waker = IoWaker::with_descriptor().unwrap();
    waker.wake();
    assert!(!waker.prepare_sleep());
    assert!(waker.prepare_sleep());
    waker.finish_sleep(false);
    assert!(!waker.take());
}

#[test]
fn no_call_is_lost_between_two_threads() {
    let waker = Arc::new(IoWaker::with_condition());
    let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
    const CALLS: u32 = 2000;
    let (w, c) = (waker.clone(), calls.clone());
    let caller = std::thread::spawn(move || {
        for i in 1..=CALLS {
            c.store(i, Ordering::SeqCst);
            w.wake();
        }
    });
    let start = std::time::Instant::now();
    while calls.load(Ordering::SeqCst) < CALLS {
        if waker.prepare_sleep() {
            waker.sleep(std::time::Duration::from_secs(120));
            waker.finish_sleep(false);
        }
    }
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "a wake-up was lost");
    caller.join().unwrap();
}
