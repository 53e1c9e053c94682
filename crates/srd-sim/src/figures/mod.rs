//! Figures 2 to 6 of the SRD paper (Shalev, Ayoub, Bshara, Sabbag: "A Cloud-Optimized Transport
//! Protocol for Elastic and Scalable HPC", IEEE Micro 40(6), 2020), from the simulator.
//!
//! The paper measured MPI over TCP and over SRD at 100 Gb/s. This module runs the same experiments
//! in the simulated network, with four transports: messages of the Messaging Layer, datagrams of
//! the endpoint, TCP that the guests' cards carry over SRD, and TCP over the network itself. Each
//! figure becomes charts (SVG), numbers (CSV) and a sentence for each transport, together with the
//! statement of the paper.

mod draw;
mod index;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use draw::{Drawn, File};
pub use index::index_html;

use crate::runs::run::{self, Job};
use crate::scenario::{Override, Scenario, ScenarioError, Transport};

const INCAST: &str = include_str!("../../../../scenarios/paper-a-express.toml");
const PERSISTENT: &str = include_str!("../../../../scenarios/paper-b-express.toml");
const RACKS: &str = include_str!("../../../../scenarios/paper-c-express.toml");

/// Transports for workloads whose flows end. `Efa` is only in this list, because an endless flow is
/// not a message.
const ENDING: [Transport; 4] = [Transport::Efa, Transport::Srd, Transport::Express, Transport::Tcp];
const ENDLESS: [Transport; 3] = [Transport::Srd, Transport::Express, Transport::Tcp];

/// Kind of a figure, which determines its charts and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The slowest flow of each transfer size.
    Sizes,
    /// The distribution of completion times.
    Distribution,
    /// Each flow's goodput over time.
    Throughput,
}

/// A figure of the paper, ready to run.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Number of the figure in the paper.
    pub number: u8,
    /// Subject of the figure.
    pub title: &'static str,
    /// Statement of the paper about the figure.
    pub paper: &'static str,
    /// Difference between this experiment and that of the paper; empty if the experiments are
    /// alike.
    pub note: &'static str,
    kind: Kind,
    jobs: Vec<Job>,
}

impl Figure {
    /// Returns the jobs to run. [`Figure::draw`] takes their results in the order of the jobs.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }
}

/// Size of the experiments: of flows, time and number of seeds.
#[derive(Clone, Copy, Debug)]
struct Extent {
    sizes: &'static [&'static str],
    one_size: &'static str,
    elephant: &'static str,
    horizon: &'static [&'static str],
    seeds: u64,
}

const FULL: Extent = Extent {
    sizes: &["64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB", "4MiB", "8MiB"],
    one_size: "2MiB",
    elephant: "16MiB",
    horizon: &["horizon_us=300000.0"],
    seeds: 5,
};
const QUICK: Extent = Extent {
    sizes: &["16KiB", "64KiB"],
    one_size: "64KiB",
    elephant: "256KiB",
    horizon: &["horizon_us=3000.0", "measure.interval_us=500.0"],
    seeds: 1,
};

fn scenario(name: &str, text: &str, sets: &[&str]) -> Result<Scenario, ScenarioError> {
    let parse = |set: &&str| set.parse::<Override>();
    let overrides = sets.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    Scenario::read(name, text, Path::new("."), &overrides)
}

/// Returns all figures. If `is_quick`, their experiments are so small that they take seconds.
///
/// # Errors
/// If a scenario cannot be parsed.
pub fn figures(is_quick: bool) -> Result<Vec<Figure>, ScenarioError> {
    let extent = if is_quick { QUICK } else { FULL };
    let seeds = 1..1 + extent.seeds;
    let mut by_size = Vec::new();
    for size in extent.sizes {
        let bytes = format!("workload.0.bytes={size}");
        let incast = scenario("incast", INCAST, &[&bytes, "measure.flows=false"])?;
        by_size.extend(run::jobs(&incast, &ENDING, seeds.clone()));
    }
    let bytes = format!("workload.0.bytes={}", extent.one_size);
    let incast = scenario("incast", INCAST, &[&bytes])?;
    let persistent = scenario("persistent incast", PERSISTENT, extent.horizon)?;
    let racks = scenario("rack to rack", RACKS, &[&bytes])?;
    let bytes = format!("workload.0.bytes={}", extent.elephant);
    let alone = ["workload.0.flows_per_pair=1", &bytes];
    let elephants = scenario("rack to rack, one flow a pair", RACKS, &alone)?;
    Ok(vec![
        Figure {
            number: 2,
            title: "slowest flow of an incast of 48 flows from 4 servers, by transfer size",
            paper: "SRD's maximum is close to the ideal, with very low jitter; TCP's is 3 to 20 \
                   times \
                    the ideal.",
            note: "",
            kind: Kind::Sizes,
            jobs: by_size,
        },
        Figure {
            number: 3,
            title: "completion times of that incast at 2 MB",
            paper: "TCP has a tail above 50 ms, its least retransmission timeout; below it many \
                    samples are 3 times the ideal. SRD is close to the ideal.",
            note: "",
            kind: Kind::Distribution,
            jobs: run::jobs(&incast, &ENDING, seeds.clone()),
        },
        Figure {
            number: 4,
            title: "throughput of each flow of a persistent incast",
            paper: "The fair share is about 2 Gb/s. SRD's flows have it all the time; TCP's \
                   oscillate, \
                    and some stay far below.",
            note: "The paper samples once a second, this every 10 ms.",
            kind: Kind::Throughput,
            jobs: run::jobs(&persistent, &ENDLESS, 1..2),
        },
        Figure {
            number: 5,
            title: "completion times from rack to rack, 8 pairs of servers with 16 flows each",
            paper: "With uplinks used to 50 %, SRD's median is 15 % above the ideal and its \
                   maximum \
                    below TCP's average; TCP's average is 50 % above, its tail 10 to 100 times.",
            note: "Here the 16 connections of a pair start at once and share its link, so that \
                   collisions of a few average out; figure 6 shows what they do to flows that are \
                   alone.",
            kind: Kind::Distribution,
            jobs: run::jobs(&racks, &ENDING, seeds.clone()),
        },
        Figure {
            number: 6,
            title: "the same with one flow a pair, as fast as its link",
            paper: "As of figure 5: TCP's average is 50 % above the ideal and its tail 10 to \
                   100 times; \
                    SRD's median 15 % above.",
            note: "16 spines for 8 flows: two of them on one uplink have half of it each.",
            kind: Kind::Distribution,
            jobs: run::jobs(&elephants, &ENDING, seeds),
        },
    ])
}
