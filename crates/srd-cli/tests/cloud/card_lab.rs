//! `srd card lab`: experiments with real programs, in their short form. The tests check directions
//! (which figure is larger), not figures. A busy machine may delay a program in the middle of a
//! measurement, so an experiment has several runs to show its direction. Needs root and iperf3.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::machine::{Running, SRD, ready_with_nsenter, wait_until};
use crate::support::pair::must;
use rustix::process::Signal;
use serde_json::Value;

/// Maximum number of runs of an experiment, at least one of which must show its direction.
const RUNS: usize = 6;
/// Limit of one flow in the experiment `tunnels`, in Mb/s: 5 Gb/s, divided by the scale of the lab.
const TUNNEL_MBPS: f64 = 50.0;

fn ready_with_iperf3() -> bool {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.unwrap().status.success()
    };
    let all = ["iperf3", "setpriv", "unshare"].into_iter().all(has);
    assert!(all || std::env::var_os("CI").is_none(), "iperf3 and util-linux belong to CI");
    if !all {
        println!("skipped: no iperf3, setpriv or unshare (apt-get install iperf3 util-linux)");
    }
    all && ready_with_nsenter()
}

/// Returns the figures of an experiment whose names begin with `name`.
fn figures(outcome: &Value, name: &str) -> Vec<f64> {
    let all = outcome["figures"].as_array().unwrap().iter();
    let found = all.filter(|f| f["name"].as_str().unwrap().trim().starts_with(name));
    found.map(|f| f["here"].as_f64().unwrap()).collect()
}

/// Returns the first of these figures.
fn figure(outcome: &Value, name: &str) -> f64 {
    let found = figures(outcome, name).first().copied();
    found.unwrap_or_else(|| panic!("no {name}: {outcome}"))
}

/// Runs experiments in their short form until each has shown its direction. `shows` checks the
/// outcome of an experiment. `each` gets the output of each run, and the names of the experiments
/// whose outcomes it contains.
fn run_until_shown(
    chosen: &[&str],
    words: &[&str],
    directory: &Path,
    shows: impl Fn(&str, &Value) -> bool,
    each: impl Fn(&str, &[&str]),
) {
    let mut left = chosen.to_vec();
    for run in 1..=RUNS {
        let mut command = Command::new(SRD);
        command.args(["card", "lab", "--quick", "--json", "-"]).args(words).args(&left);
        let output = command.env("TMPDIR", directory).output().unwrap();
        // An experiment that fails ends the run. The output contains the experiments before it.
        let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let outcomes = results["experiments"].as_array().cloned().unwrap_or_default();
        let of = |name: &str| outcomes.iter().find(|of| of["experiment"] == name);
        let told: Vec<&str> = left.iter().copied().filter(|&name| of(name).is_some()).collect();
        if !told.is_empty() {
            each(&String::from_utf8_lossy(&output.stdout), &told);
        }
        left.retain(|&name| !of(name).is_some_and(|outcome| shows(name, outcome)));
        if run >= RUNS / 2 {
            left.retain(|&name| !of(name).is_some_and(|outcome| is_without_limit(name, outcome)));
        }
        if left.is_empty() {
            assert!(output.status.success(), "{output:#?}");
            return;
        }
        assert!(run < RUNS, "{left:?}: {}\n{output:#?}", serde_json::json!(outcomes));
    }
}

/// Whether this machine carried less than the limit that an experiment shows, so that no run of it
/// can show the limit.
fn is_without_limit(experiment: &str, outcome: &Value) -> bool {
    let ports = "VXLAN, 100 source ports";
    let is_slow = experiment == "tunnels" && figure(outcome, ports) < TUNNEL_MBPS;
    if is_slow {
        println!("not compared, for the machine is slower than the limit: {outcome}");
    }
    is_slow
}

/// Whether a flood left the quiet pair its allowance and its answers, and used the time of the card
/// that the quiet pair did not use. The latency of the quiet pair depends on this machine.
fn shows_isolation(outcome: &Value) -> bool {
    let exceeded = figures(outcome, "quiet: pps_allowance_exceeded");
    let p99s = ["alone: p99", "beside small packets: p99", "beside new flows: p99"];
    // A lost answer counts as 500 ms.
    p99s.into_iter().all(|name| (1.0..500_000.0).contains(&figure(outcome, name)))
        && exceeded == [0.0; 2]
        // The share would be about 0.5 if half of the time were reserved for the idle neighbour.
        && figure(outcome, "share of an idle neighbour's time used") > 0.6
}

#[test]
fn an_outcome_without_isolation_is_noticed() {
    let outcome = |p99: f64, exceeded: f64, share: f64| {
        let of = |name: &str, here: f64| serde_json::json!({"name": name, "here": here});
        serde_json::json!({"figures": [
            of("alone: p99", 900.0),
            of("beside small packets: p99", p99),
            of("  share of an idle neighbour's time used", share),
            of("  quiet: pps_allowance_exceeded", 0.0),
            of("beside new flows: p99", 950.0),
            of("  quiet: pps_allowance_exceeded", exceeded),
        ]})
    };
    assert!(shows_isolation(&outcome(1000.0, 0.0, 0.97)));
    assert!(!shows_isolation(&outcome(500_100.0, 0.0, 0.97)), "answers are lost");
    assert!(!shows_isolation(&outcome(1000.0, 3.0, 0.97)), "the flood uses the allowance");
    assert!(!shows_isolation(&outcome(1000.0, 0.0, 0.5)), "time is reserved");
}

