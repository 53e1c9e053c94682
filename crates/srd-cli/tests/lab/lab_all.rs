//! `srd lab run --all --quick` from end to end, in four parts. Every experiment runs in its
//! smallest form, and each part writes one page. The results must have the right direction, if a
//! run so short on a busy machine can show it.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::quiet::are_all_quiet;
use crate::ready::{missing_tun, ready};
use serde_json::Value;
use srd_bench::experiment;
use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};

/// Claim about a figure of an experiment. It is checked for the runs of the smallest case.
enum Claim {
    /// With Express and SRD, the figure is at most this many times that of kernel TCP.
    AtMostOfPlain(f64),
    /// With Express and SRD, the figure is at least this many times that of kernel TCP.
    AtLeastOfPlain(f64),
    /// All variants have equal figures.
    Equal,
    /// The figure of each variant is this number.
    Is(f64),
    /// The figure of each variant is above this number.
    Above(f64),
    /// The figure of each variant is at least this number, if no other programs used the machine.
    AtLeastIfQuiet(f64),
}

use Claim::{Above, AtLeastIfQuiet, AtLeastOfPlain, AtMostOfPlain, Equal, Is};

/// Claims, each about one figure of an experiment. How much faster a variant is, only a measurement
/// on a quiet machine shows, and not this test. If other programs delayed a run, speeds are not
/// compared ([`crate::quiet`]).
const CLAIMS: &[(&str, &str, Claim)] = &[
    ("single-flow", "goodput", AtLeastOfPlain(1.3)),
    // The daemons of a test are not optimised. On a slow machine, they are the limit of a fabric at
    // 1 Gb/s: 0.7 here, and 1.3 of the mean of `collisions`.
    ("nconnect", "goodput", AtLeastOfPlain(0.3)),
    ("nconnect", "sent again", AtMostOfPlain(0.5)),
    ("redis", "wrong answers", Is(0.0)),
    // A simulated incast shows the same without dependence on the machine: srd-sim's test
    // `requests_beside_an_incast_have_a_shorter_tail_through_cards`.
    ("redis", "GET p99", AtMostOfPlain(1.0)),
    ("video", "sent", Above(0.0)),
    ("video", "frames not whole in time", AtMostOfPlain(0.5)),
    ("video", "datagrams lost", AtMostOfPlain(0.5)),
    ("video-srt", "datagrams lost", AtMostOfPlain(0.2)),
    ("incast", "unfinished", Is(0.0)),
    ("incast", "slowest flow, median round", AtMostOfPlain(1.0)),
    ("failover", "longest silence", AtMostOfPlain(1.0)),
    ("failover", "connections alive", Above(0.0)),
    ("fairness", "Jain, mean second", AtLeastOfPlain(1.0)),
    ("copies", "stored", AtLeastOfPlain(0.5)),
    ("collisions", "mean", AtMostOfPlain(2.5)),
    ("collisions", "dropped by ports", AtMostOfPlain(0.5)),
    ("loss", "TCP sent again with loss", AtMostOfPlain(1.0)),
    ("ordering", "A lost", AtMostOfPlain(0.0)),
    // 0.16 on a slow machine: flood, daemon and flow share its two processors.
    ("flood", "kept during the flood", AtLeastIfQuiet(0.05)),
    ("flood", "flood that is counted as dropped", AtLeastIfQuiet(90.0)),
    ("shuffle", "unfinished", Is(0.0)),
    ("shuffle", "dropped by ports", AtMostOfPlain(0.5)),
    ("nfs", "read", AtLeastOfPlain(1.3)),
    ("hadoop", "read", AtLeastOfPlain(1.2)),
    ("objects", "dropped by ports", AtMostOfPlain(0.5)),
    ("spark", "sort", Above(0.0)),
    ("dask", "sort", AtMostOfPlain(1.0)),
    ("mpi", "iterations", Above(0.0)),
    ("mpi-incast", "iterations", Above(0.0)),
    ("mpi-incast", "dropped by ports", AtMostOfPlain(0.5)),
    ("training", "loss at first", Equal),
    ("training", "loss in the end", Equal),
    ("training-mpi", "loss at first", Equal),
    ("training-mpi", "loss in the end", Equal),
    ("soak", "long connections that died", Is(0.0)),
    ("soak", "wrong bytes", Is(0.0)),
    // The soak test has one round of faults, with every kind of fault once.
    ("soak", "daemons killed", Is(1.0)),
    ("soak", "spines died", Is(1.0)),
    ("soak", "peers removed", Is(1.0)),
    ("soak", "Express switched off", Is(1.0)),
];

