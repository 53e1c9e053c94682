//! A cloud that is peered with two clouds of the same addresses. Rules that name a group of one of
//! them admit no packet of the other, and connections with one are closed to the other (V1, V2).
#![allow(clippy::unwrap_used)]

use crate::lane::{open, rule};
use crate::private_nat::{ACK, APP, Lab, RST, SYN, cloud, interface, tcp};
use srd_card::vpc::Cause;
use srd_vpc::id::*;
use srd_vpc::judge::{Origin, Reason, Verdict, judge};
use srd_vpc::object::*;
use srd_vpc::packet::{Inner, Packet};
use std::net::Ipv4Addr;

/// Address of an interface in each of the two peered clouds.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 2, 1, 10);

fn group_rule(egress: bool, group: u64) -> GroupRule {
    let peer = RulePeer::Group(GroupId(group));
    GroupRule { peer, ..rule(70 + group, egress, Traffic::All, "0.0.0.0/0") }
}

/// Cloud 1, peered with clouds 2 and 3, which have the same addresses. Interface 1 is in cloud 1,
/// with these rules; interfaces 2 and 3 are in the clouds of their numbers. Routes of cloud 1 lead
/// to cloud 2.
fn world(rules: Vec<GroupRule>, hosts: [&str; 3]) -> World {
    let mut world = World::default();
    let [near, far] = [1, 2].map(|id| Target::Peering(PeeringId(id)));
    cloud(&mut world, 1, "10.0.0.0/16", &[(11, "10.0.1.0/24", "10.2.0.0/16", near)]);
    cloud(&mut world, 2, "10.2.0.0/16", &[(21, "10.2.1.0/24", "10.0.0.0/16", near)]);
    cloud(&mut world, 3, "10.2.0.0/16", &[(31, "10.2.1.0/24", "10.0.0.0/16", far)]);
    for (id, accepter) in [(1, VpcId(2)), (2, VpcId(3))] {
        let (name, requester) = (String::new(), VpcId(1));
        world.peerings.insert(PeeringId(id), Peering { name, requester, accepter, active: true });
    }
    world.groups.get_mut(&GroupId(1)).unwrap().rules = rules;
    for (id, subnet, address, host) in
        [(1, 11, APP, hosts[0]), (2, 21, PEER, hosts[1]), (3, 31, PEER, hosts[2])]
    {
        interface(&mut world, id, subnet, address, host);
    }
    world
}

const PLACES: [([&str; 3], &[&str]); 2] =
    [(["one"; 3], &["one"]), (["one", "two", "three"], &["one", "two", "three"])];

fn everything_out() -> GroupRule {
    rule(1, true, Traffic::All, "0.0.0.0/0")
}

#[test]
fn regression_a_group_of_one_peer_does_not_admit_another_peer() {
    for (hosts, names) in PLACES {
        let world = world(vec![group_rule(false, 2), everything_out()], hosts);
        let packet =
            Packet { source: PEER.into(), destination: APP.into(), inner: Inner::Tcp(40_000, 22) };
        let verdict = |from| judge(&world, Origin::Eni(EniId(from)), &packet).verdict;
        assert_eq!(verdict(2), Verdict::Delivered(EniId(1)));
        assert_eq!(verdict(3), Verdict::Dropped(Reason::GroupsIn));
        let mut lab = Lab::new(&world, names);
        let mut send = |seconds, from, flags| {
            let sent = lab.send(seconds, from, tcp(PEER, APP, (40_000, 22), flags));
            sent.map(|(to, _)| to)
        };
        assert_eq!((send(0, 3, SYN), send(0, 2, SYN)), (None, Some(1)));
        // The other cloud does not enter the connection either.
        assert_eq!((send(1, 3, ACK), send(1, 2, ACK)), (None, Some(1)));
        assert_eq!(lab.drops(1, Cause::Rule(Reason::GroupsIn)), 2);
    }
}

#[test]
fn regression_a_connection_with_one_peer_is_closed_to_another_peer() {
    for (hosts, names) in PLACES {
        // The interface opens the connection, and its rules admit no other packets.
        let mut lab = Lab::new(&world(vec![everything_out()], hosts), names);
        let mut send = |seconds, from, flags| {
            let packet = match from {
                1 => tcp(APP, PEER, (40_000, 443), flags),
                _ => tcp(PEER, APP, (443, 40_000), flags),
            };
            lab.send(seconds, from, packet).map(|(to, _)| to)
        };
        assert_eq!((send(0, 1, SYN), send(0, 3, SYN | ACK)), (Some(2), None));
        assert_eq!((send(0, 2, SYN | ACK), send(0, 1, ACK)), (Some(1), Some(2)));
        // A reset of the other cloud does not end it.
        assert_eq!((send(1, 3, RST), send(60, 2, ACK)), (None, Some(1)));
    }
}

#[test]
fn a_block_admits_packets_of_both_peers_and_those_of_no_route_open_no_connection() {
    for (hosts, names) in PLACES {
        let block = rule(7, false, Traffic::All, "10.2.0.0/16");
        let mut lab = Lab::new(&world(vec![block, everything_out()], hosts), names);
        let mut send = |from| lab.send(0, from, tcp(PEER, APP, (40_000, 22), SYN)).is_some();
        assert!(send(3));
        let flows = |lab: &mut Lab| {
            let (at, port) = lab.card(1);
            lab.0[at].1.flows(port).0
        };
        assert_eq!(flows(&mut lab), 0, "answers would go to the other peer");
        assert!(lab.send(0, 2, tcp(PEER, APP, (40_000, 22), SYN)).is_some());
        assert_eq!(flows(&mut lab), 1);
    }
}

/// A middlebox of a peered cloud may send with any source, but not with the groups of other clouds.
#[test]
fn regression_a_middlebox_of_a_peer_has_no_groups_of_another_peer() {
    let mut world = world(vec![group_rule(false, 2), everything_out()], ["one"; 3]);
    world.vpcs.get_mut(&VpcId(3)).unwrap().ipv4 = vec!["10.3.0.0/16".parse().unwrap()];
    world.subnets.get_mut(&SubnetId(31)).unwrap().ipv4 = "10.3.1.0/24".parse().unwrap();
    let eni = world.enis.get_mut(&EniId(3)).unwrap();
    (eni.ipv4, eni.source_dest_check) = (vec![Ipv4Addr::new(10, 3, 1, 10)], false);
    let mut lab = Lab::new(&world, &["one"]);
    assert_eq!(lab.send(0, 3, tcp(PEER, APP, (40_000, 22), SYN)), None);
    assert_eq!(lab.drops(1, Cause::Rule(Reason::GroupsIn)), 1);
}

#[test]
fn a_rule_for_outgoing_packets_names_a_group_of_the_cloud_that_routes_lead_to() {
    for (group, arrives) in [(2, true), (3, false)] {
        let mut world = world(vec![group_rule(true, group)], ["one"; 3]);
        world.groups.get_mut(&GroupId(2)).unwrap().rules = open();
        let mut lab = Lab::new(&world, &["one"]);
        let sent = lab.send(0, 1, tcp(APP, PEER, (40_000, 443), SYN));
        assert_eq!(sent.map(|(to, _)| to), arrives.then_some(2));
        assert_eq!(lab.drops(1, Cause::Rule(Reason::GroupsOut)), u64::from(!arrives));
    }
}
