//! Which difference is more than the spread of the repetitions.

use crate::experiment::result::{CaseResult, FigureSummary};

/// Each figure of each transport beside the first one's, a line each.
#[must_use]
pub fn verdict(case: &CaseResult) -> String {
    let Some((first, others)) = case.summaries.split_first() else { return String::new() };
    let mut text = String::new();
    for other in others {
        for figure in &other.figures {
            let Some(base) = first.figures.iter().find(|base| base.name == figure.name) else {
                continue;
            };
            let (label, name) = (case.label(other.variant), &figure.name);
            text += &format!("  {label}: {name} {}\n", beside(base, figure, case));
        }
    }
    text
}

fn beside(base: &FigureSummary, figure: &FigureSummary, case: &CaseResult) -> String {
    if base.median == 0.0 {
        return format!("{} where it was 0", srd_chart::figure(figure.median));
    }
    let ratio = srd_chart::figure(figure.median / base.median);
    let first = case.label(case.summaries[0].variant);
    let repetitions = case.runs.iter().map(|run| run.repetition + 1).max().unwrap_or(0);
    let apart = figure.min > base.max || figure.max < base.min;
    let spread = match (apart, repetitions) {
        (_, 0 | 1) => "one run each: no spread is known",
        (true, _) => "no run of one is within the runs of the other",
        (false, _) => "WITHIN THE SPREAD of the runs: no difference is shown",
    };
    format!("{ratio} x that of {first} ({spread})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Variant;
    use crate::experiment::pulse::Lateness;
    use crate::experiment::result::{Figure, Measured, Run};
    use srd_lab::priority::CpuUse;

    fn case(plain: &[f64], express: &[f64]) -> CaseResult {
        let runs = |variant, values: &[f64]| -> Vec<Run> {
            let run = |(repetition, value): (u32, &f64)| Run {
                variant,
                repetition,
                measured: Measured {
                    figures: vec![Figure::new("time", "s", *value)],
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
        CaseResult::new("c".into(), String::new(), all)
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
}
