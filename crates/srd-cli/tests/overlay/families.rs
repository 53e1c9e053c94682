//! One UDP port for both address families: peers with IPv4 and with IPv6 addresses, names that
//! resolve to either family, and peers that move from one family to the other. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::operate::{Hosts, log, start_logged};
use crate::support::pair::{Pair, Settings, must, ready};

/// Creates two machines with addresses of both families. Their daemons listen at every address.
fn both(tag: &str) -> Pair {
    let pair = Pair::new(tag);
    for (i, name) in (1..).zip(&pair.names) {
        must(&format!("-n {name} addr add fd18::{i}/64 dev v0 nodad"));
    }
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        let own = format!("198.18.0.{}:7471", end + 1);
        rewrite(&pair, end, &format!("listen = \"{own}\""), "listen = \"[::]:7471\"");
    }
    pair
}

fn rewrite(pair: &Pair, end: usize, from: &str, to: &str) {
    let file = pair.path(format!("{end}.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

fn kill(pair: &mut Pair, end: usize) {
    let mut daemon = pair.daemons[end].take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

/// Waits until the first end reports that its peer is up at `endpoint`.
fn wait_for_peer_at(pair: &Pair, endpoint: &str) {
    pair.wait(endpoint, |pair| {
        let Some(status) = pair.ask(0, &["status"]) else { return false };
        status["peers"][0]["state"] == "up" && status["peers"][0]["endpoint"] == endpoint
    });
}

#[test]
fn a_daemon_that_listens_everywhere_has_peers_of_both_families_and_logs_a_move() {
    if !ready() {
        return;
    }
    let mut pair = both("fb");
    // The first end has no address of the second. The second end connects over IPv4 and later over
    // IPv6.
    rewrite(&pair, 0, "endpoint = \"198.18.0.2:7471\"", "");
    for end in [0, 1] {
        start_logged(&mut pair, end);
    }
    wait_for_peer_at(&pair, "198.18.0.2:7471");
    pair.transfer_by_srd("10.77.0.2");
    kill(&mut pair, 1);
    rewrite(&pair, 1, "198.18.0.1:7471", "[fd18::1]:7471");
    // The first end still has the IPv4 address of its peer. If it connected there before the second
    // end is ready to connect, the session would stay on IPv4.
    must(&format!("-n {} addr del 198.18.0.2/24 dev v0", pair.names[1]));
    start_logged(&mut pair, 1);
    wait_for_peer_at(&pair, "[fd18::2]:7471");
    pair.transfer_by_srd("10.77.0.2");
    let moved = "other has moved from 198.18.0.2:7471 to [fd18::2]:7471";
    pair.wait("a line about the move", |pair| log(pair, 0).contains(moved));
}

#[test]
fn an_address_that_is_replaced_costs_a_daemon_that_listens_everywhere_nothing() {
    if !ready() {
        return;
    }
    let mut pair = both("fr");
    for end in [0, 1] {
        start_logged(&mut pair, end);
    }
    pair.wait_for_express();
    wait_for_peer_at(&pair, "198.18.0.2:7471");
    let name = pair.names[1].clone();
    must(&format!("-n {name} addr del 198.18.0.2/24 dev v0"));
    must(&format!("-n {name} addr add 198.18.0.22/24 dev v0"));
    wait_for_peer_at(&pair, "198.18.0.22:7471");
    pair.transfer_by_srd("10.77.0.2");
    let moved = "other has moved from 198.18.0.2:7471 to 198.18.0.22:7471";
    pair.wait("a line about the move", |pair| log(pair, 0).contains(moved));
}

#[test]
fn a_name_that_has_an_ipv6_address_alone_is_reached_and_says_why_from_ipv4_alone() {
    if !ready() {
        return;
    }
    let mut pair = both("fn");
    let hosts = Hosts::new(&pair.names[0]);
    hosts.set("fd18::2 b.test\n");
    rewrite(&pair, 0, "endpoint = \"198.18.0.2:7471\"", "endpoint = \"b.test:7471\"");
    // The second end has no address of the first and waits, so that no session exists without the
    // name.
    rewrite(&pair, 1, "endpoint = \"198.18.0.1:7471\"", "");
    for end in [0, 1] {
        start_logged(&mut pair, end);
    }
    wait_for_peer_at(&pair, "[fd18::2]:7471");
    kill(&mut pair, 0);
    rewrite(&pair, 0, "[::]:7471", "0.0.0.0:7471");
    start_logged(&mut pair, 0);
    pair.wait("the reason in the log", |pair| {
        log(pair, 0).contains("`b.test` does not resolve (it has no IPv4 address")
    });
    pair.wait("the reason in the status", |pair| {
        let status = pair.ask(0, &["status"]);
        status.is_some_and(|status| {
            let peer = &status["peers"][0];
            let text = peer["problem_text"].as_str().unwrap_or_default();
            peer["problem"] == "name-unresolved" && text.contains("[::]:PORT")
        })
    });
}
