//! The results of experiments as one page, with tables and charts.

use super::measure::distribution::Distribution;
use super::measure::published::{self, Comparison, Source};
use super::measure::result::{CaseResult, Spread, SpreadLine, Timeline};
use super::show;
use super::{Outcome, Variant};
use srd_chart::{Axis, Bar, BarChart, ChartLine, Colour, Dashes, LineChart, Mark, Page};

/// Largest number of points of one line; more could not be distinguished.
const POINTS_MAX: usize = 300;
/// Smallest number of samples for which a chart of the distribution is drawn.
const SAMPLES_MIN: usize = 20;
/// Explanation of the figures, for the page.
const MEDIANS: &str = "Medians over the repetitions, in brackets the least and the greatest; \
                       percentiles over the samples of all repetitions";
/// Percentiles that the chart of a tail marks: the label, and the N of which one sample is beyond
/// it.
const TAIL_MARKS: [(&str, f64); 5] =
    [("p99", 1e2), ("p99.9", 1e3), ("p99.99", 1e4), ("p99.999", 1e5), ("p99.9999", 1e6)];

/// Returns the page, as one HTML file: the results with published figures beside them, and a list
/// of the experiments that did not run, each with the reason.
pub fn page(outcomes: &[Outcome], not_run: &[(&str, String)]) -> String {
    let mut page = Page::new("ENA Express beside kernel TCP: real programs on the same wires");
    page.lead(
        "The same programs ran over the same links and queues, one variant after the other, in a \
         fabric of network namespaces; every second repetition in the opposite order.",
    );
    let mut sources = Vec::new();
    for outcome in outcomes {
        page.section(outcome.experiment);
        page.paragraph(outcome.summary);
        page.remark(outcome.about);
        let figures = match outcome.quick {
            true => show::QUICK,
            false => MEDIANS,
        };
        page.remark(&format!(
            "{}; {:.0} s; seed {}. {figures}.",
            outcome.machine, outcome.took_s, outcome.seed
        ));
        if let Some((columns, rows)) = show::overview(&outcome.cases) {
            page.subsection("All cases");
            add_table(&mut page, &columns, rows);
        }
        for case in &outcome.cases {
            add_case(&mut page, case);
        }
        for left_out in &outcome.left_out {
            page.remark(left_out);
        }
        let compared = published::compare(outcome);
        if !compared.is_empty() {
            page.subsection("Published figures beside those of this run");
            add_published(&mut page, &compared);
        }
        sources.extend(compared.iter().map(|one| one.source));
    }
    if !not_run.is_empty() {
        page.section("Not run");
        let rows = not_run.iter().map(|(name, why)| (false, vec![(*name).to_owned(), why.clone()]));
        page.table(&["experiment", "why"], &rows.collect::<Vec<_>>());
        let compared: Vec<_> =
            not_run.iter().flat_map(|(name, _)| published::without_run(name)).collect();
        if !compared.is_empty() {
            page.subsection("Published figures for these experiments");
            add_published(&mut page, &compared);
        }
        sources.extend(compared.iter().map(|one| one.source));
    }
    add_sources(&mut page, &sources);
    page.finish()
}

fn add_published(page: &mut Page, compared: &[Comparison]) {
    let row = |one: &Comparison| {
        let figure = format!("{} ({})", one.figure, one.source.name());
        vec![one.subject.to_owned(), figure, one.measured.clone(), one.remark.to_owned()]
    };
    let columns = ["subject", "published", "this run", "remark"].map(String::from);
    add_table(page, &columns, compared.iter().map(row).collect());
}

/// Adds the titles of the documents from which the page has figures.
fn add_sources(page: &mut Page, sources: &[Source]) {
    let found = Source::ALL.into_iter().filter(|source| sources.contains(source));
    let row = |source: Source| vec![source.name().to_owned(), source.title().to_owned()];
    let rows: Vec<_> = found.map(row).collect();
    if !rows.is_empty() {
        page.section("Sources of the published figures");
        add_table(page, &["name", "document"].map(String::from), rows);
    }
}

