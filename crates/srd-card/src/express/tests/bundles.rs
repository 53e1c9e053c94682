//! Frames of clouds outside of SRD: small frames share datagrams, and the frames of each flow keep
//! their order.

use super::cloud::{between, both};
use super::*;
use crate::wire::cloud::TRAILER_BYTES;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Payload bytes of a segment; the last four are its number.
const SEGMENT: usize = 100;

/// Largest number of packets in flight together. If more packets overtook a packet on a slow path,
/// the receiver would drop that packet as too old.
const UNDER_WAY_MAX: u32 = 800;

/// A step of a random test case.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An interface sends packets of one flow.
    Ship(Shipment),
    /// The stage passes frames to the transport, as many as it accepts.
    Pump,
    /// At most this number of batches of packets leave the transport, and the stage passes further
    /// frames to it.
    Leave(u8),
    /// Time passes, and all packets leave.
    Run,
}

#[derive(Clone, Copy, Debug)]
struct Shipment {
    interface: u8,
    /// Number of the receiver among the interfaces to which this interface sends.
    to: u8,
    flow: u8,
    size: Size,
    packets: u8,
}

#[derive(Clone, Copy, Debug)]
enum Size {
    Small(u8),
    Large(u16),
    /// Number of segments of a super-packet.
    Segments(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![
        6 => (0..200_u8).prop_map(Size::Small),
        2 => (700..1300_u16).prop_map(Size::Large),
        1 => (2..20_u8).prop_map(Size::Segments),
    ];
    let ship = (0..3_u8, 0..2_u8, 0..6_u8, size, 1..30_u8);
    let ship = ship.prop_map(|(interface, to, flow, size, packets)| {
        Step::Ship(Shipment { interface, to, flow, size, packets })
    });
    prop_oneof![
        12 => ship,
        4 => Just(Step::Pump),
        4 => (1..20_u8).prop_map(Step::Leave),
        1 => Just(Step::Run),
    ]
}

/// Numbers of the packets of each flow, by interface, receiver and flow.
type Numbers = BTreeMap<(u8, u8, u8), Vec<u32>>;

struct Case {
    rig: Rig,
    next: u32,
    /// Value of `next` at the last time when all packets had arrived.
    arrived: u32,
    sent: Numbers,
}

/// Trailer from an interface to one of its receivers.
fn trailer(interface: u8, to: u8) -> Trailer {
    let mut trailer = between(u64::from(interface) * 16);
    trailer.0[TRAILER_BYTES - 1] += to;
    trailer
}

impl Case {
    fn new() -> Self {
        let mut rig = both();
        rig.wire.path_delay_us = 10;
        Self { rig, next: 0, arrived: 0, sent: Numbers::new() }
    }

    /// Builds the payload of `packets` segments of `bytes` bytes. Each segment ends with its
    /// number, which is recorded as sent.
    fn payload(&mut self, key: (u8, u8, u8), bytes: usize, packets: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        for _ in 0..packets {
            payload.resize(payload.len() + bytes - 4, 7);
            payload.extend_from_slice(&self.next.to_be_bytes());
            self.sent.entry(key).or_default().push(self.next);
            self.next += 1;
        }
        payload
    }

    fn ship(&mut self, shipment: Shipment) {
        let Shipment { interface, to, flow, size, .. } = shipment;
        let key = (interface, to, flow);
        let (offload, payload) = match size {
            Size::Small(bytes) => (None, self.payload(key, 4 + usize::from(bytes), 1)),
            Size::Large(bytes) => (None, self.payload(key, bytes.into(), 1)),
            Size::Segments(count) => {
                let gso = Some((Gso::Udp, u16::try_from(SEGMENT).unwrap()));
                let offload = Offload { gso, checksum: Some((20, 6)), checked: false };
                (Some(offload), self.payload(key, SEGMENT, count.into()))
            }
        };
        let packet = v4(protocol::UDP, (100 + u16::from(flow), 53), &payload);
        let header = offload.unwrap_or_default().write(true, 28);
        let End { express, peer, .. } = &mut self.rig.ends[0];
        let parcel = Parcel {
            to: *peer,
            tenant: 1 + u32::from(interface) / 2,
            interface: interface.into(),
            trailer: trailer(interface, to),
            express: false,
        };
        express.from_cloud(self.rig.now, parcel, [&header[..], &packet].concat());
    }

    fn step(&mut self, step: Step) {
        if self.next - self.arrived > UNDER_WAY_MAX {
            self.run();
        }
        match step {
            Step::Ship(shipment) => (0..shipment.packets).for_each(|_| self.ship(shipment)),
            Step::Pump => self.rig.hand_over(),
            Step::Leave(batches) => {
                let mut buf = TransmitBuf::new(64, 65_000);
                (0..batches).for_each(|_| {
                    self.rig.carry(0, &mut buf);
                });
                self.rig.hand_over();
            }
            Step::Run => self.run(),
        }
    }

