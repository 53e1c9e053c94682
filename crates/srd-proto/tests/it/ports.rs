//! Source ports that a firewall passes or a dead switch drops: found, reported, and used.

use crate::support::{Fault, Pair};
use srd_proto::{Class, Config, Datagram, Duration, Entropy, Protection, Qpn, Status};

const BASE: u16 = 7471;
const PATHS: u16 = 64;
const MS: Duration = Duration::from_millis(1);

fn config(protection: Protection) -> Config {
    Config {
        protection,
        paths: PATHS,
        packet_bytes_max: 1472,
        keepalive: Duration::from_secs(1),
        peer_timeout: Duration::from_millis(1500),
        ..Config::sockets()
    }
}

fn pair(protection: Protection, seed: u64) -> Pair {
    let mut pair = Pair::new(config(protection), seed);
    pair.entropy_base = BASE;
    pair
}

fn modes() -> [Protection; 2] {
    [Protection::Plain, Protection::Static([9; 32])]
}

/// Number of paths that are not assumed bad.
fn passing(pair: &Pair) -> usize {
    pair.paths().iter().filter(|path| matches!(path.state, "good" | "skip")).count()
}

/// Sends `n` datagrams, at most 20 at a time, as fast as they complete.
fn transfer(pair: &mut Pair, n: u64) {
    let before = pair.completions().len() as u64;
    let mut sent = 0;
    let end = pair.now + Duration::from_secs(5);
    while sent < n && pair.now < end {
        let under_way = (before + sent).saturating_sub(pair.completions().len() as u64);
        let more = 20u64.saturating_sub(under_way).min(n - sent);
        pair.send_many(more, 1000);
        sent += more;
        pair.run_for(MS);
    }
}

#[test]
fn regression_a_firewall_that_passes_some_source_ports_is_found_and_lived_with() {
    for open in [64, 32, 3, 1] {
        for (seed, mode) in (0..).zip(modes()) {
            for first in [BASE, BASE + 20] {
                let mut pair = pair(mode.clone(), seed);
                let last = (first + open - 1).min(BASE + PATHS - 1);
                pair.fault.only_ports = Some((first, last));
                let wanted = usize::from(last - first + 1);
                pair.send_many(1, 100);
                pair.run_until_idle(Duration::from_millis(1400));
                assert_eq!(pair.completions(), [Status::Ok], "{open} ports from {first}");
                transfer(&mut pair, 500);
                pair.send_back(20, 1000);
                pair.run_for(Duration::from_millis(500));
                assert_eq!(pair.delivered_back(), 20, "{open} ports from {first}, back");
                assert_eq!(passing(&pair), wanted, "{open} ports from {first}");
                let before = pair.a.stats().retrans_pkts;
                transfer(&mut pair, 1000);
                let again = pair.a.stats().retrans_pkts - before;
                assert!(again <= 20, "{open} ports from {first}: {again} of 1000 sent again");
                pair.assert_all_ok();
                assert!(pair.down_reasons().is_empty());
            }
        }
    }
}

#[test]
fn regression_a_firewall_that_comes_later_is_found_and_its_end_too() {
    for (seed, mode) in (0..).zip(modes()) {
        let mut pair = pair(mode, seed);
        transfer(&mut pair, 500);
        pair.fault.only_ports = Some((BASE + 9, BASE + 9));
        transfer(&mut pair, 500);
        pair.run_for(Duration::from_millis(100));
        transfer(&mut pair, 500);
        assert_eq!(passing(&pair), 1);
        pair.fault.only_ports = None;
        transfer(&mut pair, 500);
        pair.run_for(Duration::from_secs(4));
        assert_eq!(passing(&pair), usize::from(PATHS), "what passed once is asked each second");
        pair.assert_all_ok();
    }
}

#[test]
fn ports_that_never_passed_are_asked_seldom() {
    let mut pair = pair(Protection::Static([9; 32]), 1);
    pair.fault.only_ports = Some((BASE + 9, BASE + 9));
    transfer(&mut pair, 500);
    pair.run_for(Duration::from_secs(40));
    let before = pair.a.stats().probe_pkts;
    pair.run_for(Duration::from_secs(32));
    let probes = pair.a.stats().probe_pkts - before;
    assert!(probes <= 63 * 2 + 40, "{probes} probes in 32 s, keepalives among them");
    assert!(probes >= 63, "{probes}: every one is asked now and then");
}

