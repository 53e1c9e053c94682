use std::path::Path;

use super::svg::{Chart, Line, Mark};
use super::*;
use crate::run::{Job, run};
use crate::scenario::{Scenario, Transport};

/// Checks that elements nest, that attributes are quoted, and that nothing is unescaped.
fn check_xml(mut text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    while let Some(start) = text.find('<') {
        check_text(&text[..start])?;
        let end = start + text[start..].find('>').ok_or("a tag without an end")?;
        let tag = &text[start + 1..end];
        text = &text[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop().unwrap_or_default();
            if last != name {
                return Err(format!("<{last}> closed by </{name}>"));
            }
            continue;
        }
        let inside = tag.strip_suffix('/').unwrap_or(tag);
        let name = inside.split_whitespace().next().ok_or("a tag without a name")?;
        let mut rest = inside[name.len()..].trim();
        while !rest.is_empty() {
            let (key, after) = rest.split_once("=\"").ok_or(format!("`{rest}` is unquoted"))?;
            let (value, after) = after.split_once('"').ok_or(format!("`{key}` has no end"))?;
            if key.contains(char::is_whitespace) {
                return Err(format!("`{key}` is no attribute"));
            }
            check_text(value)?;
            rest = after.trim_start();
        }
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    check_text(text)?;
    if open.is_empty() { Ok(()) } else { Err(format!("not closed: {open:?}")) }
}

fn check_text(text: &str) -> Result<(), String> {
    let known = ["amp", "lt", "gt", "quot", "#39"];
    let entity = |part: &str| part.split_once(';').is_some_and(|(e, _)| known.contains(&e));
    if !text.split('&').skip(1).all(entity) {
        return Err(format!("a bare ampersand in `{text}`"));
    }
    if text.contains('>') { Err(format!("a bare > in `{text}`")) } else { Ok(()) }
}

#[test]
fn the_checker_finds_broken_documents() {
    assert!(check_xml("<a><b c=\"d &amp; e\"/>f</a>").is_ok());
    for broken in ["<a>", "<a></b>", "<a b=c/>", "<a>&</a>", "<a>&x;</a>", "<a>></a>", "<a b=\"/>"]
    {
        assert!(check_xml(broken).is_err(), "{broken}");
    }
}

fn chart(lines: usize, log: bool) -> Chart {
    let line = |n: usize| Line {
        label: format!("line <{n}> & \"more\""),
        style: n,
        faint: n % 2 == 1,
        points: vec![(1.0, 0.0), (10.0, 5.0), (if log { 900.0 } else { 12.0 }, 7.0)],
    };
    let end = if log { 900.0 } else { 12.0 };
    Chart {
        title: "a > b".to_owned(),
        subtitle: "it's".to_owned(),
        x: axis::Axis::fitting("time (us)", 1.0, end),
        y: axis::Axis::linear("goodput (Gb/s)", 0.0, 8.0),
        lines: (0..lines).map(line).collect(),
        marks: vec![Mark { at: 2.0, label: "breaks & <heals>".to_owned() }],
        level: Some(Mark { at: 6.0, label: "at <best>".to_owned() }),
        steps: log,
    }
}

#[test]
fn charts_are_well_formed_self_contained_and_labelled() {
    for lines in [0, 1, 2, 8, 40] {
        for log in [false, true] {
            let svg = chart(lines, log).svg();
            check_xml(&svg).unwrap();
            assert!(svg.contains("time (us)") && svg.contains("goodput (Gb/s)"));
            assert!(svg.contains("prefers-color-scheme:dark"));
            assert_eq!(svg.contains("line &lt;0&gt;"), lines > 1, "a legend needs company");
            let outside = svg.replace("http://www.w3.org/2000/svg", "");
            for word in ["http", "url(", "href", "@import", "<script"] {
                assert!(!outside.contains(word), "{word}");
            }
        }
    }
}

#[test]
fn lines_of_one_colour_differ_in_dashes() {
    let svg = chart(20, false).svg();
    let styles: std::collections::BTreeSet<&str> =
        svg.lines().filter_map(|l| l.strip_prefix("<path class=")?.split(" d=").next()).collect();
    assert_eq!(styles.len(), 20, "{styles:?}");
}

#[test]
fn numbers_and_ticks_are_round() {
    for (value, text) in [
        (0.0, "0"),
        (0.5, "0.5"),
        (12.0, "12"),
        (1234.5, "1234"),
        (0.01234, "0.01234"),
        (250_000.0, "250 k"),
        (2.5e7, "25 M"),
    ] {
        assert_eq!(axis::number(value), text);
    }
    assert_eq!(
        axis::Axis::linear("", 0.0, 1000.0).ticks(5),
        [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
    );
    let log = axis::Axis::fitting("", 10.0, 9000.0);
    assert!(log.log && log.ticks(9).contains(&100.0));
    assert!(log.place(1.0).abs() < 1e-9, "what is off the axis stays at its end");
}

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
            check_xml(&text).unwrap();
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
    let text = include_str!("../../../../scenarios/paper-a-incast.toml");
    let set = ["workload.0.bytes=64KiB".parse().unwrap()];
    let scenario = Scenario::read("test", text, Path::new("."), &set).unwrap();
    let job = Job { scenario, transport: Transport::Srd, seed: 1 };
    let result = run(&job).unwrap();
    let series = result.series.as_ref().unwrap();
    assert!(series.at_ps.len() >= 10, "{} samples", series.at_ps.len());
    let peak = series.queue_bytes.iter().map(|row| row[0]).max().unwrap();
    // The receiver's port is where an incast waits.
    assert_eq!(peak, result.queue_bytes_max);
    for chart in [charts::goodput(&result), charts::throughput(&result), charts::queues(&result)] {
        assert!(chart.unwrap().lines.iter().all(|line| line.points.len() >= 10));
    }
}

#[test]
fn regression_a_line_of_one_point_is_seen() {
    let mut one = chart(1, false);
    one.lines[0].points.truncate(1);
    assert!(one.svg().contains("h6\""), "{}", one.svg());
}
