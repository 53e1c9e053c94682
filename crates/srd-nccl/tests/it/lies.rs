//! Endpoints that use the plugin's protocol, but send messages that no plugin sends.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::net::UdpSocket;
use std::time::Instant;

use crate::support::connected;
use crate::support::loopback::{PATIENCE, plugin, works};
use nccl_net_srd::port::{CONTROL_RECEIVES, OPERATIONS_MAX, Port};
use nccl_net_srd::wire::{Control, Target};
use nccl_net_srd::{control::OUTGOING_MAX, flow::Purpose};
use srd_efa::layer::Peer;
use srd_host::Options;

/// Returns an endpoint. Its operations for a peer that never answers last longer than any test,
/// also on a busy machine: one test occupies all operations with them.
fn port() -> Port {
    let options = Options::at("127.0.0.1:0".parse().unwrap());
    let timeout = srd_proto::Duration::from_secs(600);
    Port::open(&Options { paths: 1, shared_memory: false, answer_timeout: timeout, ..options })
        .unwrap()
}

fn peer(of: &Port, at: Target) -> Peer {
    let added = of.call(|s| s.rdm.add_peer(&mut s.world, at.address, at.incarnation));
    added.unwrap().unwrap()
}

fn say(from: &Port, to: Peer, control: Control) {
    from.call(|s| s.send_control(to, control, Purpose::Port)).unwrap();
}

/// Returns the number of messages to be sent, and of messages to be processed.
fn queued(port: &Port) -> (usize, usize) {
    port.call(|s| (s.sink.outgoing.len(), s.sink.arrived.len())).unwrap()
}

/// In an earlier version, the answers to a peer that accepts no answers were queued without a
/// limit.
#[test]
fn regression_a_peer_that_asks_without_end_is_not_heard_while_answers_wait() {
    let (victim, other) = (port(), port());
    // A peer that does not answer occupies all operations.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let nobody = peer(&victim, Target { address, incarnation: 7, listener: 0 });
    for _ in 0..=OPERATIONS_MAX {
        say(&victim, nobody, Control::Probe);
    }
    assert!(queued(&victim).0 > 0, "there is no room for another operation");
    let to = peer(&other, victim.target());
    let (begin, mut at_bound) = (Instant::now(), 0);
    for sender in 1.. {
        say(&other, to, Control::Connect { listener: 999, sender });
        other.drive();
        victim.drive();
        let (outgoing, arrived) = queued(&victim);
        assert!(outgoing <= OUTGOING_MAX && arrived <= CONTROL_RECEIVES, "{outgoing}, {arrived}");
        at_bound += u32::from(outgoing == OUTGOING_MAX);
        if at_bound == 3000 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the bound is not reached: {outgoing}");
    }
    // Requests are answered as soon as an operation is free.
    victim.call(|s| s.rdm.remove_peer(&mut s.world, nobody)).unwrap();
    let begin = Instant::now();
    while queued(&victim) != (0, 0) || queued(&other) != (0, 0) {
        other.drive();
        victim.drive();
        assert!(begin.elapsed() < PATIENCE, "{:?}, {:?}", queued(&victim), queued(&other));
    }
}

/// In an earlier version, any peer that guessed the number of a connection could close it.
#[test]
fn regression_a_connection_is_closed_by_its_own_peer_only() {
    let (left, right) = (plugin(), plugin());
    let (handle, listener) = right.listen().unwrap();
    let at = Target::decode(&handle).unwrap();
    let connection = connected(&left, &right);
    let stranger = port();
    let to = peer(&stranger, at);
    for (to_number, from) in (1..20).flat_map(|a| (1..20).map(move |b| (a, b))) {
        say(&stranger, to, Control::Closed { to: to_number, from });
    }
    // Messages of a peer are processed in order: after this one was processed, all earlier ones
    // were.
    say(&stranger, to, Control::Connect { listener: at.listener, sender: 1 });
    let begin = Instant::now();
    let last = loop {
        stranger.drive();
        let receiver = right.accept(listener).unwrap();
        if !receiver.is_null() {
            break receiver;
        }
        assert!(begin.elapsed() < PATIENCE, "the stranger is not heard");
    };
    works(&left, &right, connection);
    right.close_recv(last).unwrap();
    left.close_send(connection.0).unwrap();
    right.close_recv(connection.1).unwrap();
    right.close_listen(listener).unwrap();
}
