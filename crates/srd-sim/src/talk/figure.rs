//! A figure beside the one that a slide shows.

use serde::Serialize;

/// How near a figure should be to a slide's, in percent.
pub const NEAR_PERCENT: f64 = 3.0;

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Near {
    /// Within [`NEAR_PERCENT`].
    Slide,
    /// Equal.
    Exactly,
}

/// A figure that is wanted, and its source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wanted {
    /// The value.
    pub value: f64,
    /// How near the figure should be.
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
    /// What the simulation gave.
    pub here: f64,
    /// What it should be, if anything says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Wanted>,
    /// Why it is not as near as it should be, where the cause is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
}

/// The talk's own figure.
pub(super) const TALK: &str = "NET402";
/// A figure of EC2's documentation.
pub(super) const DOCUMENTED: &str = "EC2 documentation";
/// A figure that follows from the talk's.
pub(super) const DERIVED: &str = "follows from NET402";

impl Figure {
    /// A figure that nothing says anything about.
    pub(super) fn new(name: impl Into<String>, unit: &'static str, here: f64) -> Self {
        Self { name: name.into(), unit, here, wanted: None, cause: None }
    }

    /// With what it should be.
    pub(super) fn wanted(mut self, value: f64, near: Near, source: &'static str) -> Self {
        self.wanted = Some(Wanted { value, near, source });
        self
    }

    /// With the slide's figure.
    pub(super) fn slide(self, value: f64) -> Self {
        self.wanted(value, Near::Slide, TALK)
    }

    /// With the cause of a miss.
    pub(super) fn because(mut self, cause: &'static str) -> Self {
        self.cause = Some(cause);
        self
    }

    /// How far it is from what it should be, in percent of that; `None` if nothing is known.
    pub fn off_percent(&self) -> Option<f64> {
        let wanted = self.wanted.as_ref()?.value;
        match wanted == 0.0 {
            true => Some(if self.here == 0.0 { 0.0 } else { f64::INFINITY }),
            false => Some((self.here / wanted - 1.0) * 100.0),
        }
    }

    /// Whether it is as near as it should be; `None` if nothing is known.
    pub fn is_met(&self) -> Option<bool> {
        let wanted = self.wanted.as_ref()?;
        Some(match wanted.near {
            Near::Slide => self.off_percent()?.abs() <= NEAR_PERCENT,
            Near::Exactly => (self.here - wanted.value).abs() < 1e-9,
        })
    }

    /// Whether it is missed, and no cause is known.
    pub fn is_unexplained(&self) -> bool {
        self.is_met() == Some(false) && self.cause.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_met_within_three_percent_of_its_slide() {
        let of = |here| Figure::new("rate", "Gb/s", here).slide(10.0);
        for (here, met) in [(9.69, false), (9.71, true), (10.29, true), (10.31, false)] {
            assert_eq!(of(here).is_met(), Some(met), "{here}");
        }
        assert!(of(9.0).is_unexplained());
        assert!(!of(9.0).because("a cause").is_unexplained());
        assert!(!Figure::new("rate", "Gb/s", 1.0).is_unexplained());
        let none = |here| Figure::new("entries", "", here).wanted(0.0, Near::Exactly, TALK);
        assert_eq!((none(0.0).is_met(), none(1.0).is_met()), (Some(true), Some(false)));
    }
}
