//! Line charts as SVG, by hand: one file, styled from within, light and dark.

use std::fmt::Write as _;

use super::axis::{Axis, number};

const WIDTH: f64 = 820.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 76.0;
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
/// The style of a line that stands for all others: the colour of the text.
pub const INK: usize = usize::MAX;
/// How wide a letter is, about.
const LETTER: f64 = 6.4;
const DASHES: [&str; 4] =
    ["", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\"", " stroke-dasharray=\"9 3 2 3\""];

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

/// A line across at something that happened, or that would at best.
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
    /// Vertical marks, from left to right.
    pub marks: Vec<Mark>,
    /// A horizontal mark, which the legend names.
    pub level: Option<Mark>,
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
         .ink{{stroke:#1c1e21}}.faint{{stroke-width:1;stroke-opacity:.3}}{light}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6e9ee}}.muted{{fill:#9aa3af}}\
         .ground{{fill:#14171c}}.grid{{stroke:#2b3038}}.mark{{stroke:#9aa3af}}\
         .ink{{stroke:#e6e9ee}}{dark}}}</style>\n"
    )
}

fn text(x: f64, y: f64, anchor: &str, class: &str, content: &str) -> String {
    let content = escape(content);
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{content}\
         </text>\n"
    )
}

fn colour(style: usize) -> String {
    if style == INK { "ink".to_owned() } else { format!("c{}", style % COLOURS.len()) }
}

fn dashes(style: usize) -> &'static str {
    if style == INK { "" } else { DASHES[style / COLOURS.len() % DASHES.len()] }
}

impl Chart {
    /// The chart as a file.
    pub fn svg(&self) -> String {
        let named: Vec<&Line> = self.lines.iter().filter(|l| !l.label.is_empty()).collect();
        // A single line needs no name, unless a crowd is about it.
        let listed = if self.lines.len() > 1 { named.len().min(LEGEND_MAX) } else { 0 };
        let entries = listed + usize::from(self.level.is_some());
        let rows = entries.div_ceil(LEGEND_COLUMNS) as f64;
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
        svg += &self.marks();
        // The crowd first, so that what matters lies on top.
        for faint in [true, false] {
            for line in self.lines.iter().filter(|l| l.faint == faint) {
                svg += &self.line(line);
            }
        }
        for (n, line) in named.iter().take(listed).enumerate() {
            svg += &legend_entry(n, &colour(line.style), dashes(line.style), &line.label);
        }
        if let Some(level) = &self.level {
            svg += &legend_entry(listed, "mark", "", &level.label);
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

    /// The marks, with the labels of vertical ones outside the plot, where no line crosses them.
    fn marks(&self) -> String {
        let mut marks = String::new();
        let bottom = TOP + PLOT;
        for (n, mark) in self.marks.iter().enumerate() {
            let at = self.x(mark.at);
            let room = self.marks.get(n + 1).map_or(WIDTH, |next| self.x(next.at)) - at;
            let right = mark.label.chars().count() as f64 * LETTER < room;
            let anchor = if right { "start" } else { "end" };
            marks += &mark_line([at, at], [TOP - 6.0, bottom]);
            let beside = if right { at - 2.0 } else { at + 2.0 };
            marks += &text(beside, TOP - 10.0, anchor, "muted", &mark.label);
        }
        if let Some(level) = &self.level {
            let at = self.y(level.at);
            marks += &mark_line([LEFT, WIDTH - RIGHT], [at, at]);
        }
        marks
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
        if let [(x, y)] = line.points.as_slice() {
            // A line of one point would draw nothing.
            path = format!("M{:.1} {:.1}h6", self.x(*x) - 3.0, self.y(*y));
        }
        if path.is_empty() {
            return path;
        }
        let colour = colour(line.style);
        let faint = if line.faint { " faint" } else { "" };
        let dashes = dashes(line.style);
        format!("<path class=\"{colour}{faint}\"{dashes} d=\"{path}\"/>\n")
    }
}

fn mark_line([x1, x2]: [f64; 2], [y1, y2]: [f64; 2]) -> String {
    format!("<line class=\"mark\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>\n")
}

fn legend_entry(n: usize, class: &str, dashes: &str, label: &str) -> String {
    let width = (WIDTH - LEFT) / LEGEND_COLUMNS as f64;
    let left = LEFT + width * (n % LEGEND_COLUMNS) as f64;
    let y = TOP + PLOT + BELOW + LEGEND_ROW * (n / LEGEND_COLUMNS) as f64 + 6.0;
    format!(
        "<line class=\"key {class}\"{dashes} x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" \
         y2=\"{y:.1}\"/>\n{}",
        left + 22.0,
        text(left + 28.0, y + 4.0, "start", "label", label)
    )
}
