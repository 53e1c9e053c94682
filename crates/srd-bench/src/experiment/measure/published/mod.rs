//! Published figures, with the values of a run beside them.
//!
//! | module | content |
//! |---|---|
//! | `statement` | a published figure, and the values of an experiment that belong to it |
//! | `statements` | all published figures |

mod statement;
mod statements;

pub(in crate::experiment) use statement::Source;

use super::result::{CaseResult, Outcome, Summary};
use crate::experiment::Variant;
use srd_chart::{Unit, figure};
use statement::{Quantity, Statement, Values};
use statements::STATEMENTS;

/// A published figure beside the values of a run.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::experiment) struct Comparison {
    /// Subject of the figure.
    pub(in crate::experiment) subject: &'static str,
    /// The published figure.
    pub(in crate::experiment) figure: &'static str,
    /// Document that contains the figure.
    pub(in crate::experiment) source: Source,
    /// The values of the run, or the reason why there are no values.
    pub(in crate::experiment) measured: String,
    /// Whether `measured` contains a value.
    pub(in crate::experiment) has_value: bool,
    /// Reason why the experiment has another figure, or no figure; empty if there is no remark.
    pub(in crate::experiment) remark: &'static str,
}

/// Returns the published figures for the subjects of an experiment, beside the values of a run.
pub(in crate::experiment) fn compare(outcome: &Outcome) -> Vec<Comparison> {
    let compared = |statement| {
        let readings = readings(outcome, statement);
        let has_value = readings.iter().any(|reading| reading.value.is_ok());
        comparison(statement, text(&readings), has_value)
    };
    of(outcome.experiment).map(compared).collect()
}

/// Returns the published figures for the subjects of an experiment that did not run.
pub(in crate::experiment) fn without_run(experiment: &str) -> Vec<Comparison> {
    of(experiment).map(|statement| comparison(statement, "not run".to_owned(), false)).collect()
}

fn of(experiment: &str) -> impl Iterator<Item = &'static Statement> {
    STATEMENTS.iter().filter(move |statement| statement.experiment == experiment)
}

fn comparison(statement: &Statement, measured: String, has_value: bool) -> Comparison {
    let Statement { source, subject, figure, remark, .. } = *statement;
    Comparison { subject, figure, source, measured, has_value, remark }
}

/// A value of a run with its unit, or the reason for its absence.
struct Reading {
    label: &'static str,
    value: Result<(f64, &'static str), String>,
}

fn readings(outcome: &Outcome, statement: &Statement) -> Vec<Reading> {
    let find = |name: &str| outcome.cases.iter().find(|case| case.name == name);
    let not_run = |case: &str| Err(format!("case `{case}` did not run"));
    match statement.values {
        Values::Absent => vec![Reading { label: "", value: Err("not measured".into()) }],
        Values::Case(name, quantity) => match find(name) {
            None => vec![Reading { label: "", value: not_run(name) }],
            Some(case) => of_variants(case, quantity),
        },
        Values::Plain(names, quantity) => {
            let reading = |name: &'static str| {
                let plain = find(name).map(|case| {
                    let mut all = case.summaries.iter();
                    all.find(|summary| summary.variant == Variant::Plain)
                        .ok_or_else(|| "kernel TCP did not run".to_owned())
                        .and_then(|summary| quantity.of(summary))
                });
                Reading { label: name, value: plain.unwrap_or_else(|| not_run(name)) }
            };
            names.iter().copied().map(reading).collect()
        }
    }
}

fn of_variants(case: &CaseResult, quantity: Quantity) -> Vec<Reading> {
    let reading = |summary: &Summary| Reading {
        label: case.label(summary.variant),
        value: quantity.of(summary),
    };
    case.summaries.iter().map(reading).collect()
}

impl Quantity {
    /// Returns the value and its unit.
    fn of(self, summary: &Summary) -> Result<(f64, &'static str), String> {
        match self {
            Quantity::Figure(name) => {
                let found = summary.figures.iter().find(|figure| figure.name == name);
                let found = found.map(|figure| (figure.median, figure.unit));
                found.ok_or_else(|| format!("the results lack the figure `{name}`"))
            }
            Quantity::Percentile(name, percent) => {
                let found = summary.distributions.iter().find(|all| all.name == name);
                let all = found.ok_or_else(|| format!("the results lack the samples `{name}`"))?;
                let value = all.percentile(percent).map(|value| (value, all.unit));
                value.ok_or_else(|| format!("too few samples for p{percent}"))
            }
        }
    }
}

