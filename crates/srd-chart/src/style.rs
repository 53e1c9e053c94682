//! Colours, dashes, and the style sheet that pages and files share. The style is light or dark as
//! the reader's browser prefers.

use std::fmt::Write as _;

/// A colour of the palette of Okabe and Ito, whose hues colour-blind people can distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each says it all")]
pub enum Colour {
    Blue,
    Orange,
    Green,
    Pink,
    Ochre,
    Grey,
    Violet,
    Red,
    /// Colour of text, for a line that summarises all other lines.
    Ink,
}

/// Colours that [`nth`] assigns to lines, in this order.
const IN_ORDER: [Colour; 8] = [
    Colour::Blue,
    Colour::Orange,
    Colour::Green,
    Colour::Pink,
    Colour::Ochre,
    Colour::Grey,
    Colour::Violet,
    Colour::Red,
];

impl Colour {
    /// Returns the CSS values of the colour for a light and for a dark background.
    const fn values(self) -> (&'static str, &'static str) {
        match self {
            Colour::Blue => ("#0067b1", "#58b4f0"),
            Colour::Orange => ("#c85000", "#ff9550"),
            Colour::Green => ("#007f5c", "#3fd0a4"),
            Colour::Pink => ("#a2508c", "#e6a0d0"),
            Colour::Ochre => ("#8f6400", "#f0c040"),
            Colour::Grey => ("#5a5f66", "#b4bac2"),
            Colour::Violet => ("#7a4fd0", "#b79bff"),
            Colour::Red => ("#a8323e", "#ff8a92"),
            Colour::Ink => ("#1c1e21", "#e6e9ee"),
        }
    }

    pub(crate) const fn class(self) -> &'static str {
        match self {
            Colour::Blue => "blue",
            Colour::Orange => "orange",
            Colour::Green => "green",
            Colour::Pink => "pink",
            Colour::Ochre => "ochre",
            Colour::Grey => "grey",
            Colour::Violet => "violet",
            Colour::Red => "red",
            Colour::Ink => "ink",
        }
    }
}

/// Dash pattern of a line, which distinguishes lines of one colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dashes {
    /// A line without gaps.
    #[default]
    Solid,
    /// A line of long dashes.
    Long,
    /// A line of short dashes.
    Short,
    /// Long and short dashes in turn.
    Mixed,
}

impl Dashes {
    /// Returns the `stroke-dasharray` attribute for an SVG element, with a space before it. The
    /// text is empty for a solid line.
    pub(crate) const fn attribute(self) -> &'static str {
        match self {
            Dashes::Solid => "",
            Dashes::Long => " stroke-dasharray=\"7 3\"",
            Dashes::Short => " stroke-dasharray=\"2 3\"",
            Dashes::Mixed => " stroke-dasharray=\"9 3 2 3\"",
        }
    }
}

/// Returns colour and dashes for line number `n` of a chart, from 0: first the colours vary, then
/// the dashes.
#[must_use]
pub fn nth(n: usize) -> (Colour, Dashes) {
    let dashes = [Dashes::Solid, Dashes::Long, Dashes::Short, Dashes::Mixed];
    (IN_ORDER[n % IN_ORDER.len()], dashes[n / IN_ORDER.len() % dashes.len()])
}

/// Returns the style rules of all charts.
pub(crate) fn sheet() -> String {
    let (mut light, mut dark, mut rules) = (String::new(), String::new(), String::new());
    for colour in IN_ORDER.into_iter().chain([Colour::Ink]) {
        let (name, (on_light, on_dark)) = (colour.class(), colour.values());
        let _ = write!(light, ";--{name}:{on_light}");
        let _ = write!(dark, ";--{name}:{on_dark}");
        let _ = write!(
            rules,
            "svg .stroke.{name},svg .run.{name}{{stroke:var(--{name})}}\
             svg .fill.{name}{{fill:var(--{name})}}"
        );
    }
    format!(
        "svg{{--ground:#fff;--muted:#5f6670;--grid:#e1e4e8{light}}}\
         @media(prefers-color-scheme:dark){{svg{{--ground:#14171c;--muted:#9aa3af;\
         --grid:#2b3038{dark}}}}}\
         svg text{{font:12.5px system-ui,sans-serif;fill:var(--ink)}}\
         svg .title{{font-size:16px;font-weight:600}}svg .muted{{fill:var(--muted)}}\
         svg .value{{stroke:var(--ground);stroke-width:5px;paint-order:stroke}}\
         svg .ground{{fill:var(--ground)}}svg .grid{{stroke:var(--grid)}}\
         svg .mark{{stroke:var(--muted);stroke-width:1.2;stroke-dasharray:4 3}}\
         svg .stroke{{fill:none;stroke-width:2}}\
         svg .run{{fill:var(--ground);stroke-width:1.6}}\
         svg .limit{{stroke:var(--red);stroke-width:1.5}}\
         svg .mark-name{{fill:var(--muted);stroke:var(--ground);stroke-width:4px;\
         paint-order:stroke}}\
         svg .limit-name{{fill:var(--red);stroke:var(--ground);stroke-width:4px;\
         paint-order:stroke}}\
         svg .faint{{stroke-width:1;stroke-opacity:.3}}\
         {rules}"
    )
}
