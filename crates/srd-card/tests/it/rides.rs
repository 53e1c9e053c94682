//! ENA Express: selection of the packets of an interface that SRD carries to another host, and the
//! counters of these packets.

use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::{Envelope, Environment, FrameRoute, PortId, Ride};
use srd_proto::time::Instant;
use srd_vpc::compile::Rules;
use srd_vpc::express::Plainly;
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::*;

use crate::lane::{self, ICMP, Lab, TCP, UDP, open, packet, ports};

const OFF: ExpressSpec = ExpressSpec { enabled: false, udp: false };
const ON: ExpressSpec = ExpressSpec { enabled: true, udp: false };
const ON_FOR_UDP: ExpressSpec = ExpressSpec { enabled: true, udp: true };
/// Largest packet to the other host outside of SRD, in bytes.
const BYTES_MAX: usize = 1400;
/// Field of flags and fragment offset of a packet that may not be fragmented.
const WHOLE: u16 = 0x4000;

/// Frames for the other host: for each, whether SRD carries it, and the bytes of its packet.
#[derive(Default)]
struct SentFrames(Vec<(bool, usize)>);

impl Environment for SentFrames {
    fn to_guest(&mut self, _: PortId, _: Vec<u8>) {}
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        self.0.push((way.express, frame.len() - OFFLOAD_BYTES));
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// A world with three instances; the second instance is on another host, in this zone. `settings`
/// are the ENA Express settings of the first two. Packets for 192.168.0.0/16 are routed to the
/// second instance, which forwards them.
fn world(settings: [ExpressSpec; 2], zone: &str) -> World {
    let mut world = lane::world(&[], [open(), open(), open()]);
    world.instances.get_mut(&InstanceId(1)).unwrap().host = Some("there".into());
    for (n, express) in (0..).zip(settings) {
        let eni = world.enis.get_mut(&EniId(n)).unwrap();
        eni.attachment.as_mut().unwrap().express = express;
    }
    let destination = Destination::Block("192.168.0.0/16".parse().unwrap());
    let route = Route { destination, target: Target::Eni(EniId(1)), propagated: false };
    let local = Destination::Block("10.0.0.0/8".parse().unwrap());
    let local = Route { destination: local, target: Target::Local, propagated: false };
    world.route_tables.get_mut(&RouteTableId(1)).unwrap().routes = vec![route, local];
    world.enis.get_mut(&EniId(1)).unwrap().source_dest_check = false;
    if zone != "a" {
        let mut other = world.subnets[&SubnetId(1)].clone();
        world.subnets.get_mut(&SubnetId(1)).unwrap().ipv4 = "10.0.0.10/32".parse().unwrap();
        (other.zone, other.ipv4, other.ipv6) = (zone.into(), "10.0.0.11/32".parse().unwrap(), None);
        world.subnets.insert(SubnetId(2), other);
        world.enis.get_mut(&EniId(1)).unwrap().subnet = SubnetId(2);
    }
    world
}

/// Packets over SRD that the card of the receiver refuses do not count as received. In an earlier
/// version they did.
#[test]
fn regression_packets_that_are_refused_do_not_count_as_received_by_srd() {
    let mut lab = Lab::new(&world([ON, ON], "a"));
    let frame = [&[0; OFFLOAD_BYTES][..], &packet((1, 0), TCP, 0, &ports(80, 5000))].concat();
    let envelope = Envelope::Between { from: EniId(1), to: EniId(0) };
    let mut arrive = |host: &str, by_srd: bool| {
        let mut frames = vec![(envelope, frame.clone())];
        lab.card.set_by_srd(by_srd);
        let (now, host) = (Instant::ZERO, Arc::from(host));
        lab.card.from_host_all(now, &host, frames.drain(..), &mut SentFrames::default());
        lab.card.set_by_srd(false);
        let counts = lab.card.counts(lab.ports[0]);
        (counts.express_rx_packets, counts.rx_packets)
    };
    assert_eq!(arrive("there", true), (1, 1));
    assert_eq!(arrive("there", false), (1, 2), "it came plainly");
    assert_eq!(arrive("elsewhere", true), (1, 2), "that host does not have the sender");
}

/// Only packets of another host can have been received over SRD. In an earlier version, packets of
/// this host's guests that continued while such packets arrived counted as well.
#[test]
fn regression_packets_of_this_host_do_not_count_as_received_by_srd() {
    let mut lab = Lab::new(&world([ON, ON], "a"));
    lab.card.set_by_srd(true);
    assert_eq!(lab.send(2, &packet((2, 0), TCP, 0, &ports(80, 5000))), Some(0));
    let counts = lab.card.counts(lab.ports[0]);
    assert_eq!((counts.rx_packets, counts.express_rx_packets), (1, 0));
}

fn udp(bytes: usize, flags: u16) -> Vec<u8> {
    let length = u16::try_from(bytes - 20).unwrap();
    let mut datagram = [5000_u16.to_be_bytes(), 7_u16.to_be_bytes()].concat();
    datagram.extend(length.to_be_bytes());
    datagram.resize(bytes - 20, 0);
    packet((0, 1), UDP, flags, &datagram)
}

fn tcp() -> Vec<u8> {
    let mut segment = ports(5000, 80);
    segment[13] = 0x10;
    packet((0, 1), TCP, 0, &segment)
}

fn ping() -> Vec<u8> {
    packet((0, 1), ICMP, 0, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0])
}

fn to(mut packet: Vec<u8>, at: usize, address: [u8; 4]) -> Vec<u8> {
    packet[at..at + 4].copy_from_slice(&address);
    packet
}

