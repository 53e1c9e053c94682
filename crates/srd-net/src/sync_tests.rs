//! Answers, permits and inbox, with real threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::*;

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
