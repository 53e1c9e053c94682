//! Two stages over two endpoints and an imperfect link: which packets SRD carries, and which
//! arrive.

use super::*;
use crate::config::Config;
use crate::counters::Traffic;
use crate::meta::offload::{Gso, OFFLOAD_BYTES, Offload};
use crate::meta::packet::{Packet, protocol};
use crate::rules::prefix::Prefix;
use crate::rules::snapshot::{PeerSettings, PeerSlot};
use crate::testing::{layout, v4};
use crate::wire::cloud::Trailer;
use core::net::{IpAddr, Ipv4Addr};
use srd_proto::crypto::public_key;
use srd_proto::time::{Duration, Instant};
use srd_proto::{Config as CoreConfig, Epoch, PacketRef, PeerConfig, Protection, TransmitBuf};
use srd_proto::{Endpoint, PeerId, Secret};
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

#[path = "../../../srd-proto/tests/support/wire.rs"]
mod lossy_wire;

use lossy_wire::{Arrival, Wire, address as outer};

mod absent;
mod borders;
mod bundles;
mod cloud;
mod path_mtu;
mod regressions;

#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl Guest for Frames {
    fn deliver(&mut self, frame: &[u8]) {
        self.0.push(frame.to_vec());
    }
}

/// A frame of a cloud that arrived: slot of its sender, trailer, frame, and whether it came by
/// SRD.
type Came = (PeerSlot, Trailer, Vec<u8>, bool);

#[derive(Default)]
struct Instances(Vec<Came>);

impl Arrivals for Instances {
    fn arrived(&mut self, how: Arrived, trailer: Trailer, frame: &[u8]) {
        self.0.push((how.from, trailer, frame.to_vec(), how.by_srd));
    }
}

struct End {
    endpoint: Endpoint,
    express: Express,
    guest: Frames,
    instances: Instances,
    peer: PeerSlot,
}

struct Rig {
    ends: Vec<End>,
    now: Instant,
    wire: Wire,
    epoch: u64,
}

fn inner(end: usize) -> Prefix {
    // Packets of `v4` have the addresses 10.0.0.1 and 10.0.0.2.
    Prefix::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(end + 1).unwrap())), 32).unwrap()
}

fn key(end: usize) -> [u8; 32] {
    [u8::try_from(end + 1).unwrap(); 32]
}

fn known(end: usize) -> PeerConfig {
    PeerConfig::at(outer(end)).with_key(Some(public_key(&key(end))))
}

fn stage(end: usize, epoch: u64, now: Instant, settings: &Config) -> End {
    let packet_bytes_max = if settings.mtu > 1400 { 8956 } else { 1472 };
    stage_of(end, epoch, now, settings, packet_bytes_max)
}

fn stage_of(end: usize, epoch: u64, now: Instant, settings: &Config, packet_bytes_max: u16) -> End {
    let config = CoreConfig {
        protection: Protection::Static(key(end)),
        packet_bytes_max,
        keepalive: Duration::from_millis(50),
        peer_timeout: Duration::from_millis(500),
        ..CoreConfig::sockets()
    };
    let seed = [u8::try_from(end as u64 + 10 * epoch).unwrap(); 32];
    let mut endpoint = Endpoint::new(config, Epoch(epoch), seed, now).unwrap();
    let secret = Secret::known(epoch * 77 + end as u64);
    let mut express = Express::new(Config { secret, ..settings.clone() }, &mut endpoint);
    let id = endpoint.add_peer(now, known(1 - end)).unwrap();
    let settings =
        PeerSettings { id, allowed: vec![inner(1 - end)], express: true, express_udp: true };
    let peer = express.add_peer(now, settings);
    let (guest, instances) = (Frames::default(), Instances::default());
    End { endpoint, express, guest, instances, peer }
}

fn settings() -> Config {
    Config { mtu: 1400, ..Config::default() }
}

