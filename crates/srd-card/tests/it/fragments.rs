//! Fragments and rules: a later fragment is treated as the first fragment of its datagram (T1).
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crate::lane::*;
use srd_card::Direction;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::trace::{Event, Filter};
use srd_card::vpc::{Card, Cause, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Directory, Rules};
use srd_vpc::id::*;
use srd_vpc::judge::{Reason, Service};
use srd_vpc::object::*;
use srd_vpc::packet::Inner;

const MORE: u16 = 0x2000;
const ICMPV6: u8 = 58;

/// Rules of a security group that admit all outgoing packets, and this incoming traffic from all
/// addresses.
fn admits(traffic: Traffic) -> Vec<GroupRule> {
    vec![
        rule(0, true, Traffic::All, "0.0.0.0/0"),
        rule(1, true, Traffic::All, "::/0"),
        rule(2, false, traffic, "0.0.0.0/0"),
        rule(3, false, traffic, "::/0"),
    ]
}

fn lab(traffic: Traffic) -> Lab {
    Lab::new(&world(&[], [open(), admits(traffic), open()]))
}

/// The first fragment of a datagram, and two later fragments.
fn datagram(protocol: u8, id: u8, first: &[u8]) -> [Vec<u8>; 3] {
    let of = |flags: u16, bytes: &[u8]| {
        let mut packet = packet((0, 1), protocol, flags, bytes);
        packet[5] = id;
        packet
    };
    [of(MORE, first), of(MORE | 3, &[1; 24]), of(6, &[2; 16])]
}

fn datagram6(protocol: u8, id: u8, first: &[u8]) -> [Vec<u8>; 2] {
    let of = |offset: u8, bytes: &[u8]| {
        let header = [protocol, 0, 0, offset, 0, 0, 0, id];
        packet6((0, 1), FRAGMENT, &[&header[..], bytes].concat())
    };
    [of(1, first), of(24, &[1; 16])]
}

fn echo(kind: u8) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 77, 0, 1][..], &[0; 16]].concat()
}

fn refused(lab: &Lab, cause: Cause) -> u64 {
    lab.card.drops(lab.ports[1]).of(cause)
}

#[test]
fn regression_a_rule_for_icmp_admits_a_large_ping() {
    let mut lab = lab(Traffic::Icmp(None, None));
    for fragment in datagram(ICMP, 1, &echo(8)) {
        assert_eq!(lab.send(0, &fragment), Some(1));
    }
    let [.., last] = datagram(ICMP, 2, &echo(8));
    assert_eq!(lab.send(0, &last), Some(1), "all of ICMP is admitted, whatever the first one is");
    // A rule for one type needs the first fragment.
    let mut lab = self::lab(Traffic::Icmp(Some(8), None));
    let [first, later, last] = datagram(ICMP, 1, &echo(8));
    assert_eq!(lab.send(0, &last), None, "out of order");
    assert_eq!(refused(&lab, Cause::FirstFragment), 1);
    assert_eq!([&first, &later, &last].map(|packet| lab.send(0, packet)), [Some(1); 3]);
    let mut lab = self::lab(Traffic::Icmpv6(Some(128), None));
    for fragment in datagram6(ICMPV6, 1, &echo(128)) {
        assert_eq!(lab.send(0, &fragment), Some(1));
    }
}

#[test]
fn regression_a_later_fragment_passes_where_its_first_one_does() {
    let mut lab = lab(Traffic::Udp(5201, 5201));
    for fragment in datagram(UDP, 1, &ports(9, 5201)) {
        assert_eq!(lab.send(0, &fragment), Some(1));
    }
    for fragment in datagram6(UDP, 1, &ports(9, 5201)) {
        assert_eq!(lab.send(0, &fragment), Some(1));
    }
    // If the first fragment is refused, no fragment of the datagram passes.
    for fragment in datagram(UDP, 2, &ports(9, 5202)) {
        assert_eq!(lab.send(0, &fragment), None);
    }
    assert_eq!(refused(&lab, Cause::Rule(Reason::GroupsIn)), 3, "all for the same reason");
    // A later fragment whose first fragment is unknown does not pass either, and is counted under
    // another cause.
    let [_, later, last] = datagram(UDP, 3, &ports(9, 5201));
    assert_eq!((lab.send(0, &later), lab.send(0, &last)), (None, None));
    assert_eq!(refused(&lab, Cause::FirstFragment), 2);
    // If all ports are admitted, the fragment passes.
    let mut lab = self::lab(Traffic::Udp(0, u16::MAX));
    assert_eq!(lab.send(0, &last), Some(1));
}

