//! Bounds on peers and guests: the addresses that a peer may send from, the state that remains
//! after a peer, and the queue in which a packet waits.

use super::*;
use crate::FRAME_QPN;
use crate::rewrite::checksum;
use crate::wire::frame::ChunkPosition;
use srd_proto::Delivery;

/// Encoded position of a frame that is sent in one datagram.
fn whole(flow: u32, sequence: u16, frame: &[u8]) -> u64 {
    let frame_bytes = u16::try_from(frame.len()).unwrap();
    ChunkPosition { flow, sequence, chunk: 0, last: true, frame_bytes }.encode()
}

/// A frame of `packet` with an empty offload header. The source address becomes 10.0.0.`source`.
fn framed(source: u8, packet: &[u8]) -> Vec<u8> {
    let mut frame = [&[0; OFFLOAD_BYTES], packet].concat();
    frame[OFFLOAD_BYTES + 15] = source;
    frame
}

impl Rig {
    /// Adds a third machine as a peer of node 1, with the inner address 10.0.0.`host`.
    fn third(&mut self, host: u8) -> (PeerId, PeerSlot) {
        let end = &mut self.ends[1];
        let id = end.endpoint.add_peer(self.now, known(usize::from(host))).unwrap();
        let allowed = vec![Prefix::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 32).unwrap()];
        let settings = PeerSettings { id, allowed, express: true, express_udp: true };
        (id, end.express.add_peer(self.now, settings))
    }

    /// Delivers a datagram of a peer with any content to node 1.
    fn receive(&mut self, peer: PeerId, imm: u64, reliable: bool, payload: &[u8]) {
        let End { express, guest, .. } = &mut self.ends[1];
        let (src_qpn, dst_qpn) = (FRAME_QPN, FRAME_QPN);
        let delivery = Delivery { peer, src_qpn, dst_qpn, imm, reliable, ce: false, payload };
        express.delivered(self.now, &delivery, guest);
    }

    fn time_out(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let End { express, guest, .. } = &mut self.ends[1];
        express.handle_timeout(self.now, guest);
    }

    fn first(&self) -> PeerId {
        self.ends[1].endpoint.peer_at(outer(0)).unwrap()
    }
}

#[test]
fn regression_a_frame_that_waited_in_vain_is_checked_against_the_peer_that_sent_it() {
    let mut rig = Rig::both();
    rig.third(3);
    let first = rig.first();
    let forged = framed(3, &tcp(1));
    rig.receive(first, whole(9, 1, &forged), true, &forged);
    // The same frame in two chunks, under another flow number.
    let half = forged.len() / 2;
    let place = ChunkPosition { flow: 10, sequence: 1, chunk: 0, last: false, frame_bytes: 0 };
    let place = ChunkPosition { frame_bytes: u16::try_from(forged.len()).unwrap(), ..place };
    rig.receive(first, place.encode(), true, &forged[..half]);
    let last = ChunkPosition { chunk: 1, last: true, ..place };
    rig.receive(first, last.encode(), true, &forged[half..]);
    rig.time_out(150);
    assert!(rig.ends[1].guest.0.is_empty(), "a peer sent from another's address");
    assert_eq!(rig.ends[1].express.counters().peer_bad_source, 2);
    // A frame from its own address is delivered after the timeout, and counted for this peer.
    let own = framed(1, &tcp(2));
    rig.receive(first, whole(11, 1, &own), true, &own);
    rig.time_out(150);
    assert_eq!(rig.ends[1].guest.0, [own]);
    let slot = rig.ends[1].peer;
    let report = rig.ends[1].express.report(slot).unwrap();
    assert_eq!(report.traffic.srd_rx_pkts, 1);
    // Refused packets are counted for the peer that sent them, with their source.
    assert_eq!(report.traffic.refused_pkts, 2);
    assert_eq!(report.refused_from, Packet::read(&forged[OFFLOAD_BYTES..]).map(|of| of.source));
}

