//! The figure of the README. It is drawn from the table of current figures in the journal of
//! measurements, so that the two cannot differ.

use srd_chart::{Bar, BarChart, Colour, Mark};

/// Path of the figure.
pub(super) const FILE: &str = "docs/one-connection.svg";
/// Path of the document with the data of the figure.
pub(super) const JOURNAL: &str = "docs/perf-notes.md";

/// Groups of bars: the name of the group, the row of the journal's table, and the index of the
/// value in a cell of the row.
const ROWS: [(&str, &str, usize); 3] = [
    ("4 paths", "one TCP flow, 4 / 8 uplinks, of their sum", 0),
    ("8 paths", "one TCP flow, 4 / 8 uplinks, of their sum", 1),
    ("a path at a tenth", "a link at a tenth, of what was left, 1 / 16 flows", 0),
];
/// Bars of each group: the name of the compared transport, the index of its column in the table,
/// and the colour of the bar.
const COLUMNS: [(&str, usize, Colour); 2] =
    [("kernel TCP", 2, Colour::Orange), ("srd up", 3, Colour::Blue)];

/// Returns the figure as SVG; an error if the journal lacks a value.
pub(super) fn draw(journal: &str) -> Result<String, String> {
    let mut bars = Vec::new();
    for (place, row, at) in ROWS {
        for (what, column, colour) in COLUMNS {
            let value = figure(journal, row, column, at);
            let value = value.ok_or(format!("{JOURNAL}: no figure {at} of {what} in `{row}`"))?;
            bars.push(Bar {
                label: format!("{place}, {what}"),
                colour,
                value: Some(value),
                worst: None,
                runs: Vec::new(),
            });
        }
    }
    let chart = BarChart {
        title: "One TCP connection of an unchanged program".to_owned(),
        unit: String::new(),
        marks: vec![Mark { at: 1.0, label: "all that the network could carry".to_owned() }],
        bars,
    };
    Ok(chart.to_file("share of what the network could carry, over kernel TCP and through srd up"))
}

/// Returns the value at index `at` in one cell of the journal's table; a cell has values separated
/// by ` / `.
fn figure(journal: &str, row: &str, column: usize, at: usize) -> Option<f64> {
    let start = format!("| {row} |");
    let line = journal.lines().find(|line| line.starts_with(&start))?;
    let cell = line.trim_matches('|').split('|').nth(column)?;
    cell.split('/').nth(at)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: &str = "\
| one TCP flow, 4 / 8 uplinks, of their sum | 1 | 0.2 / 0.1 | 0.9 / 0.8 | x |
| a link at a tenth, of what was left, 1 / 16 flows | 1 | 0.03 / 1 | 0.95 / 1 | |
";

    #[test]
    fn bars_come_from_the_journal() {
        let svg = draw(JOURNAL).unwrap();
        srd_chart::check_well_formed(&svg).unwrap();
        for text in ["8 paths, srd up", ">0.800<", "a path at a tenth, kernel TCP", ">0.030<"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn a_figure_that_the_journal_lacks_is_named() {
        let error = draw(&JOURNAL.replace("0.95", "much")).unwrap_err();
        assert!(error.contains("srd up") && error.contains("a link at a tenth"), "{error}");
    }
}
