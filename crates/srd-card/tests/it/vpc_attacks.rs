//! Attacks of guests and other machines against the rules: packets with hidden headers, and ICMP
//! errors about connections of other guests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crate::lane::*;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Guest};
use srd_proto::Secret;
use srd_proto::time::Instant;
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::object::*;

const MORE: u16 = 0x2000;

fn denies_22() -> Vec<AclEntry> {
    ["0.0.0.0/0", "::/0"]
        .map(|block| AclEntry {
            number: 100,
            egress: false,
            allow: false,
            traffic: Traffic::Tcp(22, 22),
            block: block.parse().unwrap(),
        })
        .to_vec()
}

#[test]
fn regression_a_first_fragment_is_judged_by_its_ports() {
    // A list applies between subnets, so the far end has a subnet of its own.
    let mut world = world(&[], [open(), open(), open()]);
    let near = world.subnets[&SubnetId(1)].clone();
    let mut entries = denies_22();
    entries.extend(world.acls[&AclId(1)].entries.clone());
    world.acls.insert(AclId(2), Acl { name: String::new(), vpc: VpcId(1), entries });
    let far = Subnet {
        ipv4: "10.0.0.11/32".parse().unwrap(),
        ipv6: Some("fd00::b/128".parse().unwrap()),
        acl: AclId(2),
        ..near
    };
    world.subnets.insert(SubnetId(2), far);
    world.enis.get_mut(&EniId(1)).unwrap().subnet = SubnetId(2);
    let mut lab = Lab::new(&world);
    assert_eq!(lab.send(0, &packet((0, 1), TCP, 0, &ports(5, 23))), Some(1));
    assert_eq!(lab.send(0, &packet((0, 1), TCP, 0, &ports(5, 22))), None);
    assert_eq!(lab.send(0, &packet((0, 1), TCP, MORE, &ports(5, 22))), None, "a first fragment");
    assert_eq!(lab.send(0, &packet((0, 1), TCP, MORE, &ports(5, 23))), Some(1));
    assert_eq!(lab.send(0, &packet((0, 1), TCP, 3, &[0; 24])), Some(1), "a later fragment");
    let fragment = |more: u8, rest: &[u8]| [&[TCP, 0, 0, more, 0, 0, 0, 7][..], rest].concat();
    let sent = packet6((0, 1), FRAGMENT, &fragment(1, &ports(5, 22)));
    assert_eq!(lab.send(0, &sent), None, "a first fragment of IPv6");
    let sent = packet6((0, 1), FRAGMENT, &fragment(1, &ports(5, 23)));
    assert_eq!(lab.send(0, &sent), Some(1));

    // A first fragment whose ports are in the second fragment is dropped: ordinary hosts send none,
    // and the rules could not evaluate it.
    for short in [&[][..], &[0, 5, 0]] {
        let before = lab.malformed(0);
        assert_eq!(lab.send(0, &packet((0, 1), TCP, MORE, short)), None);
        assert_eq!(lab.malformed(0), before + 1);
    }
    // Options beyond the end of the first fragment hide the ports as well.
    let hidden = [&[DESTINATION_OPTIONS, 0, 0, 1, 0, 0, 0, 7][..], &[TCP, 200, 0, 0, 0, 0, 0, 0]];
    let before = lab.malformed(0);
    assert_eq!(lab.send(0, &packet6((0, 1), FRAGMENT, &hidden.concat())), None);
    assert_eq!(lab.malformed(0), before + 1);
    // More extension headers than the card reads hide the ports, too.
    for headers in [1, 8, 9, 40] {
        let mut rest = Vec::new();
        for n in 1..=headers {
            let next = if n == headers { TCP } else { DESTINATION_OPTIONS };
            rest.extend_from_slice(&[next, 0, 1, 4, 0, 0, 0, 0]);
        }
        rest.extend_from_slice(&ports(5, 22));
        let sent = packet6((0, 1), DESTINATION_OPTIONS, &rest);
        assert_eq!(lab.send(0, &sent), None, "{headers} headers");
    }
}

/// A guest that sends a fragmented datagram does not thereby open all its ports for answers.
#[test]
fn regression_fragments_do_not_open_other_ports() {
    let only_out = vec![rule(0, true, Traffic::All, "0.0.0.0/0")];
    let mut lab = Lab::new(&world(&[], [only_out, open(), open()]));
    assert_eq!(lab.send(0, &packet((0, 1), UDP, MORE, &ports(53, 7))), Some(1));
    assert_eq!(lab.send(0, &packet((0, 1), UDP, 3, &[1; 24])), Some(1));
    assert_eq!(lab.send(1, &packet((1, 0), UDP, MORE, &ports(7, 53))), Some(0), "its answer");
    assert_eq!(lab.send(1, &packet((1, 0), UDP, 3, &[1; 24])), Some(0));
    assert_eq!(lab.send(1, &packet((1, 0), UDP, MORE, &ports(7, 54))), None, "another port");
    assert_eq!(
        lab.send(1, &packet((1, 0), UDP, 0, &ports(7, 53))),
        Some(0),
        "the same flow, whole"
    );
}

