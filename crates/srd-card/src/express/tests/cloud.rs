//! Frames of clouds, over SRD and without it: in order, and independent of other tenants.

use super::*;
use crate::wire::cloud::TRAILER_BYTES;
use srd_proto::Delivery;

pub(super) fn cloud() -> Config {
    Config { cloud: true, ..settings() }
}

pub(super) fn both() -> Rig {
    let mut rig = Rig::new(cloud(), cloud());
    rig.run_ms(20);
    rig
}

/// Trailer of a frame from an interface to the interface with the next number.
pub(super) fn between(interface: u64) -> Trailer {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[4..12].copy_from_slice(&interface.to_be_bytes());
    bytes[12..].copy_from_slice(&(interface + 1).to_be_bytes());
    Trailer(bytes)
}

impl Rig {
    /// Sends a frame from an interface of a tenant; the interface has the same number as the
    /// tenant.
    pub(super) fn ship(&mut self, tenant: u32, express: bool, frame: &[u8]) {
        let interface = u64::from(tenant);
        let End { express: stage, peer, .. } = &mut self.ends[0];
        let trailer = between(interface);
        let parcel = Parcel { to: *peer, tenant, interface, trailer, express };
        stage.from_cloud(self.now, parcel, frame.to_vec());
    }

    pub(super) fn ship_packet(&mut self, tenant: u32, express: bool, packet: &[u8]) {
        self.ship(tenant, express, &[&[0; OFFLOAD_BYTES], packet].concat());
    }

    /// Returns the numbers of the packets that arrived for a tenant's interface.
    fn arrived(&self, tenant: u32) -> Vec<u32> {
        let all = self.ends[1].instances.0.iter();
        let own = all.filter(|(_, trailer, ..)| *trailer == between(tenant.into()));
        numbers(&own.map(|(_, _, frame, _)| frame.clone()).collect::<Vec<_>>())
    }
}

#[test]
fn a_frame_rides_srd_if_its_interfaces_have_express_and_goes_plainly_if_not() {
    let mut rig = both();
    for express in [true, false] {
        let before = rig.traffic(0);
        rig.ship_packet(7, express, &tcp(1));
        rig.run_ms(5);
        let after = rig.traffic(0);
        let (from, trailer, frame, by_srd) = rig.ends[1].instances.0.pop().unwrap();
        assert_eq!((from, trailer, by_srd), (rig.ends[1].peer, between(7), express));
        assert_eq!(frame[OFFLOAD_BYTES..], tcp(1));
        assert_eq!(after.srd_tx_pkts - before.srd_tx_pkts, u64::from(express));
        assert_eq!(after.eligible_tx_pkts - before.eligible_tx_pkts, u64::from(express));
        assert_eq!(after.plain_tx_pkts - before.plain_tx_pkts, u64::from(!express));
    }
    assert!(rig.ends[1].guest.0.is_empty(), "none of them is the overlay's");
    let t = rig.traffic(1);
    assert_eq!((t.srd_rx_pkts, t.plain_rx_pkts), (1, 1));
}

#[test]
fn the_largest_super_packet_travels_whole_by_srd_and_cut_plainly() {
    let frame = super_packet(65_535 - OFFLOAD_BYTES - 40 - TRAILER_BYTES);
    let mut rig = both();
    rig.ship(1, true, &frame);
    rig.run_ms(20);
    assert_eq!(rig.ends[1].instances.0.pop().unwrap().2, frame);
    rig.ship(1, false, &frame);
    rig.run_ms(20);
    let parts = &rig.ends[1].instances.0;
    let payload: Vec<u8> =
        parts.iter().flat_map(|(_, _, part, _)| part[OFFLOAD_BYTES + 40..].to_vec()).collect();
    assert_eq!(payload, frame[OFFLOAD_BYTES + 40..]);
    assert!(parts.iter().all(|(_, trailer, ..)| *trailer == between(1)));
    // A frame that would be too long with its trailer is sent in halves. // G5
    rig.ends[1].instances.0.clear();
    rig.ship(1, true, &super_packet(65_535 - OFFLOAD_BYTES - 40 - TRAILER_BYTES + 1));
    rig.run_ms(20);
    assert_eq!(rig.ends[1].instances.0.len(), 2);
    assert_eq!(rig.ends[0].express.counters().cloud_malformed, 0);
}

