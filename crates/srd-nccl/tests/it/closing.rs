//! Connections that are closed while another end waits for them, or during transfers.

#![allow(clippy::unwrap_used, unsafe_code)] // a test may fail loudly, and calls like C code

use std::time::{Duration, Instant};

use crate::support::connected;
use crate::support::loopback::{end, is_refused, pattern, plugin, receive, send, works};
use nccl_net_srd::abi::NcclResult;

/// A few seconds of tolerance for a busy machine, but less than the timeout of a silent peer.
const BOUNDED: Duration = Duration::from_secs(15);

#[test]
fn a_receive_fails_when_the_sender_closes_and_what_was_sent_before_still_arrives() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let data = pattern(1, 3000);
    let sent = send(&left, sender, &data, 0);
    end(&left, sent).unwrap();
    let mut other = [(vec![0; 10], 9)];
    let never = receive(&right, receiver, &mut other);
    left.close_send(sender).unwrap();
    assert_eq!(end(&right, never), Err(NcclResult::RemoteError));
    let mut rooms = [(vec![0; 3000], 0)];
    let expected = receive(&right, receiver, &mut rooms);
    assert_eq!(end(&right, expected).unwrap()[0], 3000);
    assert!(rooms[0].0 == data);
    let late = receive(&right, receiver, &mut rooms);
    assert_eq!(end(&right, late), Err(NcclResult::RemoteError));
    right.close_recv(receiver).unwrap();
}

#[test]
fn a_send_fails_when_the_receiver_closes_and_other_connections_go_on() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let other = connected(&left, &right);
    let data = pattern(1, 5 << 20);
    let sent = send(&left, sender, &data, 0);
    right.close_recv(receiver).unwrap();
    // A receiver that discards the message has accepted it.
    let sent = end(&left, sent);
    assert!(sent.is_ok() || sent == Err(NcclResult::RemoteError), "{sent:?}");
    is_refused(&left, sender, &data[..1]);
    left.close_send(sender).unwrap();
    let mut rooms = [(vec![0; 5 << 20], 0)];
    let expected = receive(&right, other.1, &mut rooms);
    let sent = send(&left, other.0, &data, 0);
    end(&right, expected).unwrap();
    end(&left, sent).unwrap();
    assert!(rooms[0].0 == data);
    left.close_send(other.0).unwrap();
    right.close_recv(other.1).unwrap();
}

/// Abort as in NCCL: both ends are closed during transfers, and the buffers are reused immediately.
#[test]
fn closing_in_mid_transfer_neither_hangs_nor_touches_the_buffers_afterwards() {
    for sender_first in [true, false] {
        let (left, right) = (plugin(), plugin());
        let (sender, receiver) = connected(&left, &right);
        let data: Vec<_> = (0..8).map(|at| pattern(at, 30 << 20)).collect();
        let mut rooms: Vec<_> = (0..4).map(|_| [(vec![0; 30 << 20], 0)]).collect();
        let expected: Vec<_> =
            rooms.iter_mut().map(|room| receive(&right, receiver, room)).collect();
        let sent: Vec<_> = data.iter().map(|data| send(&left, sender, data, 0)).collect();
        for _ in 0..3 {
            let _ = (left.test(sent[0]).unwrap(), right.test(expected[0]).unwrap());
        }
        let begin = Instant::now();
        if sender_first {
            left.close_send(sender).unwrap();
            drop(data);
            right.close_recv(receiver).unwrap();
        } else {
            right.close_recv(receiver).unwrap();
        }
        for room in &mut rooms {
            room[0].0.fill(0xaa);
        }
        std::thread::sleep(Duration::from_millis(20));
        let filled = vec![0xaa; 30 << 20];
        assert!(rooms.iter().all(|room| room[0].0 == filled));
        if !sender_first {
            left.close_send(sender).unwrap();
        }
        assert!(begin.elapsed() < BOUNDED, "{:?}", begin.elapsed());
        left.finalize().unwrap();
        right.finalize().unwrap();
    }
}

#[test]
fn what_waits_for_nobody_is_closed_at_once() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let other = connected(&right, &left);
    let mut rooms: Vec<Vec<_>> =
        (0..32).map(|_| (0..8).map(|t| (vec![0; 100], t)).collect()).collect();
    for group in &mut rooms {
        receive(&right, receiver, group);
    }
    right.close_recv(receiver).unwrap();
    left.close_send(sender).unwrap();
    // The endpoint was not abandoned, since another connection still works.
    let mut room = [(vec![0; 100], 0)];
    let expected = receive(&left, other.1, &mut room);
    let data = pattern(1, 100);
    let sent = send(&right, other.0, &data, 0);
    assert_eq!(end(&left, expected).unwrap()[0], 100);
    end(&right, sent).unwrap();
}

#[test]
fn a_send_that_nobody_received_is_given_up_and_other_connections_go_on() {
    // The peer has a quarter of a second to answer. On a busy machine its threads may not run in
    // this time, so there are several attempts.
    assert!((0..5).any(|_| goes_on_after_giving_a_send_up()), "the endpoint is always given up");
}

/// Closes a sender with a request in progress. Returns whether the endpoint was kept. If so, checks
/// that other connections work.
fn goes_on_after_giving_a_send_up() -> bool {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let beside = connected(&left, &right);
    let mut data = pattern(1, 1 << 20);
    let sent = send(&left, sender, &data, 0);
    assert_eq!(left.test(sent).unwrap(), None);
    left.close_send(sender).unwrap();
    data.fill(0);
    // SAFETY: the message has no bytes.
    let asked = unsafe { left.isend(beside.0, data.as_ptr(), 0, 99) };
    if asked == Err(NcclResult::SystemError) {
        return false;
    }
    works(&left, &right, beside);
    let mut rooms = [(vec![0; 1 << 20], 0)];
    let late = receive(&right, receiver, &mut rooms);
    assert_eq!(end(&right, late), Err(NcclResult::RemoteError));
    right.close_recv(receiver).unwrap();
    true
}

#[test]
fn a_peer_that_cannot_answer_costs_the_endpoint_and_the_context_opens_another() {
    let (left, right, third) = (plugin(), plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let beside = connected(&left, &third);
    right.close_recv(receiver).unwrap();
    right.finalize().unwrap();
    // The sender has not detected yet that the peer has ended, and its bytes are in transit.
    let data = pattern(1, 5000);
    let sent = send(&left, sender, &data, 0);
    let begin = Instant::now();
    left.close_send(sender).unwrap();
    assert!(begin.elapsed() < BOUNDED, "{:?}", begin.elapsed());
    assert!(left.test(sent).is_err());
    // SAFETY: the plugin refuses the call.
    let late = unsafe { left.isend(beside.0, data.as_ptr(), 8, 0) };
    assert_eq!(late, Err(NcclResult::SystemError));
    works(&left, &third, connected(&left, &third));
}
