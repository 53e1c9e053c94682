//! Tests of priority flow control: thresholds, headroom, pause frames, deadlocks.

use super::*;
use crate::engine::event::FLAG_CONTROL;
use crate::engine::node::HostId;
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::engine::topology::ring::RingSpec;
use crate::engine::world::{CaptureRules, Ended, PauseReport, QueueSize, US, WorldConfig};
use crate::machines::roce::{RoceConfig, RoceNode};
use crate::workload::{FlowPlan, Workload};

const LINE: u64 = 100_000_000_000;
const PACKET: u16 = 4150;
const SECOND_PS: u64 = 1_000_000 * US;

/// Returns a network of two switches, with a link of the hosts' speed between them.
fn dumbbell(side_hosts: u32) -> Topology {
    let spec = DumbbellSpec {
        side_hosts,
        host_bps: LINE,
        middle_bps: LINE,
        middle_links: 1,
        latency_ps: US,
        switch_latency_ps: 0,
    };
    spec.build().unwrap()
}

fn ring(switches: u32, switch_hosts: u32) -> Topology {
    let (host_bps, ring_bps) = (LINE, LINE);
    let (latency_ps, switch_latency_ps) = (US, 0);
    let spec =
        RingSpec { switches, switch_hosts, host_bps, ring_bps, latency_ps, switch_latency_ps };
    spec.build().unwrap()
}

/// Returns a world of hosts with RoCE, without rate control: only pauses slow a sender.
fn world(
    topology: Topology,
    flows: Vec<FlowPlan>,
    lossless: LosslessRules,
    change: impl FnOnce(&mut WorldConfig),
) -> World<RoceNode> {
    let rules = PortRules { queue: QueueSize::Bytes(500_000), ..PortRules::default() };
    let mut config =
        WorldConfig { seed: 1, rules, lossless: Some(lossless), ..WorldConfig::default() };
    change(&mut config);
    let roce = RoceConfig { dcqcn: None, ..RoceConfig::of_link(LINE, PACKET.into()) };
    let workload = Workload { flows, ..Workload::default() };
    World::new(topology, workload, config, |host| RoceNode::new(HostId(host), roce)).unwrap()
}

/// Returns flows from every host on the left to the first host on the right.
fn incast(side_hosts: u32, bytes: u64) -> Vec<FlowPlan> {
    (0..side_hosts).map(|host| FlowPlan::at(0, host, side_hosts, bytes)).collect()
}

fn report(world: &World<RoceNode>) -> PauseReport {
    let hash = |id: crate::engine::node::FlowId| {
        let plan = &world.flows()[id.index()].plan;
        crate::machines::roce::flow_hash(plan.src, plan.dst, id)
    };
    world.pauses(hash).unwrap()
}

fn finish(world: &mut World<RoceNode>) {
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    world.check_conservation().unwrap();
    for flow in world.flows() {
        assert_eq!(flow.delivered_bytes, flow.plan.bytes);
    }
}

fn port(world: &World<RoceNode>, name: &str) -> u32 {
    world.topology().select(name).unwrap()[0]
}

#[test]
fn headroom_is_two_flights_three_packets_and_the_pause() {
    // On a link of 100 Gb/s, 1 us is the time of 12,500 bytes.
    assert_eq!(headroom_bytes(LINE, US, PACKET), 2 * 12_500 + 3 * 4150 + 64);
    assert_eq!(headroom_bytes(4 * LINE, US / 2, PACKET), 2 * 25_000 + 3 * 4150 + 64);
}

/// In an earlier version, the time of a byte was a whole number of picoseconds.
#[test]
fn regression_headroom_of_fast_links_holds_the_bytes_in_flight() {
    assert_eq!(headroom_bytes(100 * LINE, US, PACKET), 2 * 1_250_000 + 3 * 4150 + 64);
    assert_eq!(headroom_bytes(30_000_000_000, US, PACKET), 2 * 3750 + 3 * 4150 + 64);
}

/// In an earlier version, packets that a lossless switch dropped were in no capture.
#[test]
fn regression_packets_beyond_the_headroom_are_captured() {
    let none = LosslessRules { headroom_bytes: Some(0), ..LosslessRules::default() };
    let mut world = world(dumbbell(6), incast(6, 2_000_000), none, |config| {
        let ports = vec!["all".to_owned()];
        config.capture = Some(CaptureRules { ports, packets_max: 100_000 });
    });
    world.run_until(2_000 * US);
    let file = world.take_capture().unwrap();
    let comment = b"dropped: the queue is full";
    let captured = file.windows(comment.len()).filter(|bytes| *bytes == comment).count();
    assert!(captured > 0, "without headroom packets are lost");
    assert_eq!(captured as u64, world.counters().dropped_total());
}

