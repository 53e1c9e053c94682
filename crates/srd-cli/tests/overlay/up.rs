//! `srd up` between two namespaces: an overlay, transparent mode, a reload, and what `kill -9`
//! leaves behind. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::pair::{Pair, Settings, ip, must, ready};
use std::process::Command;

#[test]
fn an_overlay_carries_tcp_and_obeys_reload_and_set() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("o");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.transfer_by_srd("10.77.0.2");
    assert_eq!(pair.counter(0, "ena_srd_mode"), 3);

    // A reload switches Express off, so the next transfer is sent without SRD.
    pair.configure(0, &Settings { peer: "express = false", ..Settings::OVERLAY });
    pair.ask(0, &["reload"]).expect("a report");
    pair.wait("express off", |p| p.ask(0, &["status"]).unwrap()["peers"][0]["express"] == "off");
    // Some packets at the end of the earlier transfer may still be sent over SRD, so only the
    // second transfer counts.
    let transfer_plainly = || {
        pair.transfer_without_srd("10.77.0.2");
        pair.counter(0, "ena_srd_tx_pkts")
    };
    let before = transfer_plainly();
    assert_eq!(transfer_plainly(), before, "nothing rides SRD");

    // The daemon ends in order: the interface is removed, and the network process ends as well.
    let daemon = pair.daemons[0].as_mut().unwrap();
    let pid = daemon.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    assert!(!ip(&format!("-n {} link show srd0", pair.names[0])).status.success());
}

#[test]
fn transparent_steering_takes_packets_while_the_peer_answers_and_leaves_nothing_behind() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("t");
    for end in [0, 1] {
        pair.configure(end, &Settings::TRANSPARENT);
    }
    let name = pair.names[0].clone();
    let steered = move || must(&format!("-n {name} route get 198.18.0.2")).contains("dev srd0");
    pair.start(0);
    pair.wait("a socket", |p| p.ask(0, &["status"]).is_some());
    assert!(!steered(), "the peer does not answer yet");
    pair.transfer("198.18.0.2");
    pair.start(1);
    pair.wait_for_express();
    pair.wait("steering", |_| steered());
    pair.transfer_by_srd("198.18.0.2");

    let mut daemon = pair.daemons[1].take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let name = pair.names[1].clone();
    pair.wait("the rule's end", |_| {
        !must(&format!("-n {name} rule show")).contains("lookup 7471")
            && !ip(&format!("-n {name} link show srd0")).status.success()
    });
    pair.wait("steering past the dead", |_| !steered());
    pair.transfer("198.18.0.2");
}

#[test]
fn several_workers_carry_connections_whatever_number_the_other_end_has() {
    if !ready() {
        return;
    }
    for (tag, workers) in [("w22", [2, 2]), ("w21", [2, 1]), ("w13", [1, 3])] {
        let mut pair = Pair::new(tag);
        for end in [0, 1] {
            let interface = format!("workers = {}", workers[end]);
            pair.configure(end, &Settings { interface: &interface, ..Settings::OVERLAY });
            pair.start(end);
        }
        pair.wait_for_express();
        for _ in 0..4 {
            pair.transfer_by_srd("10.77.0.2");
        }
        let pid = pair.daemons[0].as_ref().unwrap().id();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        // A thread that served a command may have ended by now.
        let moving = names.flatten().filter(|name| name.starts_with("srd-worker-"));
        assert_eq!(moving.count(), workers[0]);
    }
}

#[test]
fn af_xdp_carries_what_udp_sockets_carry_and_leaves_the_interface_as_it_was() {
    if !ready() {
        return;
    }
    for (tag, settings) in [("xo", Settings::OVERLAY), ("xt", Settings::TRANSPARENT)] {
        let mut pair = Pair::new(tag);
        pair.configure(0, &Settings { interface: "io = \"af_xdp\"", ..settings });
        pair.configure(1, &Settings { interface: "io = \"udp\"", ..settings });
        pair.start(0);
        pair.start(1);
        pair.wait_for_express();
        let name = pair.names[0].clone();
        let program = || must(&format!("-n {name} -d link show v0")).contains("prog/xdp");
        assert!(program());
        let to = if settings.overlay { "10.77.0.2" } else { "198.18.0.2" };
        pair.transfer_by_srd(to);
        let mut daemon = pair.daemons[0].take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        pair.wait("the end of the program", |_| !program());
    }
}
