//! Tests of the TCP model in the simulated network.

use super::*;
use crate::engine::fault::Fault;
use crate::engine::node::{FlowId, HostId};
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::engine::world::{Ended, PortRules, QueueSize, World, WorldConfig};
use crate::workload::{FlowPlan, Start, TriggerId, TriggerKind, Workload};
use srd_proto::time::Duration;

const US: u64 = 1_000_000;
/// Time that one packet takes at 1 Gb/s.
const JITTER: Duration = Duration::from_micros(72);
const SECOND: u64 = 1_000_000 * US;

/// Network of the experiments that also ran on Linux hosts: links of 1 Gb/s, 9000-byte packets, a
/// base round trip of about 150 us. The link in the middle is fast, so that the receiver's port is
/// the bottleneck.
const LAB: DumbbellSpec = DumbbellSpec {
    side_hosts: 6,
    host_bps: 1_000_000_000,
    middle_bps: 100_000_000_000,
    middle_links: 1,
    latency_ps: US / 2,
    switch_latency_ps: 0,
};

/// A network in which the link in the middle is the bottleneck. A host whose own link is as slow as
/// the bottleneck sends in step with the queue. Such a host never meets the queue full, and would
/// not have to share.
const NARROW: DumbbellSpec =
    DumbbellSpec { host_bps: 10_000_000_000, middle_bps: 1_000_000_000, ..LAB };

fn world(
    network: DumbbellSpec,
    workload: Workload,
    tcp: TcpConfig,
    change: impl FnOnce(&mut WorldConfig),
) -> World<TcpNode> {
    let tcp = TcpConfig { jitter_max: JITTER, ..tcp };
    let rules = PortRules { queue: QueueSize::Bytes(200_000), ..PortRules::default() };
    let mut config = WorldConfig { rules, seed: 1, ..WorldConfig::default() };
    change(&mut config);
    let network = network.build().expect("a network");
    World::new(network, workload, config, |host| TcpNode::new(HostId(host), tcp)).expect("a world")
}

fn finish(world: &mut World<TcpNode>) {
    assert_eq!(world.run(200 * SECOND), Ended::Finished);
    world.check_conservation().expect("conservation");
    assert_eq!(world.counters().timer_livelocks, 0);
    for (flow, state) in (0..).zip(world.flows()) {
        assert_eq!(state.delivered_bytes, state.plan.bytes, "flow {flow}");
    }
}

fn total(world: &World<TcpNode>) -> TcpStats {
    let mut total = TcpStats::default();
    for stats in world.nodes().iter().map(TcpNode::stats) {
        total.segments += stats.segments;
        total.segments_resent += stats.segments_resent;
        total.timeouts += stats.timeouts;
    }
    total
}

/// Returns the completion times of all flows at the sender, in picoseconds.
fn times(world: &World<TcpNode>) -> Vec<u64> {
    let time = |state: &crate::engine::world::FlowState| {
        state.finished_ps.expect("finished") - state.started_ps.expect("started")
    };
    world.flows().iter().map(time).collect()
}

#[test]
fn lone_flow_reaches_line_rate() {
    for congestion in [Congestion::Cubic, Congestion::Reno, Congestion::Dctcp] {
        let flows = vec![FlowPlan::at(0, 0, 6, 50_000_000)];
        let workload = Workload { flows, ..Workload::default() };
        let mut world =
            world(LAB, workload, TcpConfig { congestion, ..TcpConfig::default() }, |_| {});
        finish(&mut world);
        // Segments of 8948 bytes are 9014 bytes on the wire, so 50 MB take 402.95 ms.
        let ideal_us = 402_950 + 150;
        let us = times(&world)[0] / US;
        assert!(us < ideal_us * 102 / 100, "{congestion:?}: {us} us");
        assert_eq!(total(&world).timeouts, 0);
    }
}

#[test]
fn two_flows_share_a_bottleneck() {
    for congestion in [Congestion::Cubic, Congestion::Reno] {
        let flows = vec![
            FlowPlan::at(0, 0, 6, crate::engine::node::ENDLESS),
            FlowPlan::at(37 * US, 1, 6, crate::engine::node::ENDLESS),
        ];
        let workload = Workload { flows, ..Workload::default() };
        let mut world =
            world(NARROW, workload, TcpConfig { congestion, ..TcpConfig::default() }, |_| {});
        world.run_until(10 * SECOND);
        let bytes: Vec<_> = world.flows().iter().map(|flow| flow.delivered_bytes).collect();
        assert!(bytes[0] + bytes[1] > 1_210_000_000, "{congestion:?}: {bytes:?}");
        let (low, high) = (bytes[0].min(bytes[1]), bytes[0].max(bytes[1]));
        assert!(high < low * 5 / 4, "{congestion:?}: {bytes:?}");
    }
}

