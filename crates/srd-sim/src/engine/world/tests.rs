//! Tests of the whole engine: conservation of packets, determinism, exact times, and effects of
//! faults.

use proptest::prelude::*;

use super::*;
use crate::engine::node::{FlowSpec, Packet};
use crate::engine::topology::clos::{ClosSpec, Links};
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::machines::blast::{Blast, BlastConfig};
use crate::workload::pattern::{Incast, all_reduce_ring, pairs, permutation};
use crate::workload::{BackgroundPlan, FlowPlan};

const SECOND_PS: u64 = 1_000_000_000_000;

fn links() -> Links {
    Links {
        host_bps: 100_000_000_000,
        up_bps: 100_000_000_000,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
        bundle: 1,
    }
}

fn leaf_spine(leaves: u32, spines: u32, hosts: u32) -> Topology {
    ClosSpec::leaf_spine(leaves, spines, hosts, &links()).build().unwrap()
}

fn world(topology: Topology, workload: Workload, config: WorldConfig) -> World<Blast> {
    World::new(topology, workload, config, |h| Blast::new(h, BlastConfig::default())).unwrap()
}

fn one_flow(src: u32, dst: u32, bytes: u64) -> Workload {
    pairs([(src, dst)].into_iter(), 1, bytes).unwrap()
}

#[test]
fn lone_flow_takes_its_serialisation_and_one_round_trip() {
    // The window is 45 packets, so the sender never waits for acknowledgements. The receiver
    // acknowledges every fourth packet, and 44 is a multiple of four.
    let packets = 44;
    let tree = ClosSpec::fat_tree(8, [1, 1], &links()).build().unwrap();
    let mut world = world(tree, one_flow(0, 127, packets * 4086), WorldConfig::default());
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    let expected_ps = packets * 332_000 + 14_022_720 - 332_000;
    assert_eq!(world.flows()[0].finished_ps, Some(expected_ps));
    assert_eq!(world.packet_hops(), (packets + packets / 4) * 6);
    world.check_conservation().unwrap();
}

/// A node that has a timer from the beginning, before any call of the node.
struct Alarm {
    due: Option<Instant>,
    rang: Option<Instant>,
}

impl Node for Alarm {
    fn start_flow(&mut self, _: Instant, _: &FlowSpec, _: &mut Outcomes) {}

    fn on_packet(&mut self, _: Instant, _: &mut Packet, _: &mut Outcomes) {}

    fn on_timer(&mut self, now: Instant, _: &mut Outcomes) {
        self.due = None;
        self.rang = Some(now);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.due
    }

    fn poll_packet(&mut self, _: Instant, _: &mut Packet, _: &mut Outcomes) -> bool {
        false
    }

    fn restart(&mut self, _: Instant, _: &mut Outcomes) {}
}

#[test]
fn a_timer_from_the_beginning_is_kept_though_nothing_has_happened_to_its_node() {
    let times: Vec<Instant> = (0..8).map(|host| Instant::from_nanos(host * 1000)).collect();
    let node = |host: u32| Alarm { due: Some(times[host as usize]), rang: None };
    let (topology, workload) = (leaf_spine(2, 2, 4), Workload::default());
    let mut world = World::new(topology, workload, WorldConfig::default(), node).unwrap();
    world.run_until(SECOND_PS);
    let rang: Vec<Instant> = world.nodes().iter().filter_map(|node| node.rang).collect();
    assert_eq!(rang, times);
}

#[test]
fn incast_fills_the_last_queue_and_no_more() {
    let incast = Incast {
        senders: vec![4, 5, 6, 7],
        receiver: 0,
        flows_per_sender: 2,
        bytes: 1 << 20,
        start_ps: 0,
        rounds: 2,
    };
    let config = WorldConfig {
        rules: PortRules { queue: QueueSize::Bytes(100_000), ..PortRules::default() },
        ..WorldConfig::default()
    };
    let mut world = world(leaf_spine(2, 4, 4), incast.plan().unwrap(), config);
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    let last = world.topology().select("leaf0->host0").unwrap()[0];
    let report = &world.port_reports()[last as usize];
    assert!((95_850..=100_000).contains(&report.queue_bytes_max), "{report:?}");
    assert!(world.counters().dropped[DropCause::QueueFull as usize] > 0);
    world.check_conservation().unwrap();
    let second_round = &world.flows()[8..];
    let first_done = world.flows()[..8].iter().map(|f| f.finished_ps).max().unwrap();
    assert!(second_round.iter().all(|f| f.started_ps == first_done));
}

