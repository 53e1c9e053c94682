//! Lines over an axis: timelines and distributions.

use crate::svg::{Anchor, Drawing, LETTER, WIDTH, escape, line, text};
use crate::{Axis, Colour, Dashes, number};
use std::fmt::Write as _;

const LEFT: f64 = 72.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 48.0;
const LEGEND_ROW: f64 = 19.0;
/// The line and the gap before a name in the legend.
const LEGEND_KEY: f64 = 44.0;
const LEGEND_COLUMNS_MAX: usize = 4;
/// Legends name at most so many lines.
const LEGEND_MAX: usize = 32;
/// Below this height there is room for few ticks.
const LOW: f64 = 100.0;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is, for the legend, which leaves out lines without a name.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// What tells it apart from others of its colour.
    pub dashes: Dashes,
    /// Whether it is drawn faintly, as one of a crowd.
    pub faint: bool,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A line across at something that happened, or would at best.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// What.
    pub label: String,
}

/// Lines.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    /// What it shows.
    pub title: String,
    /// Height of the drawing, without axes and legend.
    pub height: f64,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// Vertical marks, from left to right.
    pub marks: Vec<Mark>,
    /// A horizontal mark, which the legend names.
    pub level: Option<Mark>,
    /// Whether a value holds until the next point.
    pub steps: bool,
}

impl LineChart {
    /// The chart as part of a page.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.draw().embedded()
    }

    /// The chart as a file of its own.
    #[must_use]
    pub fn to_file(&self, subtitle: &str) -> String {
        self.draw().file(subtitle)
    }

    fn draw(&self) -> Drawing {
        let mut inside = self.axes() + &self.marks();
        // The crowd first, so that what matters lies on top.
        for faint in [true, false] {
            for line in self.lines.iter().filter(|line| line.faint == faint) {
                inside += &self.line(line);
            }
        }
        let legend = self.legend();
        let rows = legend.len().div_ceil(columns(&legend)) as f64;
        inside += &draw_legend(&legend, self.bottom() + BOTTOM);
        let height = self.bottom() + BOTTOM + LEGEND_ROW * rows;
        Drawing { title: self.title.clone(), height, inside }
    }

    fn bottom(&self) -> f64 {
        TOP + self.height
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - self.y.place(value) * self.height
    }

    fn axes(&self) -> String {
        let (bottom, right) = (self.bottom(), WIDTH - RIGHT);
        let mut axes = String::new();
        for tick in self.y.ticks(if self.height < LOW { 2 } else { 6 }) {
            let at = self.y(tick);
            axes += &line("grid", "", [LEFT, right], [at, at]);
            axes += &text(LEFT - 7.0, at + 4.0, Anchor::End, "muted", &number(tick));
        }
        for tick in self.x.ticks(9) {
            let at = self.x(tick);
            axes += &line("grid", "", [at, at], [TOP, bottom]);
            axes += &text(at, bottom + 17.0, Anchor::Middle, "muted", &number(tick));
        }
        let _ = writeln!(
            axes,
            "<text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\" \
             class=\"muted\">{}</text>",
            TOP + self.height / 2.0,
            escape(&self.y.label)
        );
        axes + &text((LEFT + right) / 2.0, bottom + 37.0, Anchor::Middle, "muted", &self.x.label)
    }

    /// The marks, with the labels of vertical ones outside the plot, where no line crosses them.
    fn marks(&self) -> String {
        let mut marks = String::new();
        for (n, mark) in self.marks.iter().enumerate() {
            let at = self.x(mark.at);
            let free = self.marks.get(n + 1).map_or(WIDTH, |next| self.x(next.at)) - at;
            let fits = mark.label.chars().count() as f64 * LETTER < free;
            let (anchor, beside) = if fits { (Anchor::Start, -2.0) } else { (Anchor::End, 2.0) };
            marks += &line("mark", "", [at, at], [TOP - 6.0, self.bottom()]);
            marks += &text(at + beside, TOP - 10.0, anchor, "muted", &mark.label);
        }
        if let Some(level) = &self.level {
            let at = self.y(level.at);
            marks += &line("mark", "", [LEFT, WIDTH - RIGHT], [at, at]);
        }
        marks
    }

    fn line(&self, line: &Line) -> String {
        let mut path = String::new();
        for (number, (x, y)) in line.points.iter().enumerate() {
            let (x, y) = (self.x(*x), self.y(*y));
            let _ = match (number, self.steps) {
                (0, _) => write!(path, "M{x:.1} {y:.1}"),
                (_, true) => write!(path, "H{x:.1}V{y:.1}"),
                (_, false) => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        if let [(x, y)] = line.points.as_slice() {
            // A line of one point would draw nothing.
            path = format!("M{:.1} {:.1}h6", self.x(*x) - 3.0, self.y(*y));
        }
        if path.is_empty() {
            return path;
        }
        let (colour, dashes) = (line.colour.class(), line.dashes.attribute());
        let faint = if line.faint { " faint" } else { "" };
        format!("<path class=\"stroke {colour}{faint}\"{dashes} d=\"{path}\"/>\n")
    }

    /// What the legend names. A line that is alone needs no name.
    fn legend(&self) -> Vec<Entry<'_>> {
        let named = self.lines.iter().filter(|line| !line.label.is_empty());
        let listed = if self.lines.len() > 1 { LEGEND_MAX } else { 0 };
        let mut entries: Vec<Entry<'_>> = named
            .take(listed)
            .map(|line| Entry {
                class: format!("stroke {}", line.colour.class()),
                dashes: line.dashes,
                label: &line.label,
            })
            .collect();
        entries.extend(self.level.as_ref().map(|level| Entry {
            class: "mark".to_owned(),
            dashes: Dashes::Solid,
            label: &level.label,
        }));
        entries
    }
}