#[test]
fn pauses_keep_an_incast_from_losing_anything_and_headroom_is_what_it_takes() {
    for side_hosts in [2, 6] {
        let mut world = world(
            dumbbell(side_hosts),
            incast(side_hosts, 2_000_000),
            LosslessRules::default(),
            |_| {},
        );
        finish(&mut world);
        assert_eq!(world.counters().dropped_total(), 0);
        let report = report(&world);
        assert!(report.frames > 2 && report.deadlock.is_none(), "{report:?}");
        // The link is never idle, so the run takes the time of all bytes and the path of the first
        // packet.
        let wire_ps = u64::from(side_hosts) * 2_000_000 * 4150 / 4088 * 80;
        assert!(world.now_ps() < wire_ps + 12 * US, "{} for {wire_ps}", world.now_ps());
        let limits = world.lossless.ingress.iter().map(|ingress| ingress.limit_bytes);
        let most = limits.max().unwrap() * u64::from(side_hosts);
        assert!(world.queue_bytes_max() <= most, "{}", world.queue_bytes_max());
    }
    let none = LosslessRules { headroom_bytes: Some(0), ..LosslessRules::default() };
    let mut world = world(dumbbell(6), incast(6, 2_000_000), none, |_| {});
    world.run_until(2_000 * US);
    assert!(world.counters().dropped_total() > 0, "without headroom packets are lost");
}

/// If the egress port is paused, the switch stores more bytes from the ingress than XOFF and the
/// bytes in flight, but at most XOFF and the headroom.
#[test]
fn an_ingress_needs_nearly_all_of_its_headroom() {
    let flows = vec![FlowPlan::at(0, 0, 2, 2_000_000)];
    let mut world = world(dumbbell(2), flows, LosslessRules::default(), |_| {});
    // The egress port is paused from the start, so no packet leaves the switch.
    let out = port(&world, "side0->side1");
    world.on_pause(out, true);
    let mut most = 0;
    while world.now_ps() < 300 * US {
        world.run_until(world.now_ps() + 50_000);
        most = most.max(world.lossless.ingress[0].bytes);
    }
    let Ingress { xoff_bytes, limit_bytes, .. } = world.lossless.ingress[0];
    assert!(most > xoff_bytes + 25_000 && most <= limit_bytes, "{most} of {limit_bytes}");
}

#[test]
fn a_pause_takes_its_link_time_and_waits_for_the_packet_in_transmission() {
    let ser_ps = |bytes: u64| bytes * 80;
    for busy in [false, true] {
        // The flow is for host 0, and leaves through the port that also sends the pause frame to
        // host 0.
        let flows = vec![FlowPlan::at(0, 2, 0, 10 * 4088)];
        let mut world = world(dumbbell(2), flows, LosslessRules::default(), |_| {});
        // The port begins to send the first packet to the host after two links of 1 us and two
        // times the duration of a packet. At 1.1 us later the port is still sending packets.
        let begin_ps = if busy { 2 * US + 2 * ser_ps(4150) + US + 100_000 } else { 0 };
        world.run_until(begin_ps);
        let back = port(&world, "side0->host0");
        let before = world.ports[back as usize].bytes();
        world.send_pause(0, true);
        let mut paused_ps = 0;
        while paused_ps == 0 && world.now_ps() < begin_ps + 5 * US {
            world.run_until(world.now_ps() + 10_000);
            paused_ps = world.lossless.queues[0].paused_at_ps.unwrap_or(0);
        }
        let wait_ps = paused_ps - begin_ps - US - ser_ps(64);
        if busy {
            assert!(wait_ps > 0 && wait_ps <= ser_ps(4150), "{wait_ps}");
        } else {
            assert_eq!(wait_ps, 0);
            assert_eq!(world.ports[back as usize].bytes() - before, 64);
        }
    }
}

#[test]
fn a_paused_host_sends_notifications_and_nothing_else_until_it_may_go_on() {
    let flows = vec![FlowPlan::at(0, 0, 2, 1_000_000), FlowPlan::at(0, 1, 2, 1_000_000)];
    let mut world = world(dumbbell(2), flows, LosslessRules::default(), |config| {
        config.rules.mark = Some((QueueSize::Bytes(0), QueueSize::Bytes(1)));
    });
    // The sender is ECN-capable, so switches mark its packets.
    let roce = RoceConfig::of_link(LINE, PACKET.into());
    for host in 0..2 {
        *world.node_mut(host) = RoceNode::new(HostId(host), roce);
    }
    world.on_pause(2, true);
    world.run_until(60 * US);
    let stats = world.nodes()[2].stats();
    assert!(stats.cnps > 0 && stats.acks == 0, "{stats:?}");
    world.on_pause(2, false);
    finish(&mut world);
    assert!(world.nodes()[2].stats().acks > 0);
    let paused = report(&world).links;
    let paused = paused.iter().find(|link| link.link == "host2->side1").unwrap();
    assert_eq!((paused.pauses, paused.paused_us), (1, 60.0));
}

