//! Experiments of the talk NET402 (AWS re:Invent 2024, "EC2 Nitro networking under the hood"), at
//! the full rates of the instance types.
//!
//! Simulated instances, each behind the production card and transport of its host
//! ([`crate::machines::card`]), repeat the experiments that the talk runs with iperf3. Each figure is shown
//! beside the slide's. `srd card lab` runs the same experiments with real programs at a hundredth
//! of the rates.
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

/// Choices of the caller.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether runs are shorter and cases fewer.
    pub quick: bool,
    /// Seed of the run; equal seeds give equal figures.
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
    /// Name on the command line.
    pub name: &'static str,
    /// Content of the talk's experiment, and of this one.
    pub about: &'static str,
    run: fn(&Options) -> Result<Findings, String>,
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

/// Findings of an experiment.
#[derive(Default)]
struct Findings {
    figures: Vec<Figure>,
    lines: Vec<Curve>,
    notes: Vec<String>,
}

/// Values over an axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Name of the line.
    pub name: String,
    /// Axis, with its unit.
    pub x: &'static str,
    /// Unit of the values.
    pub y: &'static str,
    /// Positions on the axis, and values.
    pub points: Vec<(f64, f64)>,
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// The seed.
    pub seed: u64,
    /// Figures beside those of the talk.
    pub figures: Vec<Figure>,
    /// Values over time or size.
    pub lines: Vec<Curve>,
    /// Notes for the reader of the figures.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Whether each figure is within its tolerance, or has a known cause.
    pub fn is_explained(&self) -> bool {
        !self.figures.iter().any(Figure::is_unexplained)
    }
}

impl Experiment {
    /// Runs the experiment.
    ///
    /// # Errors
    /// Describes the error in the simulation.
    pub fn run(&self, options: &Options) -> Result<Outcome, String> {
        let Findings { figures, lines, notes } = (self.run)(options)?;
        let Self { name, about, .. } = self;
        let seed = options.seed;
        Ok(Outcome { experiment: name, about, seed, figures, lines, notes })
    }
}

#[cfg(test)]
mod tests;
