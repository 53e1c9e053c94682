//! `srd compare`: a command that runs in the lab, and one between two machines that each run a
//! daemon. Some tests need root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support;
use crate::support::pair::{PATIENCE, Pair, Settings};
use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn srd(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srd")).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the figure that a run has measured.
fn figure(run: &Value, name: &str) -> f64 {
    let figures = run["measured"]["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {run}"))["value"].as_f64().unwrap()
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_starts() {
    for (words, said) in [
        (&["compare"][..], "required"),
        (&["compare", "--variants", "srd", "--", "true"], "libfabric"),
        (&["compare", "--figure", "rate=[0-9]+", "--", "true"], "no group"),
        (&["compare", "--figure", "a=(.)", "--figure", "a=(.)", "--", "true"], "twice"),
        (&["compare", "--address", "plain=127.0.0.1", "--", "true"], "{server}"),
        (&["compare", "--address", "plain=127.0.0.1", "--", "echo", "{server}"], "express"),
        (&["compare", "--address", "bbr=127.0.0.1", "--", "true"], "plain and express"),
        (&["compare", "--peer", "b", "--serve", "true", "--", "true"], "for the lab"),
        (&["compare", "--beside", "much", "--", "true"], "incast"),
    ] {
        let output = srd(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(said), "{words:?}: {error}");
    }
}

#[test]
fn regression_a_program_that_is_not_there_is_missing_and_the_reader_that_left_loses_no_file() {
    let output = srd(&["compare", "--", "/nowhere/job", "{server}"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/nowhere/job: no such program"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.json");
    let line = format!(
        "{} compare --address plain=127.0.0.2 --variants plain --reps 1 --json {} -- true \
         '{{server}}' | true",
        env!("CARGO_BIN_EXE_srd"),
        file.display()
    );
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["cases"][0]["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn two_addresses_of_this_machine_are_compared() {
    let words = [
        "compare",
        "--address",
        "plain=127.0.0.2",
        "--address",
        "express=127.0.0.9",
        "--socket",
        "/nonexistent/srd.sock",
        "--reps",
        "2",
        "--figure",
        "last=\\.([0-9]+)$",
        "--json",
        "-",
        "--",
        "printf",
        "%s",
        "{server}",
    ];
    let output = srd(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no daemon says whether"), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = json["cases"][0]["runs"].as_array().unwrap();
    let seen: Vec<(&str, f64)> =
        runs.iter().map(|run| (run["variant"].as_str().unwrap(), figure(run, "last"))).collect();
    assert_eq!(seen, [("plain", 2.0), ("express", 9.0), ("express", 9.0), ("plain", 2.0)]);
}

#[test]
fn failures_are_counted_if_that_is_asked_for() {
    let run = |extra: &[&str]| {
        let first = ["compare", "--address", "plain=127.0.0.2", "--variants", "plain"];
        let last = ["--reps", "2", "--", "sh", "-c", "echo gone >&2; exit 7 # {server}"];
        srd(&[&first[..], extra, &last].concat())
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("exit status: 7: gone") && error.contains("--keep-going"), "{error}");
    let output = run(&["--keep-going"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("failed, of 1"), "{}", text(&output.stdout));
}

/// Arguments of a client that measures TCP for half a second.
const CLIENT: [&str; 9] =
    ["perf", "client", "{server}", "--port", "9000", "--transport", "tcp", "--time", "500ms"];

#[test]
fn a_command_and_its_server_run_in_the_lab() {
    if !support::pair::ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.html");
    let (own, name) = (env!("CARGO_BIN_EXE_srd"), format!("cmp{}", std::process::id()));
    let serve = format!("exec {own} perf server --port 9000");
    let lab = ["compare", "--reps", "1", "--name", &name, "--high-priority", "false", "--serve"];
    let rest = ["--port", "9000", "--figure", "rate, Gb/s=/gbps", "--json", "-", "--report"];
    let words = [&lab[..], &[&serve], &rest, &[report.to_str().unwrap(), "--", own]].concat();
    let output = srd(&[&words[..], &CLIENT, &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = json["cases"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert!(figure(run, "rate, Gb/s") > 0.0 && figure(run, "time") >= 0.5, "{run}");
    }
    assert!(runs[1]["express"]["ena_srd_tx_pkts"].as_f64().unwrap() > 1.0);
    assert!(std::fs::read_to_string(&report).unwrap().contains("</html>"));
    assert!(!text(&srd(&["lab", "status"]).stdout).contains(&name));
}

#[test]
fn a_peer_of_the_daemon_has_both_addresses() {
    if !support::pair::ready() {
        return;
    }
    let mut pair = Pair::new("cmp");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    let mut server = pair.command(1).args(["perf", "server", "--port", "9000"]).spawn().unwrap();
    let socket = pair.path("0.sock".into());
    let words = ["compare", "--peer", "other", "--reps", "1", "--json", "-", "--socket"];
    let mut command = pair.command(0);
    command.args(words).arg(socket).args(["--", env!("CARGO_BIN_EXE_srd")]).args(CLIENT);
    let begin = Instant::now();
    let mut output = command.output().unwrap();
    // The server may not listen yet, so the command is repeated until it succeeds.
    while !output.status.success() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        output = command.output().unwrap();
    }
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["cases"][0]["setting"], "plain 198.18.0.2, express 10.77.0.2");
    let runs = json["cases"][0]["runs"].as_array().unwrap();
    assert!(runs[1]["express"]["ena_srd_tx_pkts"].as_f64().unwrap() > 1.0, "{}", runs[1]);
}
