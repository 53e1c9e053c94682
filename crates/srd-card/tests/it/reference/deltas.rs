//! Effects of single events on the counters, on the number of entries of both flow tables, and on
//! the numbers of frames that the guest and the peers receive. Each test lists the numbers that
//! change, with the difference; all other numbers must stay the same.

use std::collections::BTreeMap;

use srd_card::FlowKey;
use srd_card::packet::Packet;
use srd_proto::time::Duration;

use super::order::Chunk;
use super::packets::{ICMP, OFFLOAD_BYTES, Spec, TCP, TUNNELS, UDP, address};
use super::world::{MACHINES, World};

/// Creates a world in which the card and every peer have agreed on SRD, also for UDP.
fn agreed() -> World {
    let mut world = World::new(1);
    for peer in 1..MACHINES {
        world.receive_offer(peer, (true, true, false), false);
    }
    world.drain();
    world
}

fn numbers(world: &World) -> BTreeMap<&'static str, i64> {
    let counters = world.express.counters();
    let (flows, order_flows) = world.express.flow_counts();
    let (guest, peers) = world.frames();
    let traffic = counters.traffic;
    let others = [
        ("srd_tx_pkts", traffic.srd_tx_pkts),
        ("eligible_tx_pkts", traffic.eligible_tx_pkts),
        ("srd_rx_pkts", traffic.srd_rx_pkts),
        ("flows", flows as u64),
        ("order_flows", order_flows as u64),
        ("guest_frames", guest),
        ("peer_frames", peers),
    ];
    let all = counters.named().into_iter().chain(others);
    all.map(|(name, value)| (name, i64::try_from(value).unwrap())).collect()
}

