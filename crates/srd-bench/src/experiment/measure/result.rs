//! Results of an experiment, and the summary of its repetitions.
//!
//! A run measures *figures* (one number each) and *samples* (many numbers: requests, flows,
//! frames). The figures of several repetitions are summarised as median, minimum and maximum. The
//! samples of all repetitions are put together before percentiles are computed, so that a
//! percentile covers all requests.

use crate::experiment::Variant;
use crate::experiment::measure::counts::Counts;
use crate::experiment::measure::distribution::Distribution;
use crate::experiment::measure::pulse::Lateness;
use serde::Serialize;
use serde::ser::SerializeStruct;
use srd_lab::priority::CpuUse;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The best possible value of a figure, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ideal {
    /// The best possible value, in the unit of the figure.
    pub value: f64,
    /// Explanation of the value, such as `line rate of all uplinks`.
    pub label: &'static str,
}

/// A single number that a run measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the figure; it is the same in all runs of a case.
    pub name: Cow<'static, str>,
    /// Unit of the figure; empty for a pure number.
    pub unit: &'static str,
    /// Measured value of the figure.
    pub value: f64,
    /// The best possible value; `None` if it is not known. A figure with an ideal gets a chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal: Option<Ideal>,
}

impl Figure {
    /// Creates a figure without a best possible value.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, value, ideal: None }
    }

    /// Returns the figure with a best possible value and its explanation.
    #[must_use]
    pub fn beside(self, value: f64, label: &'static str) -> Figure {
        Figure { ideal: Some(Ideal { value, label }), ..self }
    }
}

/// Many numbers of one kind that a run measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Name of the samples; it is the same in all runs of a case.
    pub name: &'static str,
    /// Unit of the samples; empty for pure numbers.
    pub unit: &'static str,
    /// The numbers, in any order.
    pub values: Vec<f64>,
}

/// A value over time, in steps of equal length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// Name of the value.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Length of a step in milliseconds.
    pub step_ms: u64,
    /// The value in each step.
    pub values: Vec<f64>,
    /// Events during the run: milliseconds since the start, and a text.
    pub marks: Vec<(u64, String)>,
}

/// Durations of one kind, counted in a histogram. A list of all durations would be too long.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Name of the durations; it is the same in all runs of a case.
    pub name: &'static str,
    /// Unit in which the durations are shown: `us`, `ms` or `s`.
    pub unit: &'static str,
    /// Histogram of the durations.
    pub counts: Counts,
}

/// A distribution that changes over time: some percentiles in steps of equal length, drawn in one
/// chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Name of the distribution.
    pub name: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// Length of a step in milliseconds.
    pub step_ms: u64,
    /// The percentiles, with the lowest first.
    pub lines: Vec<SpreadLine>,
    /// Events during the run: milliseconds since the start, and a text.
    pub marks: Vec<(u64, String)>,
}

/// One percentile of a distribution over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpreadLine {
    /// Name of the percentile.
    pub label: &'static str,
    /// The percentile in each step; `None` for a step with too few samples.
    pub values: Vec<Option<f64>>,
}

/// Results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Single numbers that the run has measured.
    pub figures: Vec<Figure>,
    /// Samples that the run has measured, in lists.
    pub samples: Vec<Samples>,
    /// Durations that the run has measured, in histograms.
    pub counted: Vec<Counted>,
    /// Values over time that the run has measured.
    pub timelines: Vec<Timeline>,
    /// Distributions over time that the run has measured.
    pub spreads: Vec<Spread>,
    /// Remarks for the reader about this run.
    pub notes: Vec<String>,
}

/// One run of a case with one variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The transport of the run.
    pub variant: Variant,
    /// Number of the repetition, from zero.
    pub repetition: u32,
    /// The results that the run has measured.
    pub measured: Measured,
    /// CPU time of the whole machine during the run.
    pub cpu: CpuUse,
    /// The part of the machine's CPU time that this run itself used, from 0 to 1. If it is above
    /// about 0.7, the CPU limits the rates, and not the fabric.
    pub own_cpu_share: f64,
    /// Delays of a test thread, which wakes up every two milliseconds and has the nice level of the
    /// run. Long delays show that the machine itself delayed the run.
    pub late: Lateness,
    /// Sum of the counters of all daemons of Express; `None` if there were no daemons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub express: Option<BTreeMap<String, f64>>,
}

/// A case and all its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseResult {
    /// Name of the case.
    pub name: String,
    /// Description of links, queues, hosts and load in words.
    pub setting: String,
    /// Summary of the repetitions of each variant.
    pub summaries: Vec<Summary>,
    /// All runs, in the order of their execution.
    pub runs: Vec<Run>,
    /// Whether the runs took place in a fabric of the lab, and not between real machines.
    #[serde(skip)]
    is_lab: bool,
}