#[test]
fn dctcp_shares_without_loss_where_switches_mark() {
    let flows =
        (0..4).map(|k| FlowPlan::at(k * 40 * US, 0, 6, crate::engine::node::ENDLESS)).collect();
    let workload = Workload { flows, ..Workload::default() };
    let mut world = world(NARROW, workload, TcpConfig::dctcp(), |config| {
        config.rules.mark = Some((QueueSize::Bytes(60_000), QueueSize::Bytes(60_000)));
    });
    world.run_until(2 * SECOND);
    let bytes: Vec<_> = world.flows().iter().map(|flow| flow.delivered_bytes).collect();
    assert!(bytes.iter().sum::<u64>() > 235_000_000, "{bytes:?}");
    assert!(bytes.iter().max() < bytes.iter().min().map(|low| low * 5 / 4).as_ref(), "{bytes:?}");
    assert_eq!(total(&world).timeouts, 0);
}

#[test]
fn random_loss_is_repaired_by_sack_without_timeouts() {
    let flows = vec![FlowPlan::at(0, 0, 6, 100_000_000)];
    let workload = Workload { flows, ..Workload::default() };
    let mut world = world(LAB, workload, TcpConfig::default(), |config| {
        let links = "all".to_owned();
        config.faults = vec![Fault::Loss { links, probability: 0.001, at_us: 0.0, until_us: None }];
    });
    finish(&mut world);
    let stats = total(&world);
    assert!(stats.segments_resent > 10, "{stats:?}");
    assert_eq!(stats.timeouts, 0, "{stats:?}");
}

#[test]
fn handshake_costs_one_round_trip() {
    let mut times_us = Vec::new();
    for handshake in [false, true] {
        let flows = vec![FlowPlan::at(0, 0, 6, 1000)];
        let workload = Workload { flows, ..Workload::default() };
        let mut world =
            world(LAB, workload, TcpConfig { handshake, ..TcpConfig::default() }, |_| {});
        finish(&mut world);
        times_us.push(times(&world)[0] / US);
    }
    // The round trip has 66 bytes over two links in each direction, six propagation delays, and up
    // to twice the jitter of each host.
    let cost_us = times_us[1].abs_diff(times_us[0] + 5);
    assert!(cost_us <= 2 * 72, "{times_us:?}");
}

#[test]
fn restarted_receiver_resets_the_connection() {
    let flows = vec![FlowPlan::at(0, 0, 6, 50_000_000)];
    let workload = Workload { flows, ..Workload::default() };
    let mut world = world(LAB, workload, TcpConfig::default(), |config| {
        config.faults = vec![Fault::Restart { host: 6, at_us: 10_000.0 }];
    });
    world.run_until(SECOND);
    assert_eq!(world.flows()[0].failed, 1);
    assert!(world.nodes()[0].sender(FlowId(0)).is_none());
}

#[test]
fn everything_arrives_once_whatever_is_lost_or_doubled() {
    for seed in 1..=12_u32 {
        let probability = f64::from(seed) * 0.015;
        let congestion = [Congestion::Cubic, Congestion::Reno, Congestion::Dctcp];
        let tcp = TcpConfig { congestion: congestion[seed as usize % 3], ..with_rto(5) };
        let flow =
            |k: u32| FlowPlan::at(0, k % 6, 6 + (k * 5 + seed) % 6, u64::from(k * k) * 1000 + 1);
        let workload = Workload { flows: (0..24).map(flow).collect(), ..Workload::default() };
        let mut world = world(LAB, workload, tcp, |config| {
            config.seed = seed.into();
            let (links, at_us, until_us) = ("all".to_owned(), 0.0, None);
            config.faults = vec![
                Fault::Loss { links: links.clone(), probability, at_us, until_us },
                Fault::Duplicate { links, probability, at_us, until_us },
            ];
        });
        finish(&mut world);
    }
}

struct Incast {
    /// Completion times of all flows at the receiver, divided by the ideal.
    ratios: Vec<f64>,
    /// Worst ratio of each round, in ascending order.
    worst: Vec<f64>,
}