/// Later fragments of a refused first fragment never pass. In an earlier version, they passed if a
/// connection between the same ports began meanwhile, and changed the state of this connection.
#[test]
fn regression_a_later_fragment_of_a_refused_datagram_joins_no_flow() {
    let mut lab = lab(Traffic::Udp(5201, 5201));
    let [first, later, last] = datagram(UDP, 1, &ports(9, 5202));
    assert_eq!(lab.send(0, &first), None);
    assert_eq!(lab.send(0, &later), None);
    // The receiver begins a connection from that port: answers are admitted.
    assert_eq!(lab.send(1, &packet((1, 0), UDP, 0, &ports(5202, 9))), Some(0));
    let flow = |lab: &Lab| lab.card.flows(lab.ports[1]);
    let before = flow(&lab);
    assert_eq!(lab.send(0, &last), None, "its first one was refused");
    assert_eq!(flow(&lab), before);
    assert_eq!(lab.send(0, &packet((0, 1), UDP, 0, &ports(9, 5202))), Some(1), "an answer");
    // All fragments of a datagram that begins after the connection pass as answers.
    for fragment in datagram(UDP, 2, &ports(9, 5202)) {
        assert_eq!(lab.send(0, &fragment), Some(1));
    }
    // The rules have changed meanwhile.
    let [first, later, _] = datagram(UDP, 3, &ports(9, 7000));
    assert_eq!(lab.send(0, &first), None);
    let world = world(&[], [open(), open(), open()]);
    lab.card.set_rules(Arc::new(Rules::compile(&world, HOST)));
    let counted = refused(&lab, Cause::FirstFragment);
    assert_eq!(lab.send(0, &later), None);
    assert_eq!(refused(&lab, Cause::FirstFragment), counted + 1);
}

/// If the fragments of a datagram are in one batch, later fragments are treated as the first
/// fragment.
#[test]
fn fragments_of_one_batch_are_one_datagram() {
    let mut lab = lab(Traffic::Udp(5201, 5201));
    let frames = datagram(UDP, 1, &ports(9, 5201));
    let mut frames = frames.map(|packet| [&[0; OFFLOAD_BYTES][..], &packet].concat()).to_vec();
    let mut around = Delivered::default();
    lab.card.from_guest_all(Instant::ZERO, lab.ports[0], &mut frames, &mut around);
    assert_eq!(around.0.len(), 3);
    assert!(around.0.iter().all(|(port, _)| *port == lab.ports[1]));
}

#[test]
fn a_first_fragment_is_forgotten_after_its_time() {
    let mut lab = lab(Traffic::Udp(5201, 5201));
    let [first, later, last] = datagram(UDP, 1, &ports(9, 5201));
    let mut send = |seconds, packet: &[u8]| {
        let (mut around, now) =
            (Delivered::default(), Instant::ZERO + Duration::from_secs(seconds));
        let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
        lab.card.from_guest(now, lab.ports[0], frame, &mut around);
        around.0.len()
    };
    assert_eq!((send(0, &first), send(29, &later), send(31, &last)), (1, 1, 0));
    assert_eq!(refused(&lab, Cause::FirstFragment), 1);
}

/// All fragments of an IPv6 datagram name the header that follows the fragment header (RFC 8200,
/// 4.5). If this is an extension header, only the first fragment shows the transport protocol. In
/// an earlier version, the later fragments were taken for packets of another protocol.
#[test]
fn regression_later_fragments_behind_an_extension_header_follow_their_first_one() {
    let of = |id: u8, port: u16| {
        let options = [UDP, 0, 1, 4, 0, 0, 0, 0];
        let head = |offset: u8| [DESTINATION_OPTIONS, 0, 0, offset, 0, 0, 0, id];
        let first = [&head(1)[..], &options, &ports(5, port)].concat();
        let later = [&head(32)[..], &[1; 16]].concat();
        [first, later].map(|rest| packet6((0, 1), FRAGMENT, &rest))
    };
    let mut lab = lab(Traffic::Udp(5000, 5000));
    let [first, later] = of(7, 5000);
    assert_eq!([&first, &later].map(|packet| lab.send(0, packet)), [Some(1); 2]);
    // A refused datagram, and one whose first fragment is unknown, are refused with all fragments,
    // even if a network ACL denies this port only.
    let entry = |number, allow, traffic| AclEntry {
        number,
        egress: false,
        allow,
        traffic,
        block: "::/0".parse().unwrap(),
    };
    let entries = [entry(1, false, Traffic::Udp(5000, 5000)), entry(2, true, Traffic::All)];
    let mut world = world(&[], [open(), open(), open()]);
    let near = world.subnets[&SubnetId(1)].clone();
    let acl = Acl { name: String::new(), vpc: VpcId(1), entries: entries.to_vec() };
    world.acls.insert(AclId(2), acl);
    let far = Subnet { ipv6: Some("fd00::b/128".parse().unwrap()), acl: AclId(2), ..near };
    world.subnets.insert(SubnetId(2), far);
    world.enis.get_mut(&EniId(1)).unwrap().subnet = SubnetId(2);
    let mut lab = Lab::new(&world);
    for fragment in of(8, 5000) {
        assert_eq!(lab.send(0, &fragment), None);
    }
    assert_eq!(refused(&lab, Cause::Rule(Reason::AclIn)), 2);
    let [first, later] = of(9, 5001);
    assert_eq!(lab.send(0, &later), None, "its protocol is unknown");
    assert_eq!(lab.card.drops(lab.ports[0]).of(Cause::FirstFragment), 1);
    assert_eq!([&first, &later].map(|packet| lab.send(0, packet)), [Some(1); 2]);
    assert_eq!(lab.card.flows(lab.ports[1]).0, 0, "the flow is untracked, and of UDP");
}