/// C1: the same addresses and ports in two clouds are two flows.
#[test]
fn clouds_with_the_same_addresses_do_not_meet() {
    let mut rig = both();
    (rig.wire.loss_permille, rig.wire.jitter_us) = (50, 300);
    for n in 0..600 {
        rig.ship_packet(1, true, &tcp(n));
        rig.ship_packet(2, true, &tcp(10_000 + n));
        if n % 2 == 0 {
            rig.run_ms(1);
        }
    }
    rig.run_ms(500);
    assert_eq!(rig.arrived(1), (0..600).collect::<Vec<_>>());
    assert_eq!(rig.arrived(2), (10_000..10_600).collect::<Vec<_>>());
    assert!(rig.ends[1].express.counters().order.waited > 0);
    assert_eq!(rig.ends[1].express.flow_counts().1, 2);
    // With a flow of the overlay that has the same key, there are three flows.
    rig.send(0, &tcp(1));
    rig.run_ms(20);
    assert_eq!(rig.ends[1].express.flow_counts().1, 3);
    assert_eq!(rig.ends[1].guest.0.len(), 1);
}

#[test]
fn switching_express_in_mid_transfer_loses_nothing() {
    let mut rig = both();
    (rig.wire.loss_permille, rig.wire.jitter_us) = (0, 100);
    for n in 0..900 {
        rig.ship_packet(3, n / 100 % 2 == 0, &tcp(n));
        if n % 30 == 0 {
            rig.run_ms(1);
        }
    }
    rig.run_ms(100);
    let mut seen = rig.arrived(3);
    seen.sort_unstable();
    assert_eq!(seen, (0..900).collect::<Vec<_>>());
    let t = rig.traffic(0);
    assert_eq!((t.srd_tx_pkts, t.plain_tx_pkts), (500, 400));
}

/// C4: frames of clouds wait for the peer's offer.
#[test]
fn frames_wait_until_the_peer_has_agreed_and_none_is_lost() {
    let mut rig = Rig::new(cloud(), cloud());
    for n in 0..50 {
        rig.ship_packet(1, n % 2 == 0, &tcp(n));
    }
    rig.run_ms(1);
    rig.run_ms(30);
    let mut seen = rig.arrived(1);
    seen.sort_unstable();
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
}

/// C4: frames of clouds for a peer that does not accept them are dropped and counted.
#[test]
fn a_peer_without_a_cloud_gets_no_frame_of_one() {
    let mut rig = Rig::new(cloud(), settings());
    rig.ship_packet(1, true, &tcp(1));
    rig.run_ms(20);
    rig.ship_packet(1, false, &tcp(2));
    rig.run_ms(20);
    assert_eq!(rig.ends[0].express.counters().cloud_refused, 2);
    assert_eq!(rig.traffic(0).srd_tx_pkts + rig.traffic(0).plain_tx_pkts, 0);
    // Packets of the overlay still pass.
    rig.send(0, &tcp(3));
    rig.run_ms(20);
    assert_eq!(numbers(&rig.ends[1].guest.0), [3]);
}

/// Packets of clouds and of the interface that were dropped for the same reason had one counter, so
/// that those of the interface were shown as frames of instances.
#[test]
fn regression_drops_of_clouds_and_of_the_interface_have_counters_of_their_own() {
    let mut rig = both();
    rig.ship(1, true, b"nothing");
    let counters = rig.ends[0].express.counters();
    assert_eq!((counters.cloud_malformed, counters.guest_malformed), (1, 0));
    rig.send_frame(0, b"nothing");
    let counters = rig.ends[0].express.counters();
    assert_eq!((counters.cloud_malformed, counters.guest_malformed), (1, 1));
    let peer = rig.ends[0].peer;
    rig.ends[0].express.remove_peer(peer);
    rig.ship_packet(1, true, &tcp(1));
    let counters = rig.ends[0].express.counters();
    assert_eq!((counters.cloud_no_peer, counters.guest_no_peer), (1, 0));
    rig.send(0, &tcp(1));
    let counters = rig.ends[0].express.counters();
    assert_eq!((counters.cloud_no_peer, counters.guest_no_peer), (1, 1));
}

/// C3: a packet outside of SRD that fits no datagram is dropped and counted; over SRD it arrives.
#[test]
fn a_plain_packet_that_fits_no_datagram_is_counted() {
    let mut rig = both();
    let most = rig.ends[0].express.cloud_bytes_max(rig.ends[0].peer);
    rig.ship_packet(1, false, &v4(protocol::UDP, (1, 2), &vec![0; most - 28]));
    rig.ship_packet(1, false, &v4(protocol::UDP, (1, 2), &vec![0; most - 27]));
    rig.ship_packet(1, true, &v4(protocol::UDP, (1, 2), &vec![0; most - 27]));
    rig.run_ms(20);
    assert_eq!(rig.ends[1].instances.0.len(), 2);
    let counters = rig.ends[0].express.counters();
    assert_eq!((counters.cloud_too_big, counters.guest_too_big), (1, 0));
}