impl Rig {
    fn new(a: Config, b: Config) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        Self {
            ends: vec![stage(0, 1, now, &a), stage(1, 1, now, &b)],
            now,
            wire: Wire::new(),
            epoch: 1,
        }
    }

    fn both() -> Self {
        let mut rig = Self::new(settings(), settings());
        rig.run_ms(20);
        assert_eq!(rig.reach(0), Reach::Express { udp: true, tunnels: false });
        rig
    }

    fn reach(&self, end: usize) -> Reach {
        self.ends[end].express.report(self.ends[end].peer).unwrap().reach
    }

    fn send(&mut self, end: usize, packet: &[u8]) {
        self.send_frame(end, &[&[0; OFFLOAD_BYTES], packet].concat());
    }

    fn send_frame(&mut self, end: usize, frame: &[u8]) {
        let End { express, guest, .. } = &mut self.ends[end];
        express.from_guest(self.now, frame.to_vec(), guest);
    }

    /// Puts a batch of an end's packets on the link. Returns whether there was a batch.
    fn carry(&mut self, end: usize, buf: &mut TransmitBuf) -> bool {
        buf.clear();
        let Some(t) = self.ends[end].endpoint.poll_transmit(self.now, buf) else { return false };
        if t.destination == outer(1 - end) {
            self.wire.put(self.now, end, &t, buf);
        }
        true
    }

    fn drain(&mut self) {
        let mut buf = TransmitBuf::new(64, 65_000);
        for end in 0..2 {
            loop {
                let End { endpoint, express, .. } = &mut self.ends[end];
                let handed = express.pump(self.now, endpoint);
                if !self.carry(end, &mut buf) && handed == 0 {
                    break;
                }
            }
            let End { endpoint, express, .. } = &mut self.ends[end];
            while let Some(event) = endpoint.poll_event() {
                express.event(self.now, &event);
            }
        }
    }

    fn run_ms(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        loop {
            self.drain();
            let timers = self.ends.iter().flat_map(|end| {
                [end.endpoint.poll_timeout(), end.express.poll_timeout()].into_iter().flatten()
            });
            let next = self.wire.next().into_iter().chain(timers).min().unwrap_or(until);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            while let Some(Arrival { to, meta, mut bytes }) = self.wire.take(self.now) {
                let End { endpoint, express, guest, instances, .. } = &mut self.ends[to];
                let whole = PacketRef::Whole(&mut bytes);
                if let Some(delivery) = endpoint.handle_packet(self.now, meta, whole) {
                    let by = Partner { context: delivery.peer, shard: 0 };
                    if !express.delivered_of_cloud(self.now, by, &delivery, instances) {
                        express.delivered(self.now, &delivery, guest);
                    }
                }
            }
            for end in &mut self.ends {
                end.endpoint.handle_timeout(self.now);
                end.express.handle_timeout(self.now, &mut end.guest);
                end.express.handle_cloud_timeout(self.now, &mut end.instances);
            }
        }
    }

    fn traffic(&self, end: usize) -> Traffic {
        self.ends[end].express.counters().traffic
    }
}

/// Builds a TCP segment whose payload is the number `n`.
fn tcp(n: u32) -> Vec<u8> {
    v4(protocol::TCP, (5, 80), &n.to_be_bytes())
}

fn udp(n: u32, port: u16) -> Vec<u8> {
    v4(protocol::UDP, (port, 53), &n.to_be_bytes())
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
    frames.iter().map(|f| u32::from_be_bytes(f[f.len() - 4..].try_into().unwrap())).collect()
}

#[test]
fn it_begins_plain_and_moves_to_srd_when_the_peer_has_agreed() {
    let mut rig = Rig::new(settings(), settings());
    assert_eq!(rig.reach(0), Reach::Waiting);
    for n in 0..200 {
        rig.send(0, &tcp(n));
        if n % 10 == 0 {
            rig.run_ms(1);
        }
    }
    rig.run_ms(50);
    let mut seen = numbers(&rig.ends[1].guest.0);
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>(), "nothing is lost by the switch");
    let t = rig.traffic(0);
    assert!(t.plain_tx_pkts > 0 && t.srd_tx_pkts > 100, "{t:?}");
    assert_eq!(t.plain_tx_pkts + t.srd_tx_pkts, 200);
    let r = rig.traffic(1);
    assert_eq!((r.srd_rx_pkts, r.plain_rx_pkts), (t.srd_tx_pkts, t.plain_tx_pkts));
}

