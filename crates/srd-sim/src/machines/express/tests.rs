//! Tests of guests behind ENA Express cards in the simulated network.

use std::sync::Arc;

use proptest::prelude::*;
use srd_card::offload::OFFLOAD_BYTES;
use srd_proto::Instant;
use srd_proto::transmit::Ecn;

use super::frame::{self, Framed};
use super::{ExpressNode, ExpressNodeConfig};
use crate::engine::fault::Fault;
use crate::engine::node::HostId;
use crate::engine::topology::clos::{ClosSpec, Links};
use crate::engine::world::{Ended, World, WorldConfig};
use crate::machines::tcp::segment::{
    ByteRange, FLAG_ACK, FLAG_CWR, FLAG_DSACK, FLAG_PSH, FLAG_SYN,
};
use crate::machines::tcp::{TcpConfig, TcpSegment};
use crate::workload::{FlowPlan, Workload};

const SECOND_PS: u64 = 1_000_000_000_000;

fn framed(segment: TcpSegment) -> Framed {
    let (src, dst) = (HostId(70_000), HostId(3));
    Framed { src, dst, ports: (10_000, 5001), ecn: Ecn::Ect, segment }
}

fn data(flow: u32, seq: u64, payload_bytes: u32) -> TcpSegment {
    let flags = FLAG_SYN | FLAG_PSH | FLAG_CWR;
    TcpSegment { flow, seq, payload_bytes, flags, timestamp_ns: 9000, ..TcpSegment::default() }
}

proptest! {
    #[test]
    fn data_survives_its_bytes(flow: u32, seq in 0..1_u64 << 60, bytes in 1..60_000_u32) {
        let sent = framed(data(flow, seq, bytes));
        let frame = frame::write(&sent, 4000);
        let arrived = frame::read(Instant::from_nanos(20_000), &frame).unwrap();
        prop_assert!(arrived.is_intact);
        prop_assert_eq!(arrived.framed, sent);
    }

    #[test]
    fn acknowledgements_survive_with_their_blocks(
        ack in 1 << 20..1_u64 << 60, flow: u32,
        blocks in prop::collection::vec((-100_000..1_i64 << 30, 1..1_u64 << 30), 0..=3),
    ) {
        let mut sent = TcpSegment { flow, ack, flags: FLAG_ACK | FLAG_DSACK, ..data(flow, 0, 0) };
        for (start, bytes) in blocks {
            let start = ack.saturating_add_signed(start);
            sent.push_sack(ByteRange { start, end: start + bytes });
        }
        sent.timestamp_echo_ns = 7000;
        let frame = frame::write(&framed(sent), 4000);
        let arrived = frame::read(Instant::from_nanos(20_000), &frame).unwrap();
        prop_assert_eq!(arrived.framed.segment, sent);
    }
}

#[test]
fn timestamps_survive_their_wrap_and_keep_microseconds() {
    let now = Instant::from_nanos(5_000_000_000_123_456);
    let sent = TcpSegment { timestamp_ns: now.as_nanos() - 800_000, ..data(1, 0, 10) };
    let arrived = frame::read(now, &frame::write(&framed(sent), 4000)).unwrap();
    let back = arrived.framed.segment.timestamp_ns;
    assert_eq!(back, sent.timestamp_ns / 1000 * 1000);
}

#[test]
fn changed_bytes_are_noticed() {
    let mut frame = frame::write(&framed(data(5, 77, 3000)), 4000);
    *frame.last_mut().unwrap() ^= 1;
    assert!(!frame::read(Instant::from_nanos(20_000), &frame).unwrap().is_intact);
    frame[OFFLOAD_BYTES + 25] ^= 1;
    assert_eq!(frame::read(Instant::from_nanos(20_000), &frame), None, "the header's checksum");
    for end in 0..frame.len().min(200) {
        assert_eq!(frame::read(Instant::from_nanos(20_000), &frame[..end]), None);
    }
}

