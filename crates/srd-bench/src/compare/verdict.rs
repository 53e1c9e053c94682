//! Compares the transports: is a difference larger than the spread of the repetitions?

use crate::experiment::Variant;
use crate::experiment::measure::result::{CaseResult, FigureSummary, Measured, Run};
use srd_chart::{Unit, figure, more_is_better};

/// Name of the figure with the command's duration.
pub(super) const TIME: &str = "time";

/// Relation between the runs of two transports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    /// The ranges of the runs do not overlap.
    Apart,
    /// The ranges of the runs overlap.
    Overlap,
    /// A transport has one run only.
    Unknown,
}

/// One figure of a transport, and the same figure of the first transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    pub(super) base: &'a FigureSummary,
    pub(super) figure: &'a FigureSummary,
    variant: Variant,
    first: &'static str,
    label: &'static str,
    spread: Spread,
}

/// Whether a figure is the count of failed runs.
pub(super) fn is_count_of_failures(figure: &FigureSummary) -> bool {
    figure.name == Measured::failed(true).name
}

/// Compares each figure of each transport with the same figure of the first transport.
pub(super) fn all(case: &CaseResult) -> Vec<Beside<'_>> {
    let Some((first, others)) = case.summaries.split_first() else { return Vec::new() };
    let runs = |variant: Variant, name: &str| {
        let has = |run: &&Run| {
            run.variant == variant && run.measured.figures.iter().any(|f| f.name == name)
        };
        case.runs.iter().filter(has).count()
    };
    let mut all = Vec::new();
    for other in others {
        for figure in &other.figures {
            let Some(base) = first.figures.iter().find(|base| base.name == figure.name) else {
                continue;
            };
            let apart = figure.min > base.max || figure.max < base.min;
            // Runs that failed have no figures, so a transport may have fewer runs than another.
            let count = |variant| runs(variant, &figure.name);
            let spread = match (apart, count(first.variant).min(count(other.variant))) {
                (_, 0 | 1) => Spread::Unknown,
                (true, _) => Spread::Apart,
                (false, _) => Spread::Overlap,
            };
            let (first, label) = (case.label(first.variant), case.label(other.variant));
            all.push(Beside { base, figure, variant: other.variant, first, label, spread });
        }
    }
    all
}

/// Compares each figure of each transport with the same figure of the first transport. Returns one
/// line of text for each comparison.
#[must_use]
pub fn verdict(case: &CaseResult) -> String {
    let line = |beside: &Beside<'_>| {
        let name = beside.figure.parts().0;
        format!("  {}: {name} {}\n", beside.label, beside.ratio_in_words())
    };
    all(case).iter().map(line).collect()
}