fn unreliable(pair: &mut Pair, path: u16) {
    let datagram = Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(7),
        imm: 5,
        payload: vec![9; 64].into(),
        class: Class::Bulk,
        user: 0,
    };
    pair.a
        .send_unreliable(pair.now, pair.b_at_a, Entropy(path), datagram)
        .expect("a datagram that fits, to a peer that is known");
}

#[test]
fn regression_unreliable_datagrams_leave_a_dead_path_within_three() {
    for with_reliable in [false, true] {
        for (seed, mode) in (0..).zip(modes()) {
            let mut pair = pair(mode, seed);
            pair.check_payload = false;
            let run = |pair: &mut Pair, flows: u16| {
                let before = pair.b.stats().unreliable_rx_pkts;
                for path in 0..flows {
                    unreliable(pair, path);
                }
                if with_reliable {
                    transfer(pair, 100);
                }
                pair.run_for(MS.times(100));
                pair.b.stats().unreliable_rx_pkts - before
            };
            transfer(&mut pair, 1);
            for _ in 0..5 {
                assert_eq!(run(&mut pair, 8), 8);
            }
            // A quarter of the paths, among them all that are in use.
            pair.fault = Fault { dead_ports_below: BASE + 16, ..Fault::default() };
            for n in 0..20 {
                let arrived = run(&mut pair, 8);
                assert!(arrived == 8 || n < 3, "{arrived} of the {n}th, {with_reliable}");
            }
        }
    }
}

#[test]
fn regression_unreliable_datagrams_alone_find_the_ports_that_a_firewall_passes() {
    for open in [1, 3, 32] {
        for is_later in [false, true] {
            for (seed, mode) in (0..).zip(modes()) {
                let mut pair = pair(mode, seed);
                pair.check_payload = false;
                let firewall = Some((BASE + 29, BASE + 28 + open));
                pair.fault.only_ports = firewall.filter(|_| !is_later);
                transfer(&mut pair, 1);
                pair.run_for(Duration::from_secs(2));
                pair.fault.only_ports = firewall;
                let mut arrived = 0;
                for n in 0..100 {
                    let before = pair.b.stats().unreliable_rx_pkts;
                    unreliable(&mut pair, 63);
                    pair.run_for(MS.times(100));
                    let arrives = pair.b.stats().unreliable_rx_pkts > before;
                    arrived += u32::from(arrives);
                    assert!(arrives || n < 8, "the {n}th, {open} ports, later: {is_later}");
                }
                assert!(arrived >= 80, "{arrived} of 100, {open} ports, later: {is_later}");
                assert!(pair.down_reasons().is_empty());
            }
        }
    }
}

#[test]
fn an_unreliable_flow_keeps_its_path_while_that_is_alive() {
    let mut pair = pair(Protection::Plain, 1);
    pair.check_payload = false;
    for _ in 0..100 {
        unreliable(&mut pair, 5);
        pair.run_for(MS.times(10));
    }
    let arrived = pair.b.stats().unreliable_rx_pkts;
    assert_eq!(arrived, 100);
    assert!(pair.a.stats().probe_pkts <= 60, "{}", pair.a.stats().probe_pkts);
    // Only the flow's own path passes packets, and all datagrams arrive: none used another path.
    pair.fault.only_ports = Some((BASE + 5, BASE + 5));
    for _ in 0..10 {
        unreliable(&mut pair, 5);
        pair.run_for(MS);
    }
    assert_eq!(pair.b.stats().unreliable_rx_pkts, arrived + 10);
}

#[test]
fn regression_an_idle_context_has_no_path_to_pass_over() {
    let mut pair = pair(Protection::Static([9; 32]), 3);
    pair.fault.jitter = Duration::from_millis(2);
    let late = |pair: &Pair| {
        let [_, skip, bad, _] = pair.a.peer_stats(pair.b_at_a).unwrap().paths;
        skip + bad > 0
    };
    transfer(&mut pair, 500);
    for _ in 0..100 {
        if !late(&pair) {
            transfer(&mut pair, 50);
        }
    }
    assert!(late(&pair));
    pair.fault.jitter = Duration::ZERO;
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.a.peer_stats(pair.b_at_a).unwrap().paths, [PATHS, 0, 0, 0]);
}
