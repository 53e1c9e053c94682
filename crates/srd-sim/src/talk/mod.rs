//! Experiments of the talk NET402 (AWS re:Invent 2024, "EC2 Nitro networking under the hood"), at
//! the full rates of the instance types.
//!
//! Simulated instances, each behind the production card and transport of its host
//! ([`crate::card`]), repeat the experiments that the talk runs with iperf3. Each figure is shown
//! together with that of the talk's slide. `srd card lab` runs the same experiments with real
//! programs at a hundredth of the rates.
//!
//! | module | contents |
//! |---|---|
//! | `lab` | the simulated world of an experiment |
//! | [`figure`] | a figure and that of the slide |
//! | the others | the experiments |

mod bursts;
mod ceilings;
mod credits;
pub mod figure;
mod incast;
mod lab;
mod latency;
mod nconnect;
mod packets;
mod tracking;

use figure::Figure;
use serde::Serialize;

/// Options for the run of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to run a short form, with shorter times and fewer cases.
    pub quick: bool,
    /// Seed of all random values. Equal seeds give equal figures.
    pub seed: u64,
}

impl Options {
    fn quick_or<T>(&self, quick: T, normal: T) -> T {
        if self.quick { quick } else { normal }
    }
}

/// An experiment of the talk, or one derived from it.
#[derive(Debug)]
pub struct Experiment {
    /// Name of the experiment on the command line.
    pub name: &'static str,
    /// Description of the talk's experiment and of the simulated experiment.
    pub about: &'static str,
    run: fn(&Options) -> Result<Findings, String>,
}

/// All experiments.
pub const ALL: [&Experiment; 9] = [
    &ceilings::EXPERIMENT,
    &packets::EXPERIMENT,
    &credits::EXPERIMENT,
    &nconnect::EXPERIMENT,
    &incast::EXPERIMENT,
    &latency::EXPERIMENT,
    &tracking::FULL,
    &bursts::EXPERIMENT,
    &tracking::UNTRACKED,
];

/// Returns the experiment with a name; `None` if there is no such experiment.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

/// Results of an experiment: figures, curves and notes.
#[derive(Default)]
struct Findings {
    figures: Vec<Figure>,
    lines: Vec<Curve>,
    notes: Vec<String>,
}

/// A curve: values over an axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Name of the curve.
    pub name: String,
    /// Name of the horizontal axis, with its unit.
    pub x: &'static str,
    /// Unit of the values.
    pub y: &'static str,
    /// Points of the curve: position on the horizontal axis, and value.
    pub points: Vec<(f64, f64)>,
}

/// Result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Figures of the experiment, with their reference values.
    pub figures: Vec<Figure>,
    /// Curves of values over time or size.
    pub lines: Vec<Curve>,
    /// Notes for the reader of the figures.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Whether each figure is within its tolerance, or its deviation has a known cause.
    pub fn is_explained(&self) -> bool {
        !self.figures.iter().any(Figure::is_unexplained)
    }
}

impl Experiment {
    /// Runs the experiment.
    ///
    /// # Errors
    /// A description of the error in the simulation.
    pub fn run(&self, options: &Options) -> Result<Outcome, String> {
        let Findings { figures, lines, notes } = (self.run)(options)?;
        let Self { name, about, .. } = self;
        let seed = options.seed;
        Ok(Outcome { experiment: name, about, seed, figures, lines, notes })
    }
}

#[cfg(test)]
mod tests;
