//! A figure beside the one that it should be.

use serde::Serialize;

/// How near a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Near {
    /// Within so many percent.
    Percent(f64),
    /// Equal.
    Exactly,
    /// No more.
    AtMost,
    /// No less.
    AtLeast,
}

/// What a figure should be, and by which source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wanted {
    /// The value, divided as rates here are.
    pub value: f64,
    /// How near the figure has to be.
    pub near: Near,
    /// Where the value is from.
    pub source: &'static str,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its unit; empty for counts.
    pub unit: &'static str,
    /// The figure as it was measured.
    pub here: f64,
    /// What it should be, if anything says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Wanted>,
}

/// The talk's own figure.
pub(super) const TALK: &str = "NET402";
/// A figure of EC2's documentation.
pub(super) const DOCUMENTED: &str = "EC2 documentation";

impl Figure {
    /// A figure that nothing is known about.
    pub(super) fn new(name: impl Into<String>, unit: &'static str, here: f64) -> Self {
        Self { name: name.into(), unit, here, wanted: None }
    }

    /// With what it should be.
    pub(super) fn wanted(mut self, value: f64, near: Near, source: &'static str) -> Self {
        self.wanted = Some(Wanted { value, near, source });
        self
    }

    /// With the talk's figure, to a tenth.
    pub(super) fn talk(self, value: f64) -> Self {
        self.wanted(value, Near::Percent(10.0), TALK)
    }

    /// Whether it is as near as it should be; `None` if nothing is known.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let wanted = self.wanted.as_ref()?;
        Some(match wanted.near {
            Near::Percent(percent) => {
                (self.here - wanted.value).abs() <= wanted.value.abs() * percent / 100.0
            }
            Near::Exactly => (self.here - wanted.value).abs() < 1e-9,
            Near::AtMost => self.here <= wanted.value,
            Near::AtLeast => self.here >= wanted.value,
        })
    }
}

/// Lines over one axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it shows.
    pub title: String,
    /// The axes: label and unit.
    pub x: &'static str,
    /// The other one.
    pub y: &'static str,
    /// Each line with its name.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// How equal shares are: one if all are, one over their number if one has everything (Jain).
pub(super) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_as_its_source_is() {
        let figure = |here| Figure::new("rate", "Mb/s", here);
        assert_eq!(figure(1.0).is_met(), None);
        for (here, near, met) in [
            (91.0, Near::Percent(10.0), true),
            (89.0, Near::Percent(10.0), false),
            (111.0, Near::Percent(10.0), false),
            (100.0, Near::Exactly, true),
            (99.0, Near::Exactly, false),
            (99.0, Near::AtMost, true),
            (101.0, Near::AtMost, false),
            (101.0, Near::AtLeast, true),
            (99.0, Near::AtLeast, false),
        ] {
            assert_eq!(
                figure(here).wanted(100.0, near, TALK).is_met(),
                Some(met),
                "{here} {near:?}"
            );
        }
    }

    #[test]
    fn equal_shares_are_one() {
        assert!((jain(&[5.0, 5.0, 5.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
        assert!(jain(&[]).abs() < 1e-9);
    }
}