/// Summary of all repetitions of one variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The transport of the repetitions.
    pub variant: Variant,
    /// Median, minimum and maximum of each figure.
    pub figures: Vec<FigureSummary>,
    /// Distributions of the samples of all repetitions together.
    pub distributions: Vec<Distribution>,
}

/// Results of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// The question that the experiment answers, in one sentence.
    pub summary: &'static str,
    /// Description of the method, in a paragraph.
    pub about: &'static str,
    /// Kernel and number of cores of this machine.
    pub machine: String,
    /// Seed of the experiment. With an equal seed, paths collide in the same way.
    pub seed: u32,
    /// Whether the experiment was a smoke test (`--quick`), whose figures are no measurements.
    pub quick: bool,
    /// Duration of the whole experiment in seconds.
    pub took_s: f64,
    /// Results of each case.
    pub cases: Vec<CaseResult>,
    /// Texts about variants that could not run on this machine, with the reasons.
    pub left_out: Vec<String>,
}

/// Summary of a figure over all repetitions of a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureSummary {
    /// Name of the figure.
    pub name: Cow<'static, str>,
    /// Unit of the figure; empty for a pure number.
    pub unit: &'static str,
    /// Median over the repetitions.
    pub median: f64,
    /// Smallest value of a repetition.
    pub min: f64,
    /// Largest value of a repetition.
    pub max: f64,
    /// The best possible value; `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal: Option<Ideal>,
}

impl Measured {
    /// Returns the figure `failed` of a run: 1 if the command of the run failed, otherwise 0.
    #[must_use]
    pub fn failed(is_failure: bool) -> Figure {
        Figure::new("failed", "of 1", f64::from(u8::from(is_failure)))
    }

    /// Whether the run's command failed, and the failure was counted as a figure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.figures.contains(&Measured::failed(true))
    }
}

impl FigureSummary {
    /// Returns the name and the unit of the figure. If the figure has no unit, it is a user's
    /// figure, and its unit is the text after the last comma of the name.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        match self.name.rsplit_once(',') {
            Some((name, unit)) if self.unit.is_empty() => (name.trim(), unit.trim()),
            _ => (&self.name, self.unit),
        }
    }
}

impl CaseResult {
    /// Creates the result of a case from its runs, and summarises them.
    #[must_use]
    pub fn new(name: String, setting: String, runs: Vec<Run>) -> CaseResult {
        let mut variants: Vec<Variant> = runs.iter().map(|run| run.variant).collect();
        variants.sort_unstable();
        variants.dedup();
        let summary = |variant| {
            let of = |run: &&Run| run.variant == variant;
            let all: Vec<&Measured> = runs.iter().filter(of).map(|run| &run.measured).collect();
            let (figures, distributions) = (figures(&all), distributions(&all));
            Summary { variant, figures, distributions }
        };
        let summaries = variants.into_iter().map(summary).collect();
        CaseResult { name, setting, summaries, runs, is_lab: true }
    }

    /// Returns the result, marked as that of runs between real machines, whose TCP settings are not
    /// known.
    #[must_use]
    pub fn between_machines(self) -> CaseResult {
        CaseResult { is_lab: false, ..self }
    }

    /// Returns the label of a transport. It contains the congestion control of TCP only in the lab,
    /// where that is known.
    #[must_use]
    pub fn label(&self, variant: Variant) -> &'static str {
        if self.is_lab { variant.label() } else { variant.label_between_machines() }
    }
}

fn figures(all: &[&Measured]) -> Vec<FigureSummary> {
    let mut summaries: Vec<FigureSummary> = Vec::new();
    for figure in all.iter().flat_map(|measured| &measured.figures) {
        if summaries.iter().any(|summary| summary.name == figure.name) {
            continue;
        }
        let same = all.iter().flat_map(|measured| &measured.figures);
        let mut values: Vec<f64> =
            same.filter(|other| other.name == figure.name).map(|other| other.value).collect();
        values.sort_by(f64::total_cmp);
        summaries.push(FigureSummary {
            name: figure.name.clone(),
            unit: figure.unit,
            median: median(&values),
            min: values[0],
            max: values[values.len() - 1],
            ideal: figure.ideal,
        });
    }
    summaries
}

fn distributions(all: &[&Measured]) -> Vec<Distribution> {
    let mut pooled: Vec<Samples> = Vec::new();
    for samples in all.iter().flat_map(|measured| &measured.samples) {
        match pooled.iter_mut().find(|other| other.name == samples.name) {
            Some(other) => other.values.extend(&samples.values),
            None => pooled.push(samples.clone()),
        }
    }
    let mut counted: Vec<Counted> = Vec::new();
    for times in all.iter().flat_map(|measured| &measured.counted) {
        match counted.iter_mut().find(|other| other.name == times.name) {
            Some(other) => other.counts.add(&times.counts),
            None => counted.push(times.clone()),
        }
    }
    let pooled = pooled.into_iter().map(|one| Distribution::new(one.name, one.unit, one.values));
    let counted = counted.into_iter();
    pooled.chain(counted.map(|one| Distribution::counted(one.name, one.unit, one.counts))).collect()
}