fn config(peers: Vec<Vec<HostId>>) -> ExpressNodeConfig {
    let endpoint = srd_proto::Config {
        packet_bytes_max: 4086,
        link_rate_bps: 100_000_000_000,
        rtt_initial: srd_proto::Duration::from_micros(10),
        ..srd_proto::Config::default()
    };
    let (card, guest) = (srd_card::Config::default(), TcpConfig::default());
    ExpressNodeConfig { endpoint, card, guest, seed: 1, peers: Arc::new(peers) }
}

/// Returns a world of two spines and four hosts: host 0 sends to host 2, host 1 sends to hosts 2
/// and 3.
fn world(bytes: u64, faults: Vec<Fault>) -> World<ExpressNode> {
    let links = Links {
        host_bps: 100_000_000_000,
        up_bps: 100_000_000_000,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
        bundle: 1,
    };
    let topology = ClosSpec::leaf_spine(2, 2, 2, &links).build().unwrap();
    let pairs = [(0, 2), (1, 2), (1, 3)];
    let flows = pairs.map(|(src, dst)| FlowPlan::at(0, src, dst, bytes)).to_vec();
    let workload = Workload { flows, ..Workload::default() };
    let all = (0..4).map(|host| (0..4).filter(|h| *h != host).map(HostId).collect());
    let config = config(all.collect());
    let settings = WorldConfig { seed: 1, faults, ..WorldConfig::default() };
    World::new(topology, workload, settings, |h| ExpressNode::new(h, config.clone())).unwrap()
}

fn finish(world: &mut World<ExpressNode>) {
    assert_eq!(world.run(100 * SECOND_PS), Ended::Finished);
    world.check_conservation().unwrap();
    assert_eq!(world.counters().timer_livelocks, 0);
    for flow in world.flows() {
        assert_eq!((flow.delivered_bytes, flow.damaged), (flow.plan.bytes, 0));
    }
}

fn sum(world: &World<ExpressNode>, of: fn(&srd_card::Counters) -> u64) -> u64 {
    world.nodes().iter().map(|node| of(&node.counters())).sum()
}

#[test]
fn guests_bytes_ride_srd_as_super_packets() {
    let mut world = world(4_000_000, Vec::new());
    finish(&mut world);
    assert_eq!(sum(&world, |c| c.traffic.plain_tx_pkts), 0, "the cards had agreed");
    assert_eq!(sum(&world, |c| c.drops().map(|(_, n)| n).sum()), 0);
    let (packets, guests) = (
        sum(&world, |c| c.traffic.srd_rx_pkts),
        world.nodes().iter().map(|n| n.guest().stats().segments).sum::<u64>(),
    );
    let acks: u64 = world.nodes().iter().map(|n| n.guest().stats().acknowledgements).sum();
    assert_eq!(packets, guests + acks, "a super-packet counts as what it stands for");
    assert!(acks * 4 < guests, "{acks} acknowledgements of {guests} packets: no super-packets");
}

#[test]
fn losses_stay_below_the_guests() {
    let loss = Fault::Loss {
        links: "leaf->spine".to_owned(),
        probability: 0.02,
        at_us: 0.0,
        until_us: None,
    };
    let mut world = world(20_000_000, vec![loss]);
    finish(&mut world);
    let resent: u64 = world.nodes().iter().map(|n| n.guest().stats().segments_resent).sum();
    let again: u64 = world.nodes().iter().map(|n| n.totals().again).sum();
    assert_eq!(resent, 0, "TCP saw a loss");
    assert!(again > 100, "{again}");
}

#[test]
fn cards_agree_again_after_one_restarts() {
    let restart = Fault::Restart { host: 3, at_us: 30.0 };
    let mut world = world(8_000_000, vec![restart]);
    // The flow to the restarted host is reset or fails; flows to other hosts continue.
    let _ = world.run(2 * SECOND_PS);
    world.check_conservation().unwrap();
    for flow in &world.flows()[..2] {
        assert_eq!(flow.delivered_bytes, flow.plan.bytes);
    }
    assert!(world.flows()[2].failed > 0);
    let traffic = world.nodes()[3].counters().traffic;
    assert!(traffic.srd_tx_pkts > 0 && traffic.srd_rx_pkts > 0, "{traffic:?}");
}
