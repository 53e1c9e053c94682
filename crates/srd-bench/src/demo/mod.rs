//! The demonstration: one flow, an incast and a failed spine, over kernel TCP and over SRD on the
//! same links; and an ordinary program without SRD support, with `srd up` and without.
//!
//! | module | what |
//! |---|---|
//! | `story` | the figures, and the goals that they meet |
//! | `fabric` | the three measurements in a fabric of network namespaces |
//! | `srd_probe`, `srd_incast` | the SRD side of these measurements |
//! | `cloud` | a virtual private cloud, and the effects of its rules and limits |
//! | `program` | iperf3, unmodified, with `srd up` and without |
//! | `simulated` | the first three measurements in the simulator, without root |
//! | `answer` | each part in a sentence, with the ratio |
//! | `show`, `page` | the table, and the page with the charts |

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

/// Callback for a line of progress.
pub type Say<'a> = &'a dyn Fn(&str) -> Result<()>;

/// Parameters of the demonstration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs in the simulator, instead of in network namespaces.
    pub simulated: bool,
    /// Factor for the duration of every measurement.
    pub seconds_scale: f64,
    /// SRD without encryption.
    pub plain: bool,
    /// Parts to run.
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
    /// (a) One flow.
    OneFlow,
    /// (b) Incast.
    Incast,
    /// (c) A spine fails.
    Failover,
    /// (d) An ordinary program.
    Program,
    /// (e) A virtual private cloud.
    Cloud,
}

/// Results, and the goals that they meet.
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

    /// Returns the duration of the demonstration.
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

/// Measures, and reports progress.
///
/// # Errors
/// A fabric cannot be built, a measurement fails, or `say` fails.
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