fn add_case(page: &mut Page, case: &CaseResult) {
    page.subsection(&case.name);
    page.remark(&case.setting);
    for (caption, chart) in bars(case) {
        page.chart(&format!("{}: {caption}", case.name), &chart.to_svg());
    }
    for (caption, chart) in tails(case) {
        page.chart(&format!("{}: {caption}", case.name), &chart.to_svg());
    }
    for (caption, chart) in timelines(case).into_iter().chain(spreads(case)) {
        page.chart(&format!("{}: {caption}", case.name), &chart.to_svg());
    }
    let (columns, rows) = show::rows(case);
    add_table(page, &columns, rows);
    for note in show::notes(case) {
        page.remark(&note);
    }
}

fn add_table(page: &mut Page, columns: &[String], rows: Vec<Vec<String>>) {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let rows: Vec<_> = rows.into_iter().map(|row| (false, row)).collect();
    page.table(&columns, &rows);
}

/// Returns the colour that a transport has on every page.
pub(crate) fn colour(variant: Variant) -> Colour {
    match variant {
        Variant::Express | Variant::Srd => Colour::Blue,
        Variant::Plain => Colour::Orange,
        Variant::Bbr => Colour::Violet,
        Variant::Mptcp => Colour::Green,
        _ => Colour::Grey,
    }
}

fn dashes(variant: Variant) -> Dashes {
    match variant {
        Variant::Rto5 | Variant::Srd => Dashes::Long,
        _ => Dashes::Solid,
    }
}

/// Returns a bar chart and its caption for each figure that has an ideal.
fn bars(case: &CaseResult) -> Vec<(String, BarChart)> {
    let figures = case.summaries.first().map(|summary| &summary.figures[..]).unwrap_or_default();
    let with_ideal = figures.iter().filter_map(|figure| Some((figure, figure.ideal?)));
    with_ideal
        .map(|(figure, ideal)| {
            let bars = case.summaries.iter().map(|summary| {
                let found = summary.figures.iter().find(|other| other.name == figure.name);
                Bar {
                    label: case.label(summary.variant).to_owned(),
                    colour: colour(summary.variant),
                    value: found.map(|found| found.median),
                    // If a larger value is better than a smaller one, the greatest value is not the
                    // worst and is not shown.
                    worst: found.map(|found| found.max).filter(|max| *max > ideal.value),
                    runs: Vec::new(),
                }
            });
            let chart = BarChart {
                title: format!("{}, {}", case.name, figure.name),
                unit: figure.unit.to_owned(),
                marks: vec![Mark { at: ideal.value, label: ideal.label.to_owned() }],
                bars: bars.collect(),
            };
            (format!("{}, median of the repetitions", figure.name), chart)
        })
        .collect()
}

/// Returns a chart and its caption for each kind of samples. The chart shows, for each number N,
/// the latency that one of N samples exceeds.
fn tails(case: &CaseResult) -> Vec<(String, LineChart)> {
    let kinds = case.summaries.first().map(|summary| &summary.distributions[..]);
    kinds.unwrap_or_default().iter().filter_map(|kind| tail(case, kind)).collect()
}

fn tail(case: &CaseResult, kind: &Distribution) -> Option<(String, LineChart)> {
    let lines: Vec<ChartLine> = case
        .summaries
        .iter()
        .filter_map(|summary| {
            let found = summary.distributions.iter().find(|other| other.name == kind.name)?;
            (found.count() >= SAMPLES_MIN).then(|| ChartLine {
                label: case.label(summary.variant).to_owned(),
                colour: colour(summary.variant),
                dashes: dashes(summary.variant),
                faint: false,
                points: tail_points(found),
            })
        })
        .collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    let most = all().map(|(n, _)| *n).fold(1.0, f64::max);
    let values = || all().map(|(_, value)| *value).filter(|value| *value > 0.0);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    if lines.is_empty() || high <= 0.0 {
        return None;
    }
    let chart = LineChart {
        title: format!("{}, {}", case.name, kind.name),
        height: 220.0,
        x: Axis::log("one of so many takes longer", 1.0, most),
        y: Axis::log(&name(kind.name, kind.unit), low * 0.9, high * 1.1),
        lines,
        marks: TAIL_MARKS
            .into_iter()
            .filter(|(_, at)| *at < most)
            .map(|(label, at)| Mark { at, label: label.to_owned() })
            .collect(),
        levels: Vec::new(),
        steps: true,
    };
    Some((format!("{} towards the worst", kind.name), chart))
}

