//! Experiments of the talk NET402 (AWS re:Invent 2024, "EC2 Nitro networking under the hood"), at
//! the full rates of the instance types.
//!
//! Simulated instances, each behind the production card and transport of its host
//! ([`crate::card`]), repeat what the talk runs with iperf3; each figure stands beside the slide's.
//! `srd card lab` runs the same with real programs at a hundredth of the rates.
//!
//! | module | what |
//! |---|---|
//! | `lab` | the world of an experiment |
//! | [`figure`] | a figure beside the slide's |
//! | the others | the experiments |

mod bursts;
mod ceilings;
mod credits;
pub mod figure;
mod incast;
mod lab;
mod nconnect;
mod packets;
mod tracking;

use figure::Figure;
use serde::Serialize;

/// What the caller may choose.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Shorter runs of fewer cases.
    pub quick: bool,
    /// The seed: the same gives the same figures.
    pub seed: u64,
}

impl Options {
    fn quick_or<T>(&self, quick: T, normal: T) -> T {
        if self.quick { quick } else { normal }
    }
}

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the talk shows, and what is done here.
    pub about: &'static str,
    run: fn(&Options) -> Result<Found, String>,
}

/// All experiments.
pub const ALL: [&Experiment; 8] = [
    &ceilings::EXPERIMENT,
    &packets::EXPERIMENT,
    &credits::EXPERIMENT,
    &nconnect::EXPERIMENT,
    &incast::EXPERIMENT,
    &tracking::FULL,
    &bursts::EXPERIMENT,
    &tracking::UNTRACKED,
];

/// Finds an experiment by its name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

/// What an experiment found.
#[derive(Default)]
struct Found {
    figures: Vec<Figure>,
    lines: Vec<Line>,
    notes: Vec<String>,
}

/// Values over an axis.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What it shows.
    pub name: String,
    /// The axis, with its unit.
    pub x: &'static str,
    /// The values' unit.
    pub y: &'static str,
    /// Places and values.
    pub points: Vec<(f64, f64)>,
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub experiment: &'static str,
    /// What was done.
    pub about: &'static str,
    /// The seed.
    pub seed: u64,
    /// Figures beside those of the talk.
    pub figures: Vec<Figure>,
    /// Values over time or size.
    pub lines: Vec<Line>,
    /// What has to be known to read them.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Whether each figure is as near as it should be, or the cause is known.
    pub fn is_explained(&self) -> bool {
        !self.figures.iter().any(Figure::is_unexplained)
    }
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// What went wrong in the simulation, in words.
    pub fn run(&self, options: &Options) -> Result<Outcome, String> {
        let Found { figures, lines, notes } = (self.run)(options)?;
        let Self { name, about, .. } = self;
        let seed = options.seed;
        Ok(Outcome { experiment: name, about, seed, figures, lines, notes })
    }
}

#[cfg(test)]
mod tests;
