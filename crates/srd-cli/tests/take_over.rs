//! `srd card up --take-over`: another process goes on with a card, and the connections of its
//! guests live. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod support;

use std::fs::{self, File};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::machine::*;

/// Starts a card that takes over, and waits until the one that ran has ended.
fn take_over(machine: &Machine, old: &mut Running, words: &[&str]) -> Running {
    let log = File::create(machine.path("next.log")).unwrap();
    let mut command = machine.command(&[&["card", "up", "--take-over"], words].concat());
    let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let next = Running(child.spawn().unwrap());
    let began = Instant::now();
    while old.0.try_wait().unwrap().is_none() {
        let log = fs::read_to_string(machine.path("next.log")).unwrap();
        assert!(began.elapsed() < PATIENCE, "{log}");
        thread::sleep(Duration::from_millis(10));
    }
    next
}

#[test]
fn connections_counters_and_the_duty_to_give_back_go_to_the_next_process() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hha");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let outside = machine.namespace.clone();

    // Tracked, not tracked, and through a NAT gateway.
    let https = listen(&web, 443);
    let mut inner = connect(&app, WEB, 443).unwrap();
    let (mut inner_end, _) = https.accept().unwrap();
    let mut client = connect(&outside, WEB_PUBLIC, 443).unwrap();
    let (mut client_end, _) = https.accept().unwrap();
    let far = listen(&outside, 9999);
    let mut out = connect(&app, OUTSIDE, 9999).unwrap();
    let (mut out_end, _) = far.accept().unwrap();
    for (a, b) in
        [(&mut inner, &mut inner_end), (&mut client, &mut client_end), (&mut out, &mut out_end)]
    {
        assert!(passes(a, b) && passes(b, a));
    }
    let counters = ["tx_packets", "rx_packets", "tx_bytes", "rx_bytes"];
    let sent = counters.map(|name| machine.counter("app", name));
    let uptime = machine.json(&["card", "status"])["uptime_s"].as_f64().unwrap();

    let mut next = take_over(&machine, &mut card, &[&file, "--internet"]);
    for (a, b) in
        [(&mut inner, &mut inner_end), (&mut client, &mut client_end), (&mut out, &mut out_end)]
    {
        assert!(passes(a, b) && passes(b, a));
    }
    let now = counters.map(|name| machine.counter("app", name));
    assert!(now.iter().zip(sent).all(|(now, before)| *now > before), "{now:?} {sent:?}");
    assert!(machine.json(&["card", "status"])["uptime_s"].as_f64().unwrap() > uptime);

    // Once more, and the last one ends: all is given back, by the list of the first.
    let mut last = take_over(&machine, &mut next, &[&file, "--internet"]);
    assert!(passes(&mut inner, &mut inner_end));
    assert_eq!(last.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before, "everything is given back");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