/// Sends a packet of the first instance. Returns the frames that left, the increase of the
/// instance's counters (packets over SRD, eligible packets), and whether SRD carries the flow of
/// the packet.
fn send(lab: &mut Lab, bytes: &[u8]) -> (Vec<(bool, usize)>, [u64; 2], Option<Ride>) {
    let own = lab.ports[0];
    let counts = |lab: &Lab| {
        let counts = lab.card.counts(own);
        [counts.express_tx_packets, counts.express_eligible_packets]
    };
    let before = counts(lab);
    let mut sent = SentFrames::default();
    let frame = [&[0; OFFLOAD_BYTES][..], bytes].concat();
    lab.card.from_guest(Instant::ZERO, own, frame, &mut sent);
    let after = counts(lab);
    let mut flows = Vec::new();
    assert_eq!(lab.card.list_flows(own, 0, u32::MAX, &mut flows), None);
    let flow = flows.into_iter().find(|flow| flow.protocol == bytes[9]);
    let grown = [after[0] - before[0], after[1] - before[1]];
    (sent.0, grown, flow.and_then(|flow| flow.ride))
}

fn lab(world: &World) -> Lab {
    let mut lab = Lab::new(world);
    lab.card.set_host_bytes_max(BYTES_MAX);
    lab
}

#[test]
fn both_interfaces_and_the_protocol_decide() {
    use Plainly::*;
    let all = [
        (ON_FOR_UDP, ON_FOR_UDP, Ok(()), Ok(())),
        (ON, ON_FOR_UDP, Ok(()), Err(SenderUdp)),
        (ON_FOR_UDP, ON, Ok(()), Err(ReceiverUdp)),
        (OFF, ON_FOR_UDP, Err(Sender), Err(Sender)),
        (ON_FOR_UDP, OFF, Err(Receiver), Err(Receiver)),
    ];
    for (own, other, of_tcp, of_udp) in all {
        let mut lab = lab(&world([own, other], "a"));
        for (bytes, ride) in [(tcp(), of_tcp), (udp(100, 0), of_udp), (ping(), Err(Protocol))] {
            // The first packet is evaluated by the rules, the second one has a stored verdict.
            for _ in 0..2 {
                let counted = u64::from(ride.is_ok());
                let sent = vec![(ride.is_ok(), bytes.len())];
                assert_eq!(send(&mut lab, &bytes), (sent, [counted; 2], Some(ride)));
            }
        }
    }
}

/// EC2 User Guide: ENA Express works within a Region, also between its zones.
#[test]
fn zones_make_no_difference() {
    let mut lab = lab(&world([ON, ON], "b"));
    assert_eq!(send(&mut lab, &tcp()), (vec![(true, 40)], [1, 1], Some(Ok(()))));
}

/// EC2 User Guide: ENA Express requires that there is no middlebox on the path.
#[test]
fn what_a_middlebox_forwards_goes_plainly() {
    let plainly = Some(Err(Plainly::Middlebox));
    let mut through = lab(&world([ON, ON], "a"));
    let onward = to(tcp(), 16, [192, 168, 1, 1]);
    assert_eq!(send(&mut through, &onward), (vec![(false, 40)], [0, 0], plainly));

    let mut world = world([ON, ON], "a");
    world.enis.get_mut(&EniId(0)).unwrap().source_dest_check = false;
    let mut from = lab(&world);
    let of_another = to(tcp(), 12, [192, 168, 1, 1]);
    assert_eq!(send(&mut from, &of_another), (vec![(false, 40)], [0, 0], plainly));
    assert_eq!(send(&mut from, &tcp()).1, [1, 1], "its own");
}

/// SRD carries no packets between interfaces of one host, because there is no network between them.
#[test]
fn packets_of_one_host_do_not_ride() {
    let mut world = world([ON, ON], "a");
    world.enis.get_mut(&EniId(2)).unwrap().attachment.as_mut().unwrap().express = ON;
    let (sent, counted, ride) = send(&mut lab(&world), &to(tcp(), 16, [10, 0, 0, 12]));
    assert_eq!((sent, counted, ride), (Vec::new(), [0, 0], Some(Err(Plainly::OneHost))));
}

/// A packet above the MTU of ENA Express is fragmented, or not sent; if it is sent, it counts as
/// eligible.
#[test]
fn packets_above_8900_bytes_are_eligible_and_go_plainly() {
    let mut lab = lab(&world([ON_FOR_UDP, ON_FOR_UDP], "a"));
    assert_eq!(send(&mut lab, &udp(8900, WHOLE)).1, [1, 1]);
    let (sent, counted, _) = send(&mut lab, &udp(8950, 0));
    assert!(sent.len() > 6 && sent.iter().all(|(rides, _)| !rides), "{sent:?}");
    assert!(sent.iter().all(|(_, bytes)| *bytes <= BYTES_MAX), "{sent:?}");
    assert_eq!(counted, [0, 1]);
    let (sent, counted, _) = send(&mut lab, &udp(8950, WHOLE));
    assert_eq!((sent, counted), (Vec::new(), [0, 0]), "its sender is answered");
}

/// A changed setting of ENA Express applies to the next packet of an established flow.
#[test]
fn a_change_of_either_end_reaches_flows_that_are_known() {
    let steps = [[OFF, ON], [ON, ON], [ON, OFF], [ON, ON], [OFF, OFF]];
    let mut lab = lab(&world([ON, ON], "a"));
    assert_eq!(send(&mut lab, &tcp()).1, [1, 1]);
    for settings in steps {
        lab.card.set_rules(Arc::new(Rules::compile(&world(settings, "a"), lane::HOST)));
        let rides = u64::from(settings == [ON, ON]);
        assert_eq!(send(&mut lab, &tcp()).1, [rides; 2], "{settings:?}");
    }
}
