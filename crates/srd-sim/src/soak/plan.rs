//! Plan of a soak test, drawn from a seed: a network, a configuration, a workload and faults.

use srd_proto::{Config, Duration};

use super::config;
use super::dice::Dice;
use crate::engine::fault::Fault;
use crate::engine::hash::mix;
use crate::engine::topology::Topology;
use crate::engine::topology::clos::{ClosSpec, Links};
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::engine::world::{PortRules, US};
use crate::workload::{FlowPlan, Workload};

/// Approximate upper bound of the number of packets into which a world's flows are divided.
const PACKETS_MAX: u64 = 8_000;
/// Largest number of bytes of one flow.
const FLOW_BYTES_MAX: u64 = 4_000_000;

/// Rule by which a host posts receive buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Posting {
    /// Number of buffers that are posted at the beginning.
    pub initial: u32,
    /// Number of buffers that are posted after each interval.
    pub more: u32,
    /// Interval between two postings.
    pub every: Duration,
}

/// Rule by which applications divide flows into datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Datagrams of the largest size.
    Full,
    /// Datagrams of random sizes, some of them empty.
    Random,
    /// Datagrams of this number of bytes.
    Small(u32),
}

/// Layer that hosts run on their endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// An application that records every datagram in the ledger.
    Plain,
    /// A card, and a guest on the card that uses TCP.
    Card,
    /// A rank over the Messaging Layer.
    Ranks,
    /// The card of virtual private clouds, with guests.
    Cloud,
}

impl Layer {
    /// Returns the layer of a seed. For three seeds of eight the layer is not `Plain`. The layer is
    /// not drawn at random, so that plans of seeds stay the same when layers are added.
    fn of(seed: u64) -> Self {
        match seed % 8 {
            3 => Self::Card,
            5 => Self::Cloud,
            7 => Self::Ranks,
            _ => Self::Plain,
        }
    }
}

/// Plan of a soak test, drawn from a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed from which the plan was drawn.
    pub seed: u64,
    /// Layer that the hosts run.
    pub layer: Layer,
    /// Description of the network as text.
    pub network: String,
    /// Topology of the network.
    pub topology: Topology,
    /// Rules of the switch ports.
    pub rules: PortRules,
    /// Configuration of every endpoint.
    pub config: Config,
    /// Flows of the workload.
    pub flows: Vec<FlowPlan>,
    /// Faults; all of them have ended at `heal_us`.
    pub faults: Vec<Fault>,
    /// Whether flipped bits reach the endpoints, which must then detect them.
    pub corruption_undetected: bool,
    /// Time in microseconds at which the safety phase and all faults end.
    pub heal_us: f64,
    /// Rule by which applications divide flows into datagrams.
    pub cut: Cut,
    /// Number of receiving queue pairs of each host.
    pub receive_qps: u16,
    /// Rule by which hosts post receive buffers; `None` means unlimited buffers.
    pub posting: Option<Posting>,
    /// Percentage of datagrams that are followed by a datagram to a queue pair that does not exist.
    pub nobody_percent: u32,
    /// Number of completions in a thousand after which the application closes the queue pair.
    pub close_permille: u32,
}

/// Number of kinds of faults that a plan may contain.
const KINDS: u32 = 7;

impl Plan {
    /// Whether endpoints reclaim idle contexts within the time of a run.
    pub(super) fn reclaims(&self) -> bool {
        self.config.idle_reclaim < Duration::from_secs(1)
    }

