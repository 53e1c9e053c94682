//! The elements that charts are made of, and the two frames around them.

use crate::style;

/// Width of every chart.
pub(crate) const WIDTH: f64 = 800.0;
/// Height of title and subtitle in a file.
const HEAD: f64 = 46.0;
/// Where title and subtitle begin.
const HEAD_LEFT: f64 = 16.0;
/// How wide a letter is, about.
pub(crate) const LETTER: f64 = 6.7;

/// A chart without its frame.
pub(crate) struct Drawing {
    /// What a screen reader says.
    pub(crate) title: String,
    pub(crate) height: f64,
    pub(crate) inside: String,
}

impl Drawing {
    /// For a page, which brings the style sheet and shows the title itself.
    pub(crate) fn embedded(&self) -> String {
        let Drawing { title, height, inside } = self;
        format!(
            "<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"100%\" role=\"img\" \
             aria-label=\"{}\">\n{inside}</svg>\n",
            escape(title)
        )
    }

    /// As a file of its own that needs nothing else.
    pub(crate) fn file(&self, subtitle: &str) -> String {
        let Drawing { title, height, inside } = self;
        let height = height + HEAD;
        let size = format!("width=\"{WIDTH:.0}\" height=\"{height:.0}\"");
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
             {size} role=\"img\" aria-label=\"{}\">\n<style>{}</style>\n\
             <rect class=\"ground\" {size}/>\n{}{}\
             <g transform=\"translate(0 {HEAD:.0})\">\n{inside}</g>\n</svg>\n",
            escape(title),
            style::sheet(),
            text(HEAD_LEFT, 22.0, Anchor::Start, "title", title),
            text(HEAD_LEFT, 40.0, Anchor::Start, "muted", subtitle),
        )
    }
}

/// Where a text begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// One text element.
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

/// One line element, from `x[0]`, `y[0]` to `x[1]`, `y[1]`.
pub(crate) fn line(class: &str, attributes: &str, x: [f64; 2], y: [f64; 2]) -> String {
    format!(
        "<line class=\"{class}\"{attributes} x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" \
         y2=\"{:.1}\"/>\n",
        x[0], x[1], y[0], y[1]
    )
}

/// Makes a text safe inside of elements and attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Of the control characters only these may stand in a document.
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
