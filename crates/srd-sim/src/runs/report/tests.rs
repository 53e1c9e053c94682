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
    results_of(horizon_us, "endless")
}

fn results_of(horizon_us: u32, bytes: &str) -> Vec<RunResult> {
    let horizon = format!("horizon_us={horizon_us}.0");
    let bytes = format!("workload.0.bytes={bytes}");
    let sets = [horizon.parse().unwrap(), bytes.parse().unwrap()];
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
    let stem = stem("small/one");
    for end in [
        "srd-1.csv",
        "srd-1-throughput.svg",
        "srd-1-goodput.svg",
        "srd-1-queues.svg",
        "srd-blind-1-paths.svg",
    ] {
        let name = format!("{stem}-{end}");
        assert!(names.contains(&name), "{name} is not in {names:?}");
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

/// Regression: characters that a file name cannot have became `_`, so the files of `small/one` were
/// replaced by those of `small_one`.
#[test]
fn regression_two_scenarios_never_share_a_file() {
    let long = ["x".repeat(150), "x".repeat(151)];
    let names = ["a/b", "a b", "a_b", ".a", "..a", "a", "ä", "ö", "", &long[0], &long[1]];
    let stems: BTreeSet<_> = names.into_iter().map(stem).collect();
    assert_eq!(stems.len(), names.len(), "{stems:?}");
    for name in ["a_b", "paper-a.1"] {
        assert_eq!(stem(name), name, "a name that needs no change has none");
    }
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
    assert!(stems.iter().all(|stem| stem.chars().all(is_safe) && !stem.starts_with('.')));
    assert!(stems.iter().all(|stem| stem.len() < 120), "{stems:?}");
    let first = results_of(30, "1MiB").remove(0);
    let second = RunResult { scenario: "small_one".into(), ..first.clone() };
    let directory = std::env::temp_dir().join(format!("srd-report-two-{}", std::process::id()));
    let files = write_all(&directory, &[first.clone(), second]).unwrap();
    assert_eq!(files.iter().collect::<BTreeSet<_>>().len(), files.len(), "{files:?}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), files.len());
    std::fs::remove_dir_all(&directory).unwrap();
    let error = write_all(&directory, &[first.clone(), first]).unwrap_err().to_string();
    assert!(error.contains("two results of `small/one`, srd, seed 1"), "{error}");
    assert!(!directory.exists(), "nothing is written");
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

/// In an earlier version, the table had completion times of 0 for runs of which no flow finished,
/// and a median of two seeds was the better of them.
#[test]
fn regression_runs_without_completion_times_have_none_in_the_table() {
    let mut results = results_of(30, "1MiB");
    assert_eq!(results[0].unfinished, 8);
    let cells = |table: &str, starts: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.trim_start().starts_with(starts)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(cells(&table(&results), "srd ")[5..11], ["-"; 6]);
    results = results_of(9_000, "1MiB");
    results.truncate(1);
    let (mut second, mut third) = (results[0].clone(), results[0].clone());
    (second.seed, third.seed) = (2, 3);
    results[0].over_ideal_wire.p50 = 1.0;
    second.over_ideal_wire.p50 = 2.0;
    third.over_ideal_wire.p50 = 0.0;
    third.flow_records.iter_mut().for_each(|flow| flow.fct_us = None);
    third.unfinished = third.flows;
    results.extend([second, third]);
    let table = table(&results);
    let (_, seeds) = table.split_once("over the seeds").unwrap();
    assert_eq!(cells(seeds, "srd ")[..5], ["srd", "3", "8", "1.500", "2.000"], "{table}");
}

/// In an earlier version, the curve of completion times rose to 100 % of the flows if only some of
/// them finished, and an unfinished run was the fastest in the chart of sizes.
#[test]
fn regression_unfinished_flows_are_in_no_chart_as_finished_ones() {
    let mut results = results_of(9_000, "1MiB");
    results.truncate(1);
    let heights = |results: &[RunResult]| {
        let results: Vec<&RunResult> = results.iter().collect();
        let chart = charts::completion(&results).unwrap();
        chart.drawn.lines[0].points.iter().map(|point| point.1).fold(0.0, f64::max)
    };
    let lines = |results: &[RunResult]| -> Vec<String> {
        let results: Vec<&RunResult> = results.iter().collect();
        let chart = sizes::slowest_by_size(&results).unwrap();
        chart.drawn.lines.into_iter().map(|line| line.label).collect()
    };
    assert_eq!((heights(&results), lines(&results).len()), (100.0, 2));
    results[0].flow_records[..4].iter_mut().for_each(|flow| flow.fct_us = None);
    results[0].unfinished = 4;
    assert_eq!((heights(&results), lines(&results)), (50.0, vec!["ideal".to_owned()]));
}

/// In an earlier version, a repair after the end of a run had a mark at its end.
#[test]
fn regression_a_repair_after_the_end_is_in_no_chart() {
    let marks = |horizon_us| charts::goodput(&results(horizon_us)[0]).unwrap().drawn.marks;
    assert_eq!(marks(600).len(), 1);
    assert_eq!(marks(900).len(), 2);
}