/// A name in the legend, beside a piece of its line.
struct Entry<'a> {
    class: String,
    dashes: Dashes,
    label: &'a str,
}

/// As many columns as the longest name leaves room for.
fn columns(entries: &[Entry<'_>]) -> usize {
    let longest = entries.iter().map(|entry| entry.label.chars().count()).max().unwrap_or(0);
    let width = LEGEND_KEY + longest as f64 * LETTER;
    let fits = |columns: &usize| *columns as f64 * width <= WIDTH - LEFT;
    (1..=LEGEND_COLUMNS_MAX).rev().find(fits).unwrap_or(1)
}

fn draw_legend(entries: &[Entry<'_>], top: f64) -> String {
    let columns = columns(entries);
    let width = (WIDTH - LEFT) / columns as f64;
    let mut legend = String::new();
    for (n, entry) in entries.iter().enumerate() {
        let left = LEFT + width * (n % columns) as f64;
        let y = top + LEGEND_ROW * (n / columns) as f64 + 6.0;
        legend += &line(&entry.class, entry.dashes.attribute(), [left, left + 22.0], [y, y]);
        legend += &text(left + 28.0, y + 4.0, Anchor::Start, "label", entry.label);
    }
    legend
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
            Line { label: format!("line <{n}>"), colour, dashes, faint: n % 2 == 1, points }
        };
        LineChart {
            title: "t & u".into(),
            height: 120.0,
            x: Axis::linear("s", 0.0, 2.0),
            y: Axis::linear("Mb/s", 0.0, 10.0),
            lines: (0..lines).map(line).collect(),
            marks: vec![Mark { at: 1.9, label: "heals & \"lives\"".into() }],
            level: Some(Mark { at: 6.0, label: "at <best>".into() }),
            steps: true,
        }
    }

    #[test]
    fn lines_are_well_formed_escaped_and_labelled() {
        for lines in [0, 1, 2, 8, 40] {
            for svg in [chart(lines).to_svg(), chart(lines).to_file("it's")] {
                check_well_formed(&svg).unwrap();
                assert!(svg.contains("heals &amp; &quot;lives&quot;") && svg.contains(">Mb/s<"));
                assert!(svg.contains("at &lt;best&gt;"), "the legend names the level");
                assert_eq!(svg.contains("line &lt;0&gt;"), lines > 1, "a legend needs company");
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
        let svg = chart(20).to_svg();
        let paths = svg.lines().filter_map(|line| line.strip_prefix("<path class="));
        let styles: BTreeSet<_> = paths.filter_map(|path| path.split(" d=").next()).collect();
        assert_eq!(styles.len(), 20, "{styles:?}");
    }

    #[test]
    fn steps_go_right_before_they_go_up() {
        assert!(chart(1).to_svg().contains("M72.0 146.0H427.0V26.0H782.0V86.0"));
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
        assert_eq!(columns(&[entry("srd")]), 4);
        assert_eq!(columns(&[entry("a name that takes a third of it")]), 2);
        assert_eq!(columns(&[entry(&"x".repeat(300))]), 1);
    }
}