impl Beside<'_> {
    /// Whether the compared transport is `variant`.
    pub(super) fn is_of(&self, variant: Variant) -> bool {
        self.variant == variant
    }

    fn ratio(&self) -> f64 {
        self.figure.median / self.base.median
    }

    fn ratio_in_words(&self) -> String {
        if self.base.median == 0.0 {
            return format!("{} where it was 0", figure(self.figure.median));
        }
        let spread = match self.spread {
            Spread::Unknown => "only one run of a transport: no spread is known",
            Spread::Apart => "no run of one is within the runs of the other",
            Spread::Overlap => "WITHIN THE SPREAD of the runs: no difference is shown",
        };
        format!("{} x that of {} ({spread})", figure(self.ratio()), self.first)
    }

    /// Whether the difference is an improvement; `None` if the runs show no difference, or if the
    /// unit does not define which direction is better.
    pub(super) fn is_gain(&self) -> Option<bool> {
        let more = more_is_better(self.figure.parts().1)?;
        let is_more = self.figure.median > self.base.median;
        (self.spread == Spread::Apart).then_some(is_more == more)
    }

    /// Describes the difference in one or two sentences.
    pub(super) fn sentence(&self) -> String {
        let (name, unit) = self.figure.parts();
        let shown = Unit::fitting(unit, [self.figure.median, self.base.median]);
        let [now, was] = [self.figure, self.base].map(|figure| shown.show(figure.median));
        let Self { first, label, .. } = self;
        let what = if name == TIME { "the command's time" } else { name };
        let ratio = match self.base.median {
            0.0 => format!("With {label}, {what} is {now}; with {first} it is 0."),
            _ => format!(
                "With {label}, {what} is {} times that of {first}: {now} instead of {was}.",
                figure(self.ratio())
            ),
        };
        match self.spread {
            Spread::Apart => format!("{ratio} No run of one is within the runs of the other."),
            Spread::Unknown => {
                format!("{ratio} A transport has one run only, so no spread is known (`--reps`).")
            }
            Spread::Overlap => format!(
                "No difference is shown: {what} is {now} with {label} and {was} with {first}, and \
                 the runs of both overlap."
            ),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::measure::pulse::Lateness;
    use crate::experiment::measure::result::Figure;
    use srd_lab::priority::CpuUse;

    /// Creates a result with runs of plain and of express, which have one figure.
    pub(in super::super) fn case_of(
        name: &'static str,
        unit: &'static str,
        plain: &[f64],
        express: &[f64],
    ) -> CaseResult {
        let runs = |variant, values: &[f64]| -> Vec<Run> {
            let run = |(repetition, value): (u32, &f64)| Run {
                variant,
                repetition,
                measured: Measured {
                    figures: vec![Figure::new(name, unit, *value)],
                    ..Measured::default()
                },
                cpu: CpuUse::default(),
                own_cpu_share: 0.0,
                late: Lateness::default(),
                express: None,
            };
            (0..).zip(values).map(run).collect()
        };
        let all = [runs(Variant::Plain, plain), runs(Variant::Express, express)].concat();
        CaseResult::new("iperf3 -c {server}".into(), "h0.0 to h1.0".into(), all)
    }

    fn case(plain: &[f64], express: &[f64]) -> CaseResult {
        case_of("time", "s", plain, express)
    }

    #[test]
    fn only_runs_that_lie_apart_show_a_difference() {
        let text = verdict(&case(&[4.0, 4.2, 3.9], &[1.0, 1.1, 0.9]));
        assert_eq!(
            text,
            "  ENA Express: time 0.250 x that of plain (cubic) (no run of one is within the runs \
             of the other)\n"
        );
        let text = verdict(&case(&[4.0, 4.2, 3.9], &[3.0, 4.1, 2.9]));
        assert!(text.contains("WITHIN THE SPREAD"), "{text}");
        assert!(verdict(&case(&[4.0], &[1.0])).contains("no spread is known"));
        assert!(verdict(&case(&[0.0, 0.0], &[1.0, 1.0])).contains("1.00 where it was 0"));
        assert_eq!(verdict(&case(&[1.0], &[])), "");
    }

    /// In an earlier version, a transport with one successful run was compared as if it had a
    /// spread, because the other transport had several runs.
    #[test]
    fn regression_one_surviving_run_has_no_spread() {
        for case in [case(&[4.0, 4.2, 3.9], &[1.0]), case(&[4.0], &[1.0, 1.1])] {
            assert!(verdict(&case).contains("no spread is known"), "{}", verdict(&case));
            assert_eq!(all(&case)[0].is_gain(), None);
        }
    }

    #[test]
    fn sentences_have_the_ratio_and_figures_with_units() {
        let of = |plain: &[f64], express: &[f64]| {
            let case = case_of("goodput, b/s", "", plain, express);
            let beside = all(&case)[0];
            (beside.sentence(), beside.is_gain())
        };
        let (text, gain) = of(&[247_120_000.0, 247e6], &[934_536_978.0, 934e6]);
        assert_eq!(
            text,
            "With ENA Express, goodput is 3.78 times that of plain (cubic): 934 Mb/s instead of \
             247 Mb/s. No run of one is within the runs of the other."
        );
        assert_eq!(gain, Some(true));
        let (text, gain) = of(&[247e6, 260e6], &[250e6, 251e6]);
        assert!(text.starts_with("No difference is shown: goodput is 250 Mb/s with"), "{text}");
        assert_eq!(gain, None);
        assert!(of(&[1e6], &[2e6]).0.contains("`--reps`"));
        assert!(
            of(&[0.0, 0.0], &[2e6, 2e6]).0.contains("is 2.00 Mb/s; with plain (cubic) it is 0")
        );
    }
}
