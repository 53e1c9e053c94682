//! Bar charts with reference values.

use crate::svg::{Anchor, Drawing, LETTER, Size, circle, line, text};
use crate::{Axis, Colour, Mark, Unit};

const LEFT_WIDE: f64 = 220.0;
const RIGHT_WIDE: f64 = 150.0;
/// Left and right margin of a narrow chart, in which each label is above its bar.
const SIDE_NARROW: f64 = 4.0;
const TOP: f64 = 14.0;
const ROW: f64 = 30.0;
const ROW_NARROW: f64 = 44.0;
const BAR: f64 = 16.0;
/// Distance, in a narrow chart, from the top of a bar's row down to the base line of its label.
const LABEL_NARROW: f64 = 15.0;
/// Distance from the middle of a row down to the base line of its text.
const BASE: f64 = 4.5;
/// Height of one row of mark labels, which are above the bars.
const MARK_ROW: f64 = 17.0;
const DOT: f64 = 3.2;
/// Gap before the column of values, and between the labels of marks.
const GAP: f64 = 8.0;

/// One bar of a bar chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Label of the bar.
    pub label: String,
    /// Colour of the bar.
    pub colour: Colour,
    /// Value that the bar's length shows; `None` if there is no value.
    pub value: Option<f64>,
    /// Worst measurement, shown as a thin line beyond the bar; not drawn unless it is larger than
    /// `value`.
    pub worst: Option<f64>,
    /// Single measurements, drawn as dots; empty if there is only the bar.
    pub runs: Vec<f64>,
}

/// A chart of horizontal bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// Title of the chart.
    pub title: String,
    /// Unit of the values. The chart selects a suitable multiple of the unit.
    pub unit: String,
    /// Reference values, such as the best possible value or a limit.
    pub marks: Vec<Mark>,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// Layout of a drawing of one size.
struct Layout<'a> {
    size: Size,
    axis: Axis,
    unit: &'a Unit,
    top: f64,
    marks_at: Vec<f64>,
}

impl BarChart {
    /// Returns the chart as SVG elements for an HTML page: one for desktop windows and one for
    /// phones.
    #[must_use]
    pub fn to_svg(&self) -> String {
        Size::BOTH.map(|size| self.draw(size).embedded(size)).concat()
    }

    /// Returns the chart as an independent SVG file.
    #[must_use]
    pub fn to_file(&self, subtitle: &str) -> String {
        self.draw(Size::Wide).file(subtitle)
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let of_bars = self
            .bars
            .iter()
            .flat_map(|bar| bar.value.into_iter().chain(bar.worst).chain(bar.runs.iter().copied()));
        self.marks.iter().map(|mark| mark.at).chain(of_bars)
    }

    fn draw(&self, size: Size) -> Drawing {
        let unit = Unit::fitting(&self.unit, self.values());
        let axis = Axis::linear("", 0.0, self.values().fold(0.0, f64::max) * 1.02);
        let mut place = Layout { size, axis, unit: &unit, top: TOP, marks_at: Vec::new() };
        place.marks_at = self.marks.iter().map(|mark| place.x(mark.at)).collect();
        let (labels, rows) = place.mark_labels(&self.marks);
        place.top += MARK_ROW * rows as f64;
        let bottom = place.top + place.row() * self.bars.len() as f64;
        let mut inside = String::new();
        for x in &place.marks_at {
            inside += &place.mark(*x, bottom, self.bars.len());
        }
        inside += &labels;
        for (row, bar) in self.bars.iter().enumerate() {
            inside += &place.bar(bar, place.top + place.row() * row as f64);
        }
        let (title, description) = (self.title.clone(), self.describe(&unit));
        Drawing { title, description, height: bottom + 8.0, inside }
    }

    /// Returns the values of all bars and marks as text, for screen readers.
    fn describe(&self, unit: &Unit) -> String {
        let bars = self.bars.iter().map(|bar| match bar.value {
            Some(value) => format!("{}: {}", bar.label, said(bar, value, unit)),
            None => format!("{}: no figure", bar.label),
        });
        let marks = self.marks.iter().map(|mark| format!("{}: {}", mark.label, unit.show(mark.at)));
        bars.chain(marks).collect::<Vec<_>>().join("; ")
    }
}

