//! A figure beside the one that a slide shows, of the simulator and of the lab alike.

use serde::Serialize;

/// How near a figure should be.
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

impl Near {
    /// As near as a simulated figure should be to a slide's.
    pub const SIMULATED: Self = Self::Percent(3.0);
    /// As near as a figure of real programs should be.
    pub const MEASURED: Self = Self::Percent(10.0);
}

/// A figure that is wanted, and its source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wanted {
    /// The value, divided as rates are where they are divided.
    pub value: f64,
    /// How near the figure should be.
    pub near: Near,
    /// Where the value is from.
    pub source: &'static str,
    /// Whether the experiment sets this value as one of its own inputs, so that the figure shows
    /// that the input is obeyed and nothing else.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_given: bool,
}

/// Why a figure is not as near as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// The cause, for a person.
    pub text: &'static str,
    /// How far off the cause explains, in percent of the wanted value.
    pub within_percent: f64,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its unit; empty for counts.
    pub unit: &'static str,
    /// What was measured.
    pub here: f64,
    /// What it should be, if anything says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Wanted>,
    /// Why it is not as near as it should be, where the cause is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// The talk's own figure.
pub const TALK: &str = "NET402";
/// A figure of EC2's documentation.
pub const DOCUMENTED: &str = "EC2 documentation";
/// A figure that follows from the talk's.
pub const DERIVED: &str = "follows from NET402";

/// In the place of a verdict.
pub const NOT_JUDGED: &str = "not judged: --quick";

impl Figure {
    /// A figure that nothing says anything about.
    pub fn new(name: impl Into<String>, unit: &'static str, here: f64) -> Self {
        Self { name: name.into(), unit, here, wanted: None, cause: None }
    }

    /// With what it should be.
    #[must_use]
    pub fn wanted(mut self, value: f64, near: Near, source: &'static str) -> Self {
        self.wanted = Some(Wanted { value, near, source, is_given: false });
        self
    }

    /// Marks the wanted value as an input of the experiment.
    #[must_use]
    pub fn given(mut self) -> Self {
        if let Some(wanted) = &mut self.wanted {
            wanted.is_given = true;
        }
        self
    }

    /// With the slide's figure, which a simulation should meet.
    #[must_use]
    pub fn slide(self, value: f64) -> Self {
        self.wanted(value, Near::SIMULATED, TALK)
    }

    /// With the slide's figure, divided, which real programs should meet.
    #[must_use]
    pub fn talk(self, value: f64) -> Self {
        self.wanted(value, Near::MEASURED, TALK)
    }

    /// With the cause of a miss of at most so many percent. A larger miss has no known cause.
    #[must_use]
    pub fn because(mut self, text: &'static str, within_percent: f64) -> Self {
        self.cause = Some(Cause { text, within_percent });
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
            Near::Percent(percent) => {
                (self.here - wanted.value).abs() <= wanted.value.abs() * percent / 100.0
            }
            Near::Exactly => (self.here - wanted.value).abs() < 1e-9,
            Near::AtMost => self.here <= wanted.value,
            Near::AtLeast => self.here >= wanted.value,
        })
    }

    /// The same in words: nothing if nothing is known. Figures of short runs are not judged.
    pub fn verdict(&self, is_judged: bool) -> &'static str {
        match self.is_met() {
            None => "",
            Some(_) if !is_judged => NOT_JUDGED,
            Some(true) if self.wanted.as_ref().is_some_and(|wanted| wanted.is_given) => "given",
            Some(true) => "met",
            Some(false) => "MISSED",
        }
    }

    /// The figure in words, with its unit.
    pub fn shown(&self) -> String {
        self.with_unit(self.here)
    }

    /// What it should be in words, and the source; empty if nothing is known.
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

    /// Why it is missed, where the cause explains a miss as large as this one.
    pub fn explanation(&self) -> Option<&'static str> {
        let (cause, off) = (self.cause?, self.off_percent()?);
        (self.is_met() == Some(false) && off.abs() <= cause.within_percent).then_some(cause.text)
    }

    /// Whether it is missed, and no known cause explains that.
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