/// Runs the experiment that also ran on Linux hosts: rounds of 4 hosts x 12 long-lived connections
/// to one host. All connections of a round start at once, and rounds are 50 ms apart.
fn incast(tcp: TcpConfig, bytes: u64, rounds: u32, queue_bytes: u64) -> Incast {
    let mut workload = Workload::default();
    let (hosts, per_host) = (4, 12);
    let count = hosts * per_host;
    for round in 0..rounds {
        let ready = TriggerId(2 * round);
        let done = TriggerId(2 * round + 1);
        workload.triggers.extend([TriggerKind::OneShot, TriggerKind::Barrier(count)]);
        for flow in 0..count {
            let mut plan = FlowPlan::at(0, flow / per_host, 6, bytes);
            plan.start = if round == 0 { plan.start } else { Start::On(ready) };
            plan.sent_trigger = Some(done);
            workload.flows.push(plan);
        }
        if round + 1 < rounds {
            // A flow between two other hosts that takes 50 ms separates the rounds.
            let mut pause = FlowPlan::at(0, 5, 11, 6_204_000);
            pause.start = Start::On(done);
            pause.sent_trigger = Some(TriggerId(2 * round + 2));
            workload.flows.push(pause);
        }
    }
    let tcp = TcpConfig { reuse_connections: true, ..tcp };
    let mut world =
        world(LAB, workload, tcp, |config| config.rules.queue = QueueSize::Bytes(queue_bytes));
    finish(&mut world);
    let ideal_ps = bytes as f64 * f64::from(count) * 8.0 * 1000.0 * 9014.0 / 8948.0;
    let mut ratios = Vec::new();
    let mut worst = Vec::new();
    for round in world.flows().chunks(count as usize + 1) {
        let time = |state: &crate::engine::world::FlowState| {
            state.received_ps.expect("received") - state.started_ps.expect("started")
        };
        let round: Vec<_> =
            round[..count as usize].iter().map(|state| time(state) as f64 / ideal_ps).collect();
        worst.push(round.iter().copied().fold(0.0, f64::max));
        ratios.extend(round);
    }
    ratios.sort_by(f64::total_cmp);
    worst.sort_by(f64::total_cmp);
    Incast { ratios, worst }
}

fn with_rto(ms: u64) -> TcpConfig {
    TcpConfig { rto_min: Duration::from_millis(ms), ..TcpConfig::default() }
}

#[allow(clippy::cast_possible_truncation)] // an index
fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

#[test]
fn incast_has_the_labs_cliffs_and_a_small_rto_min_removes_them() {
    // The Linux kernel has these values for the worst flow of the median round: 8.9 and 4.3 with
    // 200 ms, 3.0 with 50 ms, and 1.5 with 5 ms.
    for (rto_min_ms, bytes, low, high) in [
        (200, 65_536, 8.5, 9.5),
        (200, 524_288, 3.5, 5.5),
        (50, 65_536, 2.5, 3.5),
        (5, 65_536, 1.0, 1.6),
    ] {
        let worst = percentile(&incast(with_rto(rto_min_ms), bytes, 25, 200_000).worst, 0.5);
        assert!((low..high).contains(&worst), "{rto_min_ms} ms, {bytes} bytes: {worst}");
    }
}

/// Prints the model's values for the table in the documentation of the parent module.
#[test]
#[ignore = "prints a table"]
fn incast_table() {
    for (name, tcp, queue_bytes) in [
        ("cubic 200", with_rto(200), 200_000),
        ("cubic 50", with_rto(50), 200_000),
        ("cubic 5", with_rto(5), 200_000),
        ("reno 200", TcpConfig { congestion: Congestion::Reno, ..with_rto(200) }, 200_000),
        ("cubic 200, 1 MB", with_rto(200), 1_000_000),
    ] {
        let mut row = format!("| {name} |");
        for (bytes, rounds) in [(65_536, 60), (524_288, 25), (2_097_152, 12)] {
            let seeds = 5;
            let (mut ratios, mut worst) = (Vec::new(), Vec::new());
            for seed in 1..=seeds {
                let one = incast(TcpConfig { seed, ..tcp }, bytes, rounds, queue_bytes);
                ratios.extend(one.ratios);
                worst.extend(one.worst);
            }
            ratios.sort_by(f64::total_cmp);
            worst.sort_by(f64::total_cmp);
            row += &format!(
                " {:.1} / {:.1} / {:.1} |",
                percentile(&ratios, 0.99),
                percentile(&worst, 0.5),
                percentile(&worst, 1.0),
            );
        }
        println!("{row}");
    }
}

/// Prints how fast the model runs.
#[test]
#[ignore = "prints a speed"]
fn speed() {
    for jitter_ns in [0, 1000] {
        let flows = (0..8).map(|k| FlowPlan::at(0, k, 8 + k, 1 << 30)).collect();
        let workload = Workload { flows, ..Workload::default() };
        let fast = 100_000_000_000;
        let network = DumbbellSpec { side_hosts: 8, host_bps: fast, middle_bps: 4 * fast, ..LAB };
        let tcp = TcpConfig {
            jitter_max: Duration::from_nanos(jitter_ns),
            mtu_bytes: 4136,
            ..TcpConfig::default()
        };
        let config = WorldConfig { seed: 1, ..WorldConfig::default() };
        let mut world = World::new(network.build().expect("a network"), workload, config, |host| {
            TcpNode::new(HostId(host), tcp)
        })
        .expect("a world");
        let start = std::time::Instant::now();
        finish(&mut world);
        let seconds = start.elapsed().as_secs_f64();
        let hops = world.packet_hops() as f64;
        println!(
            "jitter {jitter_ns} ns: {:.2} M hop-packets/s, {:?}",
            hops / seconds / 1e6,
            total(&world)
        );
    }
}