#[test]
fn packets_that_ride_srd_and_packets_that_count_as_eligible() {
    let off = Config { express: false, ..settings() };
    let no_udp = Config { express_udp: false, ..settings() };
    // For each kind: whether SRD carries it, and whether it is eligible. Kinds: TCP, UDP, ICMP,
    // oversize.
    let cases = [
        (settings(), settings(), [(1, 1), (1, 1), (0, 0), (0, 1)]),
        (off.clone(), settings(), [(0, 0); 4]),
        (settings(), off.clone(), [(0, 0); 4]),
        (off.clone(), off, [(0, 0); 4]),
        (no_udp.clone(), settings(), [(1, 1), (0, 0), (0, 0), (0, 0)]),
        (settings(), no_udp, [(1, 1), (0, 0), (0, 0), (0, 0)]),
    ];
    for (a, b, expected) in cases {
        let mut rig = Rig::new(a, b);
        rig.run_ms(20);
        let oversize = v4(protocol::UDP, (1, 2), &[7; 1405 - 28]);
        let packets = [tcp(1), udp(1, 9), v4(protocol::ICMP, (8, 0), b"ping"), oversize];
        for (packet, (rides, eligible)) in packets.iter().zip(expected) {
            let before = rig.traffic(0);
            rig.send(0, packet);
            rig.run_ms(5);
            let after = rig.traffic(0);
            assert_eq!(after.srd_tx_pkts - before.srd_tx_pkts, rides);
            assert_eq!(after.eligible_tx_pkts - before.eligible_tx_pkts, eligible);
        }
        assert_eq!(rig.ends[1].guest.0.len(), 4, "everything arrives, whatever it rides");
    }
}

#[test]
fn tunnels_ride_srd_in_order_if_both_ends_carry_them() {
    let tunnels = || Config { express_tunnels: true, udp_bypass: true, ..settings() };
    let gre = |n: u16| v4(protocol::GRE, (n, 0), &n.to_be_bytes());
    for (far, rides) in [(settings(), 0), (tunnels(), 4)] {
        let mut rig = Rig::new(tunnels(), far);
        rig.run_ms(20);
        let before = rig.traffic(0);
        let mut fragment = gre(9);
        fragment[6] = 0x20;
        for packet in [&gre(1), &v4(protocol::ESP, (1, 0), b"esp"), &fragment, &gre(2), &gre(3)] {
            rig.send(0, packet);
        }
        rig.run_ms(20);
        let after = rig.traffic(0);
        assert_eq!(after.srd_tx_pkts - before.srd_tx_pkts, rides);
        assert_eq!(after.eligible_tx_pkts - before.eligible_tx_pkts, rides);
        assert_eq!(rig.ends[1].guest.0.len(), 5, "everything arrives, whatever it rides");
    }
    // With loss and reordering on the link, the packets of a tunnel come up in order.
    let mut rig = Rig::new(tunnels(), tunnels());
    rig.run_ms(20);
    (rig.wire.loss_permille, rig.wire.jitter_us) = (200, 300);
    for n in 0..200 {
        rig.send(0, &gre(n));
    }
    rig.run_ms(400);
    let arrived = &rig.ends[1].guest.0;
    let numbers: Vec<u16> = arrived
        .iter()
        .map(|frame| u16::from_be_bytes(frame[frame.len() - 2..].try_into().unwrap()))
        .collect();
    assert_eq!(numbers, (0..200).collect::<Vec<u16>>());
    // After SRD is turned off for tunnels, packets go without it at once.
    let now = rig.now;
    rig.ends[1].express.set_tunnels(now, false);
    rig.run_ms(20);
    assert_eq!(rig.reach(0), Reach::Express { udp: true, tunnels: false });
}

#[test]
fn the_mode_counts_bits_as_the_driver_does() {
    let mode = |express, express_udp, udp_bypass| {
        let config = Config { express, express_udp, udp_bypass, ..settings() };
        Rig::new(config, settings()).ends[0].express.mode()
    };
    assert_eq!([mode(false, false, false), mode(true, false, false)], [0, 1]);
    assert_eq!([mode(false, true, false), mode(true, true, false)], [2, 3]);
    assert_eq!(mode(true, true, true), 7);
}

fn super_packet(bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 253).unwrap()).collect();
    let packet = v4(protocol::TCP, (5, 80), &payload);
    let offload = Offload {
        gso: Some((Gso::Tcp { ecn: false }, 1300)),
        checksum: Some((20, 16)),
        checked: false,
    };
    let header = offload.write(true, layout(&packet).header_bytes());
    [&header[..], &packet].concat()
}

#[test]
fn a_super_packet_travels_whole_by_srd_and_cut_by_plain_encapsulation() {
    let frame = super_packet(60_000);
    let mut rig = Rig::both();
    rig.send_frame(0, &frame);
    rig.run_ms(10);
    assert_eq!(rig.ends[1].guest.0, std::slice::from_ref(&frame));
    assert_eq!(rig.traffic(1).srd_rx_pkts, 60_000u64.div_ceil(1300));

    let mut rig = Rig::new(Config { express: false, ..settings() }, settings());
    rig.run_ms(20);
    rig.send_frame(0, &frame);
    rig.run_ms(10);
    let parts = &rig.ends[1].guest.0;
    assert_eq!(parts.len(), 60_000usize.div_ceil(1300));
    let payload: Vec<u8> = parts.iter().flat_map(|p| p[OFFLOAD_BYTES + 40..].to_vec()).collect();
    assert_eq!(payload, frame[OFFLOAD_BYTES + 40..]);
}

