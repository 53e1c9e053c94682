use super::calls::{Calls, Received, Taken};
use crate::limits::{CALLBACKS_MAX, Limits};
use crate::record::Record;
use std::sync::Arc;

fn message(xid: u32, kind: u32) -> Arc<Record> {
    Arc::new(Record::of(&[xid.to_be_bytes(), kind.to_be_bytes()].concat()).unwrap())
}

fn call(xid: u32) -> Arc<Record> {
    message(xid, 0)
}

fn reply(xid: u32) -> Arc<Record> {
    message(xid, 1)
}

fn calls(connections: u64) -> Calls {
    let mut calls = Calls::new(Limits::default());
    for id in 0..connections {
        assert_eq!(calls.add_connection(), id);
        calls.up(id);
    }
    calls
}

fn sent(calls: &mut Calls, on: u64) -> Vec<u32> {
    std::iter::from_fn(|| calls.next(on)).map(|record| record.xid()).collect()
}

#[test]
fn calls_go_round_and_replies_come_in_any_order() {
    let mut calls = calls(3);
    let on: Vec<_> = (0..6).map(|xid| calls.call(&call(xid))).collect();
    let turns: Vec<_> = [1, 2, 0, 1, 2, 0].map(Taken::On).to_vec();
    assert_eq!(on, turns);
    for xid in [5, 0, 3, 1, 4, 2] {
        assert_eq!(calls.reply(&reply(xid)), Received::Forward);
        assert_eq!(calls.reply(&reply(xid)), Received::Drop, "a second time");
    }
    assert_eq!(calls.outstanding(), 0);
}

#[test]
fn a_connection_gets_as_many_calls_as_it_answers() {
    let mut calls = calls(3);
    let on = |calls: &mut Calls, xid| match calls.call(&call(xid)) {
        Taken::On(on) => on,
        taken => panic!("{taken:?}"),
    };
    let mut waiting: Vec<(u32, u64)> = (0..12).map(|xid| (xid, on(&mut calls, xid))).collect();
    // Connection 0 answers nothing; the others answer each call at once.
    for xid in 12..60 {
        let answered = waiting.iter().position(|(_, on)| *on != 0).unwrap();
        calls.reply(&reply(waiting.remove(answered).0));
        waiting.push((xid, on(&mut calls, xid)));
    }
    let on_the_first = waiting.iter().filter(|(_, on)| *on == 0).count();
    assert_eq!(on_the_first, 4, "a third of those that wait, as the others have");
    // When it is lost, another connection gets its calls, and is the last one to get further calls.
    assert_eq!(calls.down(0), Some(1));
    assert_eq!((100..104).map(|xid| on(&mut calls, xid)).collect::<Vec<_>>(), [2; 4]);
}

#[test]
fn a_connection_that_is_not_up_gets_no_calls_while_another_is() {
    let mut calls = calls(1);
    calls.add_connection();
    for xid in 0..4 {
        assert_eq!(calls.call(&call(xid)), Taken::On(0));
    }
    calls.up(1);
    assert_eq!(calls.call(&call(9)), Taken::On(1));
}

/// Regression: a connection whose thread could not be started stayed in the table if no other one
/// was up at that moment, and its calls were never sent.
#[test]
fn regression_a_connection_that_is_never_up_leaves_its_calls_to_another() {
    let mut calls = calls(1);
    calls.down(0);
    let added = calls.add_connection();
    let on: Vec<_> = (0..4).map(|xid| calls.call(&call(xid))).collect();
    assert!(on.contains(&Taken::On(added)), "{on:?}");
    calls.remove(added);
    assert_eq!(calls.connections(), 1);
    calls.up(0);
    assert_eq!(sent(&mut calls, 0), [0, 1, 2, 3]);
    calls.remove(0);
    assert_eq!(calls.connections(), 1, "a client has a connection");
}

#[test]
fn calls_of_the_only_connection_are_sent_again_in_their_order() {
    let mut calls = calls(1);
    (0..5).for_each(|xid| assert_eq!(calls.call(&call(xid)), Taken::On(0)));
    assert_eq!(calls.next(0).unwrap().xid(), 0);
    assert_eq!(calls.next(0).unwrap().xid(), 1);
    calls.reply(&reply(0));
    assert_eq!(calls.down(0), None, "there is no other");
    calls.up(0);
    assert_eq!(sent(&mut calls, 0), [1, 2, 3, 4]);
    assert_eq!(calls.again(), 1, "only the one that was sent before");
}

#[test]
fn calls_of_a_lost_connection_go_to_another_that_is_up() {
    let mut calls = calls(2);
    (0..4).for_each(|xid| assert!(matches!(calls.call(&call(xid)), Taken::On(_))));
    assert_eq!(sent(&mut calls, 1), [0, 2]);
    assert_eq!(calls.down(1), Some(0));
    assert_eq!(calls.connections(), 1);
    assert_eq!(sent(&mut calls, 0), [1, 3, 0, 2]);
    (0..4).for_each(|xid| assert_eq!(calls.reply(&reply(xid)), Received::Forward));
    assert_eq!(calls.call(&call(7)), Taken::On(0));
}