#[test]
fn ring_runs_step_by_step() {
    let hosts: Vec<u32> = (0..8).collect();
    let workload = all_reduce_ring(&hosts, 8 * 40_860).unwrap();
    let mut world = world(leaf_spine(2, 4, 4), workload, WorldConfig::default());
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    for (n, flow) in world.flows().iter().enumerate().skip(8) {
        let before = &world.flows()[n - 8 - n % 8 + (n % 8 + 7) % 8];
        assert_eq!(flow.started_ps, before.received_ps, "flow {n}");
    }
}

#[test]
fn marking_trimming_and_classes_conserve_packets() {
    for (trim, control_first) in [(true, false), (true, true), (false, true)] {
        let workload = permutation(16, 2, 1 << 20, &mut stream(2, 9)).unwrap();
        let rules = PortRules {
            queue: QueueSize::Bytes(30_000),
            mark: Some((QueueSize::Bytes(6_000), QueueSize::Bytes(24_000))),
            trim,
            control_first,
            ..PortRules::default()
        };
        let config = WorldConfig { rules, ..WorldConfig::default() };
        let mut world = world(leaf_spine(4, 2, 4), workload, config);
        assert_eq!(world.run(SECOND_PS), Ended::Finished);
        world.check_conservation().unwrap();
        assert_eq!(world.counters().trimmed > 0, trim);
    }
}

#[test]
fn dead_link_swallows_exactly_what_leaves_while_it_is_down() {
    let spec = DumbbellSpec {
        side_hosts: 1,
        host_bps: 100_000_000_000,
        middle_bps: 100_000_000_000,
        middle_links: 1,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
    };
    // Packet n leaves the middle at (n + 2) * 332 ns + 1 us. The link is down from 2 us to 3 us.
    let fault =
        Fault::LinkDown { links: "side0->side1".to_owned(), at_us: 2.0, until_us: Some(3.0) };
    let config = WorldConfig { faults: vec![fault], ..WorldConfig::default() };
    let mut world = world(spec.build().unwrap(), one_flow(0, 1, 20 * 4086), config);
    world.run_until(100 * US);
    let leaves_ps = |n: u64| (n + 2) * 332_000 + 1_000_000;
    let lost = (0..20).filter(|&n| (2_000_000..3_000_000).contains(&leaves_ps(n))).count();
    assert_eq!(lost, 3);
    assert_eq!(world.counters().dropped[DropCause::LinkDown as usize], 3);
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    world.check_conservation().unwrap();
}

/// Returns the numbers of packets lost on a failed link in several periods. Every host sends all
/// the time to a host in the other half of the network.
fn lost_in_each_window(tree: Topology, link: &str, convergence_us: Option<f64>) -> Vec<u64> {
    let hosts = tree.hosts;
    let fault = Fault::LinkDown { links: link.to_owned(), at_us: 50.0, until_us: Some(300.0) };
    let config = WorldConfig { faults: vec![fault], convergence_us, ..WorldConfig::default() };
    let far = (0..hosts).map(|host| (host, (host + hosts / 2) % hosts));
    let mut world = world(tree, pairs(far, 4, 8 << 20).unwrap(), config);
    let mut before = 0;
    let windows = [60, 80, 100, 450].map(|until| {
        world.run_until(until * US);
        let lost = world.counters().dropped[DropCause::LinkDown as usize];
        std::mem::replace(&mut before, lost).abs_diff(lost)
    });
    world.check_conservation().unwrap();
    windows.to_vec()
}

