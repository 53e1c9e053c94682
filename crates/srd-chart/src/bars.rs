//! Bars beside their ideal.

use crate::svg::{Anchor, Drawing, WIDTH, line, text};
use crate::{Axis, Colour, figure};

const LEFT: f64 = 220.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 30.0;
const ROW: f64 = 30.0;
const BAR: f64 = 16.0;
/// From the middle of a row down to the base line of its text.
const BASE: f64 = 4.5;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// Its length; `None` if there is no figure.
    pub value: Option<f64>,
    /// A worse case, drawn as a thin line beyond the bar.
    pub worst: Option<f64>,
}

/// Horizontal bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// What it shows.
    pub title: String,
    /// Unit of the figures, appended to them.
    pub unit: String,
    /// What could be reached at best, and what it is called.
    pub ideal: (f64, String),
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

impl BarChart {
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
        let values = self.bars.iter().flat_map(|bar| bar.value.into_iter().chain(bar.worst));
        let most = values.fold(self.ideal.0, f64::max);
        let axis = Axis::linear("", 0.0, most * 1.02);
        let at = |value: f64| LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT);
        let bottom = TOP + ROW * self.bars.len() as f64;
        let x = at(self.ideal.0);
        let mut inside = line("mark", "", [x, x], [TOP - 6.0, bottom]);
        let ideal = format!("{}: {}{}", self.ideal.1, figure(self.ideal.0), self.unit);
        inside += &text(x, TOP - 12.0, Anchor::Middle, "muted", &ideal);
        for (row, bar) in self.bars.iter().enumerate() {
            inside += &self.row(bar, TOP + ROW * row as f64, at);
        }
        Drawing { title: self.title.clone(), height: bottom + 8.0, inside }
    }

    fn row(&self, bar: &Bar, top: f64, at: impl Fn(f64) -> f64) -> String {
        let middle = top + ROW / 2.0;
        let base = middle + BASE;
        let mut row = text(LEFT - 10.0, base, Anchor::End, "label", &bar.label);
        let Some(value) = bar.value else {
            return row + &text(LEFT + 6.0, base, Anchor::Start, "muted", "no figure");
        };
        let colour = bar.colour.class();
        let (x, y) = (at(value), middle - BAR / 2.0);
        row += &format!(
            "<rect class=\"fill {colour}\" x=\"{LEFT:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{BAR:.1}\" rx=\"2\"/>\n",
            (x - LEFT).max(1.0)
        );
        let mut end = x;
        let mut said = format!("{}{}", figure(value), self.unit);
        if let Some(worst) = bar.worst.filter(|worst| *worst > value * 1.005) {
            end = at(worst);
            let class = format!("stroke {colour}");
            row += &line(&class, "", [x, end], [middle, middle]);
            row += &line(&class, "", [end, end], [middle - 5.0, middle + 5.0]);
            said += &format!(" ({}{})", figure(worst), self.unit);
        }
        row + &text(end + 7.0, base, Anchor::Start, "value", &said)
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
        };
        BarChart {
            title: "a & b".into(),
            unit: "x".into(),
            ideal: (1.0, "ideal".into()),
            bars: vec![
                bar("<cubic>", Some(2.0), Some(7.5)),
                bar("even", Some(1.0), Some(1.0)),
                bar("missing", None, None),
            ],
        }
    }

    #[test]
    fn bars_are_well_formed_and_escaped() {
        for svg in [chart().to_svg(), chart().to_file("it's < that")] {
            check_well_formed(&svg).unwrap();
            assert!(svg.contains("&lt;cubic&gt;") && svg.contains("a &amp; b"));
            assert!(svg.contains("2.00x (7.50x)") && svg.contains("no figure"));
        }
    }

    #[test]
    fn a_worst_case_that_is_no_worse_is_not_drawn() {
        assert!(chart().to_svg().contains(">1.00x<"));
    }
}
