//! Results of experiments as tables for a terminal.

use super::{ALL, Outcome};
use srd_chart::Table;
use srd_sim::talk::figure::Figure;
use std::fmt::Write as _;

/// Returns a list of all experiments, with scale, duration and summary of each.
#[must_use]
pub fn list() -> String {
    let mut text = String::new();
    for experiment in ALL {
        let _ = writeln!(
            text,
            "{}, rates 1/{}, {} s\n  {}\n",
            experiment.name, experiment.scale, experiment.takes_s, experiment.about
        );
    }
    text
}

/// Returns the figures of an experiment as a table. `is_judged` is false for a short run: the table
/// then shows no verdicts.
#[must_use]
pub fn outcome(outcome: &Outcome, is_judged: bool) -> String {
    let mut table = Table::new([outcome.experiment, "here", "wanted", "source", ""]);
    for figure in &outcome.figures {
        table.row(cells(figure, is_judged));
    }
    let mut text = format!("{table}");
    for note in &outcome.notes {
        let _ = write!(text, "\n  {note}");
    }
    text + "\n"
}

/// Returns the cells of a figure's row: name, value, target, source of the target, and verdict.
pub(super) fn cells(of: &Figure, is_judged: bool) -> [String; 5] {
    let (wanted, source) = of.shown_wanted();
    [of.name.clone(), of.shown(), wanted, source.to_owned(), of.verdict(is_judged).to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_sim::talk::figure::NOT_JUDGED;

    #[test]
    fn every_figure_stands_beside_the_wanted_one() {
        let outcome = Outcome::sample();
        let text = super::outcome(&outcome, true);
        let lines: Vec<&str> = text.lines().collect();
        let line = |name: &str| lines.iter().find(|line| line.contains(name)).unwrap();
        assert!(line("one flow").contains("MISSED") && line("one flow").contains("NET402"));
        assert!(line("two flows").contains("met") && line("two flows").contains("125"));
        assert!(!line("packets").contains("met"));
        assert!(!outcome.all_met());
        let text = super::outcome(&outcome, false);
        assert_eq!(text.matches(NOT_JUDGED).count(), 2, "{text}");
        assert!(!text.contains("MISSED"), "{text}");
    }
}