#[test]
fn a_frame_whose_address_moves_while_it_waits_is_not_delivered() {
    let mut rig = Rig::both();
    let (first, slot) = (rig.first(), rig.ends[1].peer);
    let frame = framed(1, &tcp(1));
    rig.receive(first, whole(9, 1, &frame), true, &frame);
    rig.ends[1].express.set_allowed(slot, Vec::new());
    rig.time_out(150);
    assert!(rig.ends[1].guest.0.is_empty());
    assert_eq!(rig.ends[1].express.counters().peer_bad_source, 1);
}

#[test]
fn regression_the_next_peer_of_a_slot_meets_no_flow_of_the_one_before() {
    let mut rig = Rig::both();
    let (id, slot) = rig.third(3);
    for sequence in [0, 1, 3] {
        let frame = framed(3, &tcp(sequence));
        let imm = whole(9, u16::try_from(sequence).unwrap(), &frame);
        rig.receive(id, imm, true, &frame);
    }
    assert_eq!(numbers(&rig.ends[1].guest.0), [0, 1]);
    rig.ends[1].express.remove_peer(slot);
    assert_eq!(rig.ends[1].express.flow_counts().1, 0);
    let (id, again) = rig.third(4);
    assert_eq!(again, slot, "it takes the same place");
    let frame = framed(4, &tcp(100));
    rig.receive(id, whole(9, 0, &frame), true, &frame);
    assert_eq!(numbers(&rig.ends[1].guest.0), [0, 1, 100]);
    rig.time_out(150);
    assert_eq!(numbers(&rig.ends[1].guest.0), [0, 1, 100]);
    let counters = rig.ends[1].express.counters();
    assert_eq!((counters.order.bad_chunks, counters.peer_bad_source), (0, 0));
}

#[test]
fn a_mark_on_a_plain_packet_reaches_the_inner_one_and_one_on_a_packet_of_srd_does_not() {
    let mut rig = Rig::both();
    let first = rig.first();
    let mut capable = tcp(1);
    capable[1] = 2;
    let incapable = tcp(2);
    let mut deliver = |reliable: bool, ce: bool, sequence: u16, packet: &[u8]| {
        let frame = framed(1, packet);
        let imm = whole(9, sequence, &frame);
        let End { express, guest, .. } = &mut rig.ends[1];
        let (peer, src_qpn, dst_qpn) = (first, FRAME_QPN, FRAME_QPN);
        let payload = frame.as_slice();
        let delivery = Delivery { peer, src_qpn, dst_qpn, imm, reliable, ce, payload };
        express.delivered(rig.now, &delivery, guest);
        guest.0.pop().map(|frame| frame[OFFLOAD_BYTES + 1])
    };
    assert_eq!(deliver(false, false, 0, &capable), Some(2));
    assert_eq!(deliver(false, true, 0, &capable), Some(3), "congestion experienced");
    assert_eq!(deliver(false, true, 0, &incapable), Some(0), "it has no field for that");
    // The transport has reduced its rate because of the mark.
    assert_eq!(deliver(true, true, 0, &capable), Some(2));
}

#[test]
fn regression_the_longest_super_packets_are_cut_in_two_and_none_is_malformed() {
    let mut rig = Rig::both();
    for payload_bytes in [65_497, 65_498, 65_507] {
        let packet = v4(protocol::UDP, (1, 2), &vec![7; payload_bytes]);
        let gso = Some((Gso::Udp, 1372));
        let offload = Offload { gso, checksum: Some((20, 6)), checked: false };
        let frame = [&offload.write(true, 28)[..], &packet].concat();
        rig.send_frame(0, &frame);
        rig.run_ms(20);
        let arrived = std::mem::take(&mut rig.ends[1].guest.0);
        let bytes: usize = arrived.iter().map(|frame| frame.len() - OFFLOAD_BYTES - 28).sum();
        assert_eq!(bytes, payload_bytes);
    }
    assert_eq!(rig.ends[0].express.counters().guest_malformed, 0);
}

fn without_udp() -> Rig {
    let mut rig = Rig::new(Config { express_udp: false, ..settings() }, settings());
    rig.run_ms(20);
    assert_eq!(rig.reach(0), Reach::Express { udp: false, tunnels: false });
    rig
}

