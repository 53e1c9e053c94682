//! What guests and other machines try against the rules: packets whose headers are hidden, and
//! errors about connections that are not theirs.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Around, Card, Cause, Envelope, Guest, PortId};
use srd_proto::time::Instant;
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::*;

const HOST: &str = "here";
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const DESTINATION_OPTIONS: u8 = 60;
const FRAGMENT: u8 = 44;

#[derive(Default)]
struct Delivered(Vec<(PortId, Vec<u8>)>);

impl Around for Delivered {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.0.push((port, frame));
    }
    fn to_host(&mut self, _: &Arc<str>, _: VpcId, _: Envelope, _: Vec<u8>, _: bool) {}
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

fn v4(n: u8) -> Ipv4Addr {
    [10, 0, 0, n].into()
}

fn v6(n: u8) -> [u8; 16] {
    let mut octets = [0; 16];
    (octets[0], octets[15]) = (0xfd, n);
    octets
}

fn rule(n: u64, egress: bool, traffic: Traffic, block: &str) -> GroupRule {
    let peer = RulePeer::Block(block.parse().unwrap());
    GroupRule { id: GroupRuleId(n), egress, traffic, peer, description: String::new() }
}

/// Three instances of one subnet, whose list has these entries before it allows all; the group
/// `n` is that of the instance `n`.
fn world(entries: &[AclEntry], groups: [Vec<GroupRule>; 3]) -> World {
    let mut world = World::default();
    let (vpc, subnet, acl, table) = (VpcId(1), SubnetId(1), AclId(1), RouteTableId(1));
    let name = String::new;
    let cloud = Vpc {
        name: name(),
        ipv4: vec!["10.0.0.0/8".parse().unwrap()],
        ipv6: vec!["fd00::/56".parse().unwrap()],
        main_route_table: table,
        default_acl: acl,
        default_group: GroupId(0),
        dhcp_options: None,
        dns_support: true,
        dns_hostnames: false,
    };
    world.vpcs.insert(vpc, cloud);
    world.route_tables.insert(table, RouteTable { name: name(), vpc, routes: Vec::new() });
    let mut all = entries.to_vec();
    for block in ["0.0.0.0/0", "::/0"] {
        let block = block.parse().unwrap();
        for egress in [false, true] {
            let traffic = Traffic::All;
            all.push(AclEntry { number: 30_000, egress, allow: true, traffic, block });
        }
    }
    world.acls.insert(acl, Acl { name: name(), vpc, entries: all });
    let lane = Subnet {
        name: name(),
        vpc,
        zone: "a".into(),
        ipv4: "10.0.0.0/8".parse().unwrap(),
        ipv6: Some("fd00::/64".parse().unwrap()),
        route_table: None,
        acl,
        map_public_ip: false,
    };
    world.subnets.insert(subnet, lane);
    for (n, rules) in (0..).zip(groups) {
        let (id, octet) = (u64::from(n), n + 10);
        let group = Group { name: name(), description: name(), vpc, rules };
        world.groups.insert(GroupId(id), group);
        let instance = Instance {
            name: name(),
            instance_type: "c7i.large".into(),
            zone: "a".into(),
            placement: None,
            host: Some(HOST.into()),
        };
        world.instances.insert(InstanceId(id), instance);
        let attachment = Attachment {
            id: AttachmentId(id),
            instance: InstanceId(id),
            device_index: 0,
            express: ExpressSpec::default(),
        };
        let eni = Eni {
            name: name(),
            subnet,
            mac: [2; 6],
            ipv4: vec![v4(octet)],
            ipv6: vec![v6(octet).into()],
            ipv4_prefixes: Vec::new(),
            ipv6_prefixes: Vec::new(),
            groups: vec![GroupId(id)],
            source_dest_check: true,
            attachment: Some(attachment),
            tracking: TrackingSpec::default(),
        };
        world.enis.insert(EniId(id), eni);
    }
    world
}

fn open() -> Vec<GroupRule> {
    let all = |n, egress, block| rule(n, egress, Traffic::All, block);
    vec![
        all(0, false, "0.0.0.0/0"),
        all(1, true, "0.0.0.0/0"),
        all(2, false, "::/0"),
        all(3, true, "::/0"),
    ]
}

struct Lab {
    card: Card,
    ports: Vec<PortId>,
}