/// After convergence, no switch uses either direction of the failed link: the leaf below it uses
/// other uplinks, and remote leaves do not route through its spine. Packets that are on their way
/// are still lost.
#[test]
fn switches_stop_choosing_a_dead_link_after_the_time_of_convergence() {
    let two_tiers = || leaf_spine(4, 4, 4);
    let three_tiers = || ClosSpec::fat_tree(4, [1, 1], &links()).build().unwrap();
    let cases: [(Topology, &str); 4] = [
        (two_tiers(), "leaf0-spine2"),
        (three_tiers(), "tor0-agg1"),
        (three_tiers(), "agg1-core3"),
        (ClosSpec::fat_tree(8, [1, 1], &links()).build().unwrap(), "agg0-core0"),
    ];
    for (tree, link) in cases {
        let never = lost_in_each_window(tree.clone(), link, None);
        assert!(never[..3].iter().all(|lost| *lost > 10), "{link}: {never:?}");
        let after = lost_in_each_window(tree, link, Some(10.0));
        assert!(after[0] > 10, "{link}: {after:?}");
        assert_eq!(after[2..], [0, 0], "{link}: {after:?}");
    }
}

/// Packets to a host with a failed link, or to a leaf with failed links only, are lost, because
/// there is no other route.
#[test]
fn packets_without_any_way_are_lost_where_they_were_before() {
    for link in ["leaf0->host0", "leaf0-spine"] {
        let fault = Fault::LinkDown { links: link.to_owned(), at_us: 0.0, until_us: None };
        let config = WorldConfig {
            faults: vec![fault],
            convergence_us: Some(1.0),
            ..WorldConfig::default()
        };
        let mut world = world(leaf_spine(2, 2, 2), one_flow(3, 0, 4 << 20), config);
        world.run_until(200 * US);
        assert_eq!(world.flows()[0].finished_ps, None, "{link}");
        assert!(world.counters().dropped[DropCause::LinkDown as usize] > 0, "{link}");
        world.check_conservation().unwrap();
    }
}

/// A link that is down for less than the time of convergence stays in use.
#[test]
fn a_link_is_chosen_again_after_its_repair() {
    let tree = leaf_spine(2, 2, 4);
    let load = |until_us: f64| {
        let fault = Fault::LinkDown {
            links: "leaf0-spine1".to_owned(),
            at_us: 50.0,
            until_us: Some(until_us),
        };
        let config = WorldConfig {
            faults: vec![fault],
            convergence_us: Some(40.0),
            ..WorldConfig::default()
        };
        let far = (0..8).map(|host| (host, (host + 4) % 8));
        let mut world = world(tree.clone(), pairs(far, 1, 8 << 20).unwrap(), config);
        let port = world.topology.select("leaf0->spine1").unwrap()[0] as usize;
        let times = [95, 140, 200, 300];
        times.map(|until| {
            world.run_until(until * US);
            world.port_reports()[port].packets
        })
    };
    let [begun, withdrawn, _, back] = load(150.0);
    assert_eq!(begun, withdrawn, "nothing is sent to a link that is withdrawn");
    assert!(back > withdrawn, "it is used again: {back}");
    let [begun, later, ..] = load(60.0);
    assert!(later > begun, "a short outage withdraws nothing");
}

#[test]
fn slow_link_halves_a_flow() {
    let fault = Fault::LinkSlow {
        links: "leaf0->host0".to_owned(),
        fraction: 0.5,
        at_us: 0.0,
        until_us: None,
    };
    let config = WorldConfig { faults: vec![fault], ..WorldConfig::default() };
    let mut world = world(leaf_spine(2, 2, 2), one_flow(3, 0, 4 << 20), config);
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    let fct_us = world.flows()[0].finished_ps.unwrap() / US;
    assert!((680..740).contains(&fct_us), "{fct_us}");
}

#[test]
fn partition_and_corruption_drop_for_their_own_cause() {
    let faults = vec![
        Fault::Partition { hosts: vec![0, 1], at_us: 10.0, until_us: Some(50.0) },
        Fault::Corrupt { links: "all".to_owned(), probability: 0.01, at_us: 0.0, until_us: None },
    ];
    let config = WorldConfig { faults, ..WorldConfig::default() };
    let mut world = world(leaf_spine(2, 2, 2), one_flow(3, 0, 4 << 20), config);
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    let dropped = world.counters().dropped;
    assert!(dropped[DropCause::Partition as usize] > 0);
    assert!(dropped[DropCause::Corrupted as usize] > 0);
    assert_eq!(world.flows()[0].damaged, 0);
    world.check_conservation().unwrap();
}

#[test]
fn undetected_corruption_reaches_the_node() {
    let fault = Fault::Corrupt {
        links: "leaf0->host0".to_owned(),
        probability: 0.1,
        at_us: 0.0,
        until_us: None,
    };
    let config =
        WorldConfig { faults: vec![fault], corruption_undetected: true, ..WorldConfig::default() };
    let mut world = world(leaf_spine(2, 2, 2), one_flow(3, 0, 1 << 20), config);
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    assert!(world.flows()[0].damaged > 5);
}

