//! A measured figure and its reference value, for the simulated experiments and for `srd card lab`.

use serde::Serialize;

/// Tolerance within which a figure must agree with its reference value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Near {
    /// The figure deviates by at most this percentage.
    Percent(f64),
    /// The figure is equal to the reference value.
    Exactly,
    /// The figure is at most the reference value.
    AtMost,
    /// The figure is at least the reference value.
    AtLeast,
}

impl Near {
    /// Tolerance of a simulated figure relative to the figure of a slide.
    pub const SIMULATED: Self = Self::Percent(3.0);
    /// Tolerance of a figure that was measured with real programs, relative to the figure of a
    /// slide.
    pub const MEASURED: Self = Self::Percent(10.0);
}

/// A reference value for a figure, and its source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReferenceValue {
    /// The reference value. A lab with divided rates divides this value as well.
    pub value: f64,
    /// Tolerance within which the figure must agree with the value.
    pub near: Near,
    /// Source of the reference value, such as [`TALK`].
    pub source: &'static str,
    /// Whether the reference value is also an input of the experiment. The figure then only shows
    /// that the input has an effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_given: bool,
}

/// Known cause of a deviation beyond the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Description of the cause.
    pub text: &'static str,
    /// Largest deviation that the cause explains, in percent of the reference value.
    pub within_percent: f64,
}

/// A measured figure of an experiment, with its reference value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Unit of the figure; empty for counts.
    pub unit: &'static str,
    /// Measured or simulated value.
    pub here: f64,
    /// Reference value of the figure; `None` if the figure has no reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<ReferenceValue>,
    /// Known cause of a deviation beyond the tolerance; `None` if there is no known cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// Source of a reference value: a slide of the talk NET402 (AWS re:Invent 2024).
pub const TALK: &str = "NET402";
/// Source of a reference value: EC2's documentation.
pub const DOCUMENTED: &str = "EC2 documentation";
/// Source of a reference value that is computed from values of the talk NET402.
pub const DERIVED: &str = "follows from NET402";

/// Text in place of a verdict, for figures of short runs.
pub const NOT_JUDGED: &str = "not judged: --quick";

impl Figure {
    /// Creates a figure without a reference value.
    pub fn new(name: impl Into<String>, unit: &'static str, here: f64) -> Self {
        Self { name: name.into(), unit, here, wanted: None, cause: None }
    }

    /// Adds a reference value.
    #[must_use]
    pub fn wanted(mut self, value: f64, near: Near, source: &'static str) -> Self {
        self.wanted = Some(ReferenceValue { value, near, source, is_given: false });
        self
    }

    /// Marks the reference value as an input of the experiment, so that the verdict is `given`
    /// instead of `met`.
    #[must_use]
    pub fn given(mut self) -> Self {
        if let Some(wanted) = &mut self.wanted {
            wanted.is_given = true;
        }
        self
    }

    /// Adds a slide's value as the reference of a simulated figure.
    #[must_use]
    pub fn slide(self, value: f64) -> Self {
        self.wanted(value, Near::SIMULATED, TALK)
    }

    /// Adds a slide's value, divided by the lab's divisor, as the reference of a figure that was
    /// measured with real programs.
    #[must_use]
    pub fn talk(self, value: f64) -> Self {
        self.wanted(value, Near::MEASURED, TALK)
    }

    /// Adds the known cause of a deviation of at most `within_percent`. A larger deviation counts
    /// as unexplained.
    #[must_use]
    pub fn because(mut self, text: &'static str, within_percent: f64) -> Self {
        self.cause = Some(Cause { text, within_percent });
        self
    }

    /// Returns the deviation from the reference value, in percent of this value; `None` without a
    /// reference value.
    pub fn off_percent(&self) -> Option<f64> {
        let wanted = self.wanted.as_ref()?.value;
        match wanted == 0.0 {
            true => Some(if self.here == 0.0 { 0.0 } else { f64::INFINITY }),
            false => Some((self.here / wanted - 1.0) * 100.0),
        }
    }

    /// Whether the figure is within its tolerance; `None` without a reference value.
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

    /// Returns the verdict in words; empty without a reference value. If `is_judged` is false
    /// (short runs), a text replaces the verdict.
    pub fn verdict(&self, is_judged: bool) -> &'static str {
        match self.is_met() {
            None => "",
            Some(_) if !is_judged => NOT_JUDGED,
            Some(true) if self.wanted.as_ref().is_some_and(|wanted| wanted.is_given) => "given",
            Some(true) => "met",
            Some(false) => "MISSED",
        }
    }

    /// Returns the measured value as text, with its unit.
    pub fn shown(&self) -> String {
        self.with_unit(self.here)
    }

    /// Returns the reference value as text, and its source; empty without a reference value.
    pub fn shown_wanted(&self) -> (String, &'static str) {
        let Some(wanted) = &self.wanted else { return Default::default() };
        let value = self.with_unit(wanted.value);
        let text = match wanted.near {
            Near::Percent(percent) => format!("{value} \u{b1} {percent} %"),
            Near::Exactly => value,
            Near::AtMost => format!("\u{2264} {value}"),
            Near::AtLeast => format!("\u{2265} {value}"),
        };
        (text, wanted.source)
    }

    fn with_unit(&self, value: f64) -> String {
        format!("{} {}", srd_chart::figure(value), self.unit).trim_end().to_owned()
    }

    /// Returns the cause of the figure's deviation. `None` if the figure is within its tolerance,
    /// or if the cause does not explain a deviation of this size.
    pub fn explanation(&self) -> Option<&'static str> {
        let (cause, off) = (self.cause?, self.off_percent()?);
        (self.is_met() == Some(false) && off.abs() <= cause.within_percent).then_some(cause.text)
    }

    /// Whether the figure is outside of its tolerance without a known cause.
    pub fn is_unexplained(&self) -> bool {
        self.is_met() == Some(false) && self.explanation().is_none()
    }
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
            let judged = figure(here).wanted(100.0, near, TALK).is_met();
            assert_eq!(judged, Some(met), "{here} {near:?}");
        }
    }

    #[test]
    fn a_figure_is_met_within_three_percent_of_its_slide() {
        let of = |here| Figure::new("rate", "Gb/s", here).slide(10.0);
        for (here, met) in [(9.69, false), (9.71, true), (10.29, true), (10.31, false)] {
            assert_eq!(of(here).is_met(), Some(met), "{here}");
        }
        assert!(of(9.0).is_unexplained());
        assert!(!of(9.0).because("a cause", 11.0).is_unexplained());
        assert_eq!(of(9.0).because("a cause", 11.0).explanation(), Some("a cause"));
        assert!(of(8.8).because("a cause", 11.0).is_unexplained(), "the cause is too small for it");
        assert_eq!(of(10.0).because("a cause", 11.0).explanation(), None);
        assert!(!Figure::new("rate", "Gb/s", 1.0).is_unexplained());
        let none = |here| Figure::new("entries", "", here).wanted(0.0, Near::Exactly, TALK);
        assert_eq!((none(0.0).is_met(), none(1.0).is_met()), (Some(true), Some(false)));
    }

    #[test]
    fn a_value_that_was_put_in_is_given_and_not_met() {
        let of = |here| Figure::new("entries", "", here).wanted(5.0, Near::Exactly, TALK);
        assert_eq!((of(5.0).verdict(true), of(5.0).given().verdict(true)), ("met", "given"));
        assert_eq!(of(4.0).given().verdict(true), "MISSED");
    }
}