/// T3: datagrams in fragments are a stream from the second response on. In an earlier version,
/// their flow kept the idle time of a single request, 30 s instead of 180 s.
#[test]
fn regression_fragmented_datagrams_are_a_stream() {
    let only_out = vec![rule(0, true, Traffic::All, "0.0.0.0/0")];
    let mut lab = Lab::new(&world(&[], [only_out, open(), open()]));
    let mut arrives = |seconds, from: usize, packet: &[u8]| {
        let now = Instant::ZERO + Duration::from_secs(seconds);
        let mut around = Delivered::default();
        let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
        lab.card.from_guest(now, lab.ports[from], frame, &mut around);
        around.0.len() == 1
    };
    for seconds in [0, 1] {
        for (from, ends, shown) in [(0, (0, 1), ports(53, 7)), (1, (1, 0), ports(7, 53))] {
            assert!(arrives(seconds, from, &packet(ends, UDP, MORE, &shown)));
            assert!(arrives(seconds, from, &packet(ends, UDP, 3, &[1; 24])));
        }
    }
    let whole = packet((1, 0), UDP, 0, &ports(7, 53));
    assert!(arrives(60, 1, &whole), "within 180 s");
    assert!(!arrives(60 + 181, 1, &whole));
}

#[test]
fn a_trace_shows_a_later_fragment_with_the_ports_of_its_datagram() {
    let mut lab = lab(Traffic::Udp(5201, 5201));
    let id = lab.card.begin_trace(Filter::default(), u32::MAX, 0).unwrap();
    let [first, later, _] = datagram(UDP, 1, &ports(9, 5201));
    assert_eq!((lab.send(0, &first), lab.send(0, &later)), (Some(1), Some(1)));
    let records = lab.card.take_trace(id, usize::MAX, usize::MAX).unwrap().records;
    let arrived: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Arrived(arrived) => Some((arrived.direction, arrived.packet.inner)),
            _ => None,
        })
        .collect();
    let of = |direction| (direction, Inner::Udp(9, 5201));
    let both = [of(Direction::Egress), of(Direction::Ingress)];
    assert_eq!(arrived, [both, both].concat());
}

/// A card with one interface, which receives packets from two interfaces of another host.
struct Far {
    card: Card,
    delivered: usize,
}

impl Far {
    fn new(traffic: Traffic) -> Self {
        let mut world = world(&[], [open(), admits(traffic), open()]);
        for sender in [0, 2] {
            world.instances.get_mut(&InstanceId(sender)).unwrap().host = Some("there".into());
        }
        let mut card = Card::new(HOST, Arc::new(Rules::compile(&world, HOST)), Secret::known(7));
        let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
        let guest = Guest { eni: EniId(1), timeouts: Timeouts::DEFAULT };
        card.add_instance(Instant::ZERO, &profile, &[guest]);
        Self { card, delivered: 0 }
    }

    /// Sends a packet of an interface of the other host. Returns whether it reaches the receiver.
    fn send(&mut self, milliseconds: u64, from: u64, packet: &[u8]) -> bool {
        let now = Instant::ZERO + Duration::from_millis(milliseconds);
        let envelope = Envelope::Between { from: EniId(from), to: EniId(1) };
        let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
        let mut around = Delivered::default();
        self.card.from_host(now, &Arc::from("there"), envelope, frame, &mut around);
        self.delivered += around.0.len();
        !around.0.is_empty()
    }
}

fn with_id(mut packet: Vec<u8>, id: u16) -> Vec<u8> {
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet
}

