//! Texts of `srd lab run`: the list of experiments, and a table for each case.

use super::measure::distribution::{Distribution, PERCENTILES};
use super::measure::published;
use super::measure::result::{CaseResult, FigureSummary};
use super::{Options, Outcome, Variant, measure::result};
use srd_chart::{Table, Unit, figure};

/// Part of the machine's CPU time above which the CPU limits the rates, and not the fabric.
pub(super) const BUSY_MAX: f64 = 0.7;
/// Remark for the results of a run with `--quick`.
pub(super) const QUICK: &str = "--quick: short runs show that it works, and measure nothing";
/// Name of the column with the change from kernel TCP to the other transport.
const CHANGE: &str = "change";
/// Width of a paragraph in characters.
const COLUMNS: usize = 92;

/// Returns the list of all experiments with their cases.
pub fn list(options: &Options) -> String {
    let mut text = String::new();
    for experiment in super::ALL {
        text += &format!("{}\n  {}\n", experiment.name, experiment.summary);
        text += &wrap(experiment.about, "    ");
        text += &wrap(&format!("cases: {}", experiment.case_names(options).join("; ")), "    ");
        let mut needed: Vec<_> = experiment
            .programs(options)
            .iter()
            .map(|program| format!("{} (apt-get install {})", program.name, program.package))
            .collect();
        needed.extend(experiment.fetched().map(|name| format!("srd lab fetch {name}")));
        if !needed.is_empty() {
            text += &wrap(&format!("needs: {}", needed.join(", ")), "    ");
        }
        text += "\n";
    }
    text.trim_end().to_owned()
}

fn wrap(text: &str, indent: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].len() + word.len() + 1 > COLUMNS {
            lines.push(indent.to_owned());
        }
        let line = lines.last_mut().expect("there is always a line");
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.join("\n") + "\n"
}

/// Formats the results of one experiment: a table for each case, with the variants side by side.
pub fn outcome(outcome: &Outcome) -> String {
    let mut text = format!("\n{}: {}\n", outcome.experiment, outcome.summary);
    for case in &outcome.cases {
        let (columns, rows) = rows(case);
        let mut table = Table::with_columns(columns);
        rows.into_iter().for_each(|row| table.push(row));
        text += &format!("\n{}\n  {}\n{table}\n", case.name, case.setting);
        for note in notes(case) {
            text += &format!("  {note}\n");
        }
    }
    for left_out in &outcome.left_out {
        text += &format!("{left_out}\n");
    }
    text += &published(outcome);
    if outcome.quick {
        text += &format!("{QUICK}\n");
    }
    text + &format!("{:.0} s, {}, seed {}", outcome.took_s, outcome.machine, outcome.seed)
}

/// Returns the published figures for which the run has values.
fn published(outcome: &Outcome) -> String {
    let mut text = String::new();
    for one in published::compare(outcome).iter().filter(|one| one.has_value) {
        text += &wrap(&format!("{}: {} ({})", one.subject, one.figure, one.source.name()), "  ");
        text += &wrap(&format!("this run: {}", one.measured), "    ");
    }
    if text.is_empty() { text } else { format!("\npublished\n{text}") }
}

/// Returns the columns and the rows of a case's table: a column for each variant, and a row for
/// each figure or percentile. If there are two variants and the first is plain TCP, the last column
/// is the change in percent.
pub(super) fn rows(case: &CaseResult) -> (Vec<String>, Vec<Vec<String>>) {
    let labels = case.summaries.iter().map(|summary| case.label(summary.variant).to_owned());
    let mut columns: Vec<String> = [String::new()].into_iter().chain(labels).collect();
    if has_change(case) {
        columns.push(CHANGE.into());
    }
    let mut rows = Vec::new();
    let first = case.summaries.first();
    for wanted in first.map(|summary| &summary.figures[..]).unwrap_or_default() {
        let of = |summary: &'_ result::Summary| {
            summary.figures.iter().find(|figure| figure.name == wanted.name).cloned()
        };
        let found: Vec<Option<FigureSummary>> = case.summaries.iter().map(of).collect();
        let (words, unit) = wanted.parts();
        let medians = found.iter().flatten().map(|figure| figure.median);
        // The unit of a user's figure is fitted to the values: `934 Mb/s` is shown instead of
        // `934536978 b/s`.
        let unit = Unit::fitting(unit, medians.filter(|_| wanted.unit.is_empty()));
        let cell = |found: &Option<FigureSummary>| {
            found.as_ref().map_or("-".into(), |figure| figure_cell(figure, &unit))
        };
        let mut row = vec![name(words, unit.name())];
        row.extend(found.iter().map(cell));
        let medians = found.iter().map(|found| found.as_ref().map(|figure| figure.median));
        row.extend(has_change(case).then(|| change(medians)));
        rows.push(row);
    }
    for wanted in first.map(|summary| &summary.distributions[..]).unwrap_or_default() {
        rows.extend(percentile_rows(case, wanted));
    }
    (columns, rows)
}