impl Rig {
    /// Passes frames of node 0 to the transport, while no packet leaves the transport. Returns the
    /// unsent bytes of SRD and the number of unreliable datagrams that wait there.
    fn pump(&mut self) -> (u64, usize) {
        let End { endpoint, express, .. } = &mut self.ends[0];
        express.pump(self.now, endpoint);
        let to = endpoint.peer_at(outer(1)).unwrap();
        (endpoint.unsent_bytes(to), endpoint.unreliable_waiting(to))
    }
}

#[test]
fn regression_udp_that_does_not_ride_srd_waits_in_the_fair_queue() {
    let mut rig = without_udp();
    for n in 0..5000 {
        rig.send(0, &udp(n, 9));
    }
    let (_, waiting) = rig.pump();
    assert_eq!(rig.ends[0].express.counters().send_refused, 0);
    assert!((1..=128).contains(&waiting), "{waiting}");
    assert!(rig.ends[0].express.report(rig.ends[0].peer).unwrap().queued_bytes > 100_000);
    // Frames that are too large for SRD, but not for a datagram outside of it, have the same
    // bound.
    let mut rig = Rig::both();
    for _ in 0..3000 {
        rig.send(0, &v4(protocol::UDP, (1, 2), &[7; 1405 - 28]));
    }
    let (unsent, waiting) = rig.pump();
    assert_eq!((unsent, rig.ends[0].express.counters().send_refused), (0, 0));
    assert!((1..=128).contains(&waiting), "{waiting}");
}

#[test]
fn regression_a_full_lane_holds_up_no_packet_of_the_other() {
    let mut rig = without_udp();
    for n in 0..2000 {
        rig.send(0, &tcp(n));
    }
    let (full, waiting) = rig.pump();
    assert!(full >= 16 * 1024 && waiting == 0, "{full} {waiting}");
    rig.send(0, &udp(1, 9));
    assert_eq!(rig.pump(), (full, 1), "the datagram does not wait for TCP");

    let mut rig = without_udp();
    for n in 0..2000 {
        rig.send(0, &udp(n, 9));
    }
    let (unsent, full) = rig.pump();
    assert!(unsent == 0 && full >= 128, "{unsent} {full}");
    rig.send(0, &tcp(1));
    let (unsent, waiting) = rig.pump();
    assert!(unsent > 0 && waiting == full, "the segment does not wait for datagrams");
}

