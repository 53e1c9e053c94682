//! The simulated world of an experiment: instances, the traffic between them, and the bytes that
//! arrive over time.

use std::sync::Arc;

use srd_proto::{Config, Duration};

use crate::engine::node::{ENDLESS, HostId};
use crate::engine::topology::Topology;
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::engine::world::{ACK_BYTES, PortRules, QueueSize, US, World, WorldConfig};
use crate::machines::card::node::OUTER_BYTES;
use crate::machines::card::{CardNode, CardNodeConfig, Cloud, Datagrams, Pair};
use crate::machines::express::frame::HEADER_BYTES;
use crate::machines::tcp::TcpConfig;
use crate::workload::{FlowPlan, TriggerKind, Workload, peers};

/// Numbers of the hosts of the sender and of the receiver.
pub(super) const SENDER: u32 = 0;
pub(super) const RECEIVER: u32 = 1;
/// Number of picoseconds in a millisecond.
pub(super) const MS: u64 = 1_000 * US;
pub(super) const SECOND: u64 = 1_000 * MS;

/// MTU of a VPC's interfaces. The MTU of interfaces with ENA Express is `MTU_EXPRESS`.
pub(super) const MTU: u32 = 9001;
pub(super) const MTU_EXPRESS: u32 = 8900;
/// Length of TCP's timestamp option, which counts as part of a segment in Linux.
pub(super) const TIMESTAMP_BYTES: u32 = 12;

/// Network between the two hosts: links of 100 Gb/s, four paths of 25 Gb/s, and a round trip of
/// about 20 us. Only a flow with ENA Express may be faster than a single path.
pub(super) const NETWORK: DumbbellSpec = DumbbellSpec {
    side_hosts: 1,
    host_bps: 100_000_000_000,
    middle_bps: 25_000_000_000,
    middle_links: 4,
    latency_ps: 3 * US,
    switch_latency_ps: US / 2,
};
/// Queue limit of each port in bytes: the amount that a path carries in 0.64 ms.
const QUEUE_BYTES: u64 = 2_000_000;
/// Largest packet of the network in bytes. It contains the largest packet of an interface, with all
/// headers.
const PACKET_BYTES: u16 = 9216;
/// Largest number of datagrams to one peer that may wait: a few of each of a hundred flows.
const SEND_QUEUE: u32 = 8192;
/// Counters of the frames that a host's queue for a peer dropped, because they had waited for too
/// long or because the queue was full. As in production, a full queue does not stop the guest. TCP
/// detects the loss, retransmits the segments and reduces its rate. `ceilings::moved` shows these
/// counters.
const QUEUE_DROPS: [&str; 2] = ["queue_dropped_late", "queue_dropped_full"];
/// Time between the starts of two flows, in picoseconds.
const APART: u64 = 37 * US;

/// A part of the sender's traffic.
#[derive(Clone, Copy, Debug)]
pub(super) enum Traffic {
    /// A TCP stream that starts at a time, and does not end.
    Stream { from_ps: u64 },
    /// Datagrams from a time on, with a total of `bytes` of payload.
    Datagrams { from_ps: u64, bytes: u64, plan: Datagrams },
}

/// Returns TCP streams that start one after the other.
pub(super) fn streams(count: u32) -> Vec<Traffic> {
    (0..u64::from(count)).map(|n| Traffic::Stream { from_ps: n * APART }).collect()
}

/// Returns the MTU for TCP segments of `segment_bytes` (`iperf3 -M`). In Linux the size of a
/// segment includes timestamps, and frames of the simulator have headers of another size.
pub(super) fn mtu_of_segments(segment_bytes: u32) -> u32 {
    segment_bytes - TIMESTAMP_BYTES + HEADER_BYTES
}

/// Returns the configuration of each host's endpoint: packet size, link rate and round trip of the
/// network.
fn endpoint(network: &Topology) -> Config {
    let rtt_ps = network.diameter_rtt_ps(PACKET_BYTES.into(), ACK_BYTES.into());
    Config {
        wire_overhead_bytes: OUTER_BYTES,
        packet_bytes_max: PACKET_BYTES - OUTER_BYTES,
        link_rate_bps: network.host_rate_bps(0),
        rtt_initial: Duration::from_nanos(rtt_ps / 1000),
        send_queue_datagrams_max: SEND_QUEUE,
        ..Config::default()
    }
}

/// Creates the world of two instances with traffic from the sender to the receiver.
///
/// # Errors
/// A description of the invalid part of the pair.
pub(super) fn world(
    pair: &Pair,
    mtu_bytes: u32,
    traffic: &[Traffic],
    seed: u64,
) -> Result<World<CardNode>, String> {
    world_over(pair, NETWORK.middle_bps, mtu_bytes, traffic, seed)
}