impl Lab {
    fn new(world: &World) -> Self {
        let mut card = Card::new(HOST, Arc::new(Rules::compile(world, HOST)), 7);
        let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
        let add = |n| {
            let guest = Guest { eni: EniId(n), timeouts: Timeouts::DEFAULT };
            card.add_instance(Instant::ZERO, &profile, &[guest])[0]
        };
        let ports = (0..3).map(add).collect();
        Self { card, ports }
    }

    /// The guest that a packet of a guest reaches.
    fn send(&mut self, from: usize, packet: &[u8]) -> Option<usize> {
        let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
        let mut around = Delivered::default();
        self.card.from_guest(Instant::ZERO, self.ports[from], frame, &mut around);
        let (port, _) = around.0.first()?;
        self.ports.iter().position(|other| other == port)
    }

    fn malformed(&self, guest: usize) -> u64 {
        self.card.drops(self.ports[guest]).of(Cause::Malformed)
    }
}

/// An IPv4 packet between instances; `fragment` is the word of flags and offset.
fn packet(ends: (u8, u8), protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let mut out = vec![0x45, 0, total[0], total[1], 0, 7, fragment[0], fragment[1], 64];
    out.extend_from_slice(&[protocol, 0, 0]);
    out.extend_from_slice(&v4(ends.0 + 10).octets());
    out.extend_from_slice(&v4(ends.1 + 10).octets());
    out.extend_from_slice(transport);
    out
}

/// An IPv6 packet between instances that begins with these headers.
fn packet6(ends: (u8, u8), next: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    let mut out = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
    out.extend_from_slice(&v6(ends.0 + 10));
    out.extend_from_slice(&v6(ends.1 + 10));
    out.extend_from_slice(rest);
    out
}

fn ports(from: u16, to: u16) -> Vec<u8> {
    let mut out = [from.to_be_bytes(), to.to_be_bytes()].concat();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[0x50, 0x02, 1, 0, 0, 0, 0, 0]);
    out
}

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
    // A list holds between subnets, so the far end has one of its own.
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

    // A first fragment whose ports are in the second: no host makes one, and rules could not judge.
    for short in [&[][..], &[0, 5, 0]] {
        let before = lab.malformed(0);
        assert_eq!(lab.send(0, &packet((0, 1), TCP, MORE, short)), None);
        assert_eq!(lab.malformed(0), before + 1);
    }
    // Options that reach beyond the end of the first fragment hide the ports, too.
    let hidden = [&[DESTINATION_OPTIONS, 0, 0, 1, 0, 0, 0, 7][..], &[TCP, 200, 0, 0, 0, 0, 0, 0]];
    let before = lab.malformed(0);
    assert_eq!(lab.send(0, &packet6((0, 1), FRAGMENT, &hidden.concat())), None);
    assert_eq!(lab.malformed(0), before + 1);
    // And so do more headers than are read.
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

/// A guest that has sent a datagram in fragments has not thereby opened all its ports.
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

/// An ICMP error says that a packet did not arrive, and so goes back to its sender (T7).
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
    // The guest may say so to the other end of a connection, and to nobody else.
    assert_eq!(lab.send(0, &packet((0, 1), ICMP, 0, &error(&asked))), Some(1));
    assert_eq!(lab.send(0, &packet((0, 2), ICMP, 0, &error(&asked))), None, "to another guest");
    // Any router on the way may say so to the guest.
    assert_eq!(lab.send(1, &packet((1, 0), ICMP, 0, &error(&query))), Some(0));
    assert_eq!(lab.send(2, &packet((2, 0), ICMP, 0, &error(&query))), Some(0));
    let strange = packet((1, 2), UDP, 0, &ports(5, 53));
    assert_eq!(lab.send(2, &packet((2, 0), ICMP, 0, &error(&strange))), None);
}

/// V4: packets that wait for a limit are judged by the rules that hold when their wait ends, by
/// those of the sender as by those of the receiver.
#[test]
fn a_packet_that_waits_is_judged_by_the_rules_at_the_end_of_its_wait() {
    let narrow = |side: usize, egress: bool| {
        let mut groups = [open(), open(), open()];
        groups[side].retain(|rule| rule.egress != egress);
        groups
    };
    for (changed, slow) in [(narrow(0, true), 0), (narrow(1, false), 1), (narrow(0, true), 1)] {
        let compile = |groups| Arc::new(Rules::compile(&world(&[], groups), HOST));
        let mut card = Card::new(HOST, compile([open(), open(), open()]), 7);
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
