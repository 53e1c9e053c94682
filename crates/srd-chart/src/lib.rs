//! Charts as inline SVG and the page that holds them: one file, no outside resource, light and
//! dark by the reader's preference.
//!
//! Colours come from classes, one per transport ([`Tone`]), so that a reader finds the same one
//! under the same colour in every chart; text keeps the page's own colour.

mod axis;
mod bars;
mod lines;
mod page;
mod table;
mod wellformed;

pub use axis::Axis;
pub use bars::{Bar, BarChart};
pub use lines::{Line, LineChart, Mark};
pub use page::Page;
pub use table::Table;
pub use wellformed::check as check_well_formed;

use page::escape;

/// Which colour a thing has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// SRD.
    Srd,
    /// TCP with cubic.
    Cubic,
    /// TCP with bbr.
    Bbr,
    /// Multipath TCP.
    Mptcp,
    /// SRD with one path.
    OnePath,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::Srd => "srd",
            Tone::Cubic => "cubic",
            Tone::Bbr => "bbr",
            Tone::Mptcp => "mptcp",
            Tone::OnePath => "onepath",
        }
    }
}

/// Where a text begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// One text element.
fn text(x: f64, y: f64, anchor: Anchor, class: &str, content: &str) -> String {
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

/// The frame of a chart; `label` is what a screen reader says.
fn svg(width: f64, height: f64, label: &str, inside: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"100%\" role=\"img\" \
         aria-label=\"{}\">\n{inside}</svg>\n",
        escape(label)
    )
}

/// A figure with as many digits as help: `0.987`, `9.87`, `98.7`, `987`.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}
