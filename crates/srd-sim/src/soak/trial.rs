//! Run of one seed of the soak: the phases safety, liveness and quiet.

use std::cell::RefCell;
use std::rc::Rc;

use srd_proto::{Duration, Instant, Protection};

use super::cloud;
use super::host::{endpoint, settling};
use super::layers;
use super::ledger::Ledger;
use super::node::{Common, SoakNode};
use super::passed::Passed;
use super::plan::{Layer, Plan};
use crate::engine::hash::mix;
use crate::engine::world::{Ended, US, World, WorldConfig};

/// Number of steps in the safety phase. A check follows each step.
const STEPS: u64 = 20;
/// Largest number of packets that a host may send to each peer in ten quiet milliseconds.
const QUIET_PACKETS_MAX: u64 = 40;

fn world(plan: &Plan, common: &Rc<Common>) -> Result<World<SoakNode>, String> {
    let config = WorldConfig {
        seed: plan.seed,
        rules: plan.rules,
        faults: plan.faults.clone(),
        convergence_us: None,
        corruption_undetected: plan.corruption_undetected,
        ..WorldConfig::default()
    };
    let node = |host| SoakNode::new(host, Rc::clone(common));
    World::new(plan.topology.clone(), plan.workload(), config, node)
        .map_err(|e| format!("the plan makes no world: {e}"))
}

/// Checks the world for violations: the ledger, conservation of packets, timers.
fn check(world: &World<SoakNode>, common: &Common) -> Result<(), String> {
    let at = || format!("at {:.3} us", world.now_ps() as f64 / US as f64);
    if let Some(wrong) = common.ledger.borrow().wrong() {
        return Err(format!("{wrong} ({})", at()));
    }
    world.check_conservation().map_err(|e| format!("packets are lost: {e} ({})", at()))?;
    match world.counters().timer_livelocks {
        0 => Ok(()),
        n => Err(format!("{n} timer livelocks ({})", at())),
    }
}

/// Runs the plan of a seed.
///
/// # Errors
/// A description of the first violation.
pub(super) fn run(plan: &Plan) -> Result<Passed, String> {
    match plan.layer {
        Layer::Plain => {}
        Layer::Card | Layer::Ranks => return layers::run(plan),
        Layer::Cloud => return cloud::run(plan),
    }
    let hosts = plan.topology.hosts;
    let keys = match plan.config.protection {
        Protection::Static(_) => {
            let key = |host| endpoint(plan, host, 1, Instant::ZERO).public_key();
            (0..hosts).filter_map(key).collect()
        }
        _ => Vec::new(),
    };
    let ledger = RefCell::new(Ledger::new(!plan.config.protection.is_on()));
    let common = Rc::new(Common { plan: plan.clone(), ledger, keys });
    let mut world = world(plan, &common)?;
    let step_ps = plan.heal_ps() / STEPS + 1;
    while world.now_ps() < plan.heal_ps() {
        world.run_until((world.now_ps() + step_ps).min(plan.heal_ps()));
        check(&world, &common)?;
    }
    liveness(plan, &mut world, &common)?;
    let liveness_us = (world.now_ps() - plan.heal_ps()) / US;
    let quiet_packets = quiet(plan, &mut world, &common)?;
    let ledger = common.ledger.borrow();
    let counters = world.counters();
    let sums = [counters.injected, counters.delivered, counters.dropped_total(), liveness_us];
    Ok(Passed {
        digest: sums.iter().fold(ledger.digest(), |digest, n| mix(digest ^ n)),
        packets: counters.injected,
        delivered: ledger.delivered,
        statuses: ledger.statuses.clone(),
        again_after_restart: ledger.again_after_restart,
        liveness_us,
        quiet_packets,
        ..Passed::default()
    })
}

/// Runs the phase "liveness" after the faults, in which every flow must finish.
fn liveness(plan: &Plan, world: &mut World<SoakNode>, common: &Common) -> Result<(), String> {
    let deadline_ps = plan.deadline_ps();
    let mut step_ps = 1_000 * US;
    loop {
        let ended = world.run(world.now_ps() + step_ps);
        check(world, common)?;
        let stuck = || {
            let flows: Vec<_> = world.nodes().iter().flat_map(SoakNode::unfinished).collect();
            let (some, count) = (flows.iter().take(3).cloned().collect::<Vec<_>>(), flows.len());
            let drops: Vec<_> = world.nodes().iter().map(SoakNode::drops).collect();
            let at_us = world.now_ps() / US;
            format!("at {at_us} us: {count}, {}; {}", some.join("; "), drops.join(", "))
        };
        match ended {
            Ended::Finished => break,
            Ended::Stalled => return Err(format!("flows will never finish {}", stuck())),
            Ended::Horizon if world.now_ps() > deadline_ps => {
                return Err(format!("flows do not finish {}", stuck()));
            }
            Ended::Horizon => step_ps = (step_ps * 2).min(50_000 * US),
        }
    }
    match common.ledger.borrow().open() {
        0 => Ok(()),
        n => Err(format!("{n} datagrams open, though every flow is done")),
    }
}

/// Runs the phase "quiet" after all flows are done, in which the network must fall quiet. Returns
/// the number of packets in ten milliseconds.
fn quiet(plan: &Plan, world: &mut World<SoakNode>, common: &Common) -> Result<u64, String> {
    let config = &plan.config;
    let ps = |d: Duration| d.as_nanos() * 1000;
    world.run_until(world.now_ps().max(plan.heal_ps()) + ps(settling(config)));
    check(world, common)?;
    let before = world.counters().injected;
    world.run_until(world.now_ps() + 10_000 * US);
    check(world, common)?;
    let packets = world.counters().injected - before;
    let hosts = u64::from(plan.topology.hosts);
    if packets > QUIET_PACKETS_MAX * hosts * hosts {
        return Err(format!("{packets} packets in 10 ms, though nothing is to be done"));
    }
    if plan.reclaims() && config.keepalive == Duration::MAX {
        world.run_until(world.now_ps() + ps(config.idle_reclaim.times(2)) + 50_000 * US);
        check(world, common)?;
        let contexts: usize = world.nodes().iter().map(SoakNode::contexts).sum();
        if contexts > 0 {
            return Err(format!("{contexts} idle contexts keep their memory"));
        }
    }
    Ok(packets)
}