/// Returns the columns and the rows of a table with the first figure of each case; `None` if there
/// are not several cases.
pub(super) fn overview(cases: &[CaseResult]) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    if cases.len() < 2 {
        return None;
    }
    let tables: Vec<_> = cases.iter().map(rows).collect();
    let mut labels: Vec<String> = Vec::new();
    for label in tables.iter().flat_map(|(columns, _)| &columns[1..]) {
        if !labels.contains(label) {
            labels.push(label.clone());
        }
    }
    labels.sort_by_key(|label| label == CHANGE);
    let rows = cases.iter().zip(&tables).filter_map(|(case, (columns, rows))| {
        let first = rows.first()?;
        let cell = |label: &String| {
            let at = columns.iter().position(|column| column == label);
            at.map_or("-".into(), |at| first[at].clone())
        };
        let names = [case.name.clone(), first[0].clone()];
        Some(names.into_iter().chain(labels.iter().map(cell)).collect())
    });
    let rows = rows.collect();
    Some(([vec!["case".into(), "figure".into()], labels].concat(), rows))
}

fn percentile_rows(case: &CaseResult, wanted: &Distribution) -> Vec<Vec<String>> {
    let found = case
        .summaries
        .iter()
        .map(|summary| summary.distributions.iter().find(|other| other.name == wanted.name));
    let found: Vec<Option<&Distribution>> = found.collect();
    let known = |percent: f64| found.iter().flatten().any(|d| d.percentile(percent).is_some());
    let row = |percent: f64| {
        let cell = |distribution: &Option<&Distribution>| {
            distribution.and_then(|d| d.percentile(percent)).map_or("-".into(), figure)
        };
        let mut row = vec![name(&format!("{}, p{percent}", wanted.name), wanted.unit)];
        row.extend(found.iter().map(cell));
        let values = found.iter().map(|found| found.and_then(|d| d.percentile(percent)));
        row.extend(has_change(case).then(|| change(values)));
        row
    };
    let mut rows: Vec<_> = PERCENTILES.into_iter().filter(|p| known(*p)).map(row).collect();
    let counts = found.iter().map(|d| d.map_or("-".into(), |d| d.count().to_string()));
    let mut row = vec![format!("{}, count", wanted.name)];
    row.extend(counts);
    row.extend(has_change(case).then(String::new));
    rows.push(row);
    rows
}

/// Whether a case compares exactly one other variant with plain TCP.
fn has_change(case: &CaseResult) -> bool {
    matches!(&case.summaries[..], [first, _] if first.variant == Variant::Plain)
}

/// Formats the change from the first of two values to the second in percent: `+37 %`. Returns `-`
/// if a value is absent or the first is zero.
fn change(values: impl Iterator<Item = Option<f64>>) -> String {
    let values: Vec<Option<f64>> = values.collect();
    match values[..] {
        [Some(first), Some(second)] if first != 0.0 => {
            format!("{:+.0} %", (second / first - 1.0) * 100.0)
        }
        _ => "-".into(),
    }
}

