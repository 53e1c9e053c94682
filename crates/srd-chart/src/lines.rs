//! Line charts: timelines and distributions.

use crate::svg::{Anchor, Drawing, LETTER, Size, escape, line, text};
use crate::{Axis, Colour, Dashes, number};
use std::fmt::Write as _;

const LEFT: f64 = 72.0;
const LEFT_NARROW: f64 = 58.0;
const RIGHT: f64 = 18.0;
/// Height above the plot if the labels of marks need only one row.
const TOP: f64 = 26.0;
const MARK_ROW: f64 = 16.0;
const MARK_ROWS_MAX: usize = 4;
/// Gap between two labels.
const GAP: f64 = 8.0;
const BOTTOM: f64 = 48.0;
/// Number of ticks of the x axis in a wide and in a narrow chart.
const TICKS: [usize; 2] = [9, 4];
/// Height of the text that names a level (a horizontal mark).
const LEVEL_NAME: f64 = 14.0;
/// Dash patterns of levels (horizontal marks), assigned in this order and repeated.
const LEVEL_DASHES: [Dashes; 3] = [Dashes::Long, Dashes::Short, Dashes::Mixed];
const LEGEND_ROW: f64 = 19.0;
/// Width of a legend entry's sample line, with the gap between sample and name.
const LEGEND_KEY: f64 = 44.0;
const LEGEND_COLUMNS_MAX: usize = 4;
/// Largest number of lines that a legend names.
const LEGEND_MAX: usize = 32;
/// Height of the plot below which the y axis has about 2 ticks instead of 6.
const LOW: f64 = 100.0;

/// One line of a line chart.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartLine {
    /// Name of the line in the legend. The legend leaves out lines without a name.
    pub label: String,
    /// Colour of the line.
    pub colour: Colour,
    /// Dash pattern, which distinguishes lines of one colour.
    pub dashes: Dashes,
    /// Whether the line is thin and pale, as one of many in the chart.
    pub faint: bool,
    /// Points (x, y) of the line, from left to right. A point whose y is NaN ends the line, and the
    /// next point begins it again: the gap shows that there are no values.
    pub points: Vec<(f64, f64)>,
}

/// A line across the chart that marks an event or the best possible value.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Value at which the mark is drawn: of the y axis for a horizontal mark, otherwise of the x
    /// axis.
    pub at: f64,
    /// Label of the mark.
    pub label: String,
}

/// A chart of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    /// Title of the chart.
    pub title: String,
    /// Height of the plot area in SVG units, without axis labels and legend.
    pub height: f64,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Lines of the chart.
    pub lines: Vec<ChartLine>,
    /// Vertical marks, from left to right. A mark beyond the ends of the axis is not drawn.
    pub marks: Vec<Mark>,
    /// Horizontal marks: limits, and best possible values.
    pub levels: Vec<Mark>,
    /// Whether a line keeps the value of a point until the next point and changes in a step. If
    /// false, points are connected directly.
    pub steps: bool,
}

impl LineChart {
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

    fn draw(&self, size: Size) -> Drawing {
        let mut plot = Plot { chart: self, size, top: TOP };
        let labels = plot.mark_labels();
        let rows = labels.iter().map(|(_, row)| *row).max().unwrap_or(0);
        plot.top += MARK_ROW * rows as f64;
        let mut inside = plot.axes() + &plot.marks(&labels);
        // Faint lines are drawn first, so that the important lines are on top.
        for faint in [true, false] {
            for line in self.lines.iter().filter(|line| line.faint == faint) {
                inside += &plot.line(line);
            }
        }
        let names = plot.level_names();
        inside += &plot.levels(&names);
        let legend = self.legend(&names);
        inside += &plot.legend(&legend);
        let rows = legend.len().div_ceil(plot.columns(&legend)) as f64;
        let height = plot.bottom() + BOTTOM + LEGEND_ROW * rows;
        let (title, description) = (self.title.clone(), self.describe());
        Drawing { title, description, height, inside }
    }

    /// Returns the vertical marks that are on the axis.
    fn marks_seen(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(|mark| self.x.holds(mark.at))
    }