#[test]
fn a_call_that_is_outstanding_is_taken_once() {
    let mut calls = calls(1);
    assert_eq!(calls.call(&call(1)), Taken::On(0));
    assert_eq!(calls.call(&call(1)), Taken::Again);
    calls.reply(&reply(1));
    assert_eq!(calls.call(&call(1)), Taken::On(0));
}

#[test]
fn calls_beyond_their_number_or_bytes_have_no_place_until_a_reply() {
    for (calls_max, bytes_max) in [(2, 1 << 20), (100, 24)] {
        let limits = Limits {
            outstanding_calls_max: calls_max,
            outstanding_bytes_max: bytes_max,
            ..Limits::default()
        };
        let mut calls = Calls::new(limits);
        calls.add_connection();
        assert_eq!(calls.call(&call(1)), Taken::On(0));
        assert_eq!(calls.call(&call(2)), Taken::On(0));
        assert_eq!(calls.call(&call(3)), Taken::Full);
        calls.reply(&reply(2));
        assert_eq!(calls.call(&call(3)), Taken::On(0));
    }
}

#[test]
fn a_call_larger_than_the_limit_has_a_place_alone() {
    let limits = Limits { outstanding_bytes_max: 1, ..Limits::default() };
    let mut calls = Calls::new(limits);
    calls.add_connection();
    assert_eq!(calls.call(&call(1)), Taken::On(0));
    assert_eq!(calls.call(&call(2)), Taken::Full);
}

#[test]
fn a_reply_to_a_callback_goes_back_the_way_it_came() {
    let mut calls = calls(2);
    assert_eq!(calls.callback(&call(77), 1), Received::Forward);
    assert_eq!(calls.callback(&call(77), 0), Received::Drop, "its reply could go to one only");
    assert_eq!(calls.callback_reply(&reply(77)), Taken::On(1));
    assert_eq!(sent(&mut calls, 1), [77]);
    assert_eq!(calls.callback_reply(&reply(77)), Taken::Unknown);
    calls.callback(&call(78), 1);
    calls.down(1);
    assert_eq!(calls.callback_reply(&reply(78)), Taken::Unknown, "its connection is gone");
}

#[test]
fn callbacks_beyond_their_number_are_dropped() {
    let mut calls = calls(1);
    for xid in 0..u32::try_from(CALLBACKS_MAX).unwrap() {
        assert_eq!(calls.callback(&call(xid), 0), Received::Forward);
    }
    assert_eq!(calls.callback(&call(9999), 0), Received::Drop);
    calls.callback_reply(&reply(5));
    assert_eq!(sent(&mut calls, 0), [5]);
    assert_eq!(calls.callback(&call(9999), 0), Received::Forward);
}

#[test]
fn connections_are_busy_while_a_client_never_runs_out_of_calls() {
    let mut calls = calls(1);
    assert!(!calls.is_busy(4, 1));
    (0..8).for_each(|xid| assert_eq!(calls.call(&call(xid)), Taken::On(0)));
    calls.is_busy(4, 1);
    (0..4).for_each(|xid| assert_eq!(calls.reply(&reply(xid)), Received::Forward));
    assert!(calls.is_busy(4, 1), "four were left at the worst");
    calls.reply(&reply(4));
    (10..20).for_each(|xid| assert_eq!(calls.call(&call(xid)), Taken::On(0)));
    assert!(!calls.is_busy(4, 1), "three were left for a moment");
    calls.reply(&reply(10));
    assert!(!calls.is_busy(4, 1 << 20), "next to nothing moved");
    calls.reply(&reply(11));
    calls.add_connection();
    calls.call(&call(30));
    assert!(!calls.is_busy(4, 1), "the new one is not up yet");
    calls.up(1);
    calls.call(&call(31));
    assert!(calls.is_busy(4, 1), "eight and more for two");
    calls.call(&call(32));
    assert!(!calls.is_busy(40, 1), "too few for two");
}

/// Regression: replies left the table of callbacks when they were queued, so a server that reads
/// nothing could make the queue grow without limit.
#[test]
fn regression_replies_to_callbacks_that_are_not_sent_count_as_callbacks() {
    let mut calls = calls(2);
    let most = u32::try_from(CALLBACKS_MAX).unwrap();
    for xid in 0..most {
        assert_eq!(calls.callback(&call(xid), 1), Received::Forward);
        assert_eq!(calls.callback_reply(&reply(xid)), Taken::On(1));
    }
    assert_eq!(calls.callback(&call(most), 0), Received::Drop);
    assert_eq!(sent(&mut calls, 1).len(), CALLBACKS_MAX);
    assert_eq!(calls.callback(&call(most), 0), Received::Forward);
}
