//! The comparison as a page: the result in a sentence, the figures as charts, and the method.
//! Bound: at most `RUNS_MAX` runs are listed.

use super::verdict::{self, Beside, TIME, is_count_of_failures};
use super::{ABOUT, SUMMARY};
use crate::experiment::measure::result::{CaseResult, FigureSummary, Outcome, Run};
use crate::experiment::show::{is_doubtful, notes};
use crate::experiment::{Variant, page::colour};
use srd_chart::{Bar, BarChart, Mark, Page, Unit, converted};
use srd_lab::config::FabricConfig;

/// Largest number of runs in the list of all runs, and of dots for one bar.
const RUNS_MAX: usize = 200;
/// Largest number of notes that are visible at once; more notes are folded.
const NOTES_FEW: usize = 3;
/// Largest ratio of a link's rate to the greatest value in a chart at which the rate is drawn as a
/// mark.
const LIMIT_FAR: f64 = 4.0;
/// Counter of inner packets that were sent over SRD.
const OVER_SRD: &str = "ena_srd_tx_pkts";

/// The two machines between which the command ran.
#[derive(Clone, Copy, Debug)]
pub enum RunEnvironment<'a> {
    /// Two hosts of a fabric of network namespaces on this machine.
    Lab(&'a FabricConfig),
    /// This machine and a peer of its daemon; contains the peer's name.
    Peer(&'a str),
    /// This machine and a server whose addresses the user has given.
    Addresses {
        /// Whether the counters of a daemon on this machine showed packets over SRD.
        is_counted: bool,
    },
}

/// Returns the page with the comparison, as one HTML file.
#[must_use]
pub fn page(outcome: &Outcome, place: RunEnvironment<'_>) -> String {
    let mut page = Page::new(&title(outcome));
    for case in &outcome.cases {
        add(&mut page, outcome, case, place);
    }
    page.finish()
}

/// Returns the title: the name of the program, and the transports.
fn title(outcome: &Outcome) -> String {
    let Some(case) = outcome.cases.first() else { return SUMMARY.to_owned() };
    let program = case.name.split_whitespace().next().unwrap_or("the command");
    let program = program.rsplit('/').next().unwrap_or(program);
    let labels = case.summaries.iter().rev().map(|summary| case.label(summary.variant));
    format!("{program}: {}", labels.collect::<Vec<_>>().join(" beside "))
}

fn add(page: &mut Page, outcome: &Outcome, case: &CaseResult, place: RunEnvironment<'_>) {
    let failures = failures(case);
    let all = in_order(verdict::all(case));
    let Some((first, others)) = all.split_first() else {
        page.verdict(None, &format!("{failures}There is nothing to compare."));
        return details(page, outcome, case, place);
    };
    let is_good = if failures.is_empty() { first.is_gain() } else { Some(false) };
    page.verdict(is_good, &format!("{failures}{}", first.sentence()));
    others.iter().for_each(|other| page.lead(&other.sentence()));
    if let Some(doubt) = doubt(case) {
        page.lead(&doubt);
    }
    page.paragraph(&introduction(outcome, case, place));
    for figure in figures(case) {
        let chart = chart(case, figure, place);
        page.chart(&caption(figure, case), &chart.to_svg());
    }
    details(page, outcome, case, place);
}

/// Sorts the comparisons: those with ENA Express are first, and the duration is after the user's
/// figures.
fn in_order(mut all: Vec<Beside<'_>>) -> Vec<Beside<'_>> {
    all.retain(|beside| !is_count_of_failures(beside.figure));
    all.sort_by_key(|beside| (!beside.is_of(Variant::Express), beside.figure.name == TIME));
    all
}

/// Returns all figures; those of the user are before the duration.
fn figures(case: &CaseResult) -> Vec<&FigureSummary> {
    let all = case.summaries.iter().flat_map(|summary| &summary.figures);
    let mut figures: Vec<&FigureSummary> = Vec::new();
    for figure in all.filter(|figure| !is_count_of_failures(figure)) {
        if figures.iter().all(|other| other.name != figure.name) {
            figures.push(figure);
        }
    }
    figures.sort_by_key(|figure| figure.name == TIME);
    figures
}

/// Returns a sentence for each transport with failed runs; an empty text if no run failed.
fn failures(case: &CaseResult) -> String {
    let failed = |summary: Variant| {
        let of = case.runs.iter().filter(|run| run.variant == summary);
        let (failed, worked): (Vec<&Run>, Vec<&Run>) =
            of.partition(|run| run.measured.is_failure());
        let all = failed.len() + worked.len();
        (!failed.is_empty()).then(|| {
            format!("{} of {all} runs with {} failed. ", failed.len(), case.label(summary))
        })
    };
    case.summaries.iter().filter_map(|summary| failed(summary.variant)).collect()
}

/// Returns a warning if some runs were affected by the load of the machine; `None` if no run was.
fn doubt(case: &CaseResult) -> Option<String> {
    let doubtful = case.runs.iter().filter(|run| is_doubtful(run)).count();
    let all = case.runs.len();
    (doubtful > 0).then(|| {
        format!(
            "Be careful: this machine was too busy in {doubtful} of {all} runs, so that these \
             figures may be the machine's. The notes below name the runs."
        )
    })
}

/// Describes in a paragraph where and how often the command ran.
fn introduction(outcome: &Outcome, case: &CaseResult, place: RunEnvironment<'_>) -> String {
    let times = match case.runs.iter().map(|run| run.repetition + 1).max().unwrap_or(0) {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    let at = &case.setting;
    let unchanged = "Nothing was set up or changed on either machine, and plain is TCP as both \
                     machines have it.";
    let place = match place {
        RunEnvironment::Lab(_) => {
            "between two hosts of a fabric of network namespaces on this machine: the \
                          same links and queues for each."
                .to_owned()
        }
        RunEnvironment::Peer(name) => format!(
            "between this machine and `{name}`, a peer of the daemon that runs here ({at}). \
             {unchanged}"
        ),
        RunEnvironment::Addresses { is_counted } => {
            let uncounted = " No daemon answered here, so nothing shows that packets of `express` \
                             went over SRD.";
            let uncounted = if is_counted { "" } else { uncounted };
            format!("between this machine and a server ({at}). {unchanged}{uncounted}")
        }
    };
    format!(
        "`{}` ran over each transport in turns, {times} each, {place} It took {}.",
        case.name,
        srd_chart::quantity(outcome.took_s, "s")
    )
}

fn caption(figure: &FigureSummary, case: &CaseResult) -> String {
    let name = if figure.name == TIME { "The command's time" } else { figure.parts().0 };
    match case.runs.iter().any(|run| run.repetition > 0) {
        true => format!("{name}: bars are medians, dots are runs"),
        false => format!("{name}: one run each"),
    }
}

fn chart(case: &CaseResult, figure: &FigureSummary, place: RunEnvironment<'_>) -> BarChart {
    let (name, unit) = figure.parts();
    let bars: Vec<Bar> = case
        .summaries
        .iter()
        .map(|summary| {
            let found = summary.figures.iter().find(|other| other.name == figure.name);
            let runs = case.runs.iter().filter(|run| run.variant == summary.variant);
            let runs = runs.filter_map(|run| value(run, figure));
            Bar {
                label: case.label(summary.variant).to_owned(),
                colour: colour(summary.variant),
                value: found.map(|found| found.median),
                worst: None,
                runs: runs.take(RUNS_MAX).collect(),
            }
        })
        .collect();
    let most = bars.iter().flat_map(|bar| &bar.runs).copied().fold(0.0, f64::max);
    let mut marks = match place {
        RunEnvironment::Lab(fabric) => limits(fabric, unit),
        _ => Vec::new(),
    };
    marks.retain(|mark| mark.at <= most * LIMIT_FAR);
    BarChart { title: name.to_owned(), unit: unit.to_owned(), marks, bars }
}

fn value(run: &Run, figure: &FigureSummary) -> Option<f64> {
    let found = run.measured.figures.iter().find(|other| other.name == figure.name);
    found.map(|found| found.value)
}

/// Returns marks for the rates of the fabric's links. If the unit is not that of a bit rate, there
/// are no marks.
fn limits(fabric: &FabricConfig, unit: &str) -> Vec<Mark> {
    let (host, path) = (fabric.host_rate_mbps, fabric.uplink_rate_mbps);
    let all = path.saturating_mul(u32::from(fabric.spines)).min(host);
    let mut links = vec![(all, if all < host { "all paths" } else { "the host's link" })];
    if path < all {
        links.insert(0, (path, "one path"));
    }
    let mark = |(mbps, label): (u32, &str)| {
        let at = converted(f64::from(mbps), "Mb/s", unit)?;
        Some(Mark { at, label: label.to_owned() })
    };
    links.into_iter().filter_map(mark).collect()
}

/// Adds the figures as a table, the method, and every run.
fn details(page: &mut Page, outcome: &Outcome, case: &CaseResult, place: RunEnvironment<'_>) {
    page.section("Figures");
    let mut columns = vec![""];
    columns.extend(case.summaries.iter().map(|summary| case.label(summary.variant)));
    let rows: Vec<_> = figures(case).into_iter().map(|figure| row(case, figure)).collect();
    page.table(&columns, &rows);
    page.remark("The median of the runs, and in brackets the least and the greatest.");
    let notes = notes(case);
    match notes.len() {
        0..=NOTES_FEW => notes.iter().for_each(|note| page.remark(note)),
        many => page.folded(&format!("{many} notes on runs"), |page| {
            notes.iter().for_each(|note| page.remark(note));
        }),
    }
    outcome.left_out.iter().for_each(|left_out| page.remark(left_out));
    page.section("How it was measured");
    page.paragraph(ABOUT);
    page.paragraph(&format!("`{}`; {}.", case.name, case.setting));
    let seed = match place {
        RunEnvironment::Lab(_) => format!("; seed {}", outcome.seed),
        _ => String::new(),
    };
    page.remark(&format!("{}{seed}.", outcome.machine));
    page.folded("Every run, in the order in which they ran", |page| runs(page, case));
}

fn row(case: &CaseResult, figure: &FigureSummary) -> (bool, Vec<String>) {
    let (name, unit) = figure.parts();
    let of = |variant| {
        let summary = case.summaries.iter().find(|summary| summary.variant == variant)?;
        summary.figures.iter().find(|other| other.name == figure.name)
    };
    let found: Vec<_> = case.summaries.iter().map(|summary| of(summary.variant)).collect();
    let unit = Unit::fitting(unit, found.iter().flatten().map(|found| found.median));
    let cell = |found: &Option<&FigureSummary>| match found {
        None => "-".to_owned(),
        Some(one) if one.min == one.max => unit.show(one.median),
        Some(one) => format!(
            "{} ({} to {})",
            unit.show(one.median),
            unit.digits(one.min),
            unit.digits(one.max)
        ),
    };
    (false, std::iter::once(name.to_owned()).chain(found.iter().map(cell)).collect())
}

fn runs(page: &mut Page, case: &CaseResult) {
    let figures = figures(case);
    let is_counted = case.runs.iter().any(|run| run.express.is_some());
    let mut columns = vec!["repetition", "transport"];
    columns.extend(figures.iter().map(|figure| figure.parts().0));
    columns.push("of all processors");
    columns.extend(is_counted.then_some("packets over SRD"));
    let row = |run: &Run| {
        let mut cells = vec![(run.repetition + 1).to_string(), case.label(run.variant).to_owned()];
        for figure in &figures {
            let value = value(run, figure);
            let shown = value.map(|value| srd_chart::quantity(value, figure.parts().1));
            cells.push(shown.unwrap_or_else(|| "failed".to_owned()));
        }
        cells.push(format!("{:.0} %", run.own_cpu_share * 100.0));
        let packets = run.express.as_ref().and_then(|counts| counts.get(OVER_SRD));
        let packets = packets.map_or("-".to_owned(), |packets| format!("{packets:.0}"));
        cells.extend(is_counted.then_some(packets));
        (false, cells)
    };
    let rows: Vec<_> = case.runs.iter().take(RUNS_MAX).map(row).collect();
    page.table(&columns, &rows);
    if case.runs.len() > RUNS_MAX {
        page.remark(&format!(
            "The first {RUNS_MAX} of {} runs; `--json` has all.",
            case.runs.len()
        ));
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