#[test]
fn tcp_stays_in_order_under_loss_and_jitter() {
    let mut rig = Rig::both();
    (rig.wire.loss_permille, rig.wire.jitter_us) = (20, 300);
    for n in 0..2000 {
        rig.send(0, &tcp(n));
        if n % 20 == 0 {
            rig.run_ms(1);
        }
    }
    rig.run_ms(500);
    assert_eq!(numbers(&rig.ends[1].guest.0), (0..2000).collect::<Vec<_>>());
    let order = rig.ends[1].express.counters().order;
    assert!(order.waited > 0);
    assert_eq!((order.wait_timeouts, order.given_up), (0, 0));
}

#[test]
fn udp_is_in_order_unless_that_is_bypassed() {
    for bypass in [false, true] {
        let mut rig = Rig::both();
        rig.ends[1].express.set_order(bypass, Duration::from_millis(100));
        (rig.wire.loss_permille, rig.wire.jitter_us) = (50, 300);
        for n in 0..500 {
            rig.send(0, &udp(n, 9));
            if n % 10 == 0 {
                rig.run_ms(1);
            }
        }
        rig.run_ms(500);
        let seen = numbers(&rig.ends[1].guest.0);
        assert_eq!(seen.len(), 500);
        let inversions = seen.windows(2).filter(|w| w[0] > w[1]).count();
        assert_eq!(inversions > 0, bypass, "{inversions} inversions");
    }
}

#[test]
fn turning_srd_off_and_on_in_mid_transfer_loses_nothing() {
    let mut rig = Rig::both();
    for n in 0..600 {
        rig.send(0, &tcp(n));
        if n % 100 == 0 {
            let on = (n / 100) % 2 == 0;
            let (now, slot) = (rig.now, rig.ends[0].peer);
            rig.ends[0].express.set_express(now, slot, on, on);
        }
        if n % 30 == 0 {
            rig.run_ms(1);
        }
    }
    rig.run_ms(100);
    let mut seen = numbers(&rig.ends[1].guest.0);
    seen.sort_unstable();
    assert_eq!(seen, (0..600).collect::<Vec<_>>());
    let t = rig.traffic(0);
    assert!(t.plain_tx_pkts > 100 && t.srd_tx_pkts > 100, "{t:?}");
}

#[test]
fn a_peer_that_turns_it_off_is_obeyed() {
    let mut rig = Rig::both();
    let now = rig.now;
    rig.ends[1].express.set_enabled(now, false, true);
    rig.run_ms(5);
    assert_eq!(rig.reach(0), Reach::Off);
    rig.ends[1].express.set_enabled(now, true, false);
    rig.run_ms(5);
    assert_eq!(rig.reach(0), Reach::Express { udp: false, tunnels: false });
}

#[test]
fn a_peer_that_restarts_is_met_again_and_flows_go_on() {
    let mut rig = Rig::both();
    for n in 0..50 {
        rig.send(0, &tcp(n));
    }
    rig.run_ms(5);
    rig.epoch += 1;
    rig.ends[1] = stage(1, rig.epoch, rig.now, &settings());
    rig.wire.lose_all();
    for n in 50..1000 {
        rig.send(0, &tcp(n));
        rig.run_ms(1);
    }
    assert_eq!(rig.reach(0), Reach::Express { udp: true, tunnels: false });
    let seen = numbers(&rig.ends[1].guest.0);
    assert!(seen.len() > 900, "{}", seen.len());
    assert!(seen.contains(&999));
    let t = rig.traffic(1);
    assert!(t.srd_rx_pkts > 800, "{t:?}");
}

#[test]
fn the_busiest_flows_are_listed_with_their_rates() {
    let mut rig = Rig::both();
    rig.ends[0].express.take_rates(Duration::from_secs(1));
    for n in 0..30 {
        rig.send(0, &udp(n, 7));
        if n % 3 == 0 {
            rig.send(0, &udp(n, 8));
        }
    }
    rig.run_ms(5);
    rig.ends[0].express.take_rates(Duration::from_secs(2));
    let listed = rig.ends[0].express.busiest(5);
    let seen: Vec<_> = listed.iter().map(|f| (f.key.ports.0, f.pkts, f.bps)).collect();
    assert_eq!(seen, [(7, 30, 30 * 32 * 8 / 2), (8, 10, 10 * 32 * 8 / 2)]);
    assert!(listed.iter().all(|f| f.rides_srd && f.peer == rig.ends[0].peer));
    assert_eq!(rig.ends[0].express.busiest(1).len(), 1);
}