    fn run(&mut self) {
        self.rig.run_ms(1);
        self.arrived = self.next;
    }

    /// Waits until all packets arrive, and returns their numbers in order of arrival.
    fn arrived(&mut self) -> Numbers {
        self.rig.run_ms(50);
        let mut arrived = Numbers::new();
        for (_, of, frame, by_srd) in &self.rig.ends[1].instances.0 {
            assert!(!by_srd);
            let (interface, to) = (of.0[11] / 16, of.0[TRAILER_BYTES - 1] % 16 - 1);
            assert_eq!(*of, trailer(interface, to));
            let packet = Packet::read(&frame[OFFLOAD_BYTES..]).unwrap();
            let flow = u8::try_from(packet.ports.unwrap().0 - 100).unwrap();
            let number = numbers(core::slice::from_ref(frame))[0];
            arrived.entry((interface, to, flow)).or_default().push(number);
        }
        arrived
    }
}

impl Rig {
    /// Passes frames of the first stage to the transport; no packet leaves.
    fn hand_over(&mut self) {
        let End { express, endpoint, .. } = &mut self.ends[0];
        express.pump(self.now, endpoint);
    }

    /// Returns the paths of the packets in flight, as source ports.
    fn paths(&self) -> BTreeSet<u16> {
        self.wire.sources().map(|source| source.port()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// C5, C6: all packets arrive, and those of one flow in order, although paths differ in delay.
    #[test]
    fn plain_packets_of_each_flow_arrive_in_their_order_whatever_waits(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut case = Case::new();
        steps.into_iter().for_each(|step| case.step(step));
        let arrived = case.arrived();
        for (flow, sent) in &case.sent {
            let came = arrived.get(flow).map_or(&[][..], Vec::as_slice);
            let same = came.iter().zip(sent).take_while(|(came, sent)| came == sent).count();
            let (came, sent) = (&came[same..], &sent[same..]);
            let next = [came, sent].map(|of| &of[..of.len().min(5)]);
            prop_assert!(came == sent, "{flow:?}: {next:?}, {} of {}", came.len(), sent.len());
        }
        let (sent, received) = (case.rig.traffic(0), case.rig.traffic(1));
        prop_assert_eq!(sent.plain_tx_pkts, u64::from(case.next));
        prop_assert_eq!(received.plain_rx_pkts, sent.plain_tx_pkts);
        let drops = case.rig.ends[0].express.counters().drops();
        prop_assert_eq!(drops.map(|(_, n)| n).sum::<u64>(), 0);
    }
}

/// C6: a packet does not wait for further packets.
#[test]
fn a_plain_packet_by_itself_leaves_at_once() {
    let mut rig = both();
    for n in 0..3 {
        rig.ship_packet(1, false, &udp(n, 7));
        let before = rig.ends[0].endpoint.stats().unreliable_tx_pkts;
        rig.drain();
        assert_eq!(rig.ends[0].endpoint.stats().unreliable_tx_pkts - before, 1);
        assert!(!rig.ends[0].express.has_waiting());
    }
}

/// C5: small packets of 64 flows, and then packets of all sizes, use eight paths.
#[test]
fn plain_flows_of_an_interface_take_eight_paths_and_fill_datagrams() {
    let mut rig = both();
    let before = rig.ends[0].endpoint.stats().unreliable_tx_pkts;
    for n in 0..6400 {
        rig.ship_packet(1, false, &udp(n, u16::try_from(n % 64).unwrap()));
    }
    rig.drain();
    assert_eq!(rig.paths().len(), 8);
    // Datagrams of 1,400 bytes, with 21 packets each.
    let datagrams = rig.ends[0].endpoint.stats().unreliable_tx_pkts - before;
    assert!(datagrams <= 6400_u64.div_ceil(20) + 8, "{datagrams}");
    rig.run_ms(5);
    for flow in 0..64 {
        for bytes in [4, 1200] {
            rig.ship_packet(1, false, &v4(protocol::UDP, (flow, 53), &vec![0; bytes]));
        }
    }
    rig.drain();
    assert_eq!(rig.paths().len(), 8);
    rig.run_ms(5);
    // Another interface begins with another path.
    let (mut firsts, all) = (BTreeSet::new(), 20);
    for interface in 0..all {
        rig.ship_packet(100 + interface, false, &udp(0, 7));
        rig.drain();
        firsts.extend(rig.paths());
        rig.run_ms(5);
    }
    assert!(firsts.len() > 8, "{firsts:?}");
}

/// Q1: bulk data of one flow does not delay small packets of other flows.
#[test]
fn small_plain_packets_go_before_bulk_whatever_its_path() {
    let mut rig = both();
    for n in 0..1000_u32 {
        let payload = [&[7; 1000][..], &n.to_be_bytes()].concat();
        rig.ship_packet(1, false, &v4(protocol::UDP, (9, 9), &payload));
    }
    rig.hand_over();
    for port in 0..32 {
        rig.ship_packet(1, false, &udp(port.into(), port));
    }
    rig.run_ms(20);
    let all = &rig.ends[1].instances.0;
    let last = all.iter().rposition(|(_, _, frame, _)| frame.len() < 100).unwrap();
    assert_eq!(all.len(), 1032);
    // The transport has 128 packets of bulk data already; the small packets follow these at once.
    assert!(last < 128 + 32 + 20, "the last small packet is number {last}");
}

/// Q1: a flow with small and large packets, which share the queue of its path, does not delay a
/// new flow.
#[test]
fn a_flow_that_begins_goes_before_a_path_with_large_packets() {
    let mut rig = both();
    for n in 0..400_u32 {
        // The first packet is small: the others follow it.
        let payload = [&vec![7; if n == 0 { 0 } else { 1000 }][..], &n.to_be_bytes()].concat();
        rig.ship_packet(1, false, &v4(protocol::UDP, (9, 9), &payload));
    }
    rig.hand_over();
    for port in 100..132 {
        rig.ship_packet(1, false, &udp(port.into(), port));
    }
    rig.run_ms(20);
    let all = &rig.ends[1].instances.0;
    let port = |frame: &Vec<u8>| Packet::read(&frame[OFFLOAD_BYTES..]).unwrap().ports.unwrap().0;
    let of_others = all.iter().enumerate().filter(|(_, (_, _, frame, _))| port(frame) != 9);
    let behind = of_others.filter(|(at, _)| *at > 128 + 32 + 20).count();
    // A flow with the same bit as the flow with large packets waits behind it.
    assert!(behind <= 3, "{behind} of 32 packets wait behind bulk");
    assert_eq!(all.len(), 432);
}

/// C7: the order is kept, although a new flow goes before a flow that has used its share.
#[test]
fn a_large_plain_packet_follows_the_small_ones_of_its_flow() {
    let mut rig = both();
    for n in 0..400_u32 {
        let payload = [&vec![7; if n % 100 == 99 { 1200 } else { 600 }][..], &n.to_be_bytes()];
        rig.ship_packet(1, false, &v4(protocol::UDP, (9, 9), &payload.concat()));
    }
    rig.run_ms(20);
    let frames = rig.ends[1].instances.0.iter().map(|(_, _, frame, _)| frame.clone());
    assert_eq!(numbers(&frames.collect::<Vec<_>>()), (0..400).collect::<Vec<_>>());
}

/// G2a: the path MTU became smaller after frames had joined a bundle.
#[test]
fn a_bundle_that_fits_no_datagram_any_more_goes_in_packets_that_fit() {
    let mut rig = both();
    rig.ends[0].express.plain_bytes_max = 8900;
    let large: Vec<u8> = (0..3000_u32).flat_map(u32::to_be_bytes).take(3000).collect();
    for n in 0..20 {
        rig.ship_packet(1, false, &tcp(n));
    }
    rig.ship_packet(1, false, &v4(protocol::TCP, (5, 80), &large));
    rig.ship_packet(1, false, &tcp(20));
    rig.run_ms(5);
    let frames: Vec<_> = rig.ends[1].instances.0.iter().map(|(_, _, frame, _)| frame).collect();
    let (small, parts): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| frame.len() < 100);
    let small: Vec<_> = small.into_iter().cloned().collect();
    assert_eq!(numbers(&small), (0..=20).collect::<Vec<_>>());
    let parts = parts.into_iter().flat_map(|frame| frame[OFFLOAD_BYTES + 40..].to_vec());
    assert_eq!(parts.collect::<Vec<_>>(), large);
    assert_eq!(rig.ends[0].express.counters().send_refused, 0);
}

/// X2: flows without an entry of their own keep their order as well.
#[test]
fn plain_packets_beyond_the_table_of_flows_share_one_queue() {
    let mut rig = Rig::new(Config { flows_max: 4, ..super::cloud::cloud() }, super::cloud::cloud());
    rig.run_ms(20);
    rig.wire.path_delay_us = 10;
    for n in 0..2000 {
        let port = u16::try_from(n / 8 % 4).unwrap();
        rig.ship_packet(1 + n % 8, false, &udp(n, port));
        if n % 400 == 399 {
            rig.run_ms(2);
        }
    }
    let all = rig.ends[1].instances.0.iter();
    let all = numbers(&all.map(|(_, _, frame, _)| frame.clone()).collect::<Vec<_>>());
    for flow in 0..32 {
        let of_one = all.iter().copied().filter(|n| n % 32 == flow);
        assert!(of_one.eq((0..2000).filter(|n| n % 32 == flow)), "flow {flow}");
    }
    let End { express, .. } = &rig.ends[0];
    assert_eq!(express.flow_counts().0, 4);
    assert!(express.counters().flows_full > 1000);
}
