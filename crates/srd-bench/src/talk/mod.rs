//! Experiments of the talk NET402 (AWS re:Invent 2024, "Optimizing EC2 network performance"), with
//! instances of `srd card up` on this machine, real iperf3 and the talk's own command lines.
//!
//! A machine does not carry the rates of an instance type through namespaces, so a card divides all
//! rates by one number, and each figure stands beside the talk's, divided by the same. Counts
//! (tracked connections) are not divided.
//!
//! | module | what |
//! |---|---|
//! | `cloud` | a card with the instances of one experiment, and programs in them |
//! | `iperf`, `stream` | what moves bytes: iperf3, and a connection that is watched closely |
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

use crate::experiment::programs::{self, Program};
use anyhow::Result;
use curve::Curve;
use serde::Serialize;
use srd_sim::talk::figure::Figure;
use std::path::PathBuf;
use std::time::Instant;

/// What the caller may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `srd` program, for the card.
    pub program: PathBuf,
    /// Short runs of fewer cases: shows that it works, measures nothing.
    pub quick: bool,
}

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the talk shows, and what is done here.
    pub about: &'static str,
    /// By what the card divides rates.
    pub scale: u32,
    /// How long it takes, in seconds.
    pub takes_s: u32,
    needs: &'static [Program],
    run: fn(&Context<'_>) -> Result<Found>,
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

/// How long a full stock of credits lasts, in seconds: what NET402 shows.
const CREDITS_S: u32 = 300;

/// What an experiment gets.
#[derive(Clone, Copy)]
struct Context<'a> {
    options: &'a Options,
    scale: u32,
    /// How long a full stock of credits lasts at the peak rate.
    credits_s: u32,
    say: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// A number that a short run has less of.
    fn quick_or<T>(&self, quick: T, normal: T) -> T {
        if self.options.quick { quick } else { normal }
    }

    /// Gb/s of the talk as Mb/s here.
    fn mbps(&self, gbps: f64) -> f64 {
        gbps * 1e3 / f64::from(self.scale)
    }
}

/// What an experiment found.
#[derive(Default)]
struct Found {
    figures: Vec<Figure>,
    curves: Vec<Curve>,
    notes: Vec<String>,
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub experiment: &'static str,
    /// What was done.
    pub about: &'static str,
    /// By what rates were divided.
    pub scale: u32,
    /// Figures beside those of the talk.
    pub figures: Vec<Figure>,
    /// Curves.
    pub curves: Vec<Curve>,
    /// What has to be known to read them.
    pub notes: Vec<String>,
    /// How long it took, in seconds.
    pub took_s: f64,
}

#[cfg(test)]
impl Outcome {
    /// A figure that is missed, one that is met, and one that nothing is wanted of.
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
    /// Whether each figure that the talk has is as near to it as it should be.
    #[must_use]
    pub fn all_met(&self) -> bool {
        self.figures.iter().all(|figure| figure.is_met() != Some(false))
    }
}

/// Runs an experiment; `say` gets a line when a part of it begins.
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
