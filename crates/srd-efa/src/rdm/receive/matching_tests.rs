use super::matching::*;
use crate::layer::Selector;
use srd_proto::rng::Rng;
use std::vec::Vec;

const LIMITS: Limits = Limits { receives_max: 64, messages_max: 64 };

type Queues = Matcher<u32, u32>;

fn queues() -> Queues {
    Matcher::new(LIMITS, 1)
}

fn from(source: u32, tag: u64) -> Selector {
    Selector { tag, ignore: 0, source: Some(source) }
}

fn anyone(tag: u64, ignore: u64) -> Selector {
    Selector { tag, ignore, source: None }
}

/// Offers a message. Returns the receive that took it; `None` if the message was stored.
fn arrive(m: &mut Queues, source: u32, tag: u64, name: u32) -> Option<u32> {
    let envelope = Envelope { tag, source };
    match m.receive_for(&envelope) {
        Some(key) => m.withdraw(key),
        None => {
            m.keep(envelope, name).unwrap();
            None
        }
    }
}

/// Posts a receive. Returns the stored message that it took; `None` if the receive was posted.
fn receive(m: &mut Queues, want: Selector, name: u32) -> Option<u32> {
    match m.message_for(&want) {
        Some(key) => m.take(key),
        None => {
            m.post(want, name).unwrap();
            None
        }
    }
}

#[test]
fn the_receive_posted_first_wins_whether_it_names_a_source_or_not() {
    let mut m = queues();
    receive(&mut m, from(1, 5), 10);
    receive(&mut m, anyone(5, 0), 11);
    receive(&mut m, from(1, 5), 12);
    assert_eq!(arrive(&mut m, 1, 5, 0), Some(10));
    assert_eq!(arrive(&mut m, 1, 5, 0), Some(11));
    assert_eq!(arrive(&mut m, 1, 5, 0), Some(12));
    receive(&mut m, anyone(5, 0), 13);
    receive(&mut m, from(1, 5), 14);
    assert_eq!(arrive(&mut m, 1, 5, 0), Some(13));
    assert_eq!(arrive(&mut m, 2, 5, 0), None, "the other names another source");
}

#[test]
fn the_message_that_came_first_wins() {
    let mut m = queues();
    arrive(&mut m, 2, 7, 20);
    arrive(&mut m, 1, 7, 21);
    arrive(&mut m, 2, 7, 22);
    assert_eq!(receive(&mut m, from(1, 7), 0), Some(21));
    assert_eq!(receive(&mut m, anyone(7, 0), 0), Some(20));
    assert_eq!(receive(&mut m, anyone(8, 0), 0), None);
    assert_eq!(receive(&mut m, anyone(0, u64::MAX), 0), Some(22));
}

#[test]
fn bits_that_are_ignored_do_not_matter() {
    let mut m = queues();
    receive(&mut m, anyone(0xab00, 0xff), 1);
    assert_eq!(arrive(&mut m, 1, 0xac42, 9), None);
    assert_eq!(arrive(&mut m, 1, 0xab42, 9), Some(1));
}

#[test]
fn a_receive_for_many_messages_stays_until_it_is_withdrawn() {
    let mut m = queues();
    let key = m.post(anyone(0, u64::MAX), 3).unwrap();
    for left in (0..3).rev() {
        let found = m.receive_for(&Envelope { tag: 0, source: left }).unwrap();
        assert_eq!(found, key);
        *m.receive_mut(found).unwrap() -= 1;
    }
    assert_eq!(m.withdraw(key), Some(0));
    assert_eq!(m.receive_for(&Envelope { tag: 0, source: 0 }), None);
}

#[test]
fn a_cancelled_receive_matches_nothing_and_is_cancelled_once() {
    let mut m = queues();
    let key = m.post(from(1, 5), 10).unwrap();
    assert_eq!(m.withdraw(key), Some(10));
    assert_eq!(m.withdraw(key), None);
    assert_eq!(arrive(&mut m, 1, 5, 0), None);
    assert!(m.receive_mut(key).is_none());
}

#[test]
fn a_peek_leaves_a_message_and_a_claim_hides_it() {
    let mut m = queues();
    arrive(&mut m, 1, 5, 20);
    arrive(&mut m, 1, 5, 21);
    let first = m.message_for(&anyone(5, 0)).unwrap();
    assert_eq!(m.message_for(&anyone(5, 0)), Some(first));
    assert_eq!(m.message(first), Some((&Envelope { tag: 5, source: 1 }, &20)));
    assert!(m.claim(first));
    assert!(!m.claim(first), "it is somebody's");
    assert_eq!(receive(&mut m, from(1, 5), 0), Some(21));
    *m.message_mut(first).unwrap() += 5;
    assert_eq!(m.take(first), Some(25));
    assert_eq!(m.take(first), None);
    assert!(!m.claim(first) && m.is_empty());
}

#[test]
fn what_a_lost_peer_left_is_found() {
    let mut m = queues();
    for n in 0..4 {
        arrive(&mut m, n % 2, n.into(), n);
    }
    let mut gone = Vec::new();
    while let Some(key) = m.first_from(1) {
        gone.push(m.take(key).unwrap());
    }
    assert_eq!(gone, [1, 3]);
    assert_eq!(m.len(), (0, 2));
}

#[test]
fn both_queues_have_a_bound() {
    let mut m = queues();
    for n in 0..64 {
        m.post(from(1, n), 0).unwrap();
        m.keep(Envelope { tag: 100 + n, source: 1 }, 0).unwrap();
    }
    assert_eq!(m.post(from(1, 99), 7), Err(7));
    assert_eq!(m.keep(Envelope { tag: 99, source: 1 }, 8), Err(8));
    let claimed = m.message_for(&anyone(100, 0)).unwrap();
    assert!(m.claim(claimed));
    assert_eq!(m.keep(Envelope { tag: 99, source: 1 }, 8), Err(8), "a claimed one is kept, too");
    m.take(claimed).unwrap();
    m.keep(Envelope { tag: 99, source: 1 }, 8).unwrap();
}

/// Simple model of a matcher: two lists, each searched from the front.
#[derive(Default)]
struct Model {
    receives: Vec<(Selector, u32)>,
    messages: Vec<(Envelope, u32)>,
}

#[test]
fn it_does_what_two_lists_searched_from_the_front_would_do() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let (mut m, mut model) = (queues(), Model::default());
        for name in 0..400 {
            let source = rng.below(4);
            let tag = u64::from(rng.below(4));
            if rng.below(2) == 0 {
                let envelope = Envelope { tag, source };
                let at = model.receives.iter().position(|(want, _)| want.fits(&envelope));
                let expected = at.map(|at| model.receives.remove(at).1);
                if expected.is_none() {
                    if model.messages.len() == 64 {
                        continue;
                    }
                    model.messages.push((envelope, name));
                }
                assert_eq!(arrive(&mut m, source, tag, name), expected);
            } else {
                let ignore = u64::from(rng.below(4));
                let source = (rng.below(2) == 0).then_some(source);
                let want = Selector { tag, ignore, source };
                let at = model.messages.iter().position(|(envelope, _)| want.fits(envelope));
                let expected = at.map(|at| model.messages.remove(at).1);
                if expected.is_none() {
                    if model.receives.len() == 64 {
                        continue;
                    }
                    model.receives.push((want, name));
                }
                assert_eq!(receive(&mut m, want, name), expected);
            }
            assert_eq!(m.len(), (model.receives.len(), model.messages.len()));
        }
    }
}