#[test]
fn regression_fragments_of_one_sender_leave_what_another_one_has_shown() {
    for far_port in [5201, 5202] {
        let mut far = Far::new(Traffic::Udp(5201, 5201));
        let [first, later, last] = datagram(UDP, 1, &ports(9, 5201));
        assert!(far.send(0, 0, &first));
        // Another sender sends many first fragments: first such that pass, then, in the next round,
        // such that are refused.
        let mut other = datagram(UDP, 1, &ports(9, far_port))[0].clone();
        other[12..16].copy_from_slice(&v4(12).octets());
        for id in 0..5000 {
            far.send(1 + u64::from(id), 2, &with_id(other.clone(), id));
        }
        assert_eq!(far.delivered > 1024, far_port == 5201);
        assert!(far.send(5002, 0, &later), "its first fragment is remembered");
        // A fragment with the forged address of another sender.
        let [forged, ..] = datagram(UDP, 1, &ports(9, 5202));
        assert!(!far.send(5003, 2, &forged));
        assert!(far.send(5004, 0, &last), "it is the other sender's");
    }
}

/// V6: a host that may not send for an interface does not replace what is known of refused
/// datagrams.
#[test]
fn regression_fragments_of_a_host_that_may_not_send_them_are_not_remembered() {
    let mut far = Far::new(Traffic::Udp(5201, 5201));
    let [first, later, _] = datagram(UDP, 1, &ports(9, 5202));
    assert!(!far.send(0, 0, &first));
    let port = far.card.port_of(EniId(1)).unwrap();
    for from in 0..2000 {
        let envelope = Envelope::Between { from: EniId(1000 + from), to: EniId(1) };
        let frame = [&[0; OFFLOAD_BYTES][..], &first].concat();
        let (host, mut around) = (Arc::from("alpha"), Delivered::default());
        far.card.from_host(Instant::ZERO, &host, envelope, frame, &mut around);
    }
    assert_eq!(far.card.drops(port).of(Cause::NotItsHost), 2000);
    assert!(!far.send(1, 0, &later));
    let drops = far.card.drops(port);
    assert_eq!(drops.of(Cause::Rule(Reason::GroupsIn)), 2, "as its first fragment");
    assert_eq!(drops.of(Cause::FirstFragment), 0);
}

#[test]
fn the_last_first_fragment_of_an_identification_counts() {
    let mut far = Far::new(Traffic::Udp(5201, 5201));
    let [first, later, last] = datagram(UDP, 1, &ports(9, 5201));
    let [refused, ..] = datagram(UDP, 1, &ports(9, 5202));
    assert!(!far.send(0, 0, &refused) && !far.send(1, 0, &later));
    assert!(far.send(2, 0, &first) && far.send(3, 0, &last));
    // The sender uses the identification again, for a datagram that is refused.
    assert!(!far.send(4, 0, &refused) && !far.send(5, 0, &last));
    let port = far.card.port_of(EniId(1)).unwrap();
    assert_eq!(far.card.drops(port).of(Cause::Rule(Reason::GroupsIn)), 4);
}

/// Later fragments of a datagram wait behind the first fragment until the location of the receiver
/// is known.
#[test]
fn fragments_wait_together_for_an_answer() {
    let mut world = world(&[], [open(), open(), open()]);
    world.groups.get_mut(&GroupId(0)).unwrap().rules =
        vec![rule(0, true, Traffic::Udp(5201, 5201), "0.0.0.0/0")];
    world.instances.get_mut(&InstanceId(1)).unwrap().host = Some("there".into());
    let mut directory = Directory::new(world);
    let mut card = Card::new(HOST, Arc::new(directory.tables(HOST)), Secret::known(1));
    let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
    let guest = Guest { eni: EniId(0), timeouts: Timeouts::DEFAULT };
    let port = card.add_instance(Instant::ZERO, &profile, &[guest])[0];
    let mut around = FrameCount::default();
    for packet in datagram(UDP, 1, &ports(9, 5201)) {
        let frame = [&[0; OFFLOAD_BYTES][..], &packet].concat();
        card.from_guest(Instant::ZERO, port, frame, &mut around);
    }
    let question = card.poll_question().unwrap();
    let answer = directory.answer(HOST, question).unwrap();
    card.learn(Instant::ZERO, answer, &mut around).unwrap();
    assert_eq!((around.0, card.drops(port).total()), (3, 0));
}

/// Number of frames that left for other hosts.
#[derive(Default)]
struct FrameCount(usize);

impl Environment for FrameCount {
    fn to_guest(&mut self, _: PortId, _: Vec<u8>) {}
    fn to_host(&mut self, _: FrameRoute<'_>, _: Vec<u8>) {
        self.0 += 1;
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}
