use std::path::Path;

use super::*;
use crate::runs::run::{Job, run};
use crate::scenario::{Scenario, Transport};

const SCENARIO: &str = r#"
name = "small/one"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 8
leaf_hosts = 4
[[workload]]
kind = "tornado"
bytes = "endless"
[[fault]]
kind = "link-down"
links = "leaf0-spine1"
at_us = 300.0
until_us = 700.0
[measure]
interval_us = 10.0
flows = true
queues = ["leaf0->spine"]
loads = ["leaf0->spine"]
"#;

fn results(horizon_us: u32) -> Vec<RunResult> {
    let sets = [format!("horizon_us={horizon_us}.0").parse().unwrap()];
    let scenario = Scenario::read("test", SCENARIO, Path::new("."), &sets).unwrap();
    let one = |transport| run(&Job { scenario: scenario.clone(), transport, seed: 1 }).unwrap();
    [Transport::Srd, Transport::SrdBlind].map(one).to_vec()
}

#[test]
fn everything_is_written_and_well_formed() {
    let results = results(2_000);
    let directory = std::env::temp_dir().join(format!("srd-report-{}", std::process::id()));
    let files = write_all(&directory, &results).unwrap();
    let names: Vec<_> =
        files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for name in [
        "small_one-srd-1.csv",
        "small_one-srd-1-throughput.svg",
        "small_one-srd-1-goodput.svg",
        "small_one-srd-1-queues.svg",
        "small_one-srd-blind-1-paths.svg",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
    }
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        if file.extension().is_some_and(|e| e == "svg") {
            srd_chart::check_well_formed(&text).unwrap();
            assert!(text.contains("leaf0-spine1 breaks"), "{}", file.display());
        } else {
            assert_eq!(text.lines().count(), 9, "a header and eight flows");
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_dead_link_is_measured_and_told() {
    let results = results(2_000);
    let recovery = &results[0].recoveries[0];
    assert!(recovery.worst < 0.95 && recovery.back_us.is_some(), "{recovery:?}");
    assert!(recovery.before_bps > 100e9, "{recovery:?}");
    let table = table(&results);
    assert!(table.contains("srd, seed 1: leaf0-spine1 breaks at 300 us"), "{table}");
    assert!(table.contains("back at 7/8 of that"), "{table}");
    assert_eq!(table.lines().filter(|l| l.starts_with("srd")).count(), 4);
}

#[test]
fn an_unfinished_flow_has_an_empty_time() {
    let csv = flows_csv(&results(200)[0].flow_records[..1]);
    let line = csv.lines().nth(1).unwrap();
    assert!(line.starts_with("0,0,4,,0.000,,"), "{line}");
}

#[test]
fn regression_a_run_that_was_made_short_has_charts_that_agree_with_its_table() {
    let text = include_str!("../../../../../scenarios/paper-a-incast.toml");
    let set = ["workload.0.bytes=64KiB".parse().unwrap()];
    let scenario = Scenario::read("test", text, Path::new("."), &set).unwrap();
    let job = Job { scenario, transport: Transport::Srd, seed: 1 };
    let result = run(&job).unwrap();
    let series = result.series.as_ref().unwrap();
    assert!(series.at_ps.len() >= 10, "{} samples", series.at_ps.len());
    let peak = series.queue_bytes.iter().map(|row| row[0]).max().unwrap();
    // In an incast, packets wait at the port to the receiver.
    assert_eq!(peak, result.queue_bytes_max);
    for chart in [charts::goodput(&result), charts::throughput(&result), charts::queues(&result)] {
        assert!(chart.unwrap().drawn.lines.iter().all(|line| line.points.len() >= 10));
    }
}
