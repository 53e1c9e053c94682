//! The report as an HTML page with charts. It begins with the types that suffice and the changes to
//! make first; then come rates over time beside the limits. Folded sections show how much of each
//! limit of a type is used.
#![allow(clippy::cast_possible_truncation)] // rates, times and counts, far below 2^64

use srd_chart::{Axis, Bar, BarChart, ChartLine, Colour, Dashes, LineChart, Mark, Page, Unit};
use srd_watch::text::rate;

use crate::analysis::rates::Rates;
use crate::choose::{Choice, Choices, Verdict};
use crate::needs::TrafficSummary;
use crate::output::report::Report;
use crate::output::text;

const HEIGHT: f64 = 240.0;
/// Factor between the highest line of a chart and the top of its axis.
const MARGIN: f64 = 1.08;
/// Largest number of instance types that have a chart.
const PICTURES: usize = 3;
const ROWS: usize = 40;
/// Number of rows that are visible before the reader unfolds the table.
const ROWS_FIRST: usize = 6;
const TYPE_COLUMNS: [&str; 5] =
    ["sufficient", "vCPUs", "memory", "first limit", "the next smaller one"];
const LINE_NS: f64 = 1e6;

/// Returns the page as HTML text. `notes` are remarks about how the packets were read.
pub fn page<'a>(reports: impl Iterator<Item = &'a Report>, notes: &[String]) -> String {
    let mut page = Page::new("Traffic and the instance that it needs");
    for report in reports {
        one(&mut page, report);
    }
    if !notes.is_empty() {
        page.section("How packets were read");
    }
    notes.iter().for_each(|note| page.remark(note));
    page.finish()
}

fn one(page: &mut Page, report: &Report) {
    let Report { seen, kinds, choices, advice } = report;
    page.section(&seen.name);
    if seen.packets == 0 {
        page.verdict(None, &format!("Nothing to choose by: {}.", text::NO_PACKETS));
    } else {
        page.verdict(Some(!choices.families.is_empty()), &text::answer(choices));
    }
    let heading = text::heading(seen);
    let (first, rest) = heading.split_once('\n').unwrap_or((&heading, ""));
    page.lead(first);
    rest.lines().for_each(|line| page.remark(line.trim()));
    if seen.packets > 0 {
        page.subsection("Which instance type");
        types(page, report);
    }
    page.subsection("Before you pay for more");
    for advice in advice {
        page.fact(advice.about, &advice.text);
    }
    if advice.is_empty() {
        page.paragraph("Nothing to change.");
    }
    page.subsection("Traffic");
    for found in kinds {
        page.fact(text::kind_name(found.kind), &found.text);
    }
    if kinds.is_empty() {
        page.paragraph("Nothing stands out.");
    }
    page.subsection("Rates over time");
    let limit = choices.families.first().map(|choice| &choice.sufficient);
    for (way, rates) in [(1, &seen.rates_out), (0, &seen.rates_in)] {
        let name = if way == 1 { "Sent" } else { "Received" };
        if rates[0].max > 0.0 {
            page.chart(name, &over_time(seen, way, name, limit));
        }
    }
    rates_table(page, seen);
    page.subsection("Connections");
    let rows: Vec<(bool, Vec<String>)> = seen
        .connections
        .entries
        .iter()
        .map(|of| {
            let settled = of.settled.map_or("-".to_owned(), |most| text::count(most as f64));
            let figures = [of.peak, of.last].map(|figure| text::count(figure as f64));
            let [peak, last] = figures;
            (false, vec![of.name.to_owned(), of.timeouts_s.0.to_string(), peak, last, settled])
        })
        .collect();
    let columns = ["idle times", "established TCP, s", "most places", "at the end", "in the end"];
    page.table(&columns, &rows);
}

/// Adds the table of sufficient types, with the share of each limit that the traffic needs. Only
/// the first rows are visible at once.
fn types(page: &mut Page, report: &Report) {
    let Report { choices, .. } = report;
    for of in &choices.nearest {
        page.paragraph(&format!("Nearest: {} lacks {}", of.name, text::lacking(of)));
    }
    let rows = type_rows(report);
    let (first, further) = rows.split_at(rows.len().min(ROWS_FIRST));
    if !first.is_empty() {
        page.table(&TYPE_COLUMNS, first);
    }
    if !further.is_empty() {
        let summary = format!("{} further families", further.len());
        page.folded(&summary, |page| page.table(&TYPE_COLUMNS, further));
    }
    let verdicts = choices.families.iter().take(PICTURES).map(|choice| &choice.sufficient);
    for verdict in verdicts.chain(&choices.asked) {
        let summary = format!("{}: how much of each limit is needed", verdict.name);
        page.folded(&summary, |page| page.chart(verdict.name, &uses(verdict)));
    }
    if says_estimated(&rows, choices) {
        page.remark(text::ESTIMATED);
    }
}

