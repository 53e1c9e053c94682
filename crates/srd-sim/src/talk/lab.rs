//! The world of an experiment: a pair of instances, what one sends to the other, and what arrives
//! over time.

use std::sync::Arc;

use crate::card::{CardNode, CardNodeConfig, Cloud, Datagrams, Pair};
use crate::express::frame::HEADER_BYTES;
use crate::node::{ENDLESS, HostId};
use crate::tcp::TcpConfig;
use crate::topology::dumbbell::DumbbellSpec;
use crate::workload::{FlowPlan, Workload};
use crate::world::{PortRules, QueueSize, US, World, WorldConfig};

/// The sender and the receiver.
pub(super) const SENDER: u32 = 0;
pub(super) const RECEIVER: u32 = 1;
/// Picoseconds of a millisecond and a second.
pub(super) const MS: u64 = 1_000 * US;
pub(super) const SECOND: u64 = 1_000 * MS;

/// MTU of interfaces of a VPC, and of those whose packets ENA Express carries.
pub(super) const MTU: u32 = 9001;
pub(super) const MTU_EXPRESS: u32 = 8900;
/// TCP's timestamps, which are part of a segment's bytes in Linux.
pub(super) const TIMESTAMP_BYTES: u32 = 12;

/// The network between the two hosts: as fast as the card of Nitro v4 and v5, so that limits bind
/// and not links, with a round trip of about 20 us.
const NETWORK: DumbbellSpec = DumbbellSpec {
    side_hosts: 1,
    host_bps: 200_000_000_000,
    middle_bps: 200_000_000_000,
    middle_links: 1,
    latency_ps: 3 * US,
    switch_latency_ps: US / 2,
};
/// No port overflows: what is lost, limits have dropped.
const QUEUE_BYTES: u64 = 64 << 20;
/// Between the beginnings of two flows.
const APART: u64 = 37 * US;

/// What the sender sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Traffic {
    /// A TCP stream from a time on that never ends.
    Stream { from_ps: u64 },
    /// So many payload bytes as datagrams, from a time on.
    Datagrams { from_ps: u64, bytes: u64, plan: Datagrams },
}

/// Streams that begin one after the other.
pub(super) fn streams(count: u32) -> Vec<Traffic> {
    (0..u64::from(count)).map(|n| Traffic::Stream { from_ps: n * APART }).collect()
}

/// The largest packet of segments of so many bytes (`iperf3 -M`): timestamps are part of them in
/// Linux, and the frames of the simulator have headers of another size.
pub(super) fn mtu_of_segments(segment_bytes: u32) -> u32 {
    segment_bytes - TIMESTAMP_BYTES + HEADER_BYTES
}

/// The world of a pair.
///
/// # Errors
/// What is wrong with the pair, in words.
pub(super) fn world(
    pair: &Pair,
    mtu_bytes: u32,
    traffic: &[Traffic],
    seed: u64,
) -> Result<World<CardNode>, String> {
    let cloud = Arc::new(Cloud::new(pair)?);
    let flow = |traffic: &Traffic| match *traffic {
        Traffic::Stream { from_ps } => FlowPlan::at(from_ps, SENDER, RECEIVER, ENDLESS),
        Traffic::Datagrams { from_ps, bytes, .. } => FlowPlan::at(from_ps, SENDER, RECEIVER, bytes),
    };
    let plan = |traffic: &Traffic| match *traffic {
        Traffic::Stream { .. } => None,
        Traffic::Datagrams { plan, .. } => Some(plan),
    };
    let datagrams = Arc::new(traffic.iter().map(plan).collect());
    let workload = Workload { flows: traffic.iter().map(flow).collect(), ..Workload::default() };
    let rules = PortRules { queue: QueueSize::Bytes(QUEUE_BYTES), ..PortRules::default() };
    let config = WorldConfig { rules, seed, ..WorldConfig::default() };
    let tcp = TcpConfig { mtu_bytes, seed, ..TcpConfig::default() };
    let node = CardNodeConfig { cloud, tcp, datagrams, seed };
    let network = NETWORK.build().map_err(|error| error.0)?;
    World::new(network, workload, config, |host| CardNode::new(HostId(host), node.clone()))
        .map_err(|error| error.0)
}

/// Runs for so many steps. Returns the payload bytes of each flow that arrived in each.
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

/// Bytes in a time as Gb/s.
pub(super) fn gbps(bytes: u64, time_ps: u64) -> f64 {
    bytes as f64 * 8.0 / (time_ps as f64 / 1e12) / 1e9
}

/// What has to hold of each world at its end.
///
/// # Errors
/// What does not, in words.
pub(super) fn check(world: &World<CardNode>) -> Result<(), String> {
    world.check_conservation()?;
    if world.flows().iter().any(|flow| flow.damaged > 0 || flow.failed > 0) {
        return Err("a flow was damaged or failed".into());
    }
    for node in world.nodes() {
        let counts = node.counts();
        if counts.wire_full + counts.malformed + counts.unread > 0 {
            return Err(format!("a host lost frames: {counts:?}"));
        }
    }
    Ok(())
}
