//! `srd up` over a network that changes: the path MTU decreases and increases, and a firewall
//! passes only one port. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::pair::{Pair, Settings, must, ready};

/// Largest UDP payload of a packet of 1500 bytes. [`LARGE`] is the largest payload of a packet of
/// 9000 bytes.
const SMALL: u64 = 1472;
const LARGE: u64 = 8972;

fn start(pair: &mut Pair) {
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
}

fn set_mtu(pair: &Pair, mtu: u32) {
    let router = pair.router.as_ref().unwrap();
    for wire in ["w0", "w1"] {
        must(&format!("-n {router} link set {wire} mtu {mtu}"));
    }
}

fn packet_bytes(pair: &Pair) -> u64 {
    pair.ask(0, &["status"]).unwrap()["peers"][0]["packet_bytes_max"].as_u64().unwrap()
}

/// Decreases and increases the path MTU. If `icmp` is set, the router reports packets that are too
/// large.
fn falls_and_rises(tag: &str, icmp: bool) {
    if !ready() {
        return;
    }
    let mut pair = Pair::routed(tag);
    if !icmp {
        // This rule drops all packets that the router itself sends, such as ICMP errors.
        must(&format!("-n {} rule add iif lo pref 1 prohibit", pair.router.as_ref().unwrap()));
    }
    start(&mut pair);
    pair.transfer("10.77.0.2");
    pair.wait("the size of the interface", |pair| packet_bytes(pair) == LARGE);
    set_mtu(&pair, 1500);
    pair.transfer("10.77.0.2");
    pair.wait("the smaller size", |pair| packet_bytes(pair) == SMALL);
    set_mtu(&pair, 9000);
    pair.wait("the larger size", |pair| {
        pair.transfer("10.77.0.2");
        packet_bytes(pair) == LARGE
    });
}

#[test]
fn a_path_mtu_that_falls_and_rises_is_found_with_icmp() {
    falls_and_rises("mi", true);
}

#[test]
fn a_path_mtu_that_falls_and_rises_is_found_without_icmp() {
    falls_and_rises("mn", false);
}

/// A daemon starts although the route to a peer has a small MTU, learned or configured. This MTU
/// limits neither this peer nor the other peers, because the path may carry larger packets by now.
#[test]
fn regression_a_small_mtu_of_a_route_does_not_keep_a_daemon_from_starting() {
    if !ready() {
        return;
    }
    let mut pair = Pair::routed("mr");
    set_mtu(&pair, 1300);
    for (name, other) in pair.names.iter().zip(["198.18.0.2", "198.18.0.1"]) {
        must(&format!("-n {name} route add {other} via 198.18.0.254 mtu lock 1300"));
    }
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    assert!(pair.ask(0, &["status"]).unwrap()["mtu"].as_u64().unwrap() >= 1280);
    pair.transfer("10.77.0.2");
    pair.wait("the size that passes", |pair| packet_bytes(pair) <= 1272);
}

/// The kernel has learned a smaller MTU from a router, and uses it for ten minutes, although the
/// network passes larger packets by now.
#[test]
fn regression_an_mtu_that_the_kernel_has_learned_is_not_kept_by_a_daemon_that_starts() {
    if !ready() {
        return;
    }
    let mut pair = Pair::routed("me");
    let router = pair.router.clone().unwrap();
    must(&format!("-n {router} link set w1 mtu 1400"));
    let [a, _] = pair.names.clone();
    let learned = || must(&format!("-n {a} route get 198.18.0.2")).contains("mtu 1400");
    // A large packet is sent, which the router refuses.
    pair.wait("the kernel's exception", |pair| {
        pair.within(0, || {
            let socket = std::net::UdpSocket::bind("198.18.0.1:0").unwrap();
            // If this call returns an error, the error is about the packet before.
            let _ = socket.send_to(&[0; 5000], "198.18.0.2:9");
        });
        learned()
    });
    must(&format!("-n {router} link set w1 mtu 9000"));
    start(&mut pair);
    assert!(learned(), "the exception lasts");
    assert_eq!(pair.ask(0, &["status"]).unwrap()["mtu"], 8900);
    pair.wait("the size of the interface", |pair| {
        pair.transfer("10.77.0.2");
        packet_bytes(pair) == LARGE
    });
}

#[test]
fn one_source_port_that_a_firewall_lets_through_is_enough_and_is_told() {
    if !ready() {
        return;
    }
    let mut pair = Pair::routed("fw");
    let router = pair.router.clone().unwrap();
    for blocked in ["7471-7472", "7474-7474"] {
        must(&format!("-n {router} rule add pref 10 ipproto udp sport {blocked} blackhole"));
    }
    start(&mut pair);
    pair.transfer("10.77.0.2");
    pair.wait("one path of four", |pair| {
        let status = pair.ask(0, &["status"]).unwrap();
        status["peers"][0]["paths"]["passing"] == 1
    });
}
