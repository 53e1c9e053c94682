//! Line charts as SVG, by hand: one file, styled from within, light and dark.

use std::fmt::Write as _;

use super::axis::{Axis, number};

const WIDTH: f64 = 820.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 58.0;
const PLOT: f64 = 320.0;
const BELOW: f64 = 50.0;
const LEGEND_ROW: f64 = 19.0;
const LEGEND_COLUMNS: usize = 4;
/// Legends name at most so many lines.
const LEGEND_MAX: usize = 32;

/// Colours: as light and dark grounds want them (after Okabe and Ito, who chose hues that
/// colour-blind people tell apart; the lines' dashes tell apart what shares a colour).
const COLOURS: [(&str, &str); 8] = [
    ("#0067b1", "#58b4f0"),
    ("#c85000", "#ff9550"),
    ("#007f5c", "#3fd0a4"),
    ("#a2508c", "#e6a0d0"),
    ("#8f6400", "#f0c040"),
    ("#5a5f66", "#b4bac2"),
    ("#7a4fd0", "#b79bff"),
    ("#a8323e", "#ff8a92"),
];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

/// One line.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// What it is; lines without a label are not in the legend.
    pub label: String,
    /// Its style: colours first, then dashes.
    pub style: usize,
    /// Whether it is drawn faintly, as one of a crowd.
    pub faint: bool,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A vertical line at something that happened, or that would at best.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// What.
    pub label: String,
}

/// A chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Under which circumstances.
    pub subtitle: String,
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

/// Makes a text safe inside elements and attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (n, (on_light, on_dark)) in COLOURS.iter().enumerate() {
        let _ = write!(light, ".c{n}{{stroke:{on_light}}}");
        let _ = write!(dark, ".c{n}{{stroke:{on_dark}}}");
    }
    format!(
        "<style>text{{font:12px system-ui,sans-serif;fill:#1c1e21}}.title{{font-size:16px;\
         font-weight:600}}.muted{{fill:#5f6670}}.ground{{fill:#fff}}.grid{{stroke:#e1e4e8}}\
         .mark{{stroke:#5f6670;stroke-dasharray:4 3}}path,.key{{fill:none;stroke-width:1.8}}\
         .faint{{stroke-width:1;stroke-opacity:.55}}{light}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6e9ee}}.muted{{fill:#9aa3af}}\
         .ground{{fill:#14171c}}.grid{{stroke:#2b3038}}.mark{{stroke:#9aa3af}}{dark}}}</style>\n"
    )
}

fn text(x: f64, y: f64, anchor: &str, class: &str, content: &str) -> String {
    let content = escape(content);
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{content}\
         </text>\n"
    )
}

fn dashes(style: usize) -> String {
    match DASHES[style / COLOURS.len() % DASHES.len()] {
        "" => String::new(),
        pattern => format!(" stroke-dasharray=\"{pattern}\""),
    }
}

impl Chart {
    /// The chart as a file.
    pub fn svg(&self) -> String {
        let named: Vec<&Line> = self.lines.iter().filter(|l| !l.label.is_empty()).collect();
        let listed = if named.len() > 1 { named.len().min(LEGEND_MAX) } else { 0 };
        let rows = listed.div_ceil(LEGEND_COLUMNS) as f64;
        let height = TOP + PLOT + BELOW + rows * LEGEND_ROW + 8.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
             width=\"{WIDTH:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n{}",
            escape(&self.title),
            style()
        );
        let _ =
            writeln!(svg, "<rect class=\"ground\" width=\"{WIDTH:.0}\" height=\"{height:.0}\"/>");
        svg += &text(LEFT, 22.0, "start", "title", &self.title);
        svg += &text(LEFT, 40.0, "start", "muted", &self.subtitle);
        svg += &self.axes();
        for mark in &self.marks {
            svg += &self.mark(mark);
        }
        // The crowd first, so that what matters lies on top.
        for faint in [true, false] {
            for line in self.lines.iter().filter(|l| l.faint == faint) {
                svg += &self.line(line);
            }
        }
        for (n, line) in named.iter().take(listed).enumerate() {
            svg += &legend_entry(n, line);
        }
        svg + "</svg>\n"
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + PLOT - self.y.place(value) * PLOT
    }

    fn axes(&self) -> String {
        let (bottom, right) = (TOP + PLOT, WIDTH - RIGHT);
        let mut axes = String::new();
        for tick in self.y.ticks(6) {
            let at = self.y(tick);
            let _ = writeln!(
                axes,
                "<line class=\"grid\" x1=\"{LEFT:.1}\" x2=\"{right:.1}\" y1=\"{at:.1}\" \
                 y2=\"{at:.1}\"/>"
            );
            axes += &text(LEFT - 7.0, at + 4.0, "end", "muted", &number(tick));
        }
        for tick in self.x.ticks(9) {
            let at = self.x(tick);
            let _ = writeln!(
                axes,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP:.1}\" \
                 y2=\"{bottom:.1}\"/>"
            );
            axes += &text(at, bottom + 17.0, "middle", "muted", &number(tick));
        }
        let middle = TOP + PLOT / 2.0;
        let _ = writeln!(
            axes,
            "<text transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" \
             class=\"muted\">{}</text>",
            escape(&self.y.label)
        );
        axes + &text((LEFT + right) / 2.0, bottom + 37.0, "middle", "muted", &self.x.label)
    }

    fn mark(&self, mark: &Mark) -> String {
        let at = self.x(mark.at);
        let (beside, anchor) =
            if at > WIDTH * 0.7 { (at - 4.0, "end") } else { (at + 4.0, "start") };
        format!(
            "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP:.1}\" y2=\"{:.1}\"/>\n{}",
            TOP + PLOT,
            text(beside, TOP + 12.0, anchor, "muted", &mark.label)
        )
    }

    fn line(&self, line: &Line) -> String {
        let mut path = String::new();
        for (n, &(x, y)) in line.points.iter().enumerate() {
            let (x, y) = (self.x(x), self.y(y));
            let _ = match (n, self.steps) {
                (0, _) => write!(path, "M{x:.1} {y:.1}"),
                (_, true) => write!(path, "H{x:.1}V{y:.1}"),
                (_, false) => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        if path.is_empty() {
            return path;
        }
        let colour = line.style % COLOURS.len();
        let faint = if line.faint { " faint" } else { "" };
        let dashes = dashes(line.style);
        format!("<path class=\"c{colour}{faint}\"{dashes} d=\"{path}\"/>\n")
    }
}

fn legend_entry(n: usize, line: &Line) -> String {
    let width = (WIDTH - LEFT) / LEGEND_COLUMNS as f64;
    let left = LEFT + width * (n % LEGEND_COLUMNS) as f64;
    let y = TOP + PLOT + BELOW + LEGEND_ROW * (n / LEGEND_COLUMNS) as f64 + 6.0;
    let (colour, dashes) = (line.style % COLOURS.len(), dashes(line.style));
    format!(
        "<line class=\"key c{colour}\"{dashes} x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" \
         y2=\"{y:.1}\"/>\n{}",
        left + 22.0,
        text(left + 28.0, y + 4.0, "start", "label", &line.label)
    )
}
