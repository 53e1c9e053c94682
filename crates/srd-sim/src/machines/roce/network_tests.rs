//! Tests of the RoCE model in the simulated network.

use super::*;
use crate::engine::fault::Fault;
use crate::engine::node::HostId;
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::engine::world::{Ended, LosslessRules, PortRules, QueueSize, US, World, WorldConfig};
use crate::workload::{FlowPlan, Workload};

const LINE: u64 = 100_000_000_000;
const SECOND_PS: u64 = 1_000_000 * US;

fn world(
    flows: Vec<FlowPlan>,
    roce: RoceConfig,
    change: impl FnOnce(&mut WorldConfig),
) -> World<RoceNode> {
    let spec = DumbbellSpec {
        side_hosts: 4,
        host_bps: LINE,
        middle_bps: LINE,
        middle_links: 1,
        latency_ps: US,
        switch_latency_ps: 0,
    };
    let rules = PortRules {
        queue: QueueSize::Bytes(1_000_000),
        mark: Some((QueueSize::Bytes(12_500), QueueSize::Bytes(500_000))),
        mark_share: 0.01,
        ..PortRules::default()
    };
    let lossless = Some(LosslessRules::default());
    let mut config = WorldConfig { seed: 1, rules, lossless, ..WorldConfig::default() };
    change(&mut config);
    let workload = Workload { flows, ..Workload::default() };
    let network = spec.build().unwrap();
    World::new(network, workload, config, |host| RoceNode::new(HostId(host), roce)).unwrap()
}

fn config() -> RoceConfig {
    RoceConfig::of_link(LINE, 4150)
}

fn total(world: &World<RoceNode>) -> RoceStats {
    let mut total = RoceStats::default();
    for stats in world.nodes().iter().map(RoceNode::stats) {
        total.packets += stats.packets;
        total.again += stats.again;
        total.naks += stats.naks;
        total.cnps += stats.cnps;
        total.timeouts += stats.timeouts;
    }
    total
}

fn finish(world: &mut World<RoceNode>) {
    assert_eq!(world.run(20 * SECOND_PS), Ended::Finished);
    world.check_conservation().unwrap();
    assert_eq!(world.counters().timer_livelocks, 0);
    for flow in world.flows() {
        assert_eq!(flow.delivered_bytes, flow.plan.bytes);
    }
}

fn frames(world: &World<RoceNode>) -> u64 {
    world.pauses(|_| 0).unwrap().frames
}

#[test]
fn a_lone_flow_has_the_speed_of_its_link_from_the_first_packet() {
    let mut world = world(vec![FlowPlan::at(0, 0, 4, 10_000_000)], config(), |_| {});
    finish(&mut world);
    // The flow takes at least the time of 10 MB in packets of 4150 bytes (4088 of payload).
    let least_ps = 10_000_000 * 4150 / 4088 * 80;
    let took_ps = world.flows()[0].finished_ps.unwrap();
    assert!(took_ps > least_ps && took_ps < least_ps + 10 * US, "{took_ps} for {least_ps}");
    assert_eq!((total(&world).again, total(&world).cnps, frames(&world)), (0, 0, 0));
}

#[test]
fn marks_become_notifications_that_share_the_link_and_spare_pauses() {
    let flows =
        || (0..4).map(|host| FlowPlan::at(0, host, 4, crate::engine::node::ENDLESS)).collect();
    let mut seen = Vec::new();
    // At 100 Gb/s, 20 ms are the time of 246 MB of payload. DCQCN reduces the rate much at first
    // and raises it slowly.
    for (dcqcn, least) in [(config().dcqcn, 140_000_000), (None, 240_000_000)] {
        let mut world = world(flows(), RoceConfig { dcqcn, ..config() }, |_| {});
        world.run_until(10_000 * US);
        let before = frames(&world);
        world.run_until(20_000 * US);
        seen.push((frames(&world) - before, total(&world).cnps));
        assert_eq!(world.counters().dropped_total(), 0);
        let bytes: Vec<u64> = world.flows().iter().map(|flow| flow.delivered_bytes).collect();
        let (sum, most) = (bytes.iter().sum::<u64>(), *bytes.iter().max().unwrap());
        assert!(sum > least, "{bytes:?}");
        assert!(most < sum / 4 * 5 / 4, "{bytes:?}");
    }
    let [(with, cnps), (without, none)] = seen[..] else { panic!("two runs") };
    assert!(cnps > 40 && none == 0, "{seen:?}");
    assert!(with * 20 < without, "{seen:?}");
}

#[test]
fn each_loss_costs_everything_that_was_in_flight() {
    let mut world = world(vec![FlowPlan::at(0, 0, 4, 20_000_000)], config(), |config| {
        let (links, probability) = ("side0->side1".to_owned(), 0.001);
        config.faults = vec![Fault::Loss { links, probability, at_us: 0.0, until_us: None }];
    });
    finish(&mut world);
    let (stats, lost) = (total(&world), world.counters().dropped_total());
    assert!(lost > 2 && stats.naks > 0, "{stats:?}, {lost} lost");
    // About 20 packets are in flight during a round trip.
    assert!(stats.again > 12 * lost, "{stats:?}, {lost} lost");
}

#[test]
fn a_dead_link_fails_its_flows_after_seven_retries() {
    let mut world = world(vec![FlowPlan::at(0, 0, 4, 20_000_000)], config(), |config| {
        let links = "side0->side1".to_owned();
        config.faults = vec![Fault::LinkDown { links, at_us: 100.0, until_us: None }];
    });
    world.run_until(SECOND_PS);
    assert_eq!((world.flows()[0].failed, total(&world).timeouts), (1, 8));
}

#[test]
fn a_restarted_sender_reports_what_it_did_not_finish() {
    let mut world = world(vec![FlowPlan::at(0, 0, 4, 20_000_000)], config(), |config| {
        config.faults = vec![Fault::Restart { host: 0, at_us: 100.0 }];
    });
    world.run_until(1_000 * US);
    assert_eq!(world.flows()[0].failed, 1);
    assert!(world.flows()[0].delivered_bytes > 0);
}

#[test]
fn without_pauses_full_queues_drop_and_go_back_n_repairs_it() {
    let flows = (0..4).map(|host| FlowPlan::at(0, host, 4, 2_000_000)).collect();
    let mut world = world(flows, config(), |config| config.lossless = None);
    finish(&mut world);
    assert!(world.counters().dropped_total() > 0);
    assert!(total(&world).again > world.counters().dropped_total());
}
