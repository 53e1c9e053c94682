//! Experiments of the talk NET402 (AWS re:Invent 2024, "Optimizing EC2 network performance"), with
//! instances of `srd card up` on this machine, real iperf3 and the talk's own command lines.
//!
//! Network namespaces of one machine cannot carry the rates of an instance type. So a card divides
//! all rates by one number, and each figure stands beside the talk's figure, divided by the same
//! number. Counts (tracked connections) are not divided.
//!
//! | module | what |
//! |---|---|
//! | `cloud` | a card with the instances of one experiment, and programs in them |
//! | `iperf`, `stream` | senders and receivers: iperf3, and a connection that is watched closely |
//! | [`curve`] | lines beside the figures |
//! | [`mod@tour`] | the shortest way through a cloud, for the demonstration |
//! | [`show`], [`mod@page`] | results as tables for a terminal, and as a page with charts |
//! | the others | the experiments |

mod bursts;
mod cloud;
mod credits;
pub mod curve;
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

pub use cloud::remove_files;

use crate::experiment::measure::programs::{self, Program};
use anyhow::Result;
use curve::Curve;
use serde::Serialize;
use srd_sim::talk::figure::Figure;
use std::path::PathBuf;
use std::time::Instant;

/// Options of the caller.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `srd` program, for the card.
    pub program: PathBuf,
    /// Short runs of fewer cases: they show that the experiments work, and measure nothing.
    pub quick: bool,
}

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Summary of the talk's experiment, and of the one here.
    pub about: &'static str,
    /// Factor by which the card divides rates.
    pub scale: u32,
    /// Duration of the experiment, in seconds.
    pub takes_s: u32,
    needs: &'static [Program],
    run: fn(&Context<'_>) -> Result<Findings>,
}

/// All experiments, in the talk's order.
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

/// Seconds for which a full stock of credits lasts, as in NET402.
const CREDITS_S: u32 = 300;

/// Environment of an experiment.
#[derive(Clone, Copy)]
struct Context<'a> {
    options: &'a Options,
    scale: u32,
    /// Seconds for which a full stock of credits lasts at the peak rate.
    credits_s: u32,
    say: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// Chooses the smaller number for a short run.
    fn quick_or<T>(&self, quick: T, normal: T) -> T {
        if self.options.quick { quick } else { normal }
    }

    /// Converts Gb/s of the talk to Mb/s here.
    fn mbps(&self, gbps: f64) -> f64 {
        gbps * 1e3 / f64::from(self.scale)
    }
}

/// Results of an experiment, as its function returns them.
#[derive(Default)]
struct Findings {
    figures: Vec<Figure>,
    curves: Vec<Curve>,
    notes: Vec<String>,
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Summary of the experiment.
    pub about: &'static str,
    /// Factor by which rates were divided.
    pub scale: u32,
    /// Figures beside those of the talk.
    pub figures: Vec<Figure>,
    /// Curves.
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
    /// Whether each figure with a target is as near to it as required.
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