#[test]
fn control_packets_beyond_their_bound_are_dropped() {
    let mut world = world(dumbbell(2), Vec::new(), LosslessRules::default(), |_| {});
    let out = port(&world, "side0->side1");
    let fit = CONTROL_BYTES_MAX / 64;
    // The loop sends one packet more than fits, because the port sends the first packet at once.
    for _ in 0..=fit {
        let packet = world.packets.take();
        world.forward(out, Event { packet, bytes: 64, flags: FLAG_CONTROL, ..Event::default() });
    }
    assert_eq!(world.counters().dropped_total(), 0);
    let packet = world.packets.take();
    world.forward(out, Event { packet, bytes: 64, flags: FLAG_CONTROL, ..Event::default() });
    assert_eq!(world.counters().dropped[DropCause::QueueFull as usize], 1);
}

#[test]
fn congestion_that_spreads_holds_flows_that_go_elsewhere() {
    // Six hosts on the left send to one host. One of the six also sends to another host on the
    // right.
    let mut flows = incast(6, 2_000_000);
    flows.push(FlowPlan::at(0, 5, 7, 1_000_000));
    // The link between the switches is fast, so only the port to the first receiver is congested.
    let spec = DumbbellSpec {
        side_hosts: 6,
        host_bps: LINE,
        middle_bps: 4 * LINE,
        middle_links: 1,
        latency_ps: US,
        switch_latency_ps: 0,
    };
    let mut world = world(spec.build().unwrap(), flows, LosslessRules::default(), |_| {});
    finish(&mut world);
    let report = report(&world);
    assert_eq!(report.congested, ["side1->host6"]);
    let victims: Vec<_> = report.held.iter().filter(|held| held.is_victim).collect();
    assert_eq!(victims.len(), 1, "{report:?}");
    assert_eq!(victims[0].flow.0, 6);
    // Alone, the flow would take 81.2 us and a round trip.
    let took_us = world.flows()[6].finished_ps.unwrap() / US;
    assert!(took_us > 300, "{took_us}");
    assert!(victims[0].held_us > 100.0 && victims[0].held_us < took_us as f64, "{victims:?}");
    assert!(report.links.iter().any(|link| link.link == "side0->side1"), "{report:?}");
}

/// Returns flows from every host to the opposite host of the ring, so that each link between
/// switches waits for the next link.
fn half_way(hosts: u32, bytes: u64) -> Vec<FlowPlan> {
    (0..hosts).map(|host| FlowPlan::at(0, host, (host + hosts / 2) % hosts, bytes)).collect()
}

#[test]
fn a_ring_of_lossless_switches_deadlocks_and_the_circle_is_named() {
    let mut world = world(ring(4, 2), half_way(8, 20_000_000), LosslessRules::default(), |_| {});
    assert_eq!(world.run(20_000 * US), Ended::Horizon);
    world.check_conservation().unwrap();
    let deadlock = report(&world).deadlock.unwrap();
    let mut circle = deadlock.circle.clone();
    circle.sort();
    assert_eq!(circle, ["ring0->ring1", "ring1->ring2", "ring2->ring3", "ring3->ring0"]);
    // The deadlock is real: the flows deliver no further byte.
    let now: Vec<u64> = world.flows().iter().map(|flow| flow.delivered_bytes).collect();
    assert!(now.iter().all(|bytes| *bytes < 20_000_000));
    world.run_until(40_000 * US);
    let later: Vec<u64> = world.flows().iter().map(|flow| flow.delivered_bytes).collect();
    assert_eq!(now, later);
    assert_eq!(report(&world).deadlock, Some(deadlock));
}

#[test]
fn pauses_without_a_circle_are_no_deadlock() {
    // Two cases without a circle: a ring without the flows of one switch, and a network whose links
    // form no circle.
    let mut flows = half_way(8, 5_000_000);
    flows.retain(|flow| flow.src.0 >= 2);
    for (topology, flows) in [(ring(4, 2), flows), (dumbbell(6), incast(6, 5_000_000))] {
        let mut world = world(topology, flows, LosslessRules::default(), |_| {});
        finish(&mut world);
        let report = report(&world);
        assert!(report.frames > 0 && report.deadlock.is_none(), "{report:?}");
        assert!(world.lossless.ingress.iter().all(|ingress| ingress.bytes == 0));
    }
}

#[test]
fn thresholds_that_cannot_work_are_refused() {
    for (queue_bytes, rules) in [
        (30_000, LosslessRules::default()),
        (500_000, LosslessRules { xoff_bytes: Some(4000), ..LosslessRules::default() }),
        (
            500_000,
            LosslessRules {
                xoff_bytes: Some(50_000),
                xon_bytes: Some(60_000),
                ..LosslessRules::default()
            },
        ),
    ] {
        let config = WorldConfig {
            rules: PortRules { queue: QueueSize::Bytes(queue_bytes), ..PortRules::default() },
            lossless: Some(rules),
            ..WorldConfig::default()
        };
        let roce = RoceConfig::of_link(LINE, PACKET.into());
        let made = World::new(dumbbell(2), Workload::default(), config, |host| {
            RoceNode::new(HostId(host), roce)
        });
        let error = made.err().unwrap();
        assert!(error.0.contains("XOFF must hold a packet"), "{error}");
    }
}
