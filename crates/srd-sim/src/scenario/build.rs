//! Construction of a world from a scenario.

use std::sync::Arc;

use srd_proto::rng::Rng;
use srd_proto::{Config, Endpoint, Epoch, Instant};

use super::workload::WorkloadContext;
use super::{Scenario, ScenarioError, Transport, us_to_ps};
use crate::engine::hash::mix;
use crate::engine::node::HostId;
use crate::engine::topology::Topology;
use crate::engine::world::{ACK_BYTES, World, WorldConfig};
use crate::machines::any_node::AnyNode;
use crate::machines::blast::{Blast, BlastConfig};
use crate::machines::express::{ExpressNode, ExpressNodeConfig};
use crate::machines::rank::{RankNode, RankNodeConfig, incoming};
use crate::machines::roce::{RoceConfig, RoceNode};
use crate::machines::srd_node::{SrdNode, SrdNodeConfig};
use crate::machines::tcp::{TcpConfig, TcpNode};
use crate::runs::completion;
use crate::runs::ideal::Ideals;
use crate::workload::{Workload, peers};

/// A scenario with a transport and a seed, ready to run.
pub struct Built {
    /// The world, at time zero of the simulation.
    pub world: World<AnyNode>,
    /// Ideal completion times of all flows.
    pub ideals: Ideals,
    /// Earliest time in picoseconds at which the workload's schedule of operations can be complete;
    /// `None` without a schedule.
    pub schedule_least_ps: Option<u64>,
    /// Time in picoseconds at which the run ends at the latest.
    pub horizon_ps: u64,
}

enum Recipe {
    Srd(SrdNodeConfig),
    Tcp(TcpConfig),
    Roce(RoceConfig),
    Express(Box<ExpressNodeConfig>),
    Rank(RankNodeConfig),
    Blast(BlastConfig),
}

impl Recipe {
    fn node(&self, host: u32) -> AnyNode {
        match self {
            Self::Srd(config) => AnyNode::Srd(SrdNode::new(host, config.clone())),
            Self::Tcp(config) => AnyNode::Tcp(TcpNode::new(HostId(host), *config)),
            Self::Roce(config) => AnyNode::Roce(RoceNode::new(HostId(host), *config)),
            Self::Express(config) => {
                AnyNode::Express(Box::new(ExpressNode::new(host, (**config).clone())))
            }
            Self::Rank(config) => AnyNode::Rank(Box::new(RankNode::new(host, config.clone()))),
            Self::Blast(config) => AnyNode::Blast(Blast::new(host, *config)),
        }
    }

    /// Returns the number of header bytes in a data packet.
    fn header_bytes(&self) -> u32 {
        match self {
            Self::Express(config) => srd_header_bytes(&config.endpoint),
            Self::Srd(SrdNodeConfig { endpoint, .. })
            | Self::Rank(RankNodeConfig { endpoint, .. }) => srd_header_bytes(endpoint),
            Self::Tcp(config) => config.header_bytes + config.frame_bytes,
            Self::Roce(config) => config.header_bytes,
            Self::Blast(config) => u32::from(config.packet_bytes - config.payload_bytes),
        }
    }
}

/// Returns the number of header bytes in an SRD data packet.
fn srd_header_bytes(config: &Config) -> u32 {
    let endpoint = Endpoint::new(config.clone(), Epoch(1), [0; 32], Instant::ZERO)
        .expect("the configuration was checked");
    let whole = usize::from(config.packet_bytes_max) + usize::from(config.wire_overhead_bytes);
    u32::try_from(whole - endpoint.payload_bytes_max()).expect("a packet is below 64 KiB")
}

impl Scenario {
    /// Builds the network. The hashes of its switches follow from the seed.
    ///
    /// # Errors
    /// If the numbers describe no valid network.
    pub fn topology(&self, seed: u64) -> Result<Topology, ScenarioError> {
        let mut topology = self.topology.build(&self.directory)?;
        topology.salt(seed);
        Ok(topology)
    }