/// Returns the text for the value of a bar, with the worst measurement in brackets.
fn said(bar: &Bar, value: f64, unit: &Unit) -> String {
    match worse(bar, value) {
        Some(worst) => format!("{} ({})", unit.show(value), unit.show(worst)),
        None => unit.show(value),
    }
}

fn worse(bar: &Bar, value: f64) -> Option<f64> {
    bar.worst.filter(|worst| *worst > value * 1.005)
}

impl Layout<'_> {
    fn is_wide(&self) -> bool {
        self.size == Size::Wide
    }

    fn row(&self) -> f64 {
        if self.is_wide() { ROW } else { ROW_NARROW }
    }

    fn left(&self) -> f64 {
        if self.is_wide() { LEFT_WIDE } else { SIDE_NARROW }
    }

    fn x(&self, value: f64) -> f64 {
        let right = if self.is_wide() { RIGHT_WIDE } else { SIDE_NARROW };
        self.left() + self.axis.place(value) * (self.size.width() - self.left() - right)
    }

    /// Returns the labels of the marks above the bars, in as many rows as are necessary to keep
    /// them apart, and the number of rows.
    fn mark_labels(&self, marks: &[Mark]) -> (String, usize) {
        let mut ends: Vec<f64> = Vec::new();
        let mut labels = String::new();
        for (mark, x) in marks.iter().zip(&self.marks_at) {
            let label = format!("{}: {}", mark.label, self.unit.show(mark.at));
            let half = label.chars().count() as f64 * LETTER / 2.0;
            let middle = x.min(self.size.width() - half).max(half);
            let row = ends.iter().position(|end| *end + GAP < middle - half);
            let row = row.unwrap_or_else(|| {
                ends.push(0.0);
                ends.len() - 1
            });
            ends[row] = middle + half;
            let y = TOP + MARK_ROW * row as f64;
            labels += &text(middle, y, Anchor::Middle, "muted", &label);
        }
        (labels, ends.len())
    }

    /// Returns the line of a mark at `x`: vertical, through all bars. In a narrow chart the line is
    /// interrupted at the labels of the bars.
    fn mark(&self, x: f64, bottom: f64, bars: usize) -> String {
        if self.is_wide() {
            return line("mark", "", [x, x], [self.top - 6.0, bottom]);
        }
        let top = line("mark", "", [x, x], [self.top - 8.0, self.top - 2.0]);
        let of_bar = |n: usize| {
            let middle = self.top + self.row() * (n + 1) as f64 - ROW / 2.0;
            line("mark", "", [x, x], [middle - BAR / 2.0, middle + BAR / 2.0 + 4.0])
        };
        std::iter::once(top).chain((0..bars).map(of_bar)).collect()
    }

    fn bar(&self, bar: &Bar, top: f64) -> String {
        let middle = top + self.row() - ROW / 2.0;
        let (base, left) = (middle + BASE, self.left());
        let mut row = match self.is_wide() {
            true => text(left - 10.0, base, Anchor::End, "label", &bar.label),
            false => text(left, top + LABEL_NARROW, Anchor::Start, "label", &bar.label),
        };
        let Some(value) = bar.value else {
            return row + &text(left + 6.0, base, Anchor::Start, "muted", "no figure");
        };
        let colour = bar.colour.class();
        let (x, y) = (self.x(value), middle - BAR / 2.0);
        row += &format!(
            "<rect class=\"fill {colour}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{BAR:.1}\" rx=\"2\"/>\n",
            (x - left).max(1.0)
        );
        if let Some(worst) = worse(bar, value) {
            let (end, class) = (self.x(worst), format!("stroke {colour}"));
            row += &line(&class, "", [x, end], [middle, middle]);
            row += &line(&class, "", [end, end], [middle - 5.0, middle + 5.0]);
        }
        for run in &bar.runs {
            row += &circle(&format!("run {colour}"), self.x(*run), middle, DOT);
        }
        // In a wide chart, values are in a separate column, where no mark and no dot crosses them.
        let said = said(bar, value, self.unit);
        let right = self.size.width();
        row + &match self.is_wide() {
            true => text(right - RIGHT_WIDE + GAP, base, Anchor::Start, "value", &said),
            false => text(right - SIDE_NARROW, top + LABEL_NARROW, Anchor::End, "value", &said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_well_formed;

    fn chart() -> BarChart {
        let bar = |label: &str, value, worst| Bar {
            label: label.into(),
            colour: Colour::Orange,
            value,
            worst,
            runs: Vec::new(),
        };
        BarChart {
            title: "a & b".into(),
            unit: "x".into(),
            marks: vec![Mark { at: 1.0, label: "ideal".into() }],
            bars: vec![
                bar("<cubic>", Some(2.0), Some(7.5)),
                bar("even", Some(1.0), Some(1.0)),
                bar("missing", None, None),
            ],
        }
    }

    #[test]
    fn bars_are_well_formed_and_escaped() {
        for svg in [chart().to_file("it's < that")].into_iter().chain(one_by_one(&chart())) {
            check_well_formed(&svg).unwrap();
            assert!(svg.contains("&lt;cubic&gt;") && svg.contains("a &amp; b"));
            assert!(svg.contains("2.00x (7.50x)") && svg.contains("no figure"));
            assert!(svg.contains("<title>a &amp; b</title>"), "{svg}");
            assert!(svg.contains("<desc>&lt;cubic&gt;: 2.00x (7.50x); even: 1.00x"), "{svg}");
        }
    }

    /// Returns the wide and the narrow drawing of a chart.
    fn one_by_one(chart: &BarChart) -> [String; 2] {
        Size::BOTH.map(|size| chart.draw(size).embedded(size))
    }

    #[test]
    fn a_worst_case_that_is_no_worse_is_not_drawn() {
        assert!(chart().to_svg().contains(">1.00x<"));
    }

    #[test]
    fn each_run_has_a_dot_and_figures_share_a_unit() {
        let mut chart = chart();
        chart.unit = "b/s".into();
        chart.marks = [(250e6, "one path"), (1e9, "the link")]
            .map(|(at, label)| Mark { at, label: label.into() })
            .to_vec();
        chart.bars.truncate(1);
        let runs = vec![243e6, 246e6, 249e6];
        chart.bars[0] = Bar { value: Some(246e6), worst: None, runs, ..chart.bars[0].clone() };
        let [wide, narrow] = one_by_one(&chart);
        assert_eq!(wide.matches("<circle").count(), 3);
        assert!(wide.contains(">246 Mb/s<") && wide.contains(">the link: 1000 Mb/s<"), "{wide}");
        assert!(narrow.contains("viewBox=\"0 0 360 "), "{narrow}");
    }

    #[test]
    fn regression_no_mark_crosses_the_figure_of_a_bar() {
        let mut chart = chart();
        chart.bars.truncate(1);
        chart.bars[0].value = Some(0.95);
        chart.bars[0].worst = None;
        let svg = chart.draw(Size::Wide).inside;
        let number = |line: &str, name: &str| -> f64 {
            let rest = line.split(&format!("{name}=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let mark = svg.lines().find(|line| line.contains("class=\"mark\"")).unwrap();
        let value = svg.lines().find(|line| line.contains("class=\"value\"")).unwrap();
        assert!(number(value, "x") > number(mark, "x1"), "{value} {mark}");
    }

    #[test]
    fn labels_of_marks_that_are_near_stand_in_rows() {
        let mut chart = chart();
        let near = |at, label: &str| Mark { at, label: label.into() };
        chart.marks = vec![near(1.0, "a mark with a long name"), near(1.1, "another such mark")];
        let svg = chart.draw(Size::Wide).inside;
        let labels = svg.lines().filter(|line| line.contains("mark") && line.contains("<text"));
        let rows: Vec<&str> = labels.map(|line| line.split(" y=").nth(1).unwrap()).collect();
        assert_ne!(&rows[0][..6], &rows[1][..6], "{svg}");
    }
}