/// Experiments whose programs are fetched on demand (`srd lab fetch`), and not in CI.
const ON_DEMAND: [&str; 3] = ["hadoop", "objects", "spark"];

fn srd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srd"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("srd")
}

/// Returns the figure `name` of each variant of an experiment that ran.
fn figures(experiment: &Value, name: &str) -> BTreeMap<String, f64> {
    let runs = experiment["cases"][0]["runs"].as_array().unwrap();
    let of = |run: &Value| {
        let figures = run["measured"]["figures"].as_array().unwrap();
        let found = figures.iter().find(|figure| figure["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name}: {figures:?}"));
        (run["variant"].as_str().unwrap().to_owned(), found["value"].as_f64().unwrap())
    };
    runs.iter().map(of).collect()
}

impl Claim {
    /// Whether the claim compares speeds, so that other programs that delay a run can break it.
    fn compares(&self) -> bool {
        matches!(self, AtMostOfPlain(_) | AtLeastOfPlain(_) | AtLeastIfQuiet(_))
    }

    fn holds(&self, figures: &BTreeMap<String, f64>) -> bool {
        let plain = figures.get("plain").copied();
        let mut ours = figures.iter().filter(|(variant, _)| *variant != "plain");
        match self {
            AtMostOfPlain(times) => ours.all(|(_, ours)| *ours <= plain.unwrap() * times),
            AtLeastOfPlain(times) => ours.all(|(_, ours)| *ours >= plain.unwrap() * times),
            Equal => {
                let first = figures.values().next().unwrap().to_bits();
                figures.values().all(|figure| figure.to_bits() == first)
            }
            Is(value) => figures.values().all(|figure| figure == value),
            Above(value) => figures.values().all(|figure| figure > value),
            AtLeastIfQuiet(value) => figures.values().all(|figure| figure >= value),
        }
    }
}

/// Returns the claims of an experiment that do not hold, with their figures.
fn broken(name: &str, outcome: &Value) -> Vec<(&'static Claim, String)> {
    let claims: Vec<_> = CLAIMS.iter().filter(|(of, ..)| *of == name).collect();
    assert!(!claims.is_empty(), "nothing is claimed of {name}");
    assert_eq!(outcome["left_out"].as_array().map(Vec::len), Some(0), "{outcome}");
    let mut broken = Vec::new();
    for (_, figure, claim) in claims {
        let figures = figures(outcome, figure);
        if !claim.holds(&figures) {
            broken.push((claim, format!("{name}: {figure}: {figures:?}")));
        }
    }
    broken
}

/// Tests that run at the same time as a part of the experiments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Only tests of the lowest priority.
    Nothing,
    /// Other tests, which delay all runs.
    Tests,
}

/// Checks the claims about an experiment. If one is broken, the experiment is run once more, unless
/// other tests delayed the run and would delay the next one too: such a run shows nothing about
/// speed.
fn judge(name: &str, outcome: &Value, beside: Beside, again: impl FnOnce() -> Value) {
    let found = broken(name, outcome);
    let is_about_speed = found.iter().all(|(claim, _)| claim.compares());
    let is_disturbed = beside == Beside::Tests && !are_all_quiet(outcome);
    let (found, is_quiet) = if found.is_empty() || is_about_speed && is_disturbed {
        (found, false)
    } else {
        let outcome = again();
        (broken(name, &outcome), are_all_quiet(&outcome))
    };
    for (claim, figures) in found {
        assert!(claim.compares() && !is_quiet, "{figures}");
        println!("not compared, for the machine was busy with something else: {figures}");
    }
}

