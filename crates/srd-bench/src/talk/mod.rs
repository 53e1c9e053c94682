//! Experiments of the talk NET402 (AWS re:Invent 2024, "EC2 Nitro networking under the hood"), with
//! instances of `srd card up` on this machine, real iperf3 and the talk's own command lines.
//!
//! The network namespaces of one machine cannot carry the rates of an instance type. Therefore a
//! card divides all rates by a factor (`scale`), and each figure is compared with the talk's figure
//! divided by the same factor. Counts, for example of tracked connections, are not divided.
//!
//! | module | contents |
//! |---|---|
//! | `cloud` | a running card with the instances of one experiment, and programs in them |
//! | `directory` | the directory with the files of a card |
//! | `iperf`, `stream` | senders and receivers: iperf3, and TCP connections of this process |
//! | [`curve`] | line charts that accompany the figures |
//! | [`mod@tour`] | a short tour of a cloud's features, for the demonstration |
//! | [`show`], [`mod@page`] | results as tables for a terminal, and as a page with charts |
//! | other modules | the experiments |

mod bursts;
mod cloud;
mod credits;
pub mod curve;
mod directory;
mod iperf;
mod mutation;
mod nconnect;
pub mod page;
mod rss;
mod shaping;
pub mod show;
mod sizes;
mod stream;
mod tenants;
pub mod tour;
mod tracking;
mod tunnels;
mod walk;

use crate::experiment::measure::programs::{self, Program};
use anyhow::Result;
use curve::Curve;
use serde::Serialize;
use srd_sim::talk::figure::Figure;
use std::path::PathBuf;
use std::time::Instant;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the `srd` program, which runs the card.
    pub program: PathBuf,
    /// Whether runs are short and of fewer cases. Short runs show that an experiment works; their
    /// figures are no measurements.
    pub quick: bool,
}

/// An experiment of the talk.
#[derive(Debug)]
pub struct Experiment {
    /// Name of the experiment on the command line.
    pub name: &'static str,
    /// Summary of the experiment in the talk, and of this implementation.
    pub about: &'static str,
    /// Factor by which the card divides rates.
    pub scale: u32,
    /// Duration of the experiment, in seconds.
    pub takes_s: u32,
    needs: &'static [Program],
    run: fn(&Context<'_>) -> Result<Findings>,
}

/// All experiments, in the order of the talk.
pub const ALL: [&Experiment; 14] = [
    &walk::EXPERIMENT,
    &sizes::EXPERIMENT,
    &bursts::MICROBURST,
    &shaping::EXPERIMENT,
    &mutation::EXPERIMENT,
    &tracking::UNTRACKED,
    &tunnels::EXPERIMENT,
    &bursts::BURST,
    &credits::EXPERIMENT,
    &bursts::PACKETS,
    &tracking::FULL,
    &tenants::EXPERIMENT,
    &rss::EXPERIMENT,
    &nconnect::EXPERIMENT,
];

/// Finds an experiment by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

/// Seconds for which a full stock of network credits lasts, as in the talk NET402.
const CREDITS_S: u32 = 300;

/// Options and scale of a running experiment.
#[derive(Clone, Copy)]
struct Context<'a> {
    options: &'a Options,
    scale: u32,
    /// Seconds for which a full stock of network credits lasts at the peak rate.
    credits_s: u32,
    say: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// Returns `quick` for a short run, and `normal` for a measurement.
    fn quick_or<T>(&self, quick: T, normal: T) -> T {
        if self.options.quick { quick } else { normal }
    }

    /// Converts a rate of the talk in Gb/s to the rate of this experiment in Mb/s.
    fn mbps(&self, gbps: f64) -> f64 {
        gbps * 1e3 / f64::from(self.scale)
    }
}

/// Results of an experiment, as the function of the experiment returns them.
#[derive(Default)]
struct Findings {
    figures: Vec<Figure>,
    curves: Vec<Curve>,
    notes: Vec<String>,
}

/// The results of an experiment, with its description.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Summary of the experiment.
    pub about: &'static str,
    /// Factor by which rates were divided.
    pub scale: u32,
    /// Figures, most of them with a target from the talk.
    pub figures: Vec<Figure>,
    /// Line charts of the results.
    pub curves: Vec<Curve>,
    /// Notes that the reader needs to interpret the figures.
    pub notes: Vec<String>,
    /// Duration of the experiment, in seconds.
    pub took_s: f64,
}

#[cfg(test)]
impl Outcome {
    /// Returns an outcome with three figures: one misses its target, one meets it, and one has no
    /// target.
    fn sample() -> Self {
        Self {
            experiment: "burst",
            about: "",
            scale: 100,
            figures: vec![
                Figure::new("one flow", "Mb/s", 80.0).talk(95.4),
                Figure::new("two flows", "Mb/s", 120.0).talk(125.0),
                Figure::new("packets", "", 7.0),
            ],
            curves: Vec::new(),
            notes: vec!["a note".into()],
            took_s: 1.0,
        }
    }
}

impl Outcome {
    /// Whether each figure with a target meets it; figures without a target are ignored.
    #[must_use]
    pub fn all_met(&self) -> bool {
        self.figures.iter().all(|figure| figure.is_met() != Some(false))
    }
}

/// Runs an experiment; calls `say` with a line when a part of the experiment begins.
///
/// # Errors
/// A program is missing, the card does not start, or a program fails.
pub fn run(experiment: &Experiment, options: &Options, say: &dyn Fn(&str)) -> Result<Outcome> {
    programs::require(experiment.needs)?;
    let begun = Instant::now();
    let scale = experiment.scale;
    let found = (experiment.run)(&Context { options, scale, credits_s: CREDITS_S, say })?;
    Ok(Outcome {
        experiment: experiment.name,
        about: experiment.about,
        scale: experiment.scale,
        figures: found.figures,
        curves: found.curves,
        notes: found.notes,
        took_s: begun.elapsed().as_secs_f64(),
    })
}
