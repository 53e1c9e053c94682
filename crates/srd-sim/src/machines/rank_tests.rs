//! Tests of ranks in the simulated network.

use super::*;
use crate::engine::fault::Fault;
use crate::engine::topology::clos::{ClosSpec, Links};
use crate::engine::world::{Ended, World as Network, WorldConfig};
use crate::workload::pattern::{all_reduce_ring, all_to_all};
use crate::workload::{FlowPlan, Workload};

const SECOND_PS: u64 = 1_000_000_000_000;

/// Returns a network of six hosts on two leaves and two spines.
fn network(workload: Workload, faults: Vec<Fault>) -> Network<RankNode> {
    let links = Links {
        host_bps: 100_000_000_000,
        up_bps: 100_000_000_000,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
        bundle: 1,
    };
    let topology = ClosSpec::leaf_spine(2, 2, 3, &links).build().unwrap();
    let endpoint = srd_proto::Config {
        packet_bytes_max: 4086,
        link_rate_bps: 100_000_000_000,
        rtt_initial: Duration::from_micros(10),
        ..srd_proto::Config::default()
    };
    let incoming = Arc::new(incoming(&workload, 6));
    let config = RankNodeConfig { endpoint, seed: 1, incoming };
    let settings = WorldConfig { seed: 1, faults, ..WorldConfig::default() };
    Network::new(topology, workload, settings, |h| RankNode::new(h, config.clone())).unwrap()
}

fn finish(world: &mut Network<RankNode>) {
    assert_eq!(world.run(100 * SECOND_PS), Ended::Finished);
    // The last acknowledgement may arrive before the receiver has polled the last message.
    world.run_until(world.now_ps() + SECOND_PS / 1000);
    world.check_conservation().unwrap();
    assert_eq!(world.counters().timer_livelocks, 0);
    for flow in world.flows() {
        assert_eq!((flow.delivered_bytes, flow.damaged), (flow.plan.bytes, 0), "{flow:?}");
    }
}

fn loss() -> Fault {
    Fault::Loss { links: "leaf->spine".to_owned(), probability: 0.02, at_us: 0.0, until_us: None }
}

#[test]
fn messages_of_every_protocol_arrive_once_and_unchanged_though_packets_are_lost() {
    // One message size for each protocol: tiny, small, several datagrams, and read by the receiver.
    for bytes in [1, 100, 20_000, 1_000_000] {
        let workload = all_to_all(&[0, 1, 2, 3, 4, 5], bytes, Some(3)).unwrap();
        let mut world = network(workload, vec![loss()]);
        finish(&mut world);
        let kept: u64 = world.nodes().iter().map(|n| n.rdm().counters().unexpected).sum();
        assert_eq!(kept, 0, "a receive was posted for each");
    }
}

#[test]
fn steps_of_a_collective_follow_one_another() {
    let mut world = network(all_reduce_ring(&[0, 1, 2, 3, 4, 5], 600_000).unwrap(), Vec::new());
    finish(&mut world);
    assert!(world.flows().iter().all(|flow| flow.failed == 0));
}

#[test]
fn more_messages_than_receives_and_operations_find_room_in_turn() {
    let most = usize::try_from(OPERATIONS_MAX).unwrap() + 500;
    let flows = (0..most).map(|_| FlowPlan::at(0, 0, 4, 300)).collect();
    let mut world = network(Workload { flows, ..Workload::default() }, Vec::new());
    assert!(most > RECEIVES_MAX as usize);
    finish(&mut world);
}

#[test]
fn what_a_rank_that_restarts_was_sending_fails_and_the_others_go_on() {
    let restart = Fault::Restart { host: 3, at_us: 20.0 };
    let workload = all_to_all(&[0, 1, 2, 3, 4, 5], 300_000, None).unwrap();
    let mut world = network(workload, vec![restart]);
    assert_eq!(world.run(100 * SECOND_PS), Ended::Finished);
    world.run_until(world.now_ps() + SECOND_PS / 1000);
    world.check_conservation().unwrap();
    for flow in world.flows() {
        let plan = &flow.plan;
        let is_apart = plan.src != HostId(3) && plan.dst != HostId(3);
        assert!(!is_apart || flow.delivered_bytes == plan.bytes, "{flow:?}");
        assert_eq!(flow.damaged, 0);
    }
    assert!(world.flows().iter().any(|flow| flow.failed > 0));
}

/// In an earlier version, a message of the largest length was one byte short, and so never counted
/// as received.
#[test]
fn regression_the_longest_message_is_reported_whole() {
    let sum = |length| pieces(length).map(|(_, bytes)| u64::from(bytes)).sum::<u64>();
    for length in [0, 1, u64::from(u32::MAX), MESSAGE_BYTES_MAX] {
        assert_eq!(sum(length), length);
    }
    let two = [(0, u32::MAX), (u64::from(u32::MAX), 1)];
    assert_eq!(pieces(MESSAGE_BYTES_MAX).collect::<Vec<_>>(), two);
    assert_eq!(pieces(7).collect::<Vec<_>>(), [(0, 7)]);
}