#[test]
fn background_load_takes_its_share_and_no_more() {
    let load = BackgroundPlan {
        src: crate::engine::node::HostId(2),
        dst: crate::engine::node::HostId(0),
        rate_bps: 40_000_000_000,
        packet_bytes: 1500,
        start_ps: 0,
        stop_ps: 1_000 * US,
        src_port: 1,
    };
    let mut workload = one_flow(3, 0, 4 << 20);
    workload.background.push(load);
    let mut world = world(leaf_spine(2, 2, 2), workload, WorldConfig::default());
    assert_eq!(world.run(SECOND_PS), Ended::Finished);
    let fct_us = world.flows()[0].finished_ps.unwrap() / US;
    // The background load leaves 60 Gb/s for the flow.
    assert!((560..620).contains(&fct_us), "{fct_us}");
    world.run_until(2_000 * US);
    assert_eq!(world.counters().dropped_total(), 0);
    let sent = world.port_reports()[2].packets;
    assert_eq!(sent, 40_000_000_000 / 8 / 1500 / 1000 + 1);
}

#[test]
fn samples_add_up_to_the_totals() {
    samples_add_up(usize::MAX);
}

/// In an earlier version, many samples at a short distance used all memory. In a later one, the
/// sample after a merger covered half an interval, and its goodput was half of the true one.
#[test]
fn regression_samples_are_bounded_and_still_add_up() {
    samples_add_up(6);
}

fn samples_add_up(samples_max: usize) {
    let sampling = Sampling {
        interval_ps: 20 * US,
        flows: true,
        queues: vec!["leaf0->host0".to_owned()],
        loads: vec!["leaf1->spine".to_owned()],
    };
    let config = WorldConfig { sampling: Some(sampling), ..WorldConfig::default() };
    let mut world = world(leaf_spine(2, 4, 2), one_flow(3, 0, 1 << 20), config);
    world.sampler.as_mut().unwrap().samples_max = samples_max;
    world.run(SECOND_PS);
    world.run_until(world.now_ps() + 100 * US);
    let series = world.series().unwrap();
    assert!((2..=samples_max).contains(&series.at_ps.len()));
    // Every sample covers one interval, also after samples have been merged.
    let ends = (1..).map(|n| n * series.interval_ps);
    assert!(series.at_ps.iter().copied().eq(ends.take(series.at_ps.len())), "{:?}", series.at_ps);
    assert_eq!(series.interval_ps > 20 * US, samples_max == 6);
    let flow: u64 = series.flow_bytes.iter().map(|s| s[0]).sum();
    assert_eq!(flow, world.flows()[0].delivered_bytes);
    let loads: Vec<u64> =
        (0..4).map(|p| series.load_bytes.iter().map(|s| s[p]).sum::<u64>()).collect();
    assert_eq!(loads.iter().sum::<u64>(), 257 * 4150);
    assert!(loads.iter().all(|&bytes| bytes > 100_000), "{loads:?}");
    assert_eq!(series.queues, ["leaf0->host0"]);
}

#[test]
fn misfits_are_refused_with_a_reason() {
    let fault = |links: &str, fraction| Fault::LinkSlow {
        links: links.to_owned(),
        fraction,
        at_us: 0.0,
        until_us: None,
    };
    let refuse = |workload: Workload, faults: Vec<Fault>, word: &str| {
        let config = WorldConfig { faults, ..WorldConfig::default() };
        let node = |h| Blast::new(h, BlastConfig::default());
        let error = World::new(leaf_spine(2, 2, 2), workload, config, node).err().unwrap();
        assert!(error.0.contains(word), "{error}");
    };
    refuse(one_flow(0, 4, 1), vec![], "hosts 0 to 3");
    refuse(one_flow(2, 2, 1), vec![], "itself");
    refuse(one_flow(0, 1, 0), vec![], "no bytes");
    refuse(one_flow(0, 1, 1), vec![fault("leaf7", 0.5)], "fault 0: there is no leaf7");
    refuse(one_flow(0, 1, 1), vec![fault("leaf0", 0.0)], "`fraction`");
    refuse(one_flow(0, 1, 1), vec![Fault::Restart { host: 9, at_us: 0.0 }], "no host 9");
}