/// Returns the readings as text, in one unit. With two values, the text ends with their ratio.
fn text(readings: &[Reading]) -> String {
    let known: Vec<_> = readings.iter().filter_map(|reading| reading.value.clone().ok()).collect();
    let unit = Unit::fitting(
        known.first().map_or("", |(_, unit)| *unit),
        known.iter().map(|(value, _)| *value),
    );
    let shown = readings.iter().map(|reading| {
        let value = match &reading.value {
            Ok((value, _)) => unit.show(*value),
            Err(why) => why.clone(),
        };
        if reading.label.is_empty() { value } else { format!("{}: {value}", reading.label) }
    });
    let shown = shown.collect::<Vec<_>>().join("; ");
    match known[..] {
        [(first, _), (second, _)] if readings.len() == 2 && first != 0.0 => {
            format!("{shown} ({}x)", figure(second / first))
        }
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::measure::pulse::Lateness;
    use crate::experiment::measure::result::{Figure, Measured, Run, Samples};
    use crate::experiment::tests::options;
    use srd_lab::priority::CpuUse;

    /// Returns a run with a figure, and with the same times for GETs and SETs.
    fn run(variant: Variant, figure: Figure, times_us: &[f64]) -> Run {
        let samples = |name| Samples { name, unit: "us", values: times_us.to_vec() };
        Run {
            variant,
            repetition: 0,
            measured: Measured {
                figures: vec![figure],
                samples: ["GET latency", "SET latency"].map(samples).to_vec(),
                ..Measured::default()
            },
            cpu: CpuUse::default(),
            own_cpu_share: 0.0,
            late: Lateness::default(),
            express: None,
        }
    }

    fn outcome(experiment: &'static str, cases: Vec<CaseResult>) -> Outcome {
        Outcome {
            experiment,
            summary: "",
            about: "",
            machine: String::new(),
            seed: 1,
            quick: false,
            took_s: 1.0,
            cases,
            left_out: Vec::new(),
        }
    }

    fn case(name: &str, runs: Vec<Run>) -> CaseResult {
        CaseResult::new(name.into(), String::new(), runs)
    }

    #[test]
    fn each_statement_has_an_experiment_with_its_cases() {
        for statement in STATEMENTS {
            let experiment = crate::experiment::find(statement.experiment);
            let experiment = experiment.expect(statement.experiment);
            let names = experiment.case_names(&options());
            let wanted = match &statement.values {
                Values::Case(name, _) => std::slice::from_ref(name),
                Values::Plain(names, _) => *names,
                Values::Absent => &[],
            };
            for name in wanted {
                let is_there = names.iter().any(|case| case == name);
                assert!(is_there, "{}: `{name}` of {names:?}", statement.experiment);
            }
            let is_explained = !wanted.is_empty() || !statement.remark.is_empty();
            assert!(is_explained, "{}: {}", statement.experiment, statement.subject);
        }
        assert_eq!(of("soak").count(), 0);
    }

    #[test]
    fn values_of_a_run_stand_beside_the_published_figure() {
        let goodput = |mbps| Figure::new("goodput", "Mb/s", mbps);
        let runs = vec![
            run(Variant::Plain, goodput(120.0), &[]),
            run(Variant::Express, goodput(900.0), &[]),
        ];
        let compared = compare(&outcome("single-flow", vec![case("8 spines", runs)]));
        let eight = compared.iter().find(|one| one.has_value).unwrap();
        assert_eq!(eight.measured, "plain (cubic): 120 Mb/s; ENA Express: 900 Mb/s (7.50x)");
        assert!(eight.figure.contains("25 Gb/s"), "{eight:?}");
        let not_run = without_run("single-flow");
        assert_eq!(not_run.len(), compared.len());
        assert!(not_run.iter().all(|one| one.measured == "not run" && !one.has_value));
    }

    #[test]
    fn the_reason_stands_where_a_value_is_absent() {
        let other = || Figure::new("other", "requests/s", 2000.0);
        let times = |factor: f64| (1..=2000).map(|n| f64::from(n) * factor).collect::<Vec<_>>();
        let runs = vec![
            run(Variant::Plain, other(), &times(100.0)),
            run(Variant::Express, other(), &times(1.0)),
        ];
        let compared = compare(&outcome("redis", vec![case("incast", runs)]));
        let with = |part: &str| {
            let found = compared.iter().find(|one| one.measured.contains(part));
            found.unwrap_or_else(|| panic!("{part}: {compared:?}")).has_value
        };
        assert!(with("ENA Express: 2.00 ms (0.010x)"), "a percentile");
        assert!(!with("too few samples for p99.999"));
        assert!(!with("the results lack the figure `answered`"));
        assert!(!with("case `changes` did not run"));
        let compared = compare(&outcome("hadoop", Vec::new()));
        assert!(compared.iter().any(|one| one.measured == "not measured"), "{compared:?}");
    }

    #[test]
    fn cases_of_kernel_tcp_stand_beside_each_other() {
        let took = |ms| vec![run(Variant::Plain, Figure::new("median write", "ms", ms), &[])];
        let [stunnel, proxy] =
            ["write 9 KiB, depth 1, stunnel", "write 9 KiB, depth 1, proxy, no NODELAY"];
        let compared =
            compare(&outcome("nfs", vec![case(stunnel, took(2.0)), case(proxy, took(44.0))]));
        let expected = format!("{stunnel}: 2.00 ms; {proxy}: 44.0 ms (22.0x)");
        assert!(compared.iter().any(|one| one.measured == expected), "{compared:?}");
    }
}
