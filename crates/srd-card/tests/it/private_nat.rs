//! A private NAT gateway in front of a peered cloud, with both ends on one host, and on two hosts.
//! Interfaces behind the gateway can open connections, and the other end cannot. The network ACLs
//! of the gateway's subnet apply to answers.
#![allow(clippy::unwrap_used)]

use crate::lane::{self, open, rule};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Cause, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::{Origin, Reason, Service, Verdict, connection};
use srd_vpc::object::*;
use srd_vpc::packet::{Inner, Packet};
use std::net::Ipv4Addr;
use std::sync::Arc;

pub(crate) const APP: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 10);
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(10, 1, 1, 10);
pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;
pub(crate) const RST: u8 = 4;

pub(crate) fn cloud(
    world: &mut World,
    id: u64,
    block: &str,
    subnets: &[(u64, &str, &str, Target)],
) {
    let name = String::new;
    let vpc = VpcId(id);
    let entries = [false, true].map(|egress| AclEntry {
        number: 100,
        egress,
        allow: true,
        traffic: Traffic::All,
        block: "0.0.0.0/0".parse().unwrap(),
    });
    world.vpcs.insert(
        vpc,
        Vpc {
            name: name(),
            ipv4: vec![block.parse().unwrap()],
            ipv6: Vec::new(),
            main_route_table: RouteTableId(id * 10),
            default_acl: AclId(id * 10),
            default_group: GroupId(id),
            dhcp_options: None,
            dns_support: true,
            dns_hostnames: false,
        },
    );
    let rules = open();
    world.groups.insert(GroupId(id), Group { name: name(), description: name(), vpc, rules });
    for (subnet, block, to, target) in subnets {
        let destination = Destination::Block(to.parse().unwrap());
        let routes = vec![Route { destination, target: *target, propagated: false }];
        let table = RouteTable { name: name(), vpc, routes };
        world.route_tables.insert(RouteTableId(*subnet), table);
        let acl = Acl { name: name(), vpc, entries: entries.to_vec() };
        world.acls.insert(AclId(*subnet), acl);
        let subnet_of = Subnet {
            name: name(),
            vpc,
            zone: "a".into(),
            ipv4: block.parse().unwrap(),
            ipv6: None,
            route_table: Some(RouteTableId(*subnet)),
            acl: AclId(*subnet),
            map_public_ip: false,
        };
        world.subnets.insert(SubnetId(*subnet), subnet_of);
    }
}

pub(crate) fn interface(world: &mut World, id: u64, subnet: u64, at: Ipv4Addr, host: &str) {
    let group = GroupId(world.subnets[&SubnetId(subnet)].vpc.0);
    lane::interface(world, id, (SubnetId(subnet), group), (at, Vec::new()), host);
}

/// Two clouds that are peered. The far cloud has a route back to the gateway's subnet only, and its
/// rules admit only the gateway's address. `hosts` are the hosts of the two interfaces.
pub(crate) fn world(hosts: [&str; 2]) -> World {
    let mut world = World::default();
    let (nat, peering) = (NatGatewayId(1), PeeringId(1));
    let to = |target| ("10.1.0.0/16", target);
    let (app, out) = (to(Target::NatGateway(nat)), to(Target::Peering(peering)));
    let near = [(11, "10.0.1.0/24", app.0, app.1), (12, "10.0.9.0/24", out.0, out.1)];
    cloud(&mut world, 1, "10.0.0.0/16", &near);
    let back = Target::Peering(peering);
    cloud(&mut world, 2, "10.1.0.0/16", &[(21, "10.1.1.0/24", "10.0.9.0/24", back)]);
    let (requester, accepter, name) = (VpcId(1), VpcId(2), String::new());
    world.peerings.insert(peering, Peering { name, requester, accepter, active: true });
    let gateway =
        NatGateway { name: String::new(), subnet: SubnetId(12), private: GATEWAY, address: None };
    world.nat_gateways.insert(nat, gateway);
    let narrow = rule(7, false, Traffic::Tcp(443, 443), "10.0.9.9/32");
    let everywhere = rule(8, true, Traffic::All, "0.0.0.0/0");
    world.groups.get_mut(&GroupId(2)).unwrap().rules = vec![narrow, everywhere];
    interface(&mut world, 1, 11, APP, hosts[0]);
    interface(&mut world, 2, 21, FAR, hosts[1]);
    world
}

#[derive(Default)]
struct Out {
    guests: Vec<(PortId, Vec<u8>)>,
    hosts: Vec<(Arc<str>, Envelope, Vec<u8>)>,
}