/// Runs an action, and checks that exactly the declared numbers change, by the declared
/// differences.
#[track_caller]
fn changes(world: &mut World, action: impl FnOnce(&mut World), declared: &[(&'static str, i64)]) {
    let before = numbers(world);
    action(world);
    world.drain();
    let after = numbers(world);
    let changed = after.iter().map(|(name, value)| (*name, value - before[name]));
    let changed: BTreeMap<_, _> = changed.filter(|(_, by)| *by != 0).collect();
    let declared: BTreeMap<_, _> = declared.iter().copied().collect();
    assert_eq!(changed, declared);
    world.compare();
}

/// Describes a packet from machine `from` to machine `to`; machine 0 is the guest.
fn spec(protocol: u8, (from, to): (usize, usize), payload_bytes: usize) -> Spec {
    let payload = vec![7; payload_bytes];
    let mut spec = Spec::new(protocol, address(from, 1, false), address(to, 1, false), &payload);
    if from != 0 {
        spec.ports = (spec.ports.1, spec.ports.0);
    }
    spec
}

fn out(protocol: u8, payload_bytes: usize) -> Vec<u8> {
    spec(protocol, (0, 1), payload_bytes).frame()
}

fn back(protocol: u8, payload_bytes: usize) -> Vec<u8> {
    spec(protocol, (1, 0), payload_bytes).frame()
}

/// Returns a frame of peer 1 as a single chunk.
fn whole(flow: u32, sequence: u64, frame: &[u8]) -> Chunk {
    let (name, bytes) = ((1, flow), frame.to_vec());
    Chunk { name, sequence, chunk: 0, frame_bytes: frame.len(), bytes, fits: true }
}

#[test]
fn a_segment_that_rides_srd() {
    let mut world = agreed();
    let one =
        [("srd_tx_pkts", 1), ("eligible_tx_pkts", 1), ("srd_tx_bytes", 140), ("peer_frames", 1)];
    let first = [&one[..], &[("flows", 1)]].concat();
    changes(&mut world, |w| w.give(&out(TCP, 100)), &first);
    // The next packet finds the entry of its flow, and so does a packet in the other direction.
    changes(&mut world, |w| w.give(&out(TCP, 100)), &one);
    let reply = [("plain_rx_pkts", 1), ("plain_rx_bytes", 140), ("guest_frames", 1)];
    changes(&mut world, |w| w.receive_plain(1, &back(TCP, 100)), &reply);
}

#[test]
fn a_datagram_that_is_eligible_for_no_srd() {
    let mut world = agreed();
    world.receive_offer(1, (true, false, false), false);
    let plain = [("plain_tx_pkts", 1), ("plain_tx_bytes", 128), ("peer_frames", 1), ("flows", 1)];
    changes(&mut world, |w| w.give(&out(UDP, 100)), &plain);
    changes(&mut world, |w| w.give(&out(ICMP, 100)), &plain);
    // Larger than the guest's MTU, but small enough for a datagram.
    world.receive_offer(1, (true, true, false), false);
    let large = [("plain_tx_pkts", 1), ("plain_tx_bytes", 1410), ("eligible_tx_pkts", 1)];
    let large = [&large[..], &[("peer_frames", 1)]].concat();
    changes(&mut world, |w| w.give(&out(UDP, 1382)), &large);
}

#[test]
fn tunnels_ride_srd_where_both_ends_say_so() {
    let mut world = agreed();
    let plain = [("plain_tx_pkts", 1), ("plain_tx_bytes", 128), ("peer_frames", 1), ("flows", 1)];
    changes(&mut world, |w| w.give(&out(TUNNELS[2], 100)), &plain);
    world.express.set_tunnels(world.now, true);
    world.naive.tunnels = true;
    changes(&mut world, |w| w.give(&out(TUNNELS[3], 100)), &plain);
    world.receive_offer(1, (true, true, true), false);
    let srd = [("srd_tx_pkts", 1), ("srd_tx_bytes", 128), ("eligible_tx_pkts", 1)];
    let srd = [&srd[..], &[("peer_frames", 1)]].concat();
    for tunnel in [TUNNELS[2], TUNNELS[3]] {
        changes(&mut world, |w| w.give(&out(tunnel, 100)), &srd);
    }
    let first = [&srd[..], &[("flows", 1)]].concat();
    changes(&mut world, |w| w.give(&out(TUNNELS[0], 100)), &first);
    changes(&mut world, |w| w.give(&out(TUNNELS[1], 100)), &first);
}

#[test]
fn a_super_packet_counts_as_the_packets_that_it_stands_for() {
    let mut frame = spec(TCP, (0, 1), 3000);
    frame.step = Some(1300);
    let frame = frame.frame();
    let by_srd = [("srd_tx_pkts", 3), ("eligible_tx_pkts", 3), ("srd_tx_bytes", 3040)];
    let by_srd = [&by_srd[..], &[("flows", 1), ("peer_frames", 1)]].concat();
    changes(&mut agreed(), |w| w.give(&frame), &by_srd);
    let mut world = World::new(1);
    let plainly =
        [("plain_tx_pkts", 3), ("plain_tx_bytes", 3040), ("flows", 1), ("peer_frames", 3)];
    changes(&mut world, |w| w.give(&frame), &plainly);
}

#[test]
fn a_packet_that_fits_no_datagram() {
    let mut world = agreed();
    let answered = [("guest_too_big", 1), ("guest_frames", 1), ("flows", 1)];
    changes(&mut world, |w| w.give(&out(UDP, 3000)), &answered);
    let mut may_fragment = spec(UDP, (0, 2), 3000);
    may_fragment.may_fragment = true;
    // The flow table gets an entry for the flow of the packet, and one for that of its fragments.
    let cut = [("guest_cut", 1), ("plain_tx_pkts", 3), ("plain_tx_bytes", 3068)];
    let cut = [&cut[..], &[("peer_frames", 3), ("flows", 2)]].concat();
    changes(&mut world, |w| w.give(&may_fragment.frame()), &cut);
}

#[test]
fn a_frame_of_the_guest_that_goes_nowhere() {
    let mut world = agreed();
    changes(&mut world, |w| w.give(b"nothing"), &[("guest_malformed", 1)]);
    let unknown = spec(TCP, (0, 9), 10).frame();
    changes(&mut world, |w| w.give(&unknown), &[("guest_no_peer", 1)]);
}

#[test]
fn a_new_connection_is_clamped_both_ways() {
    let mut world = agreed();
    let mut syn = spec(TCP, (0, 1), 0);
    syn.syn = Some(1460);
    let sent = [("mss_clamped", 1), ("srd_tx_pkts", 1), ("eligible_tx_pkts", 1)];
    let sent = [&sent[..], &[("srd_tx_bytes", 44), ("peer_frames", 1), ("flows", 1)]].concat();
    changes(&mut world, |w| w.give(&syn.frame()), &sent);
    let mut accepts = spec(TCP, (1, 0), 0);
    accepts.syn = Some(1460);
    let got = [("mss_clamped", 1), ("srd_rx_pkts", 1), ("srd_rx_bytes", 44)];
    let got = [&got[..], &[("guest_frames", 1), ("order_flows", 1)]].concat();
    changes(&mut world, |w| w.receive_chunk(whole(5, 0, &accepts.frame()), true), &got);
}

#[test]
fn frames_of_a_peer_out_of_order() {
    let mut world = agreed();
    let frame = back(TCP, 100);
    let waits = [("order_waited", 1), ("order_flows", 1), ("flows", 1)];
    changes(&mut world, |w| w.receive_chunk(whole(5, 1, &frame), true), &waits);
    let both = [("srd_rx_pkts", 2), ("srd_rx_bytes", 280), ("guest_frames", 2)];
    changes(&mut world, |w| w.receive_chunk(whole(5, 0, &frame), true), &both);
    changes(&mut world, |w| w.receive_chunk(whole(5, 0, &frame), true), &[("order_bad_chunks", 1)]);
    changes(&mut world, |w| w.receive_chunk(whole(5, 4, &frame), true), &[("order_waited", 1)]);
    let ends = [("order_wait_timeouts", 1), ("order_given_up", 2), ("srd_rx_pkts", 1)];
    let ends = [&ends[..], &[("srd_rx_bytes", 140), ("guest_frames", 1)]].concat();
    changes(&mut world, |w| w.pass(Duration::from_millis(100)), &ends);
}

#[test]
fn a_frame_of_a_peer_that_is_refused() {
    let mut world = agreed();
    let forged = spec(TCP, (2, 0), 100).frame();
    changes(&mut world, |w| w.receive_plain(1, &forged), &[("peer_bad_source", 1)]);
    let refused = [("peer_bad_source", 1), ("order_flows", 1)];
    changes(&mut world, |w| w.receive_chunk(whole(5, 0, &forged), true), &refused);
    let refused = [("peer_malformed", 1)];
    changes(&mut world, |w| w.receive_chunk(whole(5, 1, &[0; 30]), true), &refused);
    let noise = Chunk { fits: false, frame_bytes: 20, ..whole(6, 0, &forged) };
    changes(&mut world, |w| w.receive_chunk(noise, true), &[("order_bad_chunks", 1)]);
}

#[test]
fn a_frame_whose_address_moves_while_it_waits() {
    let mut world = agreed();
    let frame = back(TCP, 100);
    let waits = [("order_waited", 1), ("order_flows", 1), ("flows", 1)];
    changes(&mut world, |w| w.receive_chunk(whole(5, 1, &frame), true), &waits);
    let moves = |world: &mut World| {
        let slot = world.machines[1].slot.unwrap();
        world.express.set_allowed(slot, Vec::new());
        world.naive.peers.get_mut(&1).unwrap().allowed.clear();
    };
    // A change of the rules has no effect at once: the frame is checked when it would be delivered.
    changes(&mut world, moves, &[]);
    let ends = [("order_wait_timeouts", 1), ("order_given_up", 1), ("peer_bad_source", 1)];
    changes(&mut world, |w| w.pass(Duration::from_millis(100)), &ends);
}

#[test]
fn sends_that_are_refused_or_fail() {
    let mut world = agreed();
    world.give(&out(TCP, 100));
    world.drain();
    let key = FlowKey::of(&Packet::read(&out(TCP, 100)[OFFLOAD_BYTES..]).unwrap());
    let user = world.last_user.unwrap();
    changes(&mut world, |w| w.fail(1, &key, user), &[("send_failed", 1)]);
    world.disconnect(1);
    let refused = [("srd_tx_pkts", 1), ("eligible_tx_pkts", 1), ("srd_tx_bytes", 140)];
    let refused = [&refused[..], &[("send_refused", 1)]].concat();
    changes(&mut world, |w| w.give(&out(TCP, 100)), &refused);
}

#[test]
fn a_peer_that_is_removed_takes_its_order_with_it() {
    let mut world = agreed();
    let frame = back(TCP, 100);
    for flow in 0..3 {
        world.receive_chunk(whole(flow, 1, &frame), true);
    }
    changes(&mut world, |w| w.remove_peer(1), &[("order_flows", -3)]);
    changes(&mut world, |w| w.give(&out(TCP, 100)), &[("guest_no_peer", 1)]);
    changes(&mut world, |w| w.pass(Duration::from_millis(200)), &[]);
}

#[test]
fn flows_that_fall_silent_are_forgotten_by_the_receiver() {
    let mut world = agreed();
    world.receive_chunk(whole(1, 0, &back(TCP, 100)), true);
    changes(&mut world, |w| w.pass(Duration::from_secs(119)), &[]);
    changes(&mut world, |w| w.pass(Duration::from_secs(11)), &[("order_flows", -1)]);
}
