//! `srd sim goal`, which writes a file, and `srd sim run` with files of other programs: `--goal`,
//! `--chakra`, `--topo` and `--tm`.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use serde_json::Value;
use std::process::{Command, Output};

fn srd(words: &[&str]) -> Output {
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_srd")).args(words).current_dir(scenarios).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_is_written_is_run_and_compared_with_its_ideal() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ring.goal");
    let file = file.to_str().unwrap();
    let written = srd(&[
        "sim",
        "goal",
        "ring-all-reduce",
        "--ranks",
        "16",
        "--bytes",
        "256KiB",
        "--out",
        file,
    ]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let run = ["sim", "run", "permutation-128", "--goal", file, "--transport", "srd"];
    let output = srd(&[&run[..], &["--transport", "dctcp", "--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 2);
    for result in results {
        let schedule = &result["schedule"];
        assert_eq!((schedule["ranks"].as_u64(), schedule["undone"].as_u64()), (Some(16), Some(0)));
        assert_eq!(schedule["operations"], 16 * 30 * 2);
        let ratio = schedule["over_ideal"].as_f64().unwrap();
        assert!((1.0..2.0).contains(&ratio), "{schedule}");
    }
    let said = srd(&[&run[..], &["--seed", "2"]].concat());
    assert!(text(&said.stdout).contains("960 operations of 16 ranks complete after"));
}

#[test]
fn schedules_that_cannot_be_are_refused_with_their_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.goal");
    let run = |goal: &str| {
        std::fs::write(&file, goal).unwrap();
        srd(&["sim", "run", "permutation-128", "--goal", file.to_str().unwrap()])
    };
    for (goal, said) in [
        ("num_ranks 2\nrank 0 {\nsend 1b to 1\n}", "line 3: no receive fits"),
        ("num_ranks 1000", "1000 ranks, but the network has 128 hosts"),
        ("\u{0}\u{ff}", "is no part of GOAL"),
    ] {
        let output = run(goal);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
    std::fs::write(&file, b"num_ranks \xff").unwrap();
    let output = srd(&["sim", "run", "permutation-128", "--goal", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let trace = directory.path().join("step.0.et");
    std::fs::write(&trace, b"\x02\x0a\x00\xff").unwrap();
    let output = srd(&["sim", "run", "permutation-128", "--goal", trace.to_str().unwrap()]);
    let error = text(&output.stderr);
    let hint = format!("run it with --chakra {}", directory.path().join("step").display());
    assert!(output.status.code() == Some(2) && error.contains(&hint), "{error}");
    let missing = srd(&["sim", "run", "permutation-128", "--goal", "/nonexistent.goal"]);
    assert_eq!(missing.status.code(), Some(2));
    let ranks = srd(&["sim", "goal", "all-to-all", "--ranks", "1", "--bytes", "1"]);
    assert_eq!(ranks.status.code(), Some(2));
}

/// A network with two leaves and eight hosts, in htsim's format.
const NETWORK: &str = "nodes 8\ntiers 2\npodsize 8\ntier 0\ndownlink_speed_gbps 100\n\
                       radix_down 4\nradix_up 4\ndownlink_latency_ns 500\n\
                       switch_latency_ns 300\ntier 1\ndownlink_speed_gbps 100\n\
                       radix_down 2\noversubscribed 1\n";
/// Two connections; the second connection starts at time 500.
const MATRIX: &str = "Nodes 8\nConnections 2\n0->5 start 0 size 100000\n\
                      1->6 start 500 size 100000\n";

/// Runs a simulation, and returns its only result.
fn result(words: &[&str]) -> Value {
    let output = srd(&[&["sim", "run"], words, &["--transport", "srd", "--json", "-"]].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let mut results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.as_array().unwrap().len(), 1);
    results[0].take()
}

#[test]
fn networks_and_matrices_of_htsim_are_run_with_the_chosen_unit_of_time() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str, content: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, content).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (network, matrix) = (at("two.topo", NETWORK), at("two.cm", MATRIX));
    let files = ["--topo", &network, "--tm", &matrix];
    let end_us = |unit: &str| {
        let result = result(&[&files[..], &["--cm-time-unit", unit]].concat());
        assert_eq!((&result["flows"], &result["unfinished"]), (&2.into(), &0.into()), "{result}");
        result["sim_end_us"].as_f64().unwrap()
    };
    let (ps, us) = (end_us("ps"), end_us("us"));
    assert!(ps < 500.0 && us > 500.0, "the second connection starts at 500: {ps} and {us}");
    let changed = result(&[&files[..], &["--set", "srd.paths=1"]].concat());
    assert_eq!(changed["unfinished"], 0);
    // `result` also names the transport, and expects one result.
    result(&[&files[..], &["--transport", "srd"]].concat());
    let bad = at("bad.cm", "Nodes 8\nConnections 1\n0->99 start 0 size 1\n");
    let output = srd(&["sim", "run", "--topo", &network, "--tm", &bad]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("99"), "{}", text(&output.stderr));
    let large = at("large.cm", "Connections 1\nNodes 9\n0->5 start 0 size 1\n");
    let output = srd(&["sim", "run", "--topo", &network, "--tm", &large]);
    let error = text(&output.stderr);
    let refused = "large.cm: line 2: the file says `Nodes 9`, but the network has 8 hosts";
    assert!(output.status.code() == Some(2) && error.contains(refused), "{error}");
}

#[test]
fn a_trace_of_chakra_is_run_and_a_missing_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/chakra/collective.et");
    for rank in 0..2 {
        let file = directory.path().join(format!("step.{rank}.et"));
        std::fs::copy(corpus, file).unwrap();
    }
    let prefix = directory.path().join("step");
    let prefix = prefix.to_str().unwrap();
    let network = directory.path().join("two.topo");
    std::fs::write(&network, NETWORK).unwrap();
    for on in [&["permutation-128"][..], &["--topo", network.to_str().unwrap()]] {
        let result = result(&[on, &["--chakra", prefix]].concat());
        let schedule = &result["schedule"];
        assert_eq!((&schedule["ranks"], &schedule["undone"]), (&2.into(), &0.into()), "{result}");
        assert!(schedule["operations"].as_u64().unwrap() > 4, "{schedule}");
    }
    let groups = directory.path().join("groups.json");
    std::fs::write(&groups, "{\"a\": [0, 1]}").unwrap();
    let run = ["sim", "run", "permutation-128", "--chakra"];
    let groups = [prefix, "--chakra-groups", groups.to_str().unwrap()];
    let output = srd(&[&run[..], &groups].concat());
    let error = text(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("process group `a`"), "{error}");
    let missing = directory.path().join("none");
    let output = srd(&[&run[..], &[missing.to_str().unwrap()]].concat());
    let error = text(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("none.0.et"), "{error}");
}
