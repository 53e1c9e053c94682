//! The network of a scenario: its kind and parameters.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ScenarioError;
use crate::engine::topology::clos::{ClosSpec, Links};
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::engine::topology::ring::RingSpec;
use crate::engine::topology::{Topology, topo_file};

/// Kind and parameters of a network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TopologySpec {
    /// Three tiers of switches with `k` ports: k³/4 hosts at full bisection.
    FatTree {
        /// Number of ports of a switch; even.
        k: u32,
        /// Oversubscription of the first and of the second tier: the number of a switch's downlinks
        /// divided by the number of its uplinks.
        #[serde(default = "ones")]
        oversubscribed: [u32; 2],
        /// Speed of every link, in Gb/s.
        #[serde(default = "gbps")]
        gbps: f64,
        /// Speed of the links between switches, in Gb/s, if it differs from `gbps`.
        core_gbps: Option<f64>,
        /// Propagation delay of every link, in nanoseconds.
        #[serde(default = "latency_ns")]
        latency_ns: u64,
        /// Delay of every switch, in nanoseconds.
        #[serde(default)]
        switch_latency_ns: u64,
    },
    /// Two tiers: every leaf has a link to every spine.
    LeafSpine {
        /// Number of leaf switches.
        leaves: u32,
        /// Number of spine switches.
        spines: u32,
        /// Number of hosts at each leaf.
        leaf_hosts: u32,
        /// Number of parallel links between each leaf and each spine.
        #[serde(default = "one")]
        bundle: u32,
        /// Speed of every link, in Gb/s.
        #[serde(default = "gbps")]
        gbps: f64,
        /// Speed of the links between leaf and spine, in Gb/s, if it differs from `gbps`.
        core_gbps: Option<f64>,
        /// Propagation delay of every link, in nanoseconds.
        #[serde(default = "latency_ns")]
        latency_ns: u64,
        /// Delay of every switch, in nanoseconds.
        #[serde(default)]
        switch_latency_ns: u64,
    },
    /// Two switches with hosts on both sides of a bottleneck.
    Dumbbell {
        /// Number of hosts on each side.
        side_hosts: u32,
        /// Number of parallel links between the two switches.
        #[serde(default = "one")]
        middle_links: u32,
        /// Speed of the hosts' links, in Gb/s.
        #[serde(default = "gbps")]
        gbps: f64,
        /// Speed of each link between the two switches, in Gb/s, if it differs from `gbps`.
        core_gbps: Option<f64>,
        /// Propagation delay of every link, in nanoseconds.
        #[serde(default = "latency_ns")]
        latency_ns: u64,
        /// Delay of every switch, in nanoseconds.
        #[serde(default)]
        switch_latency_ns: u64,
    },
    /// Switches in a ring, each with hosts. All packets go round in one direction, so that the
    /// buffers of the switches depend on each other in a circle.
    Ring {
        /// Number of switches.
        switches: u32,
        /// Number of hosts at each switch.
        switch_hosts: u32,
        /// Speed of the hosts' links, in Gb/s.
        #[serde(default = "gbps")]
        gbps: f64,
        /// Speed of the links between switches, in Gb/s, if it differs from `gbps`.
        core_gbps: Option<f64>,
        /// Propagation delay of every link, in nanoseconds.
        #[serde(default = "latency_ns")]
        latency_ns: u64,
        /// Delay of every switch, in nanoseconds.
        #[serde(default)]
        switch_latency_ns: u64,
    },
    /// A network from a topology file in htsim's format.
    File {
        /// Path of the topology file, relative to the scenario's directory.
        path: PathBuf,
    },
}

fn ones() -> [u32; 2] {
    [1, 1]
}

fn one() -> u32 {
    1
}

fn gbps() -> f64 {
    100.0
}

fn latency_ns() -> u64 {
    1000
}

/// Lowest and highest speed of a link, in Gb/s. The time of a packet on a slower link would be
/// beyond the range of the simulator's ports.
pub(super) const GBPS: std::ops::RangeInclusive<f64> = 0.000_01..=100_000.0;

/// Longest delay of a link or switch that a scenario may set: one second.
const LATENCY_NS_MAX: u64 = 1_000_000_000;