fn name(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

/// Returns points (N, value) of a chart of a tail: one of N samples exceeds the value. N grows from
/// 1 to the number of samples on a logarithmic scale, so extreme values have more points.
fn tail_points(all: &Distribution) -> Vec<(f64, f64)> {
    let count = all.count() as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for step in 0..=POINTS_MAX {
        let one_of = count.powf(step as f64 / POINTS_MAX as f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below the count
        let at = ((1.0 - 1.0 / one_of) * count).round() as usize;
        let Some(value) = all.nth(at.min(all.count() - 1)) else { continue };
        if points.last().is_none_or(|last| last.1 < value || step == POINTS_MAX) {
            points.push((one_of, value));
        }
    }
    points
}

/// Returns charts of values over time with their captions, from the first repetition of each
/// variant.
fn timelines(case: &CaseResult) -> Vec<(String, LineChart)> {
    let first = case.runs.iter().filter(|run| run.repetition == 0);
    let all: Vec<(Variant, &Timeline)> = first
        .flat_map(|run| run.measured.timelines.iter().map(move |line| (run.variant, line)))
        .collect();
    let top = |name: &str| {
        let same = all.iter().filter(|(_, line)| line.name == name);
        same.flat_map(|(_, line)| line.values.iter().copied()).fold(0.0, f64::max)
    };
    all.iter()
        .map(|(variant, line)| {
            let caption = format!("{} over time, {}", line.name, case.label(*variant));
            (caption, timeline(case, *variant, line, top(line.name)))
        })
        .collect()
}

fn timeline(case: &CaseResult, variant: Variant, line: &Timeline, top: f64) -> LineChart {
    let seconds = |ms: u64| ms as f64 / 1e3;
    let step = line.values.len().div_ceil(POINTS_MAX).max(1);
    let points = (0u64..).zip(line.values.chunks(step)).map(|(number, chunk)| {
        let mean = chunk.iter().sum::<f64>() / chunk.len() as f64;
        (seconds(number * step as u64 * line.step_ms), mean)
    });
    let end = seconds(line.values.len() as u64 * line.step_ms);
    LineChart {
        title: format!("{} of {} over time", line.name, case.label(variant)),
        height: 90.0,
        x: Axis::linear("seconds", 0.0, end),
        y: Axis::linear(line.unit, 0.0, top * 1.05),
        lines: vec![ChartLine {
            label: case.label(variant).to_owned(),
            colour: colour(variant),
            dashes: Dashes::Solid,
            faint: false,
            points: until(points.collect(), end),
        }],
        marks: marks(&line.marks),
        levels: Vec::new(),
        steps: true,
    }
}

/// Returns charts of distributions over time with their captions, from the first repetition of each
/// variant. The charts of all variants have the same axes.
fn spreads(case: &CaseResult) -> Vec<(String, LineChart)> {
    let first = case.runs.iter().filter(|run| run.repetition == 0);
    let all: Vec<(Variant, &Spread)> = first
        .flat_map(|run| run.measured.spreads.iter().map(move |spread| (run.variant, spread)))
        .collect();
    let range = |name: &str| {
        let same = all.iter().filter(|(_, spread)| spread.name == name);
        let lines = same.flat_map(|(_, spread)| &spread.lines);
        let values = lines.flat_map(|line| line.values.iter().flatten());
        values.fold((f64::MAX, 0.0), |(low, high), v| (v.min(low), v.max(high)))
    };
    let known = all.iter().filter(|(_, spread)| range(spread.name).1 > 0.0);
    known
        .map(|(variant, spread)| {
            let caption = format!("{} over time, {}", spread.name, case.label(*variant));
            (caption, spread_chart(case, *variant, spread, range(spread.name)))
        })
        .collect()
}

fn spread_chart(
    case: &CaseResult,
    variant: Variant,
    spread: &Spread,
    (low, high): (f64, f64),
) -> LineChart {
    let seconds = |ms: u64| ms as f64 / 1e3;
    let steps = spread.lines.iter().map(|line| line.values.len()).max().unwrap_or(0);
    let line = |(number, line): (usize, &SpreadLine)| ChartLine {
        label: line.label.to_owned(),
        colour: colour(variant),
        dashes: [Dashes::Solid, Dashes::Long][usize::from(number + 1 < spread.lines.len())],
        // The line of the worst value is the most important one, so the other lines are faint.
        faint: number + 1 < spread.lines.len(),
        points: until(
            (0u64..)
                .zip(&line.values)
                .map(|(step, value)| (seconds(step * spread.step_ms), value.unwrap_or(f64::NAN)))
                .collect(),
            seconds(line.values.len() as u64 * spread.step_ms),
        ),
    };
    LineChart {
        title: format!("{} of {} over time", spread.name, case.label(variant)),
        height: 150.0,
        x: Axis::linear("seconds", 0.0, seconds(steps as u64 * spread.step_ms)),
        y: Axis::log(&name(spread.name, spread.unit), low * 0.9, high * 1.1),
        lines: spread.lines.iter().enumerate().map(line).collect(),
        marks: marks(&spread.marks),
        levels: Vec::new(),
        steps: true,
    }
}

/// Returns the points of a line of steps, with its last value until `end`.
fn until(mut points: Vec<(f64, f64)>, end: f64) -> Vec<(f64, f64)> {
    points.extend(points.last().map(|(_, value)| (end, *value)));
    points
}

fn marks(marks: &[(u64, String)]) -> Vec<Mark> {
    marks.iter().map(|(at, label)| Mark { at: *at as f64 / 1e3, label: label.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::measure::pulse::Lateness;
    use super::super::measure::result::{Figure, Measured, Run, Samples};
    use super::*;
    use srd_chart::check_well_formed;
    use srd_lab::priority::CpuUse;

    fn outcome(count: u32) -> Outcome {
        let run = |variant| Run {
            variant,
            repetition: 0,
            measured: Measured {
                figures: vec![Figure::new("a <b>", "", 2.0).beside(1.0, "ideal & best")],
                samples: vec![Samples {
                    name: "latency",
                    unit: "ms",
                    values: (0..count).map(f64::from).collect(),
                }],
                timelines: vec![Timeline {
                    name: "arrived",
                    unit: "Mb/s",
                    step_ms: 50,
                    values: vec![1.0; 1000],
                    marks: vec![(1000, "breaks".into())],
                }],
                notes: vec!["a note & more".into()],
                spreads: vec![Spread {
                    name: "GET latency",
                    unit: "us",
                    step_ms: 1000,
                    lines: vec![
                        SpreadLine { label: "p50", values: vec![Some(100.0), None, Some(90.0)] },
                        SpreadLine { label: "worst", values: vec![Some(9e5), None, Some(2e3)] },
                    ],
                    marks: vec![(1000, "links <slow> down".into())],
                }],
                ..Measured::default()
            },
            cpu: CpuUse::default(),
            own_cpu_share: 0.0,
            late: Lateness::default(),
            express: None,
        };
        let runs = vec![run(Variant::Plain), run(Variant::Express)];
        Outcome {
            experiment: "test",
            summary: "Does it?",
            about: "So.",
            machine: "m".into(),
            seed: 1,
            quick: false,
            took_s: 1.0,
            cases: vec![CaseResult::new("case".into(), "setting".into(), runs)],
            left_out: vec!["bbr: <left> out".into()],
        }
    }

    #[test]
    fn the_report_is_one_well_formed_file() {
        let html = page(&[outcome(1000)], &[]);
        check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
        assert!(!html.contains("http:") && !html.contains("https:"));
        // The page has one chart of bars, one of the tail, and a timeline and a spread for each
        // variant.
        assert_eq!(html.matches("<figure>").count(), 6);
        // Each of two charts contains the label in two sizes.
        assert_eq!(html.matches(">links &lt;slow&gt; down<").count(), 4);
    }

    /// In an earlier version, a second without a sample had the value of the second before it, and
    /// the last step had no length.
    #[test]
    fn regression_times_without_samples_are_gaps_and_the_last_step_is_seen() {
        let outcome = outcome(5);
        let (_, chart) = spreads(&outcome.cases[0]).remove(0);
        let points = &chart.lines[0].points;
        assert_eq!(points[0], (0.0, 100.0));
        assert!(points[1].1.is_nan());
        assert_eq!(points[2..], [(2.0, 90.0), (3.0, 90.0)]);
        assert_eq!(chart.x.max, 3.0);
        let (_, chart) = timelines(&outcome.cases[0]).remove(0);
        assert_eq!(chart.lines[0].points.last(), Some(&(50.0, 1.0)));
    }

    #[test]
    fn a_page_of_a_smoke_test_says_that_it_measures_nothing() {
        let short = Outcome { quick: true, ..outcome(5) };
        let (short, full) = (page(&[short], &[]), page(&[outcome(5)], &[]));
        assert!(short.contains(show::QUICK) && !short.contains(MEDIANS));
        assert!(full.contains(MEDIANS) && !full.contains(show::QUICK));
    }

    #[test]
    fn too_few_samples_make_no_chart() {
        assert_eq!(page(&[outcome(5)], &[]).matches("<figure>").count(), 5);
        let html = page(&[], &[("dask", "not fetched: srd lab fetch dask".to_owned())]);
        assert!(html.contains("Not run") && html.contains("srd lab fetch dask"), "{html}");
        assert!(!html.contains("Sources of the published figures"), "{html}");
        check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
    }

    #[test]
    fn published_figures_stand_on_the_page_with_their_source_also_without_a_run() {
        let redis = Outcome { experiment: "redis", ..outcome(5) };
        let html = page(&[redis], &[("hadoop", "not fetched".to_owned())]);
        check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
        for text in [
            "times less (Express)",
            "case <code>incast</code> did not run",
            "Published figures for these experiments",
            "+126\u{a0}% (Hadoop)",
            "all hosts of the lab are namespaces of one kernel",
            Source::Express.title(),
            Source::Hadoop.title(),
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert!(!html.contains(Source::Srd.title()));
    }

    #[test]
    fn several_cases_have_a_table_of_all() {
        let mut several = outcome(5);
        assert!(!page(&[several.clone()], &[]).contains("All cases"));
        let runs = several.cases[0].runs.clone();
        several.cases.push(CaseResult::new("other case".into(), String::new(), runs));
        let html = page(&[several], &[]);
        assert!(html.contains("All cases") && html.contains("<td>other case</td><td>a &lt;b&gt;"));
    }

    #[test]
    fn a_tail_runs_from_the_least_to_the_worst() {
        let all = Distribution::new("", "", (1..=10_000).map(f64::from).collect());
        let points = tail_points(&all);
        assert_eq!(points.first().unwrap(), &(1.0, 1.0));
        assert_eq!(points.last().unwrap().1, 10_000.0);
        let p99 = points.iter().find(|(n, _)| *n >= 99.0).unwrap().1;
        assert!((p99 - 9900.0).abs() < 10.0, "{p99}");
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }
}