    /// Draws the plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(mix(seed ^ 0x50a6_0000));
        let (network, mut topology) = network(&mut dice);
        topology.salt(seed);
        let packet_bytes = config::packet_bytes(&mut dice);
        let rules = config::rules(&mut dice, packet_bytes);
        let mut config = config::endpoint(&mut dice, &topology, packet_bytes);
        // The seed's number decides, and not the dice: a further draw would change all plans.
        config.rate_rules = seed / 16 % 8 == 2;
        let heal_us = dice.us(200.0, 8_000.0);
        let cut = match dice.between(0, 3) {
            0 => Cut::Random,
            1 => Cut::Small(dice.between(1, 200)),
            _ => Cut::Full,
        };
        let flows = flows(&mut dice, &topology, &config, heal_us, cut);
        let faults = faults(&mut dice, &topology, heal_us);
        let posting = dice.percent(30).then(|| Posting {
            initial: dice.pick(&[0, 1, 16, 256]),
            more: dice.between(16, 256),
            every: Duration::from_micros(dice.log_between(5, 200)),
        });
        Self {
            seed,
            layer: Layer::of(seed),
            network,
            topology,
            rules,
            corruption_undetected: config.protection.is_on() && dice.percent(50),
            config,
            flows,
            faults,
            heal_us,
            cut,
            receive_qps: dice.pick(&[1, 1, 4]),
            posting,
            nobody_percent: dice.pick(&[0, 0, 0, 5]),
            close_permille: dice.pick(&[0, 0, 0, 5]),
        }
    }

    /// Returns the workload, with the flows of the plan.
    pub fn workload(&self) -> Workload {
        Workload { flows: self.flows.clone(), ..Workload::default() }
    }

    /// Returns the time in picoseconds by which all flows must be finished. It is the sum of the
    /// faults' end, the time that timers may add, and thirty times the transfer time of all bytes
    /// on the slowest link.
    pub fn deadline_ps(&self) -> u64 {
        let timers = self.config.rto_max.times(40) + self.config.peer_timeout.times(6);
        let wire_bytes: u64 = self.flows.iter().map(|f| f.bytes + 64 * self.pieces(f)).sum();
        let rate = self.topology.ports.iter().map(|p| p.rate_bps).min().unwrap_or(1);
        let transfer_ps = u128::from(wire_bytes) * 8_000_000_000_000 / u128::from(rate) * 30;
        let pieces: u64 = self.flows.iter().map(|f| self.pieces(f)).sum();
        let posts =
            self.posting.map_or(Duration::ZERO, |p| p.every.times(pieces / u64::from(p.more) * 4));
        // Datagrams may be sent one after the other, each with a late acknowledgement.
        let one_by_one = (self.config.ack_delay.times(2) + self.config.rtt_initial).times(pieces);
        let fixed_ps = (timers + posts + one_by_one).as_nanos() * 1000 + 100_000 * US;
        self.heal_ps() + fixed_ps + u64::try_from(transfer_ps).unwrap_or(u64::MAX / 4)
    }

    /// Returns the time in picoseconds at which the safety phase and all faults end.
    pub fn heal_ps(&self) -> u64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few milliseconds
        let ps = (self.heal_us * US as f64).round() as u64;
        ps
    }

    /// Returns the approximate number of datagrams of a flow.
    fn pieces(&self, flow: &FlowPlan) -> u64 {
        flow.bytes / mean_piece(self.cut, &self.config) + 1
    }
}

fn mean_piece(cut: Cut, config: &Config) -> u64 {
    let full = u64::from(config.packet_bytes_max).saturating_sub(100).max(1);
    match cut {
        Cut::Full => full,
        Cut::Random => full / 2,
        Cut::Small(bytes) => bytes.into(),
    }
}

fn network(dice: &mut Dice) -> (String, Topology) {
    let host_gbps = u64::from(dice.pick(&[10_u32, 25, 100, 100, 400]));
    let up_gbps = dice.pick(&[host_gbps, host_gbps, host_gbps / 2, host_gbps * 2]);
    let latency_ns = dice.log_between(100, 5_000);
    let giga = 1_000_000_000;
    let links = Links {
        host_bps: host_gbps * giga,
        up_bps: up_gbps * giga,
        latency_ps: latency_ns * 1000,
        switch_latency_ps: 0,
        bundle: 1,
    };
    let (shape, built) = match dice.between(0, 3) {
        0 => {
            let (side_hosts, middle_links) = (dice.between(1, 8), dice.between(1, 4));
            let spec = DumbbellSpec {
                side_hosts,
                host_bps: links.host_bps,
                middle_bps: links.up_bps,
                middle_links,
                latency_ps: links.latency_ps,
                switch_latency_ps: 0,
            };
            (format!("dumbbell {side_hosts}+{side_hosts} over {middle_links}"), spec.build())
        }
        3 => ("fat tree k=4".to_owned(), ClosSpec::fat_tree(4, [1, 1], &links).build()),
        _ => {
            let (leaves, spines) = (dice.between(2, 4), dice.between(1, 8));
            let hosts = dice.between(1, 4);
            let spec = ClosSpec::leaf_spine(leaves, spines, hosts, &links);
            (format!("{leaves} leaves x {hosts} hosts, {spines} spines"), spec.build())
        }
    };
    let speeds = format!("{host_gbps}/{up_gbps} Gb/s, {latency_ns} ns");
    (format!("{shape}, {speeds}"), built.expect("the numbers make a network"))
}

