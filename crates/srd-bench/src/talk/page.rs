//! Results of experiments as one HTML page with tables and charts.

use super::Outcome;
use super::curve::Curve;
use super::show::cells;
use srd_chart::{Axis, ChartLine, LineChart, Page, nth};

/// Largest number of points of one line in a chart; more points could not be distinguished.
const POINTS_MAX: usize = 400;

/// Returns an HTML page with the results. `is_judged` is false for short runs: the page then shows
/// no verdicts.
#[must_use]
pub fn page(outcomes: &[Outcome], is_judged: bool) -> String {
    let mut page = Page::new("EC2 instances on this machine, beside the figures of NET402");
    page.lead(
        "Instances of srd card, iperf3 and the talk's own command lines. Rates are divided by one \
         number, the talk's figures by the same.",
    );
    if !is_judged {
        page.lead(
            "Short runs of fewer cases (--quick): they show that it works, and measure nothing.",
        );
    }
    for outcome in outcomes {
        page.section(outcome.experiment);
        page.paragraph(outcome.about);
        page.remark(&format!("Rates 1/{}; {:.0} s.", outcome.scale, outcome.took_s));
        let row = |figure| (false, cells(figure, is_judged).to_vec());
        let rows: Vec<(bool, Vec<String>)> = outcome.figures.iter().map(row).collect();
        page.table(&["", "here", "wanted", "source", ""], &rows);
        for curve in &outcome.curves {
            page.chart(&curve.title, &chart(curve).to_svg());
        }
        for note in &outcome.notes {
            page.remark(note);
        }
    }
    page.finish()
}

fn chart(curve: &Curve) -> LineChart {
    let points = || curve.lines.iter().flat_map(|(_, points)| points.iter());
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let lines = curve.lines.iter().enumerate().map(|(number, (label, points))| {
        let (colour, dashes) = nth(number);
        let step = points.len().div_ceil(POINTS_MAX).max(1);
        let points = points.iter().step_by(step).copied().collect();
        ChartLine { label: label.clone(), colour, dashes, faint: false, points }
    });
    LineChart {
        title: curve.title.clone(),
        height: 240.0,
        x: Axis::fitting(curve.x, 0.0, most(|point| point.0)),
        y: Axis::fitting(curve.y, 0.0, most(|point| point.1) * 1.05),
        lines: lines.collect(),
        marks: Vec::new(),
        levels: Vec::new(),
        steps: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_sim::talk::figure::NOT_JUDGED;

    #[test]
    fn a_page_of_short_runs_judges_nothing_and_says_so() {
        let outcome = Outcome::sample();
        let judged = page(std::slice::from_ref(&outcome), true);
        assert!(judged.contains("MISSED") && judged.contains(">met<"), "{judged}");
        assert!(!judged.contains("--quick"), "{judged}");
        let short = page(&[outcome], false);
        assert_eq!(short.matches(NOT_JUDGED).count(), 2, "{short}");
        assert!(!short.contains("MISSED") && !short.contains(">met<"), "{short}");
        assert!(short.contains("(--quick)"), "{short}");
    }
}