#[test]
fn regression_a_packet_that_may_be_cut_is_cut_where_it_does_not_fit() {
    let mut rig = Rig::both();
    let payload: Vec<u8> = (0..3000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let mut packet = v4(protocol::UDP, (1, 2), &payload);
    packet[6] = 0;
    packet[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    rig.send(0, &packet);
    rig.run_ms(5);
    assert!(rig.ends[0].guest.0.is_empty(), "no answer: a router cuts such a packet");
    let parts: Vec<_> = rig.ends[1].guest.0.iter().map(|f| &f[OFFLOAD_BYTES..]).collect();
    assert_eq!(parts.len(), 3);
    let joined: Vec<u8> = parts.iter().flat_map(|p| p[20..].to_vec()).collect();
    assert_eq!(joined, packet[20..]);
}

#[test]
fn regression_a_frame_of_more_chunks_than_have_numbers_goes_plainly() {
    let small = |end, settings: &Config| stage_of(end, 1, Instant::ZERO, settings, 400);
    let mut rig = Rig::both();
    rig.ends = vec![small(0, &settings()), small(1, &settings())];
    rig.wire.lose_all();
    rig.run_ms(20);
    assert_eq!(rig.reach(0), Reach::Express { udp: true, tunnels: false });
    let payload = vec![7; 60_000];
    let packet = v4(protocol::TCP, (5, 80), &payload);
    let gso = Some((Gso::Tcp { ecn: false }, 200));
    let offload = Offload { gso, checksum: Some((20, 16)), checked: false };
    let header = offload.write(true, layout(&packet).header_bytes());
    rig.send_frame(0, &[&header[..], &packet].concat());
    rig.run_ms(20);
    let seen: usize = rig.ends[1].guest.0.iter().map(|f| f.len() - OFFLOAD_BYTES - 40).sum();
    assert_eq!(seen, 60_000);
    assert_eq!(rig.ends[0].express.counters().send_refused, 0);
}

#[test]
fn a_super_packet_of_more_packets_than_the_transport_takes_goes_plainly_bit_by_bit() {
    let mut rig = Rig::new(Config { express: false, ..settings() }, settings());
    rig.run_ms(20);
    let payload: Vec<u8> = (0..60_000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let packet = v4(protocol::TCP, (5, 80), &payload);
    let gso = Some((Gso::Tcp { ecn: false }, 48));
    let offload = Offload { gso, checksum: Some((20, 16)), checked: false };
    let header = offload.write(true, layout(&packet).header_bytes());
    rig.send_frame(0, &[&header[..], &packet].concat());
    let (_, waiting) = rig.pump();
    assert_eq!(waiting, 128);
    rig.run_ms(20);
    let parts = rig.ends[1].guest.0.iter().map(|f| &f[OFFLOAD_BYTES + 40..]);
    assert_eq!(parts.collect::<Vec<_>>().concat(), payload);
    assert_eq!(rig.ends[0].express.counters().send_refused, 0);
    assert!(!rig.ends[0].express.has_waiting());
}

#[test]
fn a_flood_of_packets_that_are_too_big_is_answered_at_a_limited_rate() {
    let mut rig = Rig::both();
    for _ in 0..500 {
        rig.send(0, &v4(protocol::UDP, (1, 2), &[0; 3000]));
    }
    assert_eq!(rig.ends[0].guest.0.len(), 50);
    assert_eq!(rig.ends[0].express.counters().guest_too_big, 500);
}

#[test]
fn a_part_of_a_packet_has_its_checksum_filled_in() {
    let mut rig = Rig::both();
    let mut packet = v4(protocol::UDP, (1, 2), &[7; 3000]);
    packet[6] = 0;
    packet[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let addresses = packet[12..20].to_vec();
    let bytes = packet.len() - 20;
    let sum = checksum::pseudo_header(&addresses, protocol::UDP, bytes);
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    let offload = Offload { gso: None, checksum: Some((20, 6)), checked: false };
    rig.send_frame(0, &[&offload.write(true, 28)[..], &packet].concat());
    rig.run_ms(5);
    let parts = rig.ends[1].guest.0.iter().map(|f| &f[OFFLOAD_BYTES + 20..]);
    let datagram = parts.collect::<Vec<_>>().concat();
    let sum = checksum::transport(&addresses, protocol::UDP, &datagram);
    assert_eq!(sum, 0);
}

#[test]
fn entries_of_peers_take_no_place_in_the_table_of_flows() {
    let mut rig = Rig::new(Config { flows_max: 2, ..settings() }, settings());
    rig.run_ms(20);
    for host in 10..20 {
        let end = &mut rig.ends[0];
        let id = end.endpoint.add_peer(rig.now, known(host)).unwrap();
        let settings = PeerSettings { id, allowed: vec![], express: true, express_udp: true };
        end.express.add_peer(rig.now, settings);
    }
    rig.send(0, &tcp(1));
    rig.run_ms(5);
    assert_eq!(rig.ends[0].express.counters().flows_full, 0);
    assert_eq!(rig.traffic(0).srd_tx_pkts, 1);
}

#[test]
fn a_packet_of_a_super_packet_that_fits_no_datagram_is_answered_when_it_goes_plainly() {
    let mut rig = Rig::new(Config { express: false, ..settings() }, settings());
    rig.run_ms(20);
    // TCP would be segmented further; datagrams of UDP keep their size.
    let packet = v4(protocol::UDP, (5, 80), &[0; 9000]);
    let gso = Some((Gso::Udp, 3000));
    let offload = Offload { gso, checksum: Some((20, 6)), checked: false };
    let header = offload.write(true, layout(&packet).header_bytes());
    rig.send_frame(0, &[&header[..], &packet].concat());
    rig.run_ms(5);
    assert_eq!(rig.ends[0].guest.0.len(), 1, "the sender is answered");
    let counters = rig.ends[0].express.counters();
    assert_eq!((counters.guest_too_big, counters.send_refused), (1, 0));
}