fn instances() -> Vec<String> {
    // Namespaces of the experiments' instances have names of the form `srd-i-nPIDx`, where PID is a
    // process id.
    let all = must("netns list");
    all.lines().filter(|line| line.starts_with("srd-i-n")).map(str::to_owned).collect()
}

#[test]
fn each_limit_shows_and_nothing_is_left() {
    if !ready_with_iperf3() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    let shows = |experiment: &str, outcome: &Value| {
        let here = |name| figure(outcome, name);
        match experiment {
            "burst" => here("two flows") > 1.1 * here("one flow"),
            "credits" => here("without credits") < 0.5 * here("with credits"),
            "mutation" => {
                here("port 80 before") > 0.0
                    && here("port 80 after") == 0.0
                    && here("packets judged by the rules later") == 0.0
            }
            "untracked" => {
                here("entries of 10 connections to port 22") == 10.0
                    && here("entries of 10 connections to port 80") == 0.0
                    && here("a tracked connection goes on") == 1.0
                    && here("one that is not tracked goes on") == 0.0
            }
            "traffic-control" => {
                // The limit of all flows is 100 Mb/s, and that of each is 10 Mb/s; the instance has
                // 125 Mb/s. A machine that is too busy for these rates still shows that the queue
                // of `htb` keeps packets which the card would otherwise have to delay. If the queue
                // gets no processor for a while, it sends what has become due at once.
                let (without, with) = (here("without: all flows"), here("with: all flows"));
                let beyond = figures(outcome, "packets counted as beyond bw_out");
                beyond[0] > 0.0
                    && beyond[1] < 0.1 * beyond[0]
                    && with < 0.95 * without
                    && here("least of ten flows") > 0.05 * with
            }
            "tunnels" => {
                let ports = here("VXLAN, 100 source ports");
                ports > 1.2 * here("VXLAN, one source port") && ports > 1.2 * here("GRE")
            }
            other => panic!("nothing is known of {other}"),
        }
    };
    let has_page = |_: &str, told: &[&str]| {
        let page = std::fs::read_to_string(&file).unwrap();
        assert!(told.iter().all(|name| page.contains(&format!("<h2>{name}</h2>"))), "{page}");
        assert!(page.contains("not judged: --quick") && !page.contains("MISSED"), "{page}");
    };
    let chosen = ["burst", "credits", "mutation", "untracked", "tunnels", "traffic-control"];
    let words = ["--report", file.to_str().unwrap()];
    run_until_shown(&chosen, &words, directory.path(), shows, has_page);
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "only the page: {left:?}");
}

#[test]
fn packets_go_to_queues_and_a_walk_has_its_steps() {
    if !ready_with_iperf3() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let shows = |experiment: &str, outcome: &Value| {
        let here = |name| figure(outcome, name);
        match experiment {
            "rss" => {
                let processors = std::thread::available_parallelism().unwrap().get();
                here("off: queues with packets") == 1.0
                    && here("off: processors with packets from another") == 0.0
                    && (processors == 1
                        || here("off, steered: processors with packets from another") >= 1.0)
                    && here("on: queues with packets") == 8.0
                    && here("rules: share of port 22 in queue 1") > 0.9
                    && here("rules: share of other TCP in queue 2") > 0.9
                    && here("rules: share of UDP") > 0.9
            }
            "walk" => {
                here("the name leads to the server's interface") == 1.0
                    && here("status of HTTP") == 200.0
                    && here("packets by a kept verdict") >= 4.0
            }
            "tenants" => shows_isolation(outcome),
            other => panic!("nothing is known of {other}"),
        }
    };
    let names_the_resolver = |said: &str, told: &[&str]| {
        let asked = "1 name: ip-10-0-1-11.ec2.internal asked of 10.0.0.2";
        assert!(!told.contains(&"walk") || said.contains(asked), "{said}");
    };
    let chosen = ["rss", "walk", "tenants"];
    run_until_shown(&chosen, &[], directory.path(), shows, names_the_resolver);
}

#[test]
fn a_run_that_is_killed_takes_its_card_with_it() {
    if !ready_with_iperf3() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // The second run also removes the files that the first one, which is killed, leaves behind.
    for signal in [Signal::KILL, Signal::TERM] {
        let before = instances();
        let mut command = Command::new(SRD);
        command.args(["card", "lab", "credits"]).env("TMPDIR", directory.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = Running(command.spawn().unwrap());
        let own = format!("srd-i-n{}x", run.0.id());
        let there = || instances().iter().any(|name| name.starts_with(&own));
        wait_until(&format!("an instance beside {before:?}"), there);
        let code = run.end(signal);
        wait_until(&format!("no instance beside {before:?}"), || !there());
        if signal == Signal::TERM {
            assert_eq!(code, -1, "a process that ends by a signal has no exit code");
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