/// Whether any displayed figure is marked as an estimate.
fn says_estimated(rows: &[(bool, Vec<String>)], choices: &Choices) -> bool {
    let mut cells = rows.iter().flat_map(|(_, cells)| cells);
    cells.any(|cell| cell.contains('~'))
        || text::answer(choices).contains('~')
        || choices.nearest.iter().any(|of| text::lacking(of).contains('~'))
}

fn rates_table(page: &mut Page, seen: &TrafficSummary) {
    let mut rows = Vec::new();
    let mut add = |name: &str, all: &[Rates; 3], show: &dyn Fn(f64) -> String| {
        for (length, of) in text::lengths(all) {
            let mut cells = vec![format!("{name}, {length}")];
            cells.extend([of.p50, of.p99, of.p999, of.max].map(show));
            rows.push((false, cells));
        }
    };
    let bps = |value: f64| rate(value as u64);
    add("in", &seen.rates_in, &bps);
    add("out", &seen.rates_out, &bps);
    add("packets a second", &seen.rates_packets, &text::count);
    add("connections a second", &seen.connections.rates, &text::count);
    page.table(&["", "p50", "p99", "p99.9", "max"], &rows);
    if text::has_short(seen) {
        page.remark(text::NO_WHOLE_PERIOD);
    }
}

fn type_rows(report: &Report) -> Vec<(bool, Vec<String>)> {
    let choices = report.choices.families.iter().take(ROWS);
    let row = |choice: &Choice| {
        let of = &choice.sufficient;
        let smaller = choice.smaller.as_ref().map_or_else(String::new, |smaller| {
            format!("{}: {}", smaller.name, text::lacking(smaller))
        });
        let cells = vec![
            of.name.to_owned(),
            of.vcpus.to_string(),
            format!("{} GiB", of.memory_mib / 1024),
            text::used(of.first()),
            smaller,
        ];
        (false, cells)
    };
    choices.map(row).collect()
}

/// Returns the chart of rates over time: the largest millisecond and the mean of each column, and
/// the peak bandwidth of the type `limit`.
fn over_time(seen: &TrafficSummary, way: usize, title: &str, limit: Option<&Verdict>) -> String {
    let line = &seen.lines[way];
    let column_ns = line.width() as f64 * LINE_NS;
    let (mut peaks, mut means) = (Vec::new(), Vec::new());
    for (n, column) in line.columns().iter().enumerate() {
        let at = n as f64 * column_ns / 1e9;
        peaks.push((at, column.bin_bytes_max as f64 * 8e3 / LINE_NS));
        means.push((at, column.bytes as f64 * 8e3 / column_ns));
    }
    let end = (line.columns().len() as f64 * column_ns).max(seen.seen_ns as f64) / 1e9;
    peaks.push((line.columns().len() as f64 * column_ns / 1e9, 0.0));
    peaks.push((end, 0.0));
    let highest = peaks.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let unit = Unit::fitting("Mb/s", [highest]);
    let scaled = |points: Vec<(f64, f64)>| {
        points.into_iter().map(|(at, mbps)| (at, unit.scale(mbps))).collect::<Vec<_>>()
    };
    let named = |label: &str, colour, points| {
        let (label, dashes) = (label.to_owned(), Dashes::Solid);
        ChartLine { label, colour, dashes, faint: false, points }
    };
    let bandwidth = if way == 1 { "bandwidth out" } else { "bandwidth in" };
    let of_type = |of: &Verdict| {
        let has = of.uses.iter().find(|of| of.limit == bandwidth)?.has / 1e6;
        Some(Mark { at: has, label: format!("peak of {}: {}", of.name, rate((has * 1e6) as u64)) })
    };
    // If the limit is far above the traffic, it is left out, because it would compress the lines at
    // the bottom of the chart.
    let level = limit.and_then(of_type).filter(|mark| mark.at <= highest * 3.0);
    let top = level.as_ref().map_or(highest, |mark| highest.max(mark.at)) * MARGIN;
    let level = level.map(|mark| Mark { at: unit.scale(mark.at), ..mark });
    LineChart {
        title: title.to_owned(),
        height: HEIGHT,
        x: Axis::linear("seconds", 0.0, end),
        y: Axis::linear(unit.name(), 0.0, unit.scale(top)),
        lines: vec![
            named("largest millisecond", Colour::Orange, scaled(peaks)),
            named("mean", Colour::Blue, scaled(means)),
        ],
        marks: Vec::new(),
        levels: level.into_iter().collect(),
        steps: true,
    }
    .to_svg()
}

/// Returns the chart of the needed share of each limit of a type.
fn uses(verdict: &Verdict) -> String {
    let bars = verdict.uses.iter().filter(|of| of.needs > 0.0).map(|of| Bar {
        label: of.limit.to_owned(),
        colour: if of.short { Colour::Red } else { Colour::Blue },
        value: Some((of.share() * 100.0).min(1_000.0)),
        worst: None,
        runs: Vec::new(),
    });
    BarChart {
        title: format!("{}: how much of each limit is needed", verdict.name),
        unit: "%".to_owned(),
        marks: vec![Mark { at: 100.0, label: "the limit".to_owned() }],
        bars: bars.collect(),
    }
    .to_svg()
}