/// Creates the world of two instances as [`world`] does, with paths of another speed.
///
/// # Errors
/// A description of the invalid part of the pair.
pub(super) fn world_over(
    pair: &Pair,
    path_bps: u64,
    mtu_bytes: u32,
    traffic: &[Traffic],
    seed: u64,
) -> Result<World<CardNode>, String> {
    let flow = |traffic: &Traffic| match *traffic {
        Traffic::Stream { from_ps } => FlowPlan::at(from_ps, SENDER, RECEIVER, ENDLESS),
        Traffic::Datagrams { from_ps, bytes, .. } => FlowPlan::at(from_ps, SENDER, RECEIVER, bytes),
    };
    let plan = |traffic: &Traffic| match *traffic {
        Traffic::Stream { .. } => None,
        Traffic::Datagrams { plan, .. } => Some(plan),
    };
    let sent = GuestTraffic {
        flows: traffic.iter().map(flow).collect(),
        triggers: Vec::new(),
        datagrams: traffic.iter().map(plan).collect(),
        mtu_bytes,
        window_initial_bytes: 0,
    };
    let network = DumbbellSpec { middle_bps: path_bps, ..NETWORK };
    let network = network.build().map_err(|error| error.0)?;
    world_of(pair, network, sent, seed)
}

/// Traffic of all guests in a world.
pub(super) struct GuestTraffic {
    pub(super) flows: Vec<FlowPlan>,
    /// Triggers of the flows; empty if all flows start at fixed times.
    pub(super) triggers: Vec<TriggerKind>,
    /// For each flow, the plan of the flow's datagrams; `None` for a TCP stream.
    pub(super) datagrams: Vec<Option<Datagrams>>,
    /// MTU of the guests' interfaces.
    pub(super) mtu_bytes: u32,
    /// Initial window of the hosts' endpoints in bytes; 0 for the default.
    pub(super) window_initial_bytes: u64,
}

/// Creates the world of instances on the first hosts of a network.
///
/// # Errors
/// A description of the invalid part of the instances.
pub(super) fn world_of(
    pair: &Pair,
    mut network: Topology,
    sent: GuestTraffic,
    seed: u64,
) -> Result<World<CardNode>, String> {
    let GuestTraffic { flows, triggers, datagrams, mtu_bytes, window_initial_bytes } = sent;
    network.salt(seed);
    let workload = Workload { flows, triggers, ..Workload::default() };
    let rules = PortRules { queue: QueueSize::Bytes(QUEUE_BYTES), ..PortRules::default() };
    let config = WorldConfig { rules, seed, ..WorldConfig::default() };
    let node = CardNodeConfig {
        cloud: Arc::new(Cloud::new(pair)?),
        tcp: TcpConfig { mtu_bytes, seed, ..TcpConfig::default() },
        datagrams: Arc::new(datagrams),
        endpoint: Config { window_initial_bytes, ..endpoint(&network) },
        peers: Arc::new(peers(&workload, network.hosts)),
        seed,
    };
    World::new(network, workload, config, |host| CardNode::new(HostId(host), node.clone()))
        .map_err(|error| error.0)
}

/// Runs `count` steps. Returns, for each step, the payload bytes of each flow that arrived in the
/// step.
pub(super) fn steps(world: &mut World<CardNode>, step_ps: u64, count: u32) -> Vec<Vec<u64>> {
    let bytes = |world: &World<CardNode>| -> Vec<u64> {
        world.flows().iter().map(|flow| flow.delivered_bytes).collect()
    };
    let mut before = bytes(world);
    let step = |_| {
        let until = world.now_ps() + step_ps;
        world.run_until(until);
        let now = bytes(world);
        let arrived = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        before = now;
        arrived
    };
    (0..count).map(step).collect()
}

/// Converts a number of bytes in a time (in picoseconds) to Gb/s.
pub(super) fn gbps(bytes: u64, time_ps: u64) -> f64 {
    bytes as f64 * 8.0 / (time_ps as f64 / 1e12) / 1e9
}

/// Checks the conditions that every world must meet at its end. Frames that the queue for a peer
/// dropped ([`QUEUE_DROPS`]) violate no condition.
///
/// # Errors
/// A description of the violation.
pub(super) fn check(world: &World<CardNode>) -> Result<(), String> {
    world.check_conservation()?;
    if world.flows().iter().any(|flow| flow.damaged > 0 || flow.failed > 0) {
        return Err("a flow was damaged or failed".into());
    }
    for node in world.nodes() {
        let counts = node.counts();
        if counts.foreign + counts.unread + node.malformed() > 0 {
            return Err(format!("a host lost frames: {counts:?}"));
        }
        let stage = node.stage();
        let mut drops = stage.drops().filter(|(name, _)| !QUEUE_DROPS.contains(name));
        if let Some((why, frames)) = drops.find(|(_, frames)| *frames > 0) {
            return Err(format!("the stage lost {frames} frames: {why}"));
        }
    }
    Ok(())
}
