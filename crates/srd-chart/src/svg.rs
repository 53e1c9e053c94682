//! SVG elements of charts, and the frames for pages and files.

use crate::style;

/// Width of the screen for which a chart is drawn. A page contains a wide and a narrow drawing of
/// each chart and shows the drawing that fits the reader's screen. So text has equal size on a
/// phone and on a desktop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// A desktop window, or an SVG file: 800 units.
    Wide,
    /// A phone: 360 units.
    Narrow,
}

impl Size {
    pub(crate) const BOTH: [Size; 2] = [Size::Wide, Size::Narrow];

    pub(crate) const fn width(self) -> f64 {
        match self {
            Size::Wide => 800.0,
            Size::Narrow => 360.0,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Size::Wide => "wide",
            Size::Narrow => "narrow",
        }
    }
}

/// Height of the area for title and subtitle at the top of an SVG file.
const HEAD: f64 = 46.0;
/// Distance of title and subtitle from the left edge of an SVG file.
const HEAD_LEFT: f64 = 16.0;
/// Approximate width of a letter, in SVG units.
pub(crate) const LETTER: f64 = 6.7;

/// The contents of a chart, without the enclosing `svg` element.
pub(crate) struct Drawing {
    /// Accessible name, which a screen reader reads out.
    pub(crate) title: String,
    /// Description of the values in the chart as text, for screen readers.
    pub(crate) description: String,
    pub(crate) height: f64,
    pub(crate) inside: String,
}

impl Drawing {
    /// Returns the drawing as an element of a page. The page itself contains the style sheet and
    /// shows the title.
    pub(crate) fn embedded(&self, size: Size) -> String {
        let (class, width) = (size.class(), size.width());
        let Drawing { height, inside, .. } = self;
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"100%\" \
             role=\"img\">\n{}{inside}</svg>\n",
            self.names()
        )
    }

    /// Returns the `title` and `desc` elements of the drawing, which a screen reader reads out.
    fn names(&self) -> String {
        let (title, description) = (escape(&self.title), escape(&self.description));
        format!("<title>{title}</title>\n<desc>{description}</desc>\n")
    }

    /// Returns the drawing as an independent SVG file.
    pub(crate) fn file(&self, subtitle: &str) -> String {
        let Drawing { title, height, inside, .. } = self;
        let (width, height) = (Size::Wide.width(), height + HEAD);
        let size = format!("width=\"{width:.0}\" height=\"{height:.0}\"");
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             {size} role=\"img\">\n{}<style>{}</style>\n\
             <rect class=\"ground\" {size}/>\n{}{}\
             <g transform=\"translate(0 {HEAD:.0})\">\n{inside}</g>\n</svg>\n",
            self.names(),
            style::sheet(),
            text(HEAD_LEFT, 22.0, Anchor::Start, "title", title),
            text(HEAD_LEFT, 40.0, Anchor::Start, "muted", subtitle),
        )
    }
}

/// Horizontal alignment of a text relative to its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Returns a text element.
pub(crate) fn text(x: f64, y: f64, anchor: Anchor, class: &str, content: &str) -> String {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>\n",
        escape(content)
    )
}

/// Returns a line element, from `x[0]`, `y[0]` to `x[1]`, `y[1]`.
pub(crate) fn line(class: &str, attributes: &str, x: [f64; 2], y: [f64; 2]) -> String {
    format!(
        "<line class=\"{class}\"{attributes} x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" \
         y2=\"{:.1}\"/>\n",
        x[0], x[1], y[0], y[1]
    )
}

/// Returns a circle element.
pub(crate) fn circle(class: &str, x: f64, y: f64, radius: f64) -> String {
    format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>\n")
}

/// Replaces characters that have a meaning in XML by entities, and control characters by U+FFFD.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Line feed and tab are the only control characters that this function keeps.
            c if c.is_control() && !matches!(c, '\n' | '\t') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_break_a_document_is_escaped() {
        assert_eq!(escape("<a b=\"c\">&'\u{0}"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\u{fffd}");
    }
}
