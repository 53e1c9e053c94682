//! A connection between instances of two hosts survives if a card is killed, is restarted, or is
//! taken over by another process. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::time::Duration;

use rustix::process::Signal;

use crate::support::hosts::Hosts;
use crate::support::machine::*;
use crate::support::transfer::Transfer;

/// Longest permitted silence of a transfer. It is 1.5 s on an idle machine, and longer on a machine
/// that starts a card slowly: the kernel of the sender waits up to twice as long as the outage.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Number of bytes whose arrival shows that a transfer continues.
const SOME: u64 = 1 << 20;

#[test]
fn a_connection_outlives_cards_that_are_killed_and_taken_over_at_both_ends() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("lv", 1500);
    let lines = ["express = true"; 2];
    let file = hosts.machines[0].two_hosts_with("two.toml", "'all from 10.0.0.0/16'", lines);
    hosts.configure(&file, "");
    let mut cards = hosts.both_up();
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    let _programs = [&a, &b].map(|namespace| sleeper(namespace));
    let transfer = Transfer::begin(&a, &b, [10, 0, 1, 11], 5000);
    println!("at first: silent for {:?}", transfer.go_on(SOME));
    let held = |what: &str, silence: Duration| {
        println!("{what}: silent for {silence:?}");
        assert!(silence < SILENCE_MAX, "{what}: silent for {silence:?}");
    };
    for end in [0, 1] {
        cards[end] = hosts.take_over(end, &mut cards[end]);
        held("a card was taken over", transfer.go_on(SOME));
        assert_eq!(cards[end].end(Signal::KILL), -1);
        cards[end] = hosts.up(end);
        held("a card was killed", transfer.go_on(SOME));
    }
    transfer.end();
    assert!(hosts.counter(1, "b", "ena_srd_rx_pkts") > 0, "it rides SRD");
}