#[test]
fn bytes_that_are_no_frame_with_a_trailer_are_counted() {
    let mut rig = both();
    let peer = rig.ends[1].endpoint.peer_at(outer(0)).unwrap();
    let good = between(1).behind(&[&[0; OFFLOAD_BYTES][..], &tcp(1)].concat());
    for end in 0..good.len() {
        let End { express, instances, .. } = &mut rig.ends[1];
        let (src_qpn, dst_qpn) = (crate::FRAME_QPN, crate::CLOUD_QPN);
        let payload = &good[..end];
        let delivery =
            Delivery { peer, src_qpn, dst_qpn, imm: 0, reliable: false, ce: false, payload };
        let by = Partner { context: peer, shard: 0 };
        assert!(express.delivered_of_cloud(rig.now, by, &delivery, instances));
    }
    // A frame that was cut off may still be valid here: the receiving card detects the error.
    let malformed = rig.ends[1].express.counters().peer_malformed;
    assert!(malformed + rig.ends[1].instances.0.len() as u64 >= good.len() as u64);
    assert!(malformed > TRAILER_BYTES as u64 + 20, "{malformed}");
}

/// Q5: a tenant with many flows and large frames does not delay a tenant that rarely sends a
/// packet.
#[test]
fn a_tenant_that_floods_delays_no_other() {
    let mut rig = both();
    for n in 0..200u16 {
        for flow in 0..20 {
            rig.ship_packet(1, true, &v4(protocol::TCP, (flow, 80), &[0; 1200]));
        }
        rig.ship_packet(2, true, &tcp(n.into()));
        let now = rig.now;
        let End { express, endpoint, .. } = &mut rig.ends[0];
        // The transport takes a few frames of the queue at each turn.
        let mut handed = 0;
        while handed < 4 {
            let more = express.pump(now, endpoint);
            handed += more;
            if more == 0 {
                break;
            }
        }
    }
    rig.run_ms(300);
    assert_eq!(rig.arrived(2).len(), 200);
    let all = &rig.ends[1].instances.0;
    let place = |of: &Trailer| all.iter().rposition(|(_, trailer, ..)| trailer == of).unwrap();
    // The last packet of the quiet tenant has not waited for all frames of the other tenant.
    assert!(place(&between(2)) < all.len() / 2, "{} of {}", place(&between(2)), all.len());
}

/// C6: small frames of one flow are sent as bundles, over SRD and without it.
#[test]
fn small_packets_of_a_flow_share_datagrams_and_arrive_one_by_one() {
    for express in [true, false] {
        let mut rig = both();
        let before = rig.ends[0].endpoint.stats().tx_pkts;
        for n in 0..1000 {
            rig.ship_packet(1, express, &udp(n, 7));
            // A frame of another flow that is too large to share a datagram.
            if n % 100 == 0 {
                rig.ship_packet(1, express, &v4(protocol::UDP, (9, 9), &[7; 1300]));
            }
        }
        rig.run_ms(20);
        let frames = rig.ends[1].instances.0.iter().filter(|(_, _, frame, _)| frame.len() < 1000);
        let small: Vec<_> = frames.map(|(_, _, frame, _)| frame.clone()).collect();
        assert_eq!(numbers(&small), (0..1000).collect::<Vec<_>>());
        assert!(rig.ends[1].instances.0.iter().all(|(_, trailer, ..)| *trailer == between(1)));
        let datagrams = rig.ends[0].endpoint.stats().tx_pkts - before;
        assert!(datagrams < 200, "{datagrams} packets of the transport");
        let (sent, received) = (rig.traffic(0), rig.traffic(1));
        let (packets, bytes) = (1010, 1000 * 32 + 10 * 1328);
        if express {
            assert_eq!((sent.srd_tx_pkts, sent.srd_tx_bytes), (packets, bytes));
            assert_eq!((received.srd_rx_pkts, received.srd_rx_bytes), (packets, bytes));
        } else {
            assert_eq!((sent.plain_tx_pkts, sent.plain_tx_bytes), (packets, bytes));
            assert_eq!((received.plain_rx_pkts, received.plain_rx_bytes), (packets, bytes));
        }
    }
}