fn bps(gbps: f64) -> Result<u64, ScenarioError> {
    if !GBPS.contains(&gbps) {
        let what = format!("`topology`: a speed of {gbps} Gb/s; it must be 0.00001 to 100000");
        return Err(ScenarioError(what));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 10^4..=10^14
    Ok((gbps * 1e9).round() as u64)
}

fn links(
    gbps: f64,
    core_gbps: Option<f64>,
    latency_ns: u64,
    switch_latency_ns: u64,
    bundle: u32,
) -> Result<Links, ScenarioError> {
    if latency_ns > LATENCY_NS_MAX || switch_latency_ns > LATENCY_NS_MAX {
        let what = format!("`topology`: delays must be at most {LATENCY_NS_MAX} ns");
        return Err(ScenarioError(what));
    }
    Ok(Links {
        host_bps: bps(gbps)?,
        up_bps: bps(core_gbps.unwrap_or(gbps))?,
        latency_ps: latency_ns * 1000,
        switch_latency_ps: switch_latency_ns * 1000,
        bundle,
    })
}

impl TopologySpec {
    /// Builds the network. A relative path of a topology file starts from `directory`.
    ///
    /// # Errors
    /// If the numbers describe no valid network, or the file cannot be parsed.
    pub fn build(&self, directory: &Path) -> Result<Topology, ScenarioError> {
        let fail = |what: &dyn std::fmt::Display| ScenarioError(format!("`topology`: {what}"));
        match self {
            Self::FatTree { k, oversubscribed, gbps, core_gbps, latency_ns, switch_latency_ns } => {
                if *k < 4 || k % 2 == 1 || *k > 128 {
                    return Err(fail(&format!("`k` is {k}; it must be even, 4 to 128")));
                }
                let links = links(*gbps, *core_gbps, *latency_ns, *switch_latency_ns, 1)?;
                let half = k / 2;
                let divides = |o: &u32| *o > 0 && half % *o == 0;
                if !oversubscribed.iter().all(divides) {
                    return Err(fail(&format!("`oversubscribed` must divide k / 2 = {half}")));
                }
                ClosSpec::fat_tree(*k, *oversubscribed, &links).build().map_err(|e| fail(&e))
            }
            Self::LeafSpine {
                leaves,
                spines,
                leaf_hosts,
                bundle,
                gbps,
                core_gbps,
                latency_ns,
                switch_latency_ns,
            } => {
                let links = links(*gbps, *core_gbps, *latency_ns, *switch_latency_ns, *bundle)?;
                let spec = ClosSpec::leaf_spine(*leaves, *spines, *leaf_hosts, &links);
                spec.build().map_err(|e| fail(&e))
            }
            Self::Dumbbell {
                side_hosts,
                middle_links,
                gbps,
                core_gbps,
                latency_ns,
                switch_latency_ns,
            } => {
                let links = links(*gbps, *core_gbps, *latency_ns, *switch_latency_ns, 1)?;
                let spec = DumbbellSpec {
                    side_hosts: *side_hosts,
                    host_bps: links.host_bps,
                    middle_bps: links.up_bps,
                    middle_links: *middle_links,
                    latency_ps: links.latency_ps,
                    switch_latency_ps: links.switch_latency_ps,
                };
                spec.build().map_err(|e| fail(&e))
            }
            Self::Ring {
                switches,
                switch_hosts,
                gbps,
                core_gbps,
                latency_ns,
                switch_latency_ns,
            } => {
                let links = links(*gbps, *core_gbps, *latency_ns, *switch_latency_ns, 1)?;
                let spec = RingSpec {
                    switches: *switches,
                    switch_hosts: *switch_hosts,
                    host_bps: links.host_bps,
                    ring_bps: links.up_bps,
                    latency_ps: links.latency_ps,
                    switch_latency_ps: links.switch_latency_ps,
                };
                spec.build().map_err(|e| fail(&e))
            }
            Self::File { path } => {
                let path = directory.join(path);
                let name = path.display();
                let text = crate::runs::files::text(&path)
                    .map_err(|e| ScenarioError(format!("{name}: {e}")))?;
                let spec =
                    topo_file::parse(&text).map_err(|e| ScenarioError(format!("{name}: {e}")))?;
                spec.build().map_err(|e| ScenarioError(format!("{name}: {e}")))
            }
        }
    }
}
