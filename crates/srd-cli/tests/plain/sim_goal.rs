//! `srd sim goal`, which writes a file, and `srd sim run --goal`, which simulates that file.

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
