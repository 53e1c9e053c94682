//! The figure of the README. It is drawn from a table in the results of the benchmarks, so that the
//! two cannot differ.

use srd_chart::{Bar, BarChart, Colour, Mark};

/// Path of the figure.
pub(super) const FILE: &str = "docs/one-connection.svg";
/// Path of the document with the data of the figure, which `bench/all.sh` writes.
pub(super) const RESULTS: &str = "docs/benchmark-results.md";

/// Groups of bars: the name of the group, the row of the table of results, and the index of the
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

/// Returns the figure as SVG; an error if the results lack a value.
pub(super) fn draw(results: &str) -> Result<String, String> {
    let mut bars = Vec::new();
    for (place, row, at) in ROWS {
        for (what, column, colour) in COLUMNS {
            bars.push(Bar {
                label: format!("{place}, {what}"),
                colour,
                value: Some(value(results, (row, at), (what, column))?),
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

/// Returns the values of the figure as the text of the README lists them: one list for each
/// transport, as `kernel TCP 0.25, 0.12 and 0.03`. An error if the results lack a value.
pub(super) fn lists(results: &str) -> Result<Vec<String>, String> {
    let mut lists = Vec::new();
    for (what, column, _) in COLUMNS {
        let mut values = Vec::new();
        for (_, row, at) in ROWS {
            values.push(format!("{:.2}", value(results, (row, at), (what, column))?));
        }
        let last = values.pop().unwrap_or_default();
        lists.push(format!("{what} {} and {last}", values.join(", ")));
    }
    Ok(lists)
}

/// Returns the value at an index in the cell of a row and a transport's column; an error if it is
/// missing.
fn value(
    results: &str,
    (row, at): (&str, usize),
    (what, column): (&str, usize),
) -> Result<f64, String> {
    let value = figure(results, row, column, at);
    value.ok_or_else(|| format!("{RESULTS}: no figure {at} of {what} in `{row}`"))
}

/// Returns the value at index `at` in one cell of the table of results; a cell has values separated
/// by ` / `.
fn figure(results: &str, row: &str, column: usize, at: usize) -> Option<f64> {
    let start = format!("| {row} |");
    let line = results.lines().find(|line| line.starts_with(&start))?;
    let cell = line.trim_matches('|').split('|').nth(column)?;
    cell.split('/').nth(at)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| one TCP flow, 4 / 8 uplinks, of their sum | 1 | 0.2 / 0.1 | 0.9 / 0.8 | 4.5 / 8 | x |
| a link at a tenth, of what was left, 1 / 16 flows | 1 | 0.03 / 1 | 0.95 / 1 | 30 / 1 | |
";

    #[test]
    fn bars_come_from_the_table() {
        let svg = draw(TABLE).unwrap();
        srd_chart::check_well_formed(&svg).unwrap();
        for text in ["8 paths, srd up", ">0.800<", "a path at a tenth, kernel TCP", ">0.030<"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn a_figure_that_the_table_lacks_is_named() {
        let error = draw(&TABLE.replace("0.95", "much")).unwrap_err();
        assert!(error.contains("srd up") && error.contains("a link at a tenth"), "{error}");
    }

    #[test]
    fn text_of_the_readme_lists_the_values_of_each_transport() {
        let lists = lists(TABLE).unwrap();
        assert_eq!(lists, ["kernel TCP 0.20, 0.10 and 0.03", "srd up 0.90, 0.80 and 0.95"]);
        assert!(super::lists("").unwrap_err().contains("kernel TCP"));
    }
}