/// T7: an ICMP error passes only if it is for the sender of the packet that it quotes.
#[test]
fn regression_an_error_goes_to_the_sender_of_what_it_quotes() {
    let rules = vec![
        rule(0, true, Traffic::Udp(53, 53), "10.0.0.11/32"),
        rule(1, false, Traffic::Udp(1000, 1000), "10.0.0.11/32"),
    ];
    let mut lab = Lab::new(&world(&[], [rules, open(), open()]));
    let query = packet((0, 1), UDP, 0, &ports(5, 53));
    assert_eq!(lab.send(0, &query), Some(1));
    let asked = packet((1, 0), UDP, 0, &ports(6, 1000));
    assert_eq!(lab.send(1, &asked), Some(0));
    let error = |quoted: &[u8]| [&[3, 3, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    // The guest may send an error to the other end of a connection, and to no other host.
    assert_eq!(lab.send(0, &packet((0, 1), ICMP, 0, &error(&asked))), Some(1));
    assert_eq!(lab.send(0, &packet((0, 2), ICMP, 0, &error(&asked))), None, "to another guest");
    // Any router on the path may send an error to the guest.
    assert_eq!(lab.send(1, &packet((1, 0), ICMP, 0, &error(&query))), Some(0));
    assert_eq!(lab.send(2, &packet((2, 0), ICMP, 0, &error(&query))), Some(0));
    let strange = packet((1, 2), UDP, 0, &ports(5, 53));
    assert_eq!(lab.send(2, &packet((2, 0), ICMP, 0, &error(&strange))), None);
}

/// T7: an error that a guest had sent was a connection of its own, so all errors of the other end
/// passed as its answers.
#[test]
fn regression_errors_of_one_end_admit_no_errors_of_the_other_end() {
    // The flows are not tracked at guest 0, because its rules admit all UDP in both directions.
    let rules = vec![
        rule(0, true, Traffic::All, "0.0.0.0/0"),
        rule(1, false, Traffic::Udp(0, 65_535), "0.0.0.0/0"),
    ];
    let mut lab = Lab::new(&world(&[], [rules, open(), open()]));
    let error = |quoted: &[u8]| [&[3, 3, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    let asked = packet((1, 0), UDP, 0, &ports(6, 1000));
    assert_eq!(lab.send(1, &asked), Some(0));
    assert_eq!(lab.send(0, &packet((0, 1), ICMP, 0, &error(&asked))), Some(1));
    let query = packet((0, 1), UDP, 0, &ports(5, 53));
    assert_eq!(lab.send(0, &query), Some(1));
    assert_eq!(lab.send(1, &packet((1, 0), ICMP, 0, &error(&query))), None, "no rule admits it");
}

/// V4: if the rules change while a packet waits for a limit, the new rules of the sender and of the
/// receiver evaluate the packet at the end of its wait.
#[test]
fn a_packet_that_waits_is_judged_by_the_rules_at_the_end_of_its_wait() {
    let narrow = |side: usize, egress: bool| {
        let mut groups = [open(), open(), open()];
        groups[side].retain(|rule| rule.egress != egress);
        groups
    };
    for (changed, slow) in [(narrow(0, true), 0), (narrow(1, false), 1), (narrow(0, true), 1)] {
        let compile = |groups| Arc::new(Rules::compile(&world(&[], groups), HOST));
        let mut card = Card::new(HOST, compile([open(), open(), open()]), Secret::known(7));
        let mut ports = Vec::new();
        for n in 0..3 {
            let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
            let rate = if n == slow { 1000 } else { 1 << 40 };
            let profile = profile.with_packets_per_second(rate);
            let guest = Guest { eni: EniId(n), timeouts: Timeouts::DEFAULT };
            ports.extend(card.add_instance(Instant::ZERO, &profile, &[guest]));
        }
        let mut seen = Delivered::default();
        let frame = || {
            let mut transport = [0; 20];
            (transport[1], transport[3], transport[12], transport[13]) = (9, 80, 0x50, 16);
            let mut frame = vec![0; OFFLOAD_BYTES];
            frame.extend_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
            frame.extend_from_slice(&v4(10).octets());
            frame.extend_from_slice(&v4(11).octets());
            frame.extend_from_slice(&transport);
            frame
        };
        for _ in 0..5 {
            card.from_guest(Instant::ZERO, ports[0], frame(), &mut seen);
        }
        let before = seen.0.len();
        assert!((1..5).contains(&before), "{before} of 5 passed at once");
        card.set_rules(compile(changed));
        let later = Instant::ZERO + srd_proto::time::Duration::from_secs(1);
        card.poll(later, &mut seen);
        assert_eq!(card.poll_timeout(), None, "nothing waits any more");
        assert_eq!(seen.0.len(), before, "a packet passed by the old rules");
        card.set_rules(compile([open(), open(), open()]));
        card.from_guest(later, ports[0], frame(), &mut seen);
        assert_eq!(seen.0.len(), before + 1);
    }
}
