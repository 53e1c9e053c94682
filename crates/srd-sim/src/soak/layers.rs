//! Soak tests whose hosts run a layer above the endpoint: TCP connections of guests over the card
//! of ENA Express, or ranks over the Messaging Layer. The seed of the test determines a [`Plan`]
//! with the network, the faults and the flows.
//!
//! The oracles use only the data that applications received. A guest's bytes must arrive completely
//! and in order (the TCP model counts only such bytes). A message must arrive once and completely.
//! No content may change. If a host restarted, or was notified of the failure of a flow, the flow
//! need not arrive.

use std::collections::BTreeSet;

use srd_proto::{Config, Duration, Protection};

use super::passed::Passed;
use super::plan::{Layer, Plan};
use crate::engine::fault::Fault;
use crate::engine::hash::mix;
use crate::engine::world::{FlowState, US, World, WorldConfig};
use crate::machines::any_node::AnyNode;
use crate::machines::express::{ExpressNode, ExpressNodeConfig};
use crate::machines::rank::{RankNode, RankNodeConfig};
use crate::machines::tcp::TcpConfig;
use crate::workload::peers;

/// Upper bound of the retransmission timeout of a guest's TCP.
const RTO_MAX: Duration = Duration::from_millis(40);
/// Simulated time between two checks at the beginning, in picoseconds.
const STEP_PS: u64 = 1_000 * US;
/// Time in picoseconds that timers of guests, or of the Messaging Layer, may add to the deadline of
/// the plan.
const PATIENCE_PS: u64 = 5_000_000 * US;

/// Returns an endpoint configuration with limits that a card or the Messaging Layer can work with,
/// and with one key for all hosts.
pub(super) fn endpoint(plan: &Plan) -> Config {
    let mut config = plan.config.clone();
    if matches!(config.protection, Protection::Static(_)) {
        config.protection = Protection::JobKey([9; 32]);
    }
    config.send_queue_datagrams_max = config.send_queue_datagrams_max.max(256);
    config.flows_max = config.flows_max.max(4096);
    config.events_max = 1 << 20;
    config
}

fn guest() -> TcpConfig {
    TcpConfig {
        rto_min: Duration::from_millis(5),
        rto_max: RTO_MAX,
        rto_initial: Duration::from_millis(10),
        timer_tick: Duration::from_millis(1),
        retries_max: 1_000_000,
        ..TcpConfig::default()
    }
}

fn world(plan: &Plan) -> Result<World<AnyNode>, String> {
    let (endpoint, seed, workload) = (endpoint(plan), plan.seed, plan.workload());
    let config = WorldConfig {
        seed,
        rules: plan.rules,
        faults: plan.faults.clone(),
        convergence_us: None,
        corruption_undetected: plan.corruption_undetected,
        ..WorldConfig::default()
    };
    let hosts = plan.topology.hosts;
    let topology = plan.topology.clone();
    let made = if plan.layer == Layer::Card {
        let (card, guest) = (srd_card::Config::default(), guest());
        let peers = peers(&workload, hosts).into();
        let of_all = ExpressNodeConfig { endpoint, card, guest, seed, peers };
        let node = |host| AnyNode::Express(Box::new(ExpressNode::new(host, of_all.clone())));
        World::new(topology, workload, config, node)
    } else {
        let incoming = crate::machines::rank::incoming(&workload, hosts).into();
        let of_all = RankNodeConfig { endpoint, seed, incoming };
        let node = |host| AnyNode::Rank(Box::new(RankNode::new(host, of_all.clone())));
        World::new(topology, workload, config, node)
    };
    made.map_err(|e| format!("the plan makes no world: {e}"))
}

/// Checks the world for violations: lost or changed data, and timers without progress.
fn check(world: &World<AnyNode>, restarted: &BTreeSet<u32>) -> Result<(), String> {
    world.check_conservation().map_err(|e| format!("packets are lost: {e}"))?;
    if world.counters().timer_livelocks > 0 {
        return Err(format!("{} timer livelocks", world.counters().timer_livelocks));
    }
    for (number, flow) in world.flows().iter().enumerate() {
        if flow.damaged > 0 {
            return Err(format!("flow {number} arrived changed, or twice"));
        }
        let FlowState { plan, delivered_bytes, .. } = flow;
        if *delivered_bytes > plan.bytes && !touches(flow, restarted) {
            return Err(format!("{delivered_bytes} bytes of {} of flow {number}", plan.bytes));
        }
    }
    Ok(())
}

/// Whether the sender or the receiver of a flow restarted.
fn touches(flow: &FlowState, restarted: &BTreeSet<u32>) -> bool {
    restarted.contains(&flow.plan.src.0) || restarted.contains(&flow.plan.dst.0)
}

/// Whether a flow has ended in a permitted manner: it is complete, it failed, or one of its hosts
/// restarted.
fn is_settled(flow: &FlowState, restarted: &BTreeSet<u32>) -> bool {
    let is_done = flow.finished_ps.is_some() && flow.delivered_bytes == flow.plan.bytes;
    is_done || flow.failed > 0 || touches(flow, restarted)
}

/// Runs the plan of a seed, in which the hosts run a card or a rank.
///
/// # Errors
/// A description of the first violation.
pub(super) fn run(plan: &Plan) -> Result<Passed, String> {
    let restarts = plan.faults.iter().filter_map(|fault| match fault {
        Fault::Restart { host, .. } => Some(*host),
        _ => None,
    });
    let restarted: BTreeSet<u32> = restarts.collect();
    let mut world = world(plan)?;
    let deadline_ps = plan.deadline_ps() + PATIENCE_PS;
    let all_settled =
        |world: &World<AnyNode>| world.flows().iter().all(|flow| is_settled(flow, &restarted));
    let mut step_ps = STEP_PS;
    while world.now_ps() < plan.heal_ps() || !all_settled(&world) {
        world.run_until(world.now_ps() + step_ps);
        let at = |what| format!("{what} (at {:.3} us)", world.now_ps() as f64 / US as f64);
        check(&world, &restarted).map_err(at)?;
        if world.now_ps() > deadline_ps {
            let open = world.flows().iter().enumerate().filter(|(_, f)| !is_settled(f, &restarted));
            let some: Vec<_> = open.take(3).map(|(n, flow)| format!("{n}: {flow:?}")).collect();
            return Err(at(format!("flows do not finish: {}", some.join("; "))));
        }
        step_ps = (step_ps * 2).min(50 * STEP_PS);
    }
    let liveness_us = (world.now_ps() - plan.heal_ps()) / US;
    let counters = world.counters();
    let delivered = world.flows().iter().map(|flow| flow.delivered_bytes);
    let mut sums = vec![counters.injected, counters.delivered, counters.dropped_total()];
    sums.extend(delivered);
    Ok(Passed {
        digest: sums.iter().fold(plan.seed, |digest, n| mix(digest ^ n)),
        packets: counters.injected,
        liveness_us,
        ..Passed::default()
    })
}
