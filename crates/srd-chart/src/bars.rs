//! Bars beside their ideal.

use super::{Anchor, Axis, Tone, figure, svg, text};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 30.0;
const ROW: f64 = 30.0;
const BAR: f64 = 16.0;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// Its colour.
    pub tone: Tone,
    /// Its length; `None` if there is no figure.
    pub value: Option<f64>,
    /// A worse case, drawn as a thin line beyond the bar.
    pub worst: Option<f64>,
}

/// Horizontal bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// What a screen reader says.
    pub label: String,
    /// Unit of the figures, appended to them.
    pub unit: String,
    /// What could be reached at best, and what it is called.
    pub ideal: (f64, String),
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

impl BarChart {
    /// The chart as SVG.
    pub fn to_svg(&self) -> String {
        let values = self.bars.iter().flat_map(|bar| bar.value.into_iter().chain(bar.worst));
        let most = values.fold(self.ideal.0, f64::max);
        let axis = Axis::linear("", 0.0, most * 1.02);
        let at = |value: f64| LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT);
        let bottom = TOP + ROW * self.bars.len() as f64;
        let mut inside = String::new();
        let x = at(self.ideal.0);
        inside += &format!(
            "<line class=\"ideal\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>\n",
            TOP - 6.0
        );
        let ideal = format!("{}: {}{}", self.ideal.1, figure(self.ideal.0), self.unit);
        inside += &text(x, TOP - 12.0, Anchor::Middle, "muted", &ideal);
        for (row, bar) in self.bars.iter().enumerate() {
            inside += &self.row(bar, TOP + ROW * row as f64, at);
        }
        svg(WIDTH, bottom + 8.0, &self.label, &inside)
    }

    fn row(&self, bar: &Bar, top: f64, at: impl Fn(f64) -> f64) -> String {
        let middle = top + ROW / 2.0;
        let mut row = text(LEFT - 10.0, middle + 4.5, Anchor::End, "label", &bar.label);
        let Some(value) = bar.value else {
            return row + &text(LEFT + 6.0, middle + 4.5, Anchor::Start, "muted", "no figure");
        };
        let tone = bar.tone.class();
        let (x, y) = (at(value), middle - BAR / 2.0);
        row += &format!(
            "<rect class=\"fill {tone}\" x=\"{LEFT:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{BAR:.1}\" rx=\"2\"/>\n",
            (x - LEFT).max(1.0)
        );
        let mut end = x;
        let mut said = format!("{}{}", figure(value), self.unit);
        if let Some(worst) = bar.worst.filter(|worst| *worst > value * 1.005) {
            end = at(worst);
            row += &format!(
                "<line class=\"stroke {tone}\" x1=\"{x:.1}\" x2=\"{end:.1}\" y1=\"{middle:.1}\" \
                 y2=\"{middle:.1}\"/>\n<line class=\"stroke {tone}\" x1=\"{end:.1}\" \
                 x2=\"{end:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\n",
                middle - 5.0,
                middle + 5.0
            );
            said += &format!(" ({}{})", figure(worst), self.unit);
        }
        row + &text(end + 7.0, middle + 4.5, Anchor::Start, "value", &said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wellformed::check;

    fn chart() -> BarChart {
        let bar = |label: &str, value, worst| Bar {
            label: label.into(),
            tone: Tone::Cubic,
            value,
            worst,
        };
        BarChart {
            label: "a & b".into(),
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
        let svg = chart().to_svg();
        check(&svg).unwrap();
        assert!(svg.contains("&lt;cubic&gt;") && svg.contains("a &amp; b"));
        assert!(svg.contains("2.00x (7.50x)") && svg.contains("no figure"));
    }

    #[test]
    fn a_worst_case_that_is_no_worse_is_not_drawn() {
        assert!(chart().to_svg().contains(">1.00x<"));
    }
}