impl Serialize for Measured {
    /// Writes the distributions of samples instead of the samples, of which a run may have a
    /// million.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_struct("Measured", 5)?;
        all.serialize_field("figures", &self.figures)?;
        all.serialize_field("samples", &distributions(&[self]))?;
        all.serialize_field("timelines", &self.timelines)?;
        if self.spreads.is_empty() {
            all.skip_field("spreads")?;
        } else {
            all.serialize_field("spreads", &self.spreads)?;
        }
        all.serialize_field("notes", &self.notes)?;
        all.end()
    }
}

/// Returns the median of sorted values: the middle value, or the mean of the two middle values; 0
/// if there are no values.
#[must_use]
pub fn median(sorted: &[f64]) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last / 2).map_or(0.0, |low| f64::midpoint(*low, sorted[sorted.len() / 2]))
}

/// Returns Jain's index of fairness of n shares: 1 if all are equal, and 1/n if one is everything.
/// If all shares are zero, returns 1.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(variant: Variant, value: f64, values: &[f64]) -> Run {
        Run {
            variant,
            repetition: 0,
            measured: Measured {
                figures: vec![Figure::new("rate", "Mb/s", value)],
                samples: vec![Samples { name: "latency", unit: "ms", values: values.to_vec() }],
                ..Measured::default()
            },
            cpu: CpuUse::default(),
            own_cpu_share: 0.0,
            late: Lateness::default(),
            express: None,
        }
    }

    fn case(runs: Vec<Run>) -> CaseResult {
        CaseResult::new("c".into(), String::new(), runs)
    }

    #[test]
    fn figures_become_the_median_repetition_of_their_own_variant() {
        let case = case(vec![
            run(Variant::Plain, 3.0, &[]),
            run(Variant::Express, 9.0, &[]),
            run(Variant::Plain, 1.0, &[]),
            run(Variant::Plain, 8.0, &[]),
        ]);
        let [plain, express] = &case.summaries[..] else { panic!("two variants") };
        assert_eq!((plain.variant, express.variant), (Variant::Plain, Variant::Express));
        let plain = &plain.figures[0];
        assert_eq!((plain.median, plain.min, plain.max), (3.0, 1.0, 8.0));
        assert_eq!(express.figures[0].median, 9.0);
    }

    #[test]
    fn samples_of_all_repetitions_are_pooled() {
        let case =
            case(vec![run(Variant::Plain, 0.0, &[5.0, 1.0]), run(Variant::Plain, 0.0, &[100.0])]);
        let pooled = &case.summaries[0].distributions[0];
        let all: Vec<_> = (0..4).map(|at| pooled.nth(at)).collect();
        assert_eq!(all, [Some(1.0), Some(5.0), Some(100.0), None]);
        assert_eq!(pooled.percentile(50.0), Some(5.0));
        assert_eq!(pooled.percentile(100.0), Some(100.0));
    }

    #[test]
    fn counted_times_are_pooled_and_written_like_listed_samples() {
        let counted = |ms| {
            let mut run = run(Variant::Plain, 0.0, &[1.0]);
            let mut counts = Counts::default();
            counts.record(std::time::Duration::from_millis(ms));
            run.measured.counted.push(Counted { name: "GET", unit: "ms", counts });
            run
        };
        let case = case(vec![counted(1), counted(3)]);
        let [listed, pooled] = &case.summaries[0].distributions[..] else { panic!("both") };
        assert_eq!((listed.count(), pooled.count()), (2, 2));
        let json = serde_json::to_value(&case.runs[1].measured).unwrap();
        assert_eq!(json["samples"][0]["name"], "latency");
        assert_eq!(json["samples"][1]["name"], "GET");
        let worst = json["samples"][1]["percentiles"]["p100"].as_f64().unwrap();
        assert!((3.0..3.004).contains(&worst), "{json}");
        assert!(json.get("spreads").is_none() && json.get("counted").is_none());
    }

    #[test]
    fn json_has_percentiles_and_not_a_million_samples() {
        let ramp = Distribution::new("fct", "ms", (1..=100).map(f64::from).collect());
        let json = serde_json::to_value(&ramp).unwrap();
        assert_eq!(json["count"], 100);
        assert_eq!(json["percentiles"]["p99"], 99.0);
        assert_eq!(json["percentiles"]["p100"], 100.0);
        assert!(json["percentiles"].get("p99.9").is_none());
    }

    #[test]
    fn jain_is_one_for_equals_and_one_over_n_for_a_winner() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[6.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert!((jain(&[0.0, 0.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn median_of_an_even_number_lies_between() {
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
    }
}
