//! The demonstration: one flow, an incast and a failed spine, over kernel TCP and over SRD on the
//! same links; an ordinary program with `srd up` and without; and a virtual private cloud.
//!
//! | module | contents |
//! |---|---|
//! | `story` | the figures, and the goals that they have to meet |
//! | `fabric` | the first three measurements, in a fabric of network namespaces |
//! | `srd_probe`, `srd_incast` | the SRD side of these measurements |
//! | `cloud` | a virtual private cloud, and the effects of its rules and limits |
//! | `program` | iperf3, unmodified, with `srd up` and without |
//! | `simulated` | the first three measurements in the simulator, without root |
//! | `answer` | the result of each part in a sentence |
//! | `show`, `page` | the tables for a terminal, and the page with the charts |

mod answer;
mod cloud;
mod fabric;
mod page;
mod program;
mod show;
mod simulated;
mod srd_incast;
mod srd_probe;
mod story;

use anyhow::Result;
use serde::Serialize;
use std::time::Instant;
use story::{Goal, Story};

/// Function that prints a line of progress.
pub type Say<'a> = &'a dyn Fn(&str) -> Result<()>;

/// Parameters of the demonstration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to run in the simulator instead of in network namespaces.
    pub simulated: bool,
    /// Factor by which the duration of every measurement is multiplied.
    pub seconds_scale: f64,
    /// Whether SRD runs without encryption.
    pub plain: bool,
    /// The parts to run.
    pub parts: Vec<Part>,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

/// A part of the demonstration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Part (a): one flow.
    OneFlow,
    /// Part (b): an incast.
    Incast,
    /// Part (c): the failure of a spine.
    Failover,
    /// Part (d): an ordinary program.
    Program,
    /// Part (e): a virtual private cloud.
    Cloud,
}

/// The results of the demonstration, and the goals that they have to meet.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    story: Story,
    goals: Vec<Goal>,
}

impl Report {
    /// Returns every figure beside its ideal, as tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> String {
        show::tables(&self.story, &self.goals)
    }

    /// Returns the page with the charts, as one HTML file.
    #[must_use]
    pub fn page(&self) -> String {
        page::page(&self.story, &self.goals)
    }

    /// Returns the duration of the whole demonstration in seconds.
    #[must_use]
    pub fn took_s(&self) -> f64 {
        self.story.took_s
    }

    /// Whether every goal is met.
    #[must_use]
    pub fn all_met(&self) -> bool {
        self.goals.iter().all(|goal| goal.met)
    }
}

/// Runs the selected parts, and prints progress with `say`.
///
/// # Errors
/// If a fabric cannot be built, a measurement fails, or `say` fails.
pub fn run(options: &Options, say: Say<'_>) -> Result<Report> {
    let begun = Instant::now();
    let mut story = match options.simulated {
        true => simulated::measure(options, say)?,
        false => fabric::measure(options, say)?,
    };
    story.took_s = begun.elapsed().as_secs_f64();
    let goals = story.goals();
    Ok(Report { story, goals })
}