/// Experiments whose claims compare speeds, in two parts. Few other programs should run at the same
/// time.
const COMPARING: [&str; 2] =
    ["single-flow,incast,failover,fairness,copies", "loss,ordering,nfs,hadoop"];

/// Experiments with clusters of other programs, which start slowly.
const CLUSTERS: &str = "objects,spark,dask,training,training-mpi";

/// Runs the experiments for which `part` returns true, in their smallest form, and checks each.
fn run_and_judge(beside: Beside, part: impl Fn(&str) -> bool) {
    if !ready(missing_tun()) {
        return;
    }
    let names = || experiment::ALL.iter().map(|experiment| experiment.name);
    let except: Vec<_> = names().filter(|name| !part(name)).collect();
    let except = except.join(",");
    // The libfabric provider that was built with these tests; CI builds it with the whole
    // workspace.
    let provider = std::env::current_exe().unwrap().with_file_name("libsrd_fi.so");
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("all.html");
    // The name contains the process id, because the tests of another checkout may run at the same
    // time.
    let fabric = format!("all{}x{}", except.len(), std::process::id());
    let (page_name, provider_name) = (page.to_str().unwrap(), provider.to_str().unwrap());
    let run = |which: &[&str]| {
        let mut arguments = [&["lab", "run"], which].concat();
        arguments.extend(["--quick", "--name", &fabric, "--json", "-"]);
        arguments.extend(["--high-priority", "false"]);
        if provider.exists() {
            arguments.extend(["--provider", provider_name]);
        }
        let output = srd(&arguments);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{err}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
        (json, err)
    };
    let (json, err) = run(&["--all", "--except", &except, "--report", page_name]);
    let found: BTreeMap<&str, &Value> = json["experiments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|experiment| (experiment["experiment"].as_str().unwrap(), experiment))
        .collect();
    let page = std::fs::read_to_string(&page).unwrap();
    for name in names() {
        if !part(name) {
            assert!(!found.contains_key(name), "{name} was not asked for");
            continue;
        }
        let Some(outcome) = found.get(name) else {
            // The output contains what to install or to fetch for this experiment. The other
            // experiments ran.
            let said = err.lines().find(|line| line.starts_with(&format!("{name}: ")));
            let how = if ON_DEMAND.contains(&name) { "not fetched" } else { "skipped" };
            println!("{how}: {}", said.unwrap_or_else(|| panic!("{name}: {err}")));
            continue;
        };
        println!("{name}: {} s", outcome["took_s"]);
        assert!(page.contains(&format!(">{name}</h2>")), "{name} is not on the page");
        // If an experiment renames a figure, the published figure beside it has no value.
        assert!(!page.contains("the results lack"), "{name}");
        judge(name, outcome, beside, || run(&[name]).0["experiments"][0].clone());
    }
    assert!(!String::from_utf8_lossy(&srd(&["lab", "status"]).stdout).contains(&fabric));
}

fn is_in(list: &str, name: &str) -> bool {
    list.split(',').any(|other| other == name)
}

#[test]
fn experiments_that_compare_run_in_their_smallest_form_and_point_the_right_way() {
    run_and_judge(Beside::Nothing, |name| is_in(COMPARING[0], name));
}

#[test]
fn experiments_that_compare_with_losses_and_servers_point_the_right_way() {
    run_and_judge(Beside::Nothing, |name| is_in(COMPARING[1], name));
}

#[test]
fn clusters_of_others_run_in_their_smallest_form_and_lose_nothing() {
    run_and_judge(Beside::Tests, |name| is_in(CLUSTERS, name));
}

#[test]
fn all_other_experiments_run_in_their_smallest_form_and_lose_nothing() {
    let elsewhere = [COMPARING[0], COMPARING[1], CLUSTERS];
    run_and_judge(Beside::Tests, |name| !elsewhere.iter().any(|list| is_in(list, name)));
}