    /// Returns the ranges of axes and lines, and all marks, as text for screen readers.
    fn describe(&self) -> String {
        let (x, y) = (&self.x, &self.y);
        let lines = self.lines.iter().filter(|line| !line.label.is_empty()).filter_map(|line| {
            let values = || line.points.iter().map(|point| point.1).filter(|y| !y.is_nan());
            let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
            Some(format!("{}: {} to {}", line.label, number(low), number(high)))
        });
        let marks = self.marks_seen().map(|mark| format!("{} at {}", mark.label, number(mark.at)));
        let levels =
            self.levels.iter().map(|level| format!("{}: {}", level.label, number(level.at)));
        let ranges = format!(
            "{} from {} to {}; {} from {} to {}",
            x.label,
            number(x.min),
            number(x.max),
            y.label,
            number(y.min),
            number(y.max)
        );
        let all = std::iter::once(ranges).chain(lines.take(LEGEND_MAX)).chain(marks).chain(levels);
        all.collect::<Vec<_>>().join("; ")
    }

    /// Returns the entries of the legend: lines that have a label, and levels whose name is not in
    /// the drawing (`None` in `names`). If the chart has only one line, the line is not listed.
    fn legend(&self, names: &[Option<(f64, f64)>]) -> Vec<Entry<'_>> {
        let named = self.lines.iter().filter(|line| !line.label.is_empty());
        let listed = if self.lines.len() > 1 { LEGEND_MAX } else { 0 };
        let lines = named.take(listed).map(|line| Entry {
            class: format!("stroke {}", line.colour.class()),
            dashes: line.dashes,
            label: &line.label,
        });
        let levels = self.levels.iter().zip(names).enumerate();
        let unnamed = levels.filter(|(_, (_, name))| name.is_none()).map(|(n, (level, _))| Entry {
            class: "limit".to_owned(),
            dashes: LEVEL_DASHES[n % LEVEL_DASHES.len()],
            label: &level.label,
        });
        lines.chain(unnamed).collect()
    }
}

/// A chart that is being drawn in one size.
struct Plot<'a> {
    chart: &'a LineChart,
    size: Size,
    top: f64,
}