#[test]
fn a_packet_from_an_address_of_no_peer_is_dropped() {
    let mut rig = Rig::both();
    let mut forged = tcp(1);
    forged[15] = 77;
    rig.send(0, &forged);
    rig.run_ms(5);
    assert!(rig.ends[1].guest.0.is_empty());
    assert_eq!(rig.ends[1].express.counters().peer_bad_source, 1);
}

#[test]
fn a_packet_that_fits_no_encapsulation_is_answered() {
    let mut rig = Rig::both();
    rig.send(0, &v4(protocol::UDP, (1, 2), &[0; 3000]));
    let answers = &rig.ends[0].guest.0;
    assert_eq!(answers.len(), 1);
    let packet = Packet::read(&answers[0][OFFLOAD_BYTES..]).unwrap();
    assert_eq!(packet.protocol, protocol::ICMP);
    assert_eq!(rig.ends[0].express.counters().guest_too_big, 1);
}

#[test]
fn a_frame_that_is_no_packet_or_for_no_peer_is_counted() {
    let mut rig = Rig::both();
    let mut elsewhere = tcp(1);
    elsewhere[16] = 99;
    rig.send(0, &elsewhere);
    rig.send(0, b"");
    rig.send(0, &[0xff; 60]);
    let counters = rig.ends[0].express.counters();
    assert_eq!((counters.guest_no_peer, counters.guest_malformed), (1, 2));
}

#[test]
fn a_new_connection_is_clamped() {
    let mut rig = Rig::both();
    let mut syn = v4(protocol::TCP, (5, 80), &[2, 4, 0x22, 0xf4]);
    (syn[32], syn[33]) = (0x60, 0x02);
    rig.send(0, &syn);
    rig.run_ms(5);
    let frame = &rig.ends[1].guest.0[0];
    let mss = u16::from_be_bytes([frame[OFFLOAD_BYTES + 42], frame[OFFLOAD_BYTES + 43]]);
    assert_eq!(mss, 1360);
    assert_eq!(rig.ends[0].express.counters().mss_clamped, 1);
}

#[test]
fn a_blocked_peer_keeps_its_frames_within_bounds_and_no_other_peer_waiting() {
    let config = Config { queue_bytes_max: 100_000, ..settings() };
    let mut rig = Rig::new(config, settings());
    rig.run_ms(20);
    // A second peer that never answers.
    let end = &mut rig.ends[0];
    let id = end.endpoint.add_peer(rig.now, known(99)).unwrap();
    let settings = PeerSettings {
        id,
        allowed: vec!["10.0.0.99/32".parse().unwrap()],
        express: true,
        express_udp: true,
    };
    let silent = end.express.add_peer(rig.now, settings);
    let mut lost = v4(protocol::TCP, (7, 7), &[0; 1300]);
    lost[19] = 99;
    for n in 0..300 {
        rig.send(0, &lost);
        rig.send(0, &tcp(n));
        rig.run_ms(1);
    }
    rig.run_ms(20);
    assert_eq!(numbers(&rig.ends[1].guest.0), (0..300).collect::<Vec<_>>());
    let report = rig.ends[0].express.report(silent).unwrap();
    assert!(report.queued_bytes <= 100_000);
    assert!(report.traffic.queue_dropped_full > 0);
}

#[test]
fn flows_beyond_the_table_go_plain_and_arrive() {
    let mut rig = Rig::new(Config { flows_max: 4, ..settings() }, settings());
    rig.run_ms(20);
    for port in 1..=8 {
        rig.send(0, &udp(u32::from(port), port));
    }
    rig.run_ms(5);
    assert_eq!(rig.ends[1].guest.0.len(), 8);
    let (t, counters) = (rig.traffic(0), rig.ends[0].express.counters());
    assert!(counters.flows_full >= 4, "{counters:?}");
    assert_eq!((t.eligible_tx_pkts, t.srd_tx_pkts + t.plain_tx_pkts), (8, 8));
    assert!(rig.ends[0].express.resource_utilization() >= 75);
    // After more than a second of silence, a new flow may replace one of them in the table.
    rig.run_ms(1500);
    rig.send(0, &udp(9, 99));
    rig.run_ms(5);
    assert_eq!(rig.traffic(0).srd_tx_pkts, t.srd_tx_pkts + 1);
}
