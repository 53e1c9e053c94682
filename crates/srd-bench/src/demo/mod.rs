//! The demonstration: one flow, an incast and a dead spine, over kernel TCP and over SRD on the
//! same wires; and an ordinary program that knows nothing of SRD, with `srd up` and without.
//!
//! | module | what |
//! |---|---|
//! | `story` | the figures, and which goals they meet |
//! | `fabric` | the three measurements in a fabric of network namespaces |
//! | `srd_probe`, `srd_incast` | SRD's side of them |
//! | `cloud` | a virtual private cloud, and what its rules and limits do |
//! | `program` | iperf3, as it is, with `srd up` and without |
//! | `simulated` | the same three in the simulator, where there is no root |
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

/// Takes a line of progress.
pub type Say<'a> = &'a dyn Fn(&str) -> Result<()>;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// In the simulator, instead of in network namespaces.
    pub simulated: bool,
    /// Makes every measurement shorter or longer.
    pub seconds_scale: f64,
    /// SRD without encryption.
    pub plain: bool,
    /// Only these parts.
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
    /// (c) A spine dies.
    Failover,
    /// (d) An ordinary program.
    Program,
    /// (e) A virtual private cloud.
    Cloud,
}

/// What was measured, and which goals it meets.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    story: Story,
    goals: Vec<Goal>,
}

impl Report {
    /// Every figure beside its ideal, as tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> String {
        show::tables(&self.story, &self.goals)
    }

    /// The page with the charts, as one HTML file.
    #[must_use]
    pub fn page(&self) -> String {
        page::page(&self.story, &self.goals)
    }

    /// How long it took.
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

/// Measures, and says how it goes.
///
/// # Errors
/// A fabric cannot be built, a measurement fails, or `say` does.
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