impl Plot<'_> {
    fn left(&self) -> f64 {
        if self.size == Size::Wide { LEFT } else { LEFT_NARROW }
    }

    fn right(&self) -> f64 {
        self.size.width() - RIGHT
    }

    fn bottom(&self) -> f64 {
        self.top + self.chart.height
    }

    fn x(&self, value: f64) -> f64 {
        self.left() + self.chart.x.place(value) * (self.right() - self.left())
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - self.chart.y.place(value) * self.chart.height
    }

    fn axes(&self) -> String {
        let (left, right, bottom) = (self.left(), self.right(), self.bottom());
        let LineChart { x, y, height, .. } = self.chart;
        let mut axes = String::new();
        for tick in y.ticks(if *height < LOW { 2 } else { 6 }) {
            let at = self.y(tick);
            axes += &line("grid", "", [left, right], [at, at]);
            axes += &text(left - 7.0, at + 4.0, Anchor::End, "muted", &number(tick));
        }
        for tick in x.ticks(TICKS[usize::from(self.size == Size::Narrow)]) {
            let at = self.x(tick);
            axes += &line("grid", "", [at, at], [self.top, bottom]);
            axes += &text(at, bottom + 17.0, Anchor::Middle, "muted", &number(tick));
        }
        let _ = writeln!(
            axes,
            "<text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\" \
             class=\"muted\">{}</text>",
            self.top + height / 2.0,
            escape(&y.label)
        );
        axes + &text(f64::midpoint(left, right), bottom + 37.0, Anchor::Middle, "muted", &x.label)
    }

    /// Returns two values for each vertical mark: the left edge of its label, and the row of the
    /// label above the plot. Labels that would overlap are put into different rows.
    fn mark_labels(&self) -> Vec<(f64, usize)> {
        let mut ends: Vec<f64> = Vec::new();
        let place = |mark: &Mark| {
            let width = mark.label.chars().count() as f64 * LETTER;
            let start = (self.x(mark.at) - 2.0).min(self.size.width() - width).max(0.0);
            let row = ends.iter().position(|end| end + GAP < start).unwrap_or(ends.len());
            let row = row.min(MARK_ROWS_MAX - 1);
            if row == ends.len() {
                ends.push(0.0);
            }
            ends[row] = start + width;
            (start, row)
        };
        self.chart.marks_seen().map(place).collect()
    }

    /// Returns the vertical marks and their labels. The labels are above the plot, where no line
    /// crosses them.
    fn marks(&self, labels: &[(f64, usize)]) -> String {
        let (mut marks, mut names) = (String::new(), String::new());
        for (mark, (start, row)) in self.chart.marks_seen().zip(labels) {
            let (at, up) = (self.x(mark.at), MARK_ROW * *row as f64);
            marks += &line("mark", "", [at, at], [self.top - 6.0 - up, self.bottom()]);
            let y = self.top - 10.0 - up;
            names += &text(*start, y, Anchor::Start, "mark-name", &mark.label);
        }
        marks + &names
    }

    /// Returns the position of the name of each horizontal mark, which is above the right end of
    /// the mark. `None` if a line or another name is at that position; the legend then contains the
    /// name.
    fn level_names(&self) -> Vec<Option<(f64, f64)>> {
        let mut taken: Vec<f64> = Vec::new();
        let place = |level: &Mark| {
            let (x, y) = (self.right() - 4.0, self.y(level.at) - 5.0);
            let width = level.label.chars().count() as f64 * LETTER;
            let is_inside = y - LEVEL_NAME >= self.top && x - width >= self.left();
            let is_alone = taken.iter().all(|other| (other - y).abs() >= LEVEL_NAME);
            let is_free = is_inside
                && is_alone
                && self.is_free([x - width, x], [y - LEVEL_NAME, y + LEVEL_NAME / 2.0]);
            is_free.then(|| {
                taken.push(y);
                (x, y)
            })
        };
        self.chart.levels.iter().map(place).collect()
    }

    /// Whether no line crosses the rectangle from `across[0]` to `across[1]` horizontally and from
    /// `down[0]` to `down[1]` vertically.
    fn is_free(&self, across: [f64; 2], down: [f64; 2]) -> bool {
        let overlaps =
            |a: f64, b: f64, range: [f64; 2]| a.max(b) >= range[0] && a.min(b) <= range[1];
        let mut segments = self.chart.lines.iter().flat_map(|line| line.points.windows(2));
        segments.all(|pair| {
            let (from, to) = (pair[0], pair[1]);
            !overlaps(self.x(from.0), self.x(to.0), across)
                || !overlaps(self.y(from.1), self.y(to.1), down)
        })
    }

    fn levels(&self, names: &[Option<(f64, f64)>]) -> String {
        let mut levels = String::new();
        for (n, (level, name)) in self.chart.levels.iter().zip(names).enumerate() {
            let at = self.y(level.at);
            let dashes = LEVEL_DASHES[n % LEVEL_DASHES.len()].attribute();
            levels += &line("limit", dashes, [self.left(), self.right()], [at, at]);
            if let Some((x, y)) = name {
                levels += &text(*x, *y, Anchor::End, "limit-name", &level.label);
            }
        }
        levels
    }

    fn line(&self, line: &ChartLine) -> String {
        let mut path = String::new();
        let mut is_begun = false;
        for (x, value) in &line.points {
            let (x, y) = (self.x(*x), self.y(*value));
            let _ = match (value.is_nan(), is_begun, self.chart.steps) {
                // The last value before a gap is valid until the gap begins.
                (true, true, true) => write!(path, "H{x:.1}"),
                (true, ..) => Ok(()),
                (false, false, _) => write!(path, "M{x:.1} {y:.1}"),
                (false, true, true) => write!(path, "H{x:.1}V{y:.1}"),
                (false, true, false) => write!(path, "L{x:.1} {y:.1}"),
            };
            is_begun = !value.is_nan();
        }
        if let [(x, y)] = line.points.as_slice()
            && !y.is_nan()
        {
            // A path with one point would draw nothing.
            path = format!("M{:.1} {:.1}h6", self.x(*x) - 3.0, self.y(*y));
        }
        if path.is_empty() {
            return path;
        }
        let (colour, dashes) = (line.colour.class(), line.dashes.attribute());
        let faint = if line.faint { " faint" } else { "" };
        format!("<path class=\"stroke {colour}{faint}\"{dashes} d=\"{path}\"/>\n")
    }

    /// Returns the largest number of legend columns in which the longest name fits.
    fn columns(&self, entries: &[Entry<'_>]) -> usize {
        let longest = entries.iter().map(|entry| entry.label.chars().count()).max().unwrap_or(0);
        let width = LEGEND_KEY + longest as f64 * LETTER;
        let fits = |columns: &usize| *columns as f64 * width <= self.size.width() - self.left();
        (1..=LEGEND_COLUMNS_MAX).rev().find(fits).unwrap_or(1)
    }

    fn legend(&self, entries: &[Entry<'_>]) -> String {
        let (columns, top) = (self.columns(entries), self.bottom() + BOTTOM);
        // On a phone the legend begins at the left edge, because a name may need the full width.
        let from = if self.size == Size::Wide { LEFT } else { 0.0 };
        let width = (self.size.width() - from) / columns as f64;
        let mut legend = String::new();
        for (n, entry) in entries.iter().enumerate() {
            let left = from + width * (n % columns) as f64;
            let y = top + LEGEND_ROW * (n / columns) as f64 + 6.0;
            legend += &line(&entry.class, entry.dashes.attribute(), [left, left + 22.0], [y, y]);
            legend += &text(left + 28.0, y + 4.0, Anchor::Start, "label", entry.label);
        }
        legend
    }
}

/// An entry of the legend: a name beside a sample of its line.
struct Entry<'a> {
    class: String,
    dashes: Dashes,
    label: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check_well_formed, nth};
    use std::collections::BTreeSet;

    fn chart(lines: usize) -> LineChart {
        let line = |n: usize| {
            let (colour, dashes) = nth(n);
            let points = vec![(0.0, 0.0), (1.0, 10.0), (2.0, 5.0)];
            ChartLine { label: format!("line <{n}>"), colour, dashes, faint: n % 2 == 1, points }
        };
        LineChart {
            title: "t & u".into(),
            height: 120.0,
            x: Axis::linear("s", 0.0, 2.0),
            y: Axis::linear("Mb/s", 0.0, 10.0),
            lines: (0..lines).map(line).collect(),
            marks: vec![Mark { at: 1.9, label: "heals & \"lives\"".into() }],
            levels: vec![Mark { at: 6.0, label: "at <best>".into() }],
            steps: true,
        }
    }

    #[test]
    fn lines_are_well_formed_escaped_and_labelled() {
        for lines in [0, 1, 2, 8, 40] {
            let embedded = Size::BOTH.map(|size| chart(lines).draw(size).embedded(size));
            for svg in embedded.into_iter().chain([chart(lines).to_file("it's")]) {
                check_well_formed(&svg).unwrap();
                assert!(svg.contains("heals &amp; &quot;lives&quot;") && svg.contains(">Mb/s<"));
                assert!(svg.contains(">at &lt;best&gt;</text>"), "the level has its name");
                assert_eq!(svg.contains(">line &lt;0&gt;<"), lines > 1, "a legend needs company");
                assert!(svg.contains("<desc>s from 0 to 2; Mb/s from 0 to 10"), "{svg}");
            }
        }
    }

    #[test]
    fn a_file_needs_nothing_from_outside_and_follows_the_reader() {
        let file = chart(3).to_file("it's");
        assert!(file.contains("prefers-color-scheme:dark") && file.contains("t &amp; u"));
        let outside = file.replace("http://www.w3.org/2000/svg", "");
        for word in ["http", "url(", "href", "@import", "<script"] {
            assert!(!outside.contains(word), "{word}");
        }
    }

    #[test]
    fn lines_of_one_colour_differ_in_dashes() {
        let svg = chart(20).to_file("");
        let paths = svg.lines().filter_map(|line| line.strip_prefix("<path class="));
        let styles: BTreeSet<_> = paths.filter_map(|path| path.split(" d=").next()).collect();
        assert_eq!(styles.len(), 20, "{styles:?}");
    }

    #[test]
    fn steps_go_right_before_they_go_up() {
        assert!(chart(1).to_svg().contains("M72.0 146.0H427.0V26.0H782.0V86.0"));
    }

    /// In an earlier version, a chart could not show that there are no values for some time.
    #[test]
    fn regression_a_gap_is_a_gap() {
        let mut chart = chart(1);
        chart.lines[0].points = vec![(0.0, 0.0), (1.0, f64::NAN), (1.5, 10.0), (2.0, 10.0)];
        let svg = chart.to_svg();
        assert!(svg.contains("M72.0 146.0H427.0M604.5 26.0H782.0V26.0"), "{svg}");
        assert!(svg.contains("line &lt;0&gt;: 0 to 10") && !svg.contains("NaN"), "{svg}");
        chart.y = Axis::log("us", 1.0, 10.0);
        assert!(chart.to_svg().contains("H427.0M604.5 26.0"), "{}", chart.to_svg());
        chart.steps = false;
        chart.lines[0].points.truncate(2);
        assert!(!chart.to_svg().contains("NaN"));
        chart.lines[0].points = vec![(1.0, f64::NAN)];
        assert!(!chart.to_svg().contains("NaN"));
    }

    #[test]
    fn regression_a_line_of_one_point_is_seen() {
        let mut one = chart(1);
        one.lines[0].points.truncate(1);
        assert!(one.to_svg().contains("h6\""), "{}", one.to_svg());
    }

    #[test]
    fn long_names_get_fewer_columns() {
        let entry = |label| Entry { class: String::new(), dashes: Dashes::Solid, label };
        let chart = chart(1);
        let plot = Plot { chart: &chart, size: Size::Wide, top: TOP };
        assert_eq!(plot.columns(&[entry("srd")]), 4);
        assert_eq!(plot.columns(&[entry("a name that takes a third of it")]), 2);
        assert_eq!(plot.columns(&[entry(&"x".repeat(300))]), 1);
    }

    #[test]
    fn labels_of_marks_that_are_near_stand_in_rows() {
        let mut chart = chart(1);
        let near = |at, label: &str| Mark { at, label: label.into() };
        chart.marks = vec![near(1.0, "the spine dies"), near(1.05, "it heals"), near(1.9, "end")];
        let plot = Plot { chart: &chart, size: Size::Wide, top: TOP };
        let rows: Vec<usize> = plot.mark_labels().iter().map(|(_, row)| *row).collect();
        assert_eq!(rows, [0, 1, 0]);
        chart.marks = (0..40).map(|_| near(1.0, "many at once")).collect();
        let plot = Plot { chart: &chart, size: Size::Narrow, top: TOP };
        assert!(plot.mark_labels().iter().all(|(_, row)| *row < MARK_ROWS_MAX));
    }

    /// In an earlier version, a mark beyond the end of the axis was drawn at its end.
    #[test]
    fn regression_a_mark_beyond_the_axis_is_not_drawn() {
        let mut chart = chart(1);
        let mark = |at, label: &str| Mark { at, label: label.into() };
        chart.marks = vec![mark(-0.1, "early"), mark(2.0, "at the end"), mark(2.1, "late")];
        let svg = chart.to_svg();
        assert!(svg.contains(">at the end<") && svg.contains("at the end at 2"), "{svg}");
        assert!(!svg.contains("early") && !svg.contains(">late<"), "{svg}");
        assert!(!svg.contains("late at 2.1"), "{svg}");
    }

    #[test]
    fn regression_a_name_of_a_level_on_which_something_lies_stands_in_the_legend() {
        let mut chart = chart(1);
        let level = |at, label: &str| Mark { at, label: label.into() };
        chart.lines[0].points = vec![(0.0, 3.2), (2.0, 3.2)];
        chart.levels = vec![level(8.0, "peak"), level(8.1, "near it"), level(3.0, "below a line")];
        let svg = chart.draw(Size::Wide).inside;
        let class_of = |label: &str| {
            let line = svg.lines().find(|line| line.contains(&format!(">{label}<"))).unwrap();
            line.split("class=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        let classes = ["peak", "near it", "below a line"].map(class_of);
        assert_eq!(classes, ["limit-name", "label", "label"], "{svg}");
    }
}