fn name(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

fn figure_cell(summary: &FigureSummary, unit: &Unit) -> String {
    let median = unit.digits(summary.median);
    if summary.min == summary.max {
        return median;
    }
    format!("{median} ({} to {})", unit.digits(summary.min), unit.digits(summary.max))
}

/// Whether the machine was too busy or delayed the run, so that the figures may be those of the
/// machine.
pub(crate) fn is_doubtful(run: &result::Run) -> bool {
    run.own_cpu_share > BUSY_MAX || run.late.is_suspect()
}

/// Returns the notes about the runs of a case, each note once.
pub(crate) fn notes(case: &CaseResult) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for run in &case.runs {
        let who = format!("{}, repetition {}", run.variant, run.repetition + 1);
        let all = |note: &String| case.runs.iter().all(|run| run.measured.notes.contains(note));
        let own = run.measured.notes.iter();
        let own = own.map(|note| if all(note) { note.clone() } else { format!("{who}: {note}") });
        let busy = run.own_cpu_share;
        let busy = (busy > BUSY_MAX).then(|| {
            let percent = busy * 100.0;
            format!(
                "{who}: it took up to {percent:.0} % of all CPU; its figures may be the machine's"
            )
        });
        let late = run.late.is_suspect().then(|| {
            let ms = run.late.p99_ms;
            format!(
                "{who}: SUSPECT, the machine held it up (a thread woke up {ms:.0} ms late, p99)"
            )
        });
        for note in own.chain(busy).chain(late) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::measure::pulse::Lateness;
    use super::super::measure::result::{Figure, Measured, Run, Samples};
    use super::*;
    use srd_lab::priority::CpuUse;

    fn run(variant: Variant, repetition: u32, value: f64, own_cpu_share: f64) -> Run {
        let figure = Figure::new("goodput", "Mb/s", value).beside(1000.0, "all");
        Run {
            variant,
            repetition,
            measured: Measured {
                figures: vec![figure],
                samples: vec![Samples { name: "fct", unit: "ms", values: vec![1.0, value] }],
                ..Measured::default()
            },
            cpu: CpuUse::default(),
            own_cpu_share,
            late: Lateness::default(),
            express: None,
        }
    }

    #[test]
    fn variants_stand_side_by_side() {
        let runs = vec![
            run(Variant::Plain, 0, 200.0, 0.1),
            run(Variant::Express, 0, 900.0, 0.1),
            run(Variant::Express, 1, 950.0, 0.9),
            run(Variant::Plain, 1, 220.0, 0.1),
        ];
        let case = CaseResult::new("4 spines".into(), "setting".into(), runs);
        let (columns, rows) = rows(&case);
        assert_eq!(columns, ["", "plain (cubic)", "ENA Express", "change"]);
        assert_eq!(rows[0], ["goodput, Mb/s", "210 (200 to 220)", "925 (900 to 950)", "+340 %"]);
        assert_eq!(rows[1], ["fct, p50, ms", "1.00", "1.00", "+0 %"]);
        assert_eq!(rows[2], ["fct, p100, ms", "220", "950", "+332 %"]);
        assert_eq!(rows[3], ["fct, count", "4", "4", ""]);
        let notes = notes(&case);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("express, repetition 2: it took up to 90 % of all CPU"));
    }

    #[test]
    fn an_overview_has_the_first_figure_of_each_case() {
        let plain = || run(Variant::Plain, 0, 200.0, 0.1);
        let both = vec![plain(), run(Variant::Express, 0, 900.0, 0.1)];
        let cases = [
            CaseResult::new("alone".into(), String::new(), vec![plain()]),
            CaseResult::new("both".into(), String::new(), both),
        ];
        let (columns, rows) = overview(&cases).unwrap();
        assert_eq!(columns, ["case", "figure", "plain (cubic)", "ENA Express", "change"]);
        assert_eq!(rows[0], ["alone", "goodput, Mb/s", "200", "-", "-"]);
        assert_eq!(rows[1], ["both", "goodput, Mb/s", "200", "900", "+350 %"]);
        assert_eq!(overview(&cases[..1]), None);
    }

    #[test]
    fn regression_figures_of_a_user_have_a_unit_that_people_read() {
        let run = |variant, value| {
            let mut run = run(variant, 0, 1.0, 0.1);
            run.measured.figures = vec![Figure::new("goodput, b/s", "", value)];
            run
        };
        let runs = vec![run(Variant::Plain, 247_120_000.0), run(Variant::Express, 934_536_978.0)];
        let (_, rows) = rows(&CaseResult::new("c".into(), "s".into(), runs));
        assert_eq!(rows[0], ["goodput, Mb/s", "247", "935", "+278 %"]);
    }

    #[test]
    fn change_needs_two_values_and_a_first_that_is_not_zero() {
        assert_eq!(change([Some(90.1), Some(72.57)].into_iter()), "-19 %");
        assert_eq!(change([Some(0.0), Some(1.0)].into_iter()), "-");
        assert_eq!(change([Some(1.0), None].into_iter()), "-");
        assert_eq!(change([Some(1.0)].into_iter()), "-");
    }

    #[test]
    fn what_all_runs_say_is_told_once() {
        let with = |variant, notes: &[&str]| {
            let mut run = run(variant, 0, 1.0, 0.1);
            run.measured.notes = notes.iter().map(ToString::to_string).collect();
            run
        };
        let runs = vec![with(Variant::Plain, &["MPI 4", "odd"]), with(Variant::Srd, &["MPI 4"])];
        let case = CaseResult::new("c".into(), String::new(), runs);
        assert_eq!(notes(&case), ["MPI 4", "plain, repetition 1: odd"]);
    }

    #[test]
    fn paragraphs_are_wrapped_and_indented() {
        let text = wrap(&"word ".repeat(40), "  ");
        assert!(text.lines().count() > 1);
        assert!(text.lines().all(|line| line.starts_with("  word") && line.len() <= COLUMNS));
    }
}