impl Environment for Out {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.guests.push((port, frame));
    }
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        self.hosts.push((Arc::clone(way.host), way.envelope, frame));
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// One card for each host.
pub(crate) struct Lab(pub(crate) Vec<(&'static str, Card)>);

impl Lab {
    pub(crate) fn new(world: &World, names: &[&'static str]) -> Self {
        let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
        let card = |host: &&'static str| {
            let mut card = Card::new(host, Arc::new(Rules::compile(world, host)), Secret::known(7));
            for eni in card.rules().enis().collect::<Vec<_>>() {
                let guest = Guest { eni, timeouts: Timeouts::DEFAULT };
                card.add_instance(Instant::ZERO, &profile, &[guest]);
            }
            (*host, card)
        };
        Self(names.iter().map(card).collect())
    }

    pub(crate) fn card(&mut self, eni: u64) -> (usize, PortId) {
        let mut all = self.0.iter().enumerate();
        all.find_map(|(n, (_, card))| Some((n, card.port_of(EniId(eni))?))).unwrap()
    }

    /// Sends a packet from an interface. Returns the interface that receives it, and the packet as
    /// it arrives; `None` if it does not arrive.
    pub(crate) fn send(
        &mut self,
        seconds: u64,
        eni: u64,
        packet: Vec<u8>,
    ) -> Option<(u64, Vec<u8>)> {
        let now = Instant::ZERO + Duration::from_secs(seconds);
        let frame = [&[0; OFFLOAD_BYTES][..], &packet].concat();
        let (at, port) = self.card(eni);
        let mut out = Out::default();
        self.0[at].1.from_guest(now, port, frame, &mut out);
        let mut place = at;
        if let Some((to, envelope, frame)) = out.hosts.pop() {
            place = self.0.iter().position(|(name, _)| **name == *to).unwrap();
            let from = Arc::from(self.0[at].0);
            self.0[place].1.from_host(now, &from, envelope, frame, &mut out);
        }
        let (port, frame) = out.guests.pop()?;
        Some((self.0[place].1.eni_of(port)?.0, frame[OFFLOAD_BYTES..].to_vec()))
    }

    pub(crate) fn drops(&mut self, eni: u64, cause: Cause) -> u64 {
        let (at, port) = self.card(eni);
        self.0[at].1.drops(port).of(cause)
    }
}

pub(crate) fn tcp(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    ports: (u16, u16),
    flags: u8,
) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    bytes.extend_from_slice(&source.octets());
    bytes.extend_from_slice(&destination.octets());
    bytes.extend_from_slice(&ports.0.to_be_bytes());
    bytes.extend_from_slice(&ports.1.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    bytes
}

fn ends(packet: &[u8]) -> (Ipv4Addr, Ipv4Addr, (u16, u16)) {
    let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    (address(12), address(16), (port(20), port(22)))
}

#[test]
fn regression_connections_by_a_private_gateway_work() {
    for (hosts, names) in [(["one"; 2], &["one"][..]), (["one", "two"], &["one", "two"])] {
        let world = world(hosts);
        let first =
            Packet { source: APP.into(), destination: FAR.into(), inner: Inner::Tcp(40_000, 443) };
        let explained = connection(&world, Origin::Eni(EniId(1)), &first);
        assert!(explained.works(), "{explained:#?}");
        assert_eq!(explained.answer.unwrap().verdict, Verdict::Delivered(EniId(1)));

        let mut lab = Lab::new(&world, names);
        let (at, there) = lab.send(0, 1, tcp(APP, FAR, (40_000, 443), SYN)).unwrap();
        let (source, destination, (port, to)) = ends(&there);
        assert_eq!((at, source, destination, to), (2, GATEWAY, FAR, 443));
        let (at, back) = lab.send(0, 2, tcp(FAR, GATEWAY, (443, port), SYN | ACK)).unwrap();
        assert_eq!((at, ends(&back)), (1, (FAR, APP, (443, 40_000))));
        // The connection continues as long as a gateway keeps it.
        assert!(lab.send(349, 1, tcp(APP, FAR, (40_000, 443), ACK)).is_some());
        assert!(lab.send(698, 2, tcp(FAR, GATEWAY, (443, port), ACK)).is_some());
        let (at, reset) = lab.send(1049, 1, tcp(APP, FAR, (40_000, 443), ACK)).unwrap();
        assert_eq!((at, ends(&reset), reset[33]), (1, (FAR, APP, (443, 40_000)), RST));
        // The far side cannot open a connection, and packets to other ports are no answers.
        for ports in [(443, port), (443, 1), (50_000, 443)] {
            let late = lab.send(1050, 2, tcp(FAR, GATEWAY, ports, SYN));
            assert_eq!(late, None, "{ports:?}");
        }
        assert_eq!(lab.drops(2, Cause::NoNatConnection), 3);
    }
}

/// If the network ACL of the gateway's subnet denies the gateway's port, the answer is dropped, as
/// the output of `explain` predicts.
#[test]
fn regression_lists_of_the_gateways_subnet_judge_answers() {
    let mut world = world(["one"; 2]);
    let acl = world.acls.get_mut(&AclId(12)).unwrap();
    acl.entries.push(AclEntry {
        number: 50,
        egress: false,
        allow: false,
        traffic: Traffic::Tcp(1024, u16::MAX),
        block: "10.1.0.0/16".parse().unwrap(),
    });
    let first =
        Packet { source: APP.into(), destination: FAR.into(), inner: Inner::Tcp(40_000, 443) };
    let explained = connection(&world, Origin::Eni(EniId(1)), &first);
    assert_eq!(explained.answer.unwrap().verdict, Verdict::Dropped(Reason::AclIn));
    let mut lab = Lab::new(&world, &["one"]);
    let (_, there) = lab.send(0, 1, tcp(APP, FAR, (40_000, 443), SYN)).unwrap();
    let (_, _, (port, _)) = ends(&there);
    assert_eq!(lab.send(0, 2, tcp(FAR, GATEWAY, (443, port), SYN | ACK)), None);
    assert_eq!(lab.drops(1, Cause::Rule(Reason::AclIn)), 1);
}

/// Sends a frame from another host straight to the first card. Returns the number of packets that
/// guests receive.
fn from_host(lab: &mut Lab, seconds: u64, host: &str, envelope: Envelope, packet: &[u8]) -> usize {
    let now = Instant::ZERO + Duration::from_secs(seconds);
    let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
    let mut out = Out::default();
    lab.0[0].1.from_host(now, &Arc::from(host), envelope, frame, &mut out);
    out.guests.len()
}

/// Opens a connection of the interface behind the gateway. Returns the port of the gateway.
fn connect(lab: &mut Lab) -> u16 {
    let (_, there) = lab.send(0, 1, tcp(APP, FAR, (40_000, 443), SYN)).unwrap();
    let (_, _, (port, _)) = ends(&there);
    assert!(lab.send(0, 2, tcp(FAR, GATEWAY, (443, port), SYN | ACK)).is_some());
    port
}

/// V6: a host changes no connection of a gateway for an interface of another host. In an earlier
/// version, its packets were refused only after they had prolonged the connection.
#[test]
fn regression_a_host_prolongs_no_connection_of_other_hosts_interfaces() {
    let mut lab = Lab::new(&world(["one", "two"]), &["one", "two"]);
    let port = connect(&mut lab);
    let forged = tcp(FAR, GATEWAY, (443, port), ACK);
    let error = [&[0x45, 0, 0, 68, 0, 0, 0x40, 0, 64, 1, 0, 0][..], &FAR.octets()].concat();
    let quoted = tcp(GATEWAY, FAR, (port, 443), ACK);
    let mut icmp = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
    let sum = srd_card::checksum::of(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = [&error[..], &GATEWAY.octets(), &icmp].concat();
    // The host is not that of the interface, or the interface has not this address.
    for (host, from, packet) in
        [("mallory", 2, &forged), ("mallory", 999, &forged), ("mallory", 2, &error)]
    {
        let envelope = Envelope::ToNat { from: EniId(from), nat: NatGatewayId(1) };
        assert_eq!(from_host(&mut lab, 300, host, envelope, packet), 0);
    }
    assert_eq!(lab.drops(1, Cause::NotItsHost), 3);
    let (at, reset) = lab.send(360, 1, tcp(APP, FAR, (40_000, 443), ACK)).unwrap();
    assert_eq!((at, reset[33]), (1, RST), "silent for more than 350 s");
}

/// A fragment of UDP with this identification, flags and offset.
fn fragment(ends: (Ipv4Addr, Ipv4Addr), id: u16, offset: u16, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap();
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes[4..6].copy_from_slice(&id.to_be_bytes());
    bytes[6..8].copy_from_slice(&offset.to_be_bytes());
    bytes.extend([ends.0.octets(), ends.1.octets()].concat());
    bytes.extend_from_slice(payload);
    bytes
}

/// V6: first fragments of interfaces that do not exist replaced those of other hosts.
#[test]
fn regression_first_fragments_of_no_interface_replace_none() {
    let mut world = world(["one", "two"]);
    world.groups.get_mut(&GroupId(2)).unwrap().rules = open();
    let mut lab = Lab::new(&world, &["one", "two"]);
    let udp = |ports: (u16, u16)| {
        let ports = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        [&ports[..], &[0; 12]].concat()
    };
    let (_, asked) = lab.send(0, 1, fragment((APP, FAR), 1, 0, &udp((40_000, 53)))).unwrap();
    let (_, _, (port, _)) = ends(&asked);
    let answer = |id, offset, bytes: &[u8]| fragment((FAR, GATEWAY), id, offset, bytes);
    let first = answer(7, 0x2000, &udp((53, port)));
    assert_eq!(lab.send(1, 2, first.clone()).map(|(at, _)| at), Some(1));
    for from in 0..2000 {
        let envelope = Envelope::ToNat { from: EniId(1000 + from), nat: NatGatewayId(1) };
        assert_eq!(from_host(&mut lab, 1, "alpha", envelope, &first), 0);
    }
    assert_eq!(lab.send(2, 2, answer(7, 2, &[1; 8])).map(|(at, _)| at), Some(1));
}

/// V4: in an earlier version, packets of a connection passed as long as they came, after their
/// sender behind the gateway had been removed or moved to another host.
#[test]
fn regression_a_connection_by_a_gateway_ends_with_the_interface_behind_it() {
    let world = world(["one", "two"]);
    let removed = |world: &mut World| {
        world.enis.remove(&EniId(1));
        world.instances.remove(&InstanceId(1));
    };
    let moved = |world: &mut World| interface(world, 1, 11, APP, "three");
    let other = |world: &mut World| interface(world, 3, 11, Ipv4Addr::new(10, 0, 1, 11), "three");
    for (change, passes) in
        [(&removed as &dyn Fn(&mut World), false), (&moved, false), (&other, true)]
    {
        let mut lab = Lab::new(&world, &["one", "two"]);
        connect(&mut lab);
        assert!(lab.send(1, 1, tcp(APP, FAR, (40_000, 443), ACK)).is_some());
        let mut later = world.clone();
        change(&mut later);
        lab.0[1].1.set_rules(Arc::new(Rules::compile(&later, "two")));
        let arrives = lab.send(2, 1, tcp(APP, FAR, (40_000, 443), ACK)).is_some();
        assert_eq!(arrives, passes);
        assert_eq!(lab.drops(2, Cause::NotItsHost), u64::from(!passes));
        assert_eq!(lab.send(3, 1, tcp(APP, FAR, (40_000, 443), ACK)).is_some(), passes);
    }
}

/// A segment of TCP with options and data.
fn large(ends: (Ipv4Addr, Ipv4Addr), ports: (u16, u16), flags: u8, bytes: usize) -> Vec<u8> {
    let mut packet = tcp(ends.0, ends.1, ports, flags);
    packet.resize(bytes, 0);
    packet[2..4].copy_from_slice(&u16::try_from(bytes).unwrap().to_be_bytes());
    packet
}

/// A NAT gateway carries packets of up to 8,500 bytes in both directions. (Amazon VPC User Guide,
/// *NAT gateway basics*.)
#[test]
fn regression_packets_over_8500_bytes_do_not_pass_a_gateway() {
    for (hosts, names) in [(["one"; 2], &["one"][..]), (["one", "two"], &["one", "two"])] {
        let mut lab = Lab::new(&world(hosts), names);
        let port = connect(&mut lab);
        let out = |bytes| large((APP, FAR), (40_000, 443), ACK, bytes);
        let back = |bytes| large((FAR, GATEWAY), (443, port), ACK, bytes);
        for (sender, receiver, packet) in [(1, 2, &out as &dyn Fn(usize) -> Vec<u8>), (2, 1, &back)]
        {
            let (at, arrived) = lab.send(1, sender, packet(8500)).unwrap();
            assert_eq!((at, arrived.len()), (receiver, 8500));
            let (at, error) = lab.send(1, sender, packet(8501)).unwrap();
            assert_eq!((at, &error[20..22], &error[26..28]), (sender, &[3, 4][..], &[33, 52][..]));
            assert_eq!(lab.drops(sender, Cause::TooBig), 1);
        }
    }
}

#[test]
fn a_gateway_fragments_large_datagrams_and_lowers_the_mss() {
    let mut world = world(["one"; 2]);
    world.groups.get_mut(&GroupId(2)).unwrap().rules = open();
    let mut lab = Lab::new(&world, &["one"]);
    let udp = [&[0x9c, 0x40, 0, 53, 0x23, 0, 0, 0][..], &[7; 8952]].concat();
    let frame = [&[0; OFFLOAD_BYTES][..], &fragment((APP, FAR), 1, 0, &udp)].concat();
    let (at, port) = lab.card(1);
    let mut out = Out::default();
    lab.0[at].1.from_guest(Instant::ZERO, port, frame, &mut out);
    let lengths: Vec<usize> =
        out.guests.iter().map(|(_, frame)| frame.len() - OFFLOAD_BYTES).collect();
    assert_eq!(lengths, [20 + 8480, 20 + 480]);
    // An MSS of 8,961 bytes, in an option of a SYN.
    let mut syn = large((APP, FAR), (40_000, 443), SYN, 44);
    syn[32] = 0x60;
    syn[40..44].copy_from_slice(&[2, 4, 0x23, 1]);
    let (_, there) = lab.send(0, 1, syn).unwrap();
    assert_eq!(there[40..44], [2, 4, 33, 12], "8,460 bytes");
}
