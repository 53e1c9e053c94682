//! Fragments and rules: a later fragment is what its first one is (T1).
#![allow(clippy::unwrap_used)]

use crate::lane::*;
use srd_card::Direction;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::Cause;
use srd_card::vpc::trace::{Event, Filter};
use srd_proto::time::{Duration, Instant};
use srd_vpc::judge::Reason;
use srd_vpc::object::*;
use srd_vpc::packet::Inner;

const MORE: u16 = 0x2000;
const ICMPV6: u8 = 58;

/// Everything out, and this in, from everywhere.
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

/// The first fragment of a datagram, and two later ones.
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
    // No fragment of a datagram passes whose first one is refused.
    for fragment in datagram(UDP, 2, &ports(9, 5202)) {
        assert_eq!(lab.send(0, &fragment), None);
    }
    assert_eq!(refused(&lab, Cause::Rule(Reason::GroupsIn)), 3, "all for the same reason");
    // Nor one whose first one nobody has seen, and that is counted apart.
    let [_, later, last] = datagram(UDP, 3, &ports(9, 5201));
    assert_eq!((lab.send(0, &later), lab.send(0, &last)), (None, None));
    assert_eq!(refused(&lab, Cause::FirstFragment), 2);
    // Where all ports are admitted, it passes.
    let mut lab = self::lab(Traffic::Udp(0, u16::MAX));
    assert_eq!(lab.send(0, &last), Some(1));
}

/// Fragments that are read together: a later one finds what the first one has said.
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