fn flows(
    dice: &mut Dice,
    topology: &Topology,
    config: &Config,
    heal_us: f64,
    cut: Cut,
) -> Vec<FlowPlan> {
    let hosts = topology.hosts;
    // Only a few hosts take part, so that pairs of hosts repeat and flows share contexts.
    let mut some: Vec<u32> = (0..hosts).collect();
    dice.shuffle(&mut some);
    some.truncate(dice.between(2, hosts.min(8)) as usize);
    let sink = some[0];
    let incast = dice.percent(30);
    let piece = mean_piece(cut, config);
    let mut left = PACKETS_MAX;
    let mut flows = Vec::new();
    for _ in 0..dice.between(1, 40) {
        let dst = if incast { sink } else { dice.pick(&some) };
        let src = dice.pick(&some);
        let start_us = if dice.percent(40) { 0.0 } else { dice.us(0.0, heal_us * 1.5) };
        let bytes = dice.log_between(1, FLOW_BYTES_MAX).min(left.saturating_mul(piece));
        if src == dst || bytes == 0 {
            continue;
        }
        left = left.saturating_sub(bytes / piece + 1);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // milliseconds
        let start_ps = (start_us * US as f64).round() as u64;
        flows.push(FlowPlan::at(start_ps, src, dst, bytes));
    }
    if flows.is_empty() {
        flows.push(FlowPlan::at(0, some[0], some[1], 10_000));
    }
    flows
}

fn faults(dice: &mut Dice, topology: &Topology, heal_us: f64) -> Vec<Fault> {
    let swarm: Vec<u32> = (0..KINDS).filter(|_| dice.percent(40)).collect();
    let mut faults = Vec::new();
    for kind in swarm {
        for _ in 0..dice.between(1, 3) {
            faults.push(fault(dice, topology, heal_us, kind));
        }
    }
    faults
}

fn fault(dice: &mut Dice, topology: &Topology, heal_us: f64, kind: u32) -> Fault {
    let at_us = if dice.percent(30) { 0.0 } else { dice.us(0.0, heal_us) };
    let until_us = Some(if dice.percent(30) { heal_us } else { dice.us(at_us, heal_us) });
    let ports = u32::try_from(topology.ports.len()).expect("a small network");
    let one = topology.port_name(dice.between(0, ports - 1));
    // A fault of both directions is more frequent than a fault of one direction.
    let links = if dice.percent(60) { one.replace("->", "-") } else { one };
    let everywhere = if dice.percent(50) { "all".to_owned() } else { links.clone() };
    let probability = dice.pick(&[0.001, 0.01, 0.1, 0.3]);
    let host = dice.between(0, topology.hosts - 1);
    match kind {
        0 => Fault::LinkDown { links, at_us, until_us },
        1 => {
            let fraction = dice.pick(&[0.01, 0.1, 0.25, 0.5]);
            Fault::LinkSlow { links, fraction, at_us, until_us }
        }
        2 => Fault::Loss { links: everywhere, probability, at_us, until_us },
        3 => Fault::Corrupt { links: everywhere, probability, at_us, until_us },
        4 => Fault::Duplicate { links: everywhere, probability, at_us, until_us },
        5 => Fault::Restart { host, at_us },
        _ => {
            let hosts = (0..topology.hosts).filter(|_| dice.percent(50)).collect();
            Fault::Partition { hosts, at_us, until_us }
        }
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let c = &self.config;
        let protection = match c.protection {
            srd_proto::Protection::Plain => "plain",
            srd_proto::Protection::JobKey(_) => "job key",
            srd_proto::Protection::Static(_) => "static keys",
        };
        let bytes: u64 = self.flows.iter().map(|flow| flow.bytes).sum();
        writeln!(f, "network    {}, {:?}", self.network, self.rules)?;
        writeln!(f, "hosts      {:?}", self.layer)?;
        writeln!(f, "flows      {}, {bytes} bytes, cut {:?}", self.flows.len(), self.cut)?;
        writeln!(f, "receivers  {} queue pairs, {:?}", self.receive_qps, self.posting)?;
        let (nobody, close) = (self.nobody_percent, self.close_permille);
        writeln!(f, "sins       {nobody} % for nobody, {close} in 1000 close")?;
        writeln!(f, "endpoint   {protection}, {:?}", WithoutKeys(c))?;
        writeln!(f, "heal       {:.1} us", self.heal_us)?;
        for fault in &self.faults {
            writeln!(f, "fault      {fault:?}")?;
        }
        for flow in &self.flows {
            let crate::workload::Start::At(at_ps) = flow.start else { continue };
            let (src, dst, at_us) = (flow.src.0, flow.dst.0, at_ps as f64 / US as f64);
            writeln!(f, "flow       {src} -> {dst}, {} bytes at {at_us:.1} us", flow.bytes)?;
        }
        Ok(())
    }
}

/// Wrapper of a configuration with a debug output that contains no key.
struct WithoutKeys<'a>(&'a Config);

impl std::fmt::Debug for WithoutKeys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Config { protection: srd_proto::Protection::Plain, ..self.0.clone() }.fmt(f)
    }
}
