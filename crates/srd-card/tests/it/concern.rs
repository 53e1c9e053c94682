//! After a change of rules, the card evaluates again only the flows that the change may concern.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use crate::lane;
use std::sync::Arc;

use crate::lane::{HOST, Lab, TCP, UDP, open, packet, ports, rule};
use srd_card::vpc::Direct;
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::object::*;

/// Rules of a security group. Port 80 is open for all addresses, so its connections are not
/// tracked. Port 22 is open for members of the third instance's group.
fn server() -> Vec<GroupRule> {
    let mut of_members = rule(1, false, Traffic::Tcp(22, 22), "0.0.0.0/0");
    of_members.peer = RulePeer::Group(GroupId(2));
    vec![
        rule(0, false, Traffic::Tcp(80, 80), "0.0.0.0/0"),
        of_members,
        rule(2, true, Traffic::All, "0.0.0.0/0"),
    ]
}

struct Run {
    lab: Lab,
    world: World,
}

impl Run {
    /// Creates a world in which a fourth interface, on another host, is in the third group.
    fn new() -> Self {
        let mut world = lane::world(&[], [open(), server(), open()]);
        let mut away = world.enis[&EniId(2)].clone();
        away.ipv4 = vec![lane::v4(13)];
        away.ipv6.clear();
        away.attachment.as_mut().unwrap().instance = InstanceId(3);
        world.enis.insert(EniId(3), away);
        let mut instance = world.instances[&InstanceId(2)].clone();
        instance.host = Some("elsewhere".into());
        world.instances.insert(InstanceId(3), instance);
        Self { lab: Lab::new(&world), world }
    }

    fn change(&mut self, change: impl FnOnce(&mut World)) {
        change(&mut self.world);
        self.lab.card.set_rules(Arc::new(Rules::compile(&self.world, HOST)));
    }

    /// Sends a packet from instance `ends.0` to port `to` of instance `ends.1`. Returns the number
    /// of times that the rules evaluated it at the first and at the second instance.
    fn judged(&mut self, ends: (u8, u8), to: u16) -> (u64, u64) {
        let counts = |lab: &Lab| -> Vec<u64> {
            lab.ports.iter().map(|port| lab.card.counts(*port).judged).collect()
        };
        let before = counts(&self.lab);
        self.lab.send(ends.0.into(), &packet(ends, TCP, 0, &ports(5000, to)));
        let after = counts(&self.lab);
        let of = |at: u8| after[usize::from(at)] - before[usize::from(at)];
        (of(ends.0), if ends.1 < 3 { of(ends.1) } else { 0 })
    }

    /// Sends packets of two flows: one is not tracked, the other is tracked at its receiver.
    /// Returns for each the number of times that the rules evaluated it at the sender and at the
    /// receiver.
    fn known(&mut self) -> [(u64, u64); 2] {
        [self.judged((0, 1), 80), self.judged((2, 1), 22)]
    }
}

const NOTHING: [(u64, u64); 2] = [(0, 0); 2];

/// Returns the verdicts of both directions of each flow of an instance: packets that it sends, and
/// packets for it.
fn verdicts(lab: &Lab, instance: usize) -> Vec<[Direct; 2]> {
    let mut flows = Vec::new();
    assert_eq!(lab.card.list_flows(lab.ports[instance], 0, u32::MAX, &mut flows), None);
    flows.iter().map(|flow| [flow.sent, flow.received]).collect()
}

/// The talk NET402 (AWS re:Invent 2024): a direction of a flow is pending until the rules have
/// evaluated its first packet, and complete afterwards. A change of the rules that concerns the
/// flow makes it pending again.
#[test]
fn a_direction_is_pending_until_its_first_packet_and_after_a_change() {
    use Direct::{Complete, Pending};
    let mut run = Run::new();
    let send = |run: &mut Run, ends: (u8, u8), between: (u16, u16)| {
        run.lab.send(ends.0.into(), &packet(ends, TCP, 0, &ports(between.0, between.1)))
    };
    assert!(verdicts(&run.lab, 0).is_empty());
    assert_eq!(send(&mut run, (0, 1), (5000, 80)), Some(1));
    assert_eq!(verdicts(&run.lab, 0), [[Complete, Pending]]);
    assert_eq!(verdicts(&run.lab, 1), [[Pending, Complete]]);
    assert_eq!(send(&mut run, (1, 0), (80, 5000)), Some(0));
    assert_eq!(verdicts(&run.lab, 0), [[Complete; 2]]);
    assert_eq!(verdicts(&run.lab, 1), [[Complete; 2]]);
    run.change(|world| group(world, 0).push(rule(7, false, Traffic::Udp(1, 1), "192.0.2.0/24")));
    assert_eq!(verdicts(&run.lab, 0), [[Pending; 2]]);
    assert_eq!(verdicts(&run.lab, 1), [[Complete; 2]], "the change concerns the other end");
    send(&mut run, (0, 1), (5000, 80));
    assert_eq!(verdicts(&run.lab, 0), [[Complete, Pending]]);
}

