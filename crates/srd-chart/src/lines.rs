//! Lines over an axis: timelines and distributions.

use super::{Anchor, Axis, Tone, figure, svg, text};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 40.0;
const LEGEND_ROW: f64 = 20.0;
const LEGEND_COLUMNS: usize = 3;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is; shown in the legend if there are several lines.
    pub label: String,
    /// Its colour.
    pub tone: Tone,
    /// Dashes, to tell lines of one colour apart: none, `6 3`, `2 3`.
    pub dashes: Option<&'static str>,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Something that happened, or would at best: a vertical line.
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
    /// What a screen reader says.
    pub label: String,
    /// Height of the drawing, without axes and legend.
    pub height: f64,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// The marks.
    pub marks: Vec<Mark>,
    /// Whether a value holds until the next point.
    pub steps: bool,
}

impl LineChart {
    /// The chart as SVG.
    pub fn to_svg(&self) -> String {
        let bottom = TOP + self.height;
        let x = |value: f64| LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| bottom - self.y.place(value) * self.height;
        let mut inside = self.axes(&x, &y);
        for mark in &self.marks {
            let at = x(mark.at);
            let anchor = if at > WIDTH - 120.0 { Anchor::End } else { Anchor::Start };
            let beside = if anchor == Anchor::End { at - 4.0 } else { at + 4.0 };
            let _ = write!(
                inside,
                "<line class=\"ideal\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" \
                 y2=\"{bottom:.1}\"/>\n{}",
                TOP - 4.0,
                text(beside, TOP - 8.0, anchor, "muted", &mark.label)
            );
        }
        for line in &self.lines {
            inside += &self.line(line, &x, &y);
        }
        let legend =
            if self.lines.len() > 1 { self.legend(bottom + BOTTOM) } else { String::new() };
        let rows = if legend.is_empty() { 0 } else { self.lines.len().div_ceil(LEGEND_COLUMNS) };
        let height = bottom + BOTTOM + LEGEND_ROW * rows as f64;
        svg(WIDTH, height, &self.label, &(inside + &legend))
    }

    fn axes(&self, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> String {
        let (bottom, right) = (TOP + self.height, WIDTH - RIGHT);
        let mut axes = String::new();
        let rows = if self.height < 100.0 { 2 } else { 5 };
        for tick in self.y.ticks(rows) {
            let at = y(tick);
            let _ = write!(
                axes,
                "<line class=\"grid\" x1=\"{LEFT:.1}\" x2=\"{right:.1}\" y1=\"{at:.1}\" \
                 y2=\"{at:.1}\"/>\n{}",
                text(LEFT - 6.0, at + 4.0, Anchor::End, "muted", &tick_label(tick))
            );
        }
        for tick in self.x.ticks(8) {
            axes += &text(x(tick), bottom + 16.0, Anchor::Middle, "muted", &tick_label(tick));
        }
        axes += &text(right, bottom + 33.0, Anchor::End, "muted", &self.x.label);
        axes + &text(LEFT, TOP - 8.0, Anchor::Start, "muted", &self.y.label)
    }

    fn line(&self, line: &Line, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> String {
        let mut path = String::new();
        for (number, (px, py)) in line.points.iter().enumerate() {
            let (px, py) = (x(*px), y(*py));
            let _ = match (number, self.steps) {
                (0, _) => write!(path, "M{px:.1} {py:.1}"),
                (_, true) => write!(path, "H{px:.1}V{py:.1}"),
                (_, false) => write!(path, "L{px:.1} {py:.1}"),
            };
        }
        if let [(px, py)] = line.points.as_slice() {
            // A line of one point would draw nothing.
            path = format!("M{:.1} {:.1}h6", x(*px) - 3.0, y(*py));
        }
        if path.is_empty() {
            return String::new();
        }
        let dashes = dashes(line.dashes);
        format!("<path class=\"stroke {}\"{dashes} d=\"{path}\"/>\n", line.tone.class())
    }

    fn legend(&self, top: f64) -> String {
        let column = (WIDTH - LEFT) / LEGEND_COLUMNS as f64;
        let mut legend = String::new();
        for (number, line) in self.lines.iter().enumerate() {
            let left = LEFT + column * (number % LEGEND_COLUMNS) as f64;
            let middle = top + LEGEND_ROW * (number / LEGEND_COLUMNS) as f64 + 8.0;
            let _ = write!(
                legend,
                "<line class=\"stroke {}\"{} x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" \
                 y2=\"{middle:.1}\"/>\n{}",
                line.tone.class(),
                dashes(line.dashes),
                left + 22.0,
                text(left + 28.0, middle + 4.5, Anchor::Start, "label", &line.label)
            );
        }
        legend
    }
}

fn dashes(pattern: Option<&str>) -> String {
    pattern.map_or(String::new(), |pattern| format!(" stroke-dasharray=\"{pattern}\""))
}

/// Ticks are round: no digit beyond the last that counts.
fn tick_label(tick: f64) -> String {
    let text = if tick.abs() >= 1.0 { format!("{tick}") } else { figure(tick) };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wellformed::check;

    fn chart(lines: usize) -> LineChart {
        let line = |number: usize| Line {
            label: format!("line <{number}>"),
            tone: Tone::Srd,
            dashes: (number == 1).then_some("6 3"),
            points: vec![(0.0, 0.0), (1.0, 10.0), (2.0, 5.0)],
        };
        LineChart {
            label: "t".into(),
            height: 120.0,
            x: Axis::linear("s", 0.0, 2.0),
            y: Axis::linear("Mb/s", 0.0, 10.0),
            lines: (0..lines).map(line).collect(),
            marks: vec![Mark { at: 1.9, label: "heals & \"lives\"".into() }],
            steps: true,
        }
    }

    #[test]
    fn lines_are_well_formed_and_escaped() {
        for lines in 0..5 {
            let svg = chart(lines).to_svg();
            check(&svg).unwrap();
            assert!(svg.contains("heals &amp; &quot;lives&quot;"));
            assert_eq!(svg.contains("line &lt;0&gt;"), lines > 1, "a legend needs company");
        }
    }

    #[test]
    fn steps_go_right_before_they_go_up() {
        assert!(chart(1).to_svg().contains("M52.0 144.0H378.0V24.0H704.0V84.0"));
    }
}
