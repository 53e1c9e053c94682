//! Results as tables for a terminal.

use super::figure::{Figure, Near};
use super::{ALL, Outcome};
use srd_chart::{Table, figure};
use std::fmt::Write as _;

/// What there is.
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

/// An experiment's figures.
#[must_use]
pub fn outcome(outcome: &Outcome) -> String {
    let mut table = Table::new([outcome.experiment, "here", "wanted", "source", ""]);
    for figure in &outcome.figures {
        table.row(cells(figure));
    }
    let mut text = format!("{table}");
    for note in &outcome.notes {
        let _ = write!(text, "\n  {note}");
    }
    text + "\n"
}

/// A figure in words: name, value, what it should be, by which source, and whether it is.
pub(super) fn cells(of: &Figure) -> [String; 5] {
    let with_unit = |value: f64| format!("{} {}", figure(value), of.unit).trim_end().to_owned();
    let (wanted, source) = of.wanted.as_ref().map_or(Default::default(), |wanted| {
        let value = with_unit(wanted.value);
        let text = match wanted.near {
            Near::Percent(percent) => format!("{value} \u{b1} {percent} %"),
            Near::Exactly => value,
            Near::AtMost => format!("\u{2264} {value}"),
            Near::AtLeast => format!("\u{2265} {value}"),
        };
        (text, wanted.source.to_owned())
    });
    let verdict = match of.is_met() {
        None => "",
        Some(true) => "met",
        Some(false) => "MISSED",
    };
    [of.name.clone(), with_unit(of.here), wanted, source, verdict.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_stands_beside_the_wanted_one() {
        let outcome = Outcome {
            experiment: "burst",
            about: "",
            scale: 100,
            figures: vec![
                Figure::new("one flow", "Mb/s", 80.0).talk(95.4),
                Figure::new("two flows", "Mb/s", 120.0).talk(125.0),
                Figure::new("packets", "", 7.0),
            ],
            curves: Vec::new(),
            notes: vec!["a note".into()],
            took_s: 1.0,
        };
        let text = super::outcome(&outcome);
        let lines: Vec<&str> = text.lines().collect();
        let line = |name: &str| lines.iter().find(|line| line.contains(name)).unwrap();
        assert!(line("one flow").contains("MISSED") && line("one flow").contains("NET402"));
        assert!(line("two flows").contains("met") && line("two flows").contains("125"));
        assert!(!line("packets").contains("met"));
        assert!(!outcome.all_met());
    }
}
