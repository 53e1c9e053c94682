//! `srd card lab`: experiments with real programs, in their short form. They assert directions, not
//! figures. Needs root and iperf3.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod support;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use support::machine::{PATIENCE, Running, SRD, ready_with_nsenter};
use support::pair::must;

fn ready_with_iperf3() -> bool {
    let found = Command::new("sh").args(["-c", "command -v iperf3 setpriv unshare"]).output();
    let all = found.unwrap().status.success();
    assert!(all || std::env::var_os("CI").is_none(), "iperf3 and util-linux belong to CI");
    if !all {
        println!("skipped: programs are missing: apt-get install iperf3 util-linux");
    }
    all && ready_with_nsenter()
}

/// A figure whose name begins so.
fn figure(results: &Value, experiment: &str, name: &str) -> f64 {
    let all = results["experiments"].as_array().unwrap();
    let of = all.iter().find(|of| of["experiment"] == experiment).unwrap();
    let figures = of["figures"].as_array().unwrap();
    let found = figures.iter().find(|f| f["name"].as_str().unwrap().trim().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name}: {of}"))["here"].as_f64().unwrap()
}

fn instances() -> Vec<String> {
    // Those of experiments: `srd-i-n`, the number of a process, `x`.
    let all = must("netns list");
    all.lines().filter(|line| line.starts_with("srd-i-n")).map(str::to_owned).collect()
}

#[test]
fn each_limit_shows_and_nothing_is_left() {
    if !ready_with_iperf3() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let chosen = ["burst", "credits", "mutation", "untracked", "tunnels"];
    let mut command = Command::new(SRD);
    command.args(["card", "lab", "--quick", "--json", "-", "--report"]).arg(&page).args(chosen);
    command.env("TMPDIR", directory.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let here = |experiment, name| figure(&results, experiment, name);

    assert!(here("burst", "two flows") > 1.1 * here("burst", "one flow"));
    assert!(here("credits", "without credits") < 0.5 * here("credits", "with credits"));
    assert!(here("mutation", "port 80 before") > 0.0);
    assert_eq!(here("mutation", "port 80 after"), 0.0);
    assert_eq!(here("mutation", "packets judged by the rules later"), 0.0);
    assert_eq!(here("untracked", "entries of 10 connections to port 22"), 10.0);
    assert_eq!(here("untracked", "entries of 10 connections to port 80"), 0.0);
    assert_eq!(here("untracked", "a tracked connection goes on"), 1.0);
    assert_eq!(here("untracked", "one that is not tracked goes on"), 0.0);
    let ports = here("tunnels", "VXLAN, 100 source ports");
    assert!(ports > 1.2 * here("tunnels", "VXLAN, one source port"));
    assert!(ports > 1.2 * here("tunnels", "GRE"));

    let page = std::fs::read_to_string(page).unwrap();
    assert!(chosen.iter().all(|name| page.contains(&format!("<h2>{name}</h2>"))), "{page}");
    assert!(page.contains("not judged: --quick") && !page.contains("MISSED"), "{page}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "only the page: {left:?}");
}

#[test]
fn packets_go_to_queues_and_a_walk_has_its_steps() {
    if !ready_with_iperf3() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(SRD);
    command.args(["card", "lab", "--quick", "--json", "-", "rss", "walk", "tenants"]);
    let output = command.env("TMPDIR", directory.path()).output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let here = |experiment, name| figure(&results, experiment, name);
    assert_eq!(here("rss", "off: queues with packets"), 1.0);
    assert_eq!(here("rss", "on: queues with packets"), 8.0);
    assert!(here("rss", "rules: share of port 22 in queue 1") > 0.9);
    assert!(here("rss", "rules: share of other TCP in queue 2") > 0.9);
    assert!(here("rss", "rules: share of UDP") > 0.9);
    assert_eq!(here("walk", "the name leads to the server's interface"), 1.0);
    assert_eq!(here("walk", "status of HTTP"), 200.0);
    assert!(here("walk", "packets by a kept verdict") >= 4.0);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("1 name: ip-10-0-1-11.ec2.internal asked of 10.0.0.2"), "{said}");
    // How long the pair waits is up to this machine; that each answer comes is not.
    for name in ["alone: p99", "beside small packets: p99", "beside new flows: p99"] {
        let p99 = here("tenants", name);
        assert!(p99 > 0.0 && p99 < 500_000.0, "{name} {p99}");
    }
}

#[test]
fn a_run_that_is_killed_takes_its_card_with_it() {
    if !ready_with_iperf3() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let before = instances();
        let mut command = Command::new(SRD);
        command.args(["card", "lab", "credits"]).env("TMPDIR", directory.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = Running(command.spawn().unwrap());
        let own = format!("srd-i-n{}x", run.0.id());
        let there = || instances().iter().any(|name| name.starts_with(&own));
        let wait_until = |wanted: bool| {
            let began = Instant::now();
            while there() != wanted {
                assert!(began.elapsed() < PATIENCE, "{:?} beside {before:?}", instances());
                thread::sleep(Duration::from_millis(20));
            }
        };
        wait_until(true);
        let code = run.end(signal);
        wait_until(false);
        if signal == Signal::TERM {
            assert_eq!(code, 128 + 15);
            let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

#[test]
fn what_does_not_exist_is_named() {
    let output = Command::new(SRD).args(["card", "lab", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no experiment `nothing`") && said.contains("burst"), "{said}");
    let output = Command::new(SRD).args(["card", "lab", "--list"]).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains("nconnect") && listed.contains("tracking-full"), "{listed}");
}