    /// Builds the world for one transport and seed.
    ///
    /// # Errors
    /// A description of the parts that do not fit together, and a solution.
    pub fn build(&self, transport: Transport, seed: u64) -> Result<Built, ScenarioError> {
        let topology = self.topology(seed)?;
        let place = WorkloadContext {
            topology: &topology,
            directory: &self.directory,
            packet_bytes: self.packet_bytes,
        };
        // The workload's random numbers are independent of the world's, and equal for all
        // transports.
        let mut rng = Rng::new(mix(seed ^ 0x77_6c));
        let mut workload = Workload::default();
        let mut faults = self.fault.clone();
        for (n, spec) in self.workload.iter().enumerate() {
            let context = |e: ScenarioError| ScenarioError(format!("`workload.{n}`: {e}"));
            let (more, broken) = spec.plan(&place, &mut rng).map_err(context)?;
            workload.merge(more).map_err(|e| context(e.into()))?;
            faults.extend(broken);
        }
        if workload.flows.is_empty() && workload.schedule.is_none() {
            return Err(ScenarioError(
                "the scenario has no flows: give a `[[workload]]`".to_owned(),
            ));
        }
        workload.check(topology.hosts)?;
        let recipe = self.recipe(transport, &topology, &workload, seed)?;
        let ideals = Ideals::new(
            &topology,
            &workload,
            self.packet_bytes.into(),
            ACK_BYTES.into(),
            recipe.header_bytes(),
        );
        let mut rules = self.queue.rules(self.packet_bytes, transport)?;
        let lossless = self.roce.lossless(transport, &topology, &mut rules)?;
        let config = WorldConfig {
            seed,
            rules,
            lossless,
            faults,
            convergence_us: self.convergence()?,
            corruption_undetected: self.corruption_undetected,
            sampling: self.measure.sampling(ideals.longest().1)?,
            capture: self.measure.captures()?,
        };
        let schedule_least_ps = completion::least_ps(&topology, &workload);
        let horizon_ps = us_to_ps("horizon_us", self.horizon_us)?;
        let world = World::new(topology, workload, config, |host| recipe.node(host))
            .map_err(|e| ScenarioError(e.0))?;
        Ok(Built { world, ideals, schedule_least_ps, horizon_ps })
    }

    /// Returns the time in microseconds until routing notices a change of a link; `None` if it
    /// never notices.
    fn convergence(&self) -> Result<Option<f64>, ScenarioError> {
        match self.convergence_us {
            Some(us) if !(0.0..=1e12).contains(&us) => {
                Err(ScenarioError(format!("`convergence_us` must be between 0 and 1e12, not {us}")))
            }
            given => Ok(given),
        }
    }

    fn recipe(
        &self,
        transport: Transport,
        topology: &Topology,
        workload: &Workload,
        seed: u64,
    ) -> Result<Recipe, ScenarioError> {
        Ok(match transport {
            Transport::Srd | Transport::SrdSingle | Transport::SrdBlind => {
                Recipe::Srd(self.srd.node(transport, topology, self.packet_bytes, seed)?)
            }
            Transport::Tcp | Transport::Dctcp => {
                Recipe::Tcp(self.tcp.node(transport, topology, self.packet_bytes, seed)?)
            }
            Transport::Roce | Transport::RocePfc => {
                Recipe::Roce(self.roce.node(transport, topology, self.packet_bytes)?)
            }
            Transport::Express => Recipe::Express(Box::new(ExpressNodeConfig {
                endpoint: self.srd.node(transport, topology, self.packet_bytes, seed)?.endpoint,
                card: self.card.config(),
                guest: self.tcp.node(transport, topology, self.packet_bytes, seed)?,
                seed,
                peers: Arc::new(peers(workload, topology.hosts)),
            })),
            Transport::Efa if workload.is_endless() => {
                return Err(ScenarioError("`efa`: no message is endless".to_owned()));
            }
            Transport::Efa => Recipe::Rank(RankNodeConfig {
                endpoint: self.srd.node(transport, topology, self.packet_bytes, seed)?.endpoint,
                seed,
                incoming: Arc::new(incoming(workload, topology.hosts)),
            }),
            Transport::Blast => {
                let rtt_ps = topology.diameter_rtt_ps(self.packet_bytes.into(), 64);
                let packet_bits = u128::from(self.packet_bytes) * 8;
                let bits =
                    u128::from(topology.host_rate_bps(0)) * u128::from(rtt_ps) / 1_000_000_000_000;
                let window = u64::try_from(bits / packet_bits).unwrap_or(u64::MAX);
                Recipe::Blast(BlastConfig {
                    packet_bytes: self.packet_bytes,
                    payload_bytes: self.packet_bytes - 64,
                    window_packets: window.saturating_add(3),
                    ..BlastConfig::default()
                })
            }
        })
    }
}
