//! Endpoints that speak the plugin's protocol and say what none should.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[allow(unsafe_code)] // each test program uses some of it
mod support;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nccl_net_srd::port::{CONTROL_RECEIVES, OPERATIONS_MAX, Port};
use nccl_net_srd::wire::{Control, Target};
use nccl_net_srd::{control::OUTGOING_MAX, flow::Purpose};
use srd_efa::layer::Peer;
use srd_host::Options;
use support::connected;
use support::loopback::{PATIENCE, plugin, works};

fn port() -> Port {
    let options = Options::at("127.0.0.1:0".parse().unwrap());
    let timeout = srd_proto::Duration::from_millis(1000);
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

/// Messages that wait to be sent, and those that wait to be heard.
fn queued(port: &Port) -> (usize, usize) {
    port.call(|s| (s.sink.outgoing.len(), s.sink.arrived.len())).unwrap()
}

/// The answers to it were queued without end.
#[test]
fn regression_a_peer_that_asks_without_end_is_not_heard_while_answers_wait() {
    let (victim, other) = (port(), port());
    // All operations are used up by somebody who does not answer.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let nobody = peer(&victim, Target { address, incarnation: 7, listener: 0 });
    for _ in 0..=OPERATIONS_MAX {
        say(&victim, nobody, Control::Probe);
    }
    assert!(queued(&victim).0 > 0, "there is no room for another operation");
    let to = peer(&other, victim.target());
    for sender in 1..10_000 {
        say(&other, to, Control::Connect { listener: 999, sender });
        other.drive();
        victim.drive();
        let (outgoing, arrived) = queued(&victim);
        assert!(outgoing <= OUTGOING_MAX && arrived <= CONTROL_RECEIVES, "{outgoing}, {arrived}");
    }
    assert_eq!(queued(&victim).0, OUTGOING_MAX, "the bound was reached");
    // What is asked is answered as soon as there is room.
    let begin = Instant::now();
    while queued(&victim) != (0, 0) || queued(&other) != (0, 0) {
        other.drive();
        victim.drive();
        assert!(begin.elapsed() < PATIENCE, "{:?}, {:?}", queued(&victim), queued(&other));
    }
}

/// The numbers of connections are no secret, and whoever named one could close it.
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
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(200) {
        stranger.drive();
        let _ = right.accept(listener).unwrap();
    }
    works(&left, &right, connection);
    left.close_send(connection.0).unwrap();
    right.close_recv(connection.1).unwrap();
    right.close_listen(listener).unwrap();
}
