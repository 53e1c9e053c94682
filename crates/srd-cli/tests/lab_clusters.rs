//! `srd lab run spark dask ray training` from end to end, each in its smallest form: with and
//! without Express, and with output that was checked.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../srd-lab/tests/support/ready.rs"]
mod ready;

use ready::{missing_tun, ready};
use serde_json::Value;
use srd_bench::experiment;
use srd_lab::command::find_program;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// As a user who has Ray's token of another cluster, which ended `ray` (a regression).
fn srd(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".ray")).unwrap();
    fs::write(home.path().join(".ray/auth_token"), "0".repeat(64)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.env("HOME", home.path()).args(arguments).output().expect("srd")
}

/// The runs of the smallest case of an experiment, unless something is missing here.
fn quick(name: &str, fetched: &str, programs: &[&str]) -> Option<Vec<Value>> {
    let missing = experiment::check_fetched(fetched, Path::new(experiment::CACHE)).err();
    let missing = missing.map(|error| error.to_string());
    let absent = programs.iter().filter(|program| find_program(program).is_none());
    let absent = absent.map(|program| format!("{program} is not installed"));
    if !ready(missing_tun().into_iter().chain(missing).chain(absent)) {
        return None;
    }
    // The process id: a second checkout may run its tests at the same time.
    let fabric = format!("e2{}{}", &name[name.len() - 2..], std::process::id());
    let mut arguments = vec!["lab", "run", name, "--quick", "--name", &fabric];
    arguments.extend(["--high-priority", "false", "--variants", "plain,express", "--json", "-"]);
    let output = srd(&arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    let runs = json["experiments"][0]["cases"][0]["runs"].as_array().unwrap().clone();
    assert_eq!(runs.len(), 2, "{err}");
    assert_eq!((&runs[0]["variant"], &runs[1]["variant"]), (&"plain".into(), &"express".into()));
    assert!(!String::from_utf8_lossy(&srd(&["lab", "status"]).stdout).contains(&fabric));
    Some(runs)
}

fn figure(run: &Value, name: &str) -> f64 {
    let figures = run["measured"]["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {figures:?}"))["value"].as_f64().unwrap()
}

/// Each packet has at most 9,000 bytes.
fn packets(run: &Value) -> f64 {
    run["express"]["ena_srd_tx_pkts"].as_f64().unwrap()
}

#[test]
#[ignore = "fetches 269 MB and starts six JVMs: srd lab fetch spark, then --ignored"]
fn spark_sorts_over_express() {
    let Some(runs) = quick("spark", "spark", &["java", "javac", "unshare"]) else { return };
    let fetched = figure(&runs[1], "fetched from other workers");
    // Half of 10 MB, since there are two workers.
    assert!((4.0..8.0).contains(&fetched), "{fetched} MB");
    assert!(packets(&runs[1]) > fetched * 1e6 / 9000.0);
    assert!(figure(&runs[0], "sort") > 0.0);
}

#[test]
fn dask_sorts_over_express() {
    let Some(runs) = quick("dask", "dask", &["unshare"]) else { return };
    assert!(figure(&runs[0], "sort") > 0.0);
    assert!(packets(&runs[1]) > 4e6 / 9000.0);
}

#[test]
#[ignore = "fetches 600 MB and starts some thirty processes: srd lab fetch ray, then --ignored"]
fn ray_sorts_over_express() {
    let Some(runs) = quick("ray", "ray", &["unshare"]) else { return };
    assert!(figure(&runs[0], "sort") > 0.0);
    assert!(packets(&runs[1]) > 4e6 / 9000.0);
}

#[test]
fn jax_trains_the_same_network_on_all_ranks() {
    let Some(runs) = quick("training", "jax", &["unshare"]) else { return };
    let losses = |run| (figure(run, "loss at first"), figure(run, "loss in the end"));
    assert_eq!(losses(&runs[0]), losses(&runs[1]), "whatever carries the gradients");
    // 20 steps, in each 1.5 times 1.07 MB from each of four ranks.
    assert!(packets(&runs[1]) > 20.0 * 4.0 * 1.5 * 1.07e6 / 9000.0);
}

#[test]
fn mpi_trains_the_same_network_on_all_ranks() {
    let Some(runs) = quick("training-mpi", "jax", &["mpirun", "mpicc"]) else { return };
    let losses = |run| (figure(run, "loss at first"), figure(run, "loss in the end"));
    assert_eq!(losses(&runs[0]), losses(&runs[1]), "whatever carries the gradients");
}