/// The rules evaluate the first packet of a tunnel. All other packets of the tunnel pass by its
/// verdict, whatever they carry. A tunnel in UDP has a verdict for each source port.
#[test]
fn a_tunnel_is_judged_once_whatever_it_carries() {
    const GRE: u8 = 47;
    const GENEVE: u16 = 6081;
    let mut lab = Lab::new(&lane::world(&[], [open(), open(), open()]));
    let judged = |lab: &Lab| [0, 1].map(|n| lab.card.counts(lab.ports[n]).judged);
    let inner = |n: u16| [&[0, 0, 8, 0][..], &packet((0, 1), TCP, 0, &ports(n, 443))].concat();
    for n in 0..100 {
        assert_eq!(lab.send(0, &packet((0, 1), GRE, 0, &inner(5000 + n))), Some(1));
        assert_eq!(judged(&lab), [1, 1], "inner flow {n}");
    }
    for n in 0..100_u16 {
        let from = 50_000 + n % 4;
        let mut datagram = [from.to_be_bytes(), GENEVE.to_be_bytes()].concat();
        let bytes = u16::try_from(8 + inner(n).len()).unwrap();
        datagram.extend(bytes.to_be_bytes().into_iter().chain([0; 2]).chain(inner(n)));
        assert_eq!(lab.send(0, &packet((0, 1), UDP, 0, &datagram)), Some(1));
        assert_eq!(judged(&lab), [2 + u64::from(n.min(3)); 2], "inner flow {n}");
    }
}

fn group(world: &mut World, id: u64) -> &mut Vec<GroupRule> {
    &mut world.groups.get_mut(&GroupId(id)).unwrap().rules
}

#[test]
fn a_change_that_concerns_another_interface_has_no_flow_judged_again() {
    let mut run = Run::new();
    assert_eq!(run.known(), [(1, 1); 2]);
    assert_eq!(run.known(), NOTHING);
    // A change of a group that is neither a group of the interfaces nor named in their rules.
    run.change(|world| {
        let spare = Group { rules: open(), ..world.groups[&GroupId(0)].clone() };
        world.groups.insert(GroupId(9), spare);
    });
    assert_eq!(run.known(), NOTHING);
    // A change of the first instance's group. The flow is not tracked there, so only the rules of
    // this instance evaluate it again.
    run.change(|world| group(world, 0).push(rule(7, false, Traffic::Udp(1, 1), "192.0.2.0/24")));
    assert_eq!(run.known(), [(1, 0), (0, 0)]);
    // A change of the third instance's rules; its flow is not tracked there either.
    run.change(|world| group(world, 2).push(rule(7, false, Traffic::Udp(1, 1), "192.0.2.0/24")));
    assert_eq!(run.known(), [(0, 0), (1, 0)]);
    // An interface on another host gets another address.
    run.judged((2, 3), 80);
    run.change(|world| world.enis.get_mut(&EniId(3)).unwrap().groups.clear());
    run.change(|world| world.enis.get_mut(&EniId(3)).unwrap().ipv4 = vec![lane::v4(14)]);
    let [web, shell] = run.known();
    assert_eq!((web.0, shell), (0, (0, 0)), "no way leads there");
}

#[test]
fn a_change_of_a_group_that_rules_name_has_flows_judged_again_that_groups_are_asked_about() {
    let mut run = Run::new();
    run.known();
    // The group loses a member. The receiver's rules name the group, and its web flow is not
    // tracked.
    run.change(|world| world.enis.get_mut(&EniId(3)).unwrap().groups.clear());
    assert_eq!(run.known(), [(0, 1), (0, 0)]);
    // A change of the receiver's own rules.
    run.change(|world| group(world, 1).push(rule(8, false, Traffic::Udp(1, 1), "192.0.2.0/24")));
    assert_eq!(run.known(), [(0, 1), (0, 0)]);
    // The tracked connection continues without its rule; the other flow ends at once.
    run.change(|world| group(world, 1).retain(|rule| rule.egress));
    assert_eq!(run.lab.send(2, &packet((2, 1), TCP, 0, &ports(5000, 22))), Some(1));
    assert_eq!(run.lab.send(0, &packet((0, 1), TCP, 0, &ports(5000, 80))), None);
}

#[test]
fn a_list_or_a_place_that_changes_concerns_tracked_flows_too() {
    let mut run = Run::new();
    run.known();
    let acl = |world: &mut World| world.acls.get_mut(&AclId(1)).unwrap().clone();
    run.change(|world| {
        let mut other = acl(world);
        let block = "192.0.2.0/24".parse().unwrap();
        other.entries.push(AclEntry { number: 5, allow: false, block, ..other.entries[0] });
        world.acls.insert(AclId(1), other);
    });
    assert_eq!(run.known(), [(1, 1); 2]);
    assert_eq!(run.known(), NOTHING);
    // The receiver's address moves to an interface of another host.
    run.change(|world| {
        let taken = world.enis[&EniId(1)].ipv4.clone();
        world.enis.get_mut(&EniId(1)).unwrap().ipv4 = vec![lane::v4(40)];
        world.enis.get_mut(&EniId(3)).unwrap().ipv4 = taken;
    });
    assert_eq!(run.lab.send(2, &packet((2, 1), TCP, 0, &ports(5000, 22))), None);
    let before = run.lab.card.counts(run.lab.ports[0]).tx_packets;
    assert_eq!(run.lab.send(0, &packet((0, 1), TCP, 0, &ports(5000, 80))), None);
    assert_eq!(run.lab.card.counts(run.lab.ports[0]).tx_packets, before + 1, "to the other host");
}

/// Packets that waited because their instance had used up its share of the host's time count in
/// `pps_allowance_exceeded`, and in no other counter.
#[test]
fn packets_that_waited_for_their_share_count_in_packets_a_second_alone() {
    let mut run = Run::new();
    let [quiet, floods, _] = run.lab.ports[..] else { panic!("three") };
    assert_ne!(run.lab.card.tenant_of(quiet), run.lab.card.tenant_of(floods));
    run.lab.card.count_over_share(floods, 32);
    run.lab.card.count_over_share(srd_card::vpc::PortId(99), 32);
    let (allowances, _) = run.lab.card.allowances(floods);
    let moved: Vec<_> = allowances.ethtool(0).into_iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(moved, [("pps_allowance_exceeded", 32)]);
    assert_eq!(run.lab.card.allowances(quiet).0, Default::default());
}