fn random_fault() -> impl Strategy<Value = Fault> {
    let links = proptest::sample::select(vec!["all", "leaf0", "spine1", "leaf->host", "host3"]);
    (0_u8..7, links, 0.0..300.0_f64, 1.0..300.0_f64, 0.0..0.3_f64).prop_map(
        |(kind, links, at_us, lasts_us, probability)| {
            let (links, until_us) = (links.to_owned(), Some(at_us + lasts_us));
            match kind {
                0 => Fault::LinkDown { links, at_us, until_us },
                1 => Fault::LinkSlow { links, fraction: 0.1 + probability, at_us, until_us },
                2 => Fault::Loss { links, probability, at_us, until_us },
                3 => Fault::Corrupt { links, probability, at_us, until_us },
                4 => Fault::Duplicate { links, probability, at_us, until_us },
                5 => Fault::Partition { hosts: vec![0, 2], at_us, until_us },
                _ => Fault::Restart { host: 1, at_us },
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_worlds_conserve_packets_finish_and_repeat(
        seed in any::<u64>(),
        shape in (1_u32..4, 1_u32..4, 2_u32..5),
        faults in proptest::collection::vec(random_fault(), 0..5),
        queue_bytes in 5_000_u64..200_000,
        bits in any::<[bool; 5]>(),
    ) {
        let (leaves, spines, hosts) = shape;
        let [marks, trim, control_first, undetected, incast] = bits;
        let run = || {
            let topology = leaf_spine(leaves + 1, spines + 1, hosts);
            let all = topology.hosts;
            let mut rng = stream(seed, 9);
            let mut workload = permutation(all, 2, 100_000, &mut rng).unwrap();
            if incast {
                workload.flows.extend((1..all).map(|h| FlowPlan::at(50 * US, h, 0, 50_000)));
            }
            let config = WorldConfig {
                seed,
                rules: PortRules {
                    queue: QueueSize::Bytes(queue_bytes),
                    mark: marks.then_some((QueueSize::Bdp(0.1), QueueSize::Bdp(0.5))),
                    trim,
                    control_first,
                    ..PortRules::default()
                },
                convergence_us: None,
                faults: faults.clone(),
                corruption_undetected: undetected,
                ..WorldConfig::default()
            };
            let mut world = world(topology, workload, config);
            world.run_until(150 * US);
            world.check_conservation().unwrap();
            let ended = world.run(SECOND_PS);
            world.check_conservation().unwrap();
            world.run_until(world.now_ps() + 2_000 * US);
            assert_eq!(world.packets_in_network(), 0);
            world.check_conservation().unwrap();
            (ended, world.flows().to_vec(), world.counters().clone(), world.port_reports())
        };
        let first = run();
        prop_assert_eq!(first.0, Ended::Finished);
        prop_assert_eq!(first.2.timer_livelocks, 0);
        prop_assert_eq!(first, run());
    }
}

#[test]
fn observer_sees_every_piece() {
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Default)]
    struct Observation {
        bytes: u64,
        done_ps: u64,
    }
    struct Oracle(Rc<RefCell<Observation>>);
    impl Observer for Oracle {
        fn delivered(&mut self, _now_ps: u64, piece: &Delivered) {
            self.0.borrow_mut().bytes += u64::from(piece.bytes);
        }
        fn failed(&mut self, _now_ps: u64, _piece: &Failed) {
            panic!("nothing fails here");
        }
        fn completed(&mut self, now_ps: u64, flow: FlowId) {
            assert_eq!(flow, FlowId(0));
            self.0.borrow_mut().done_ps = now_ps;
        }
    }

    let seen = Rc::new(RefCell::new(Observation::default()));
    let mut world = world(leaf_spine(2, 2, 2), one_flow(0, 3, 40_860), WorldConfig::default());
    world.observe(Box::new(Oracle(Rc::clone(&seen))));
    world.run(SECOND_PS);
    assert!(world.take_observer().is_some());
    let flow = world.flows()[0];
    assert_eq!(
        (seen.borrow().bytes, Some(seen.borrow().done_ps)),
        (flow.delivered_bytes, flow.finished_ps)
    );
}
