//! Common code of tests: a cloud with three instances in one subnet, a card with these instances,
//! and packets between them.
#![allow(dead_code)] // each test uses a part of it

use std::net::{Ipv4Addr, Ipv6Addr};
#[allow(unused_imports)] // tests inside of the crate have no such prelude
use std::prelude::v1::*;
use std::sync::Arc;
#[allow(unused_imports)]
use std::vec;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Cause, Environment, FrameRoute, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::Instant;
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::*;

pub(crate) const HOST: &str = "here";
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const FRAGMENT: u8 = 44;

#[derive(Default)]
pub(crate) struct Delivered(pub(crate) Vec<(PortId, Vec<u8>)>);

impl Environment for Delivered {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.0.push((port, frame));
    }
    fn to_host(&mut self, _: FrameRoute<'_>, _: Vec<u8>) {}
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

pub(crate) fn v4(n: u8) -> Ipv4Addr {
    [10, 0, 0, n].into()
}

pub(crate) fn v6(n: u8) -> [u8; 16] {
    let mut octets = [0; 16];
    (octets[0], octets[15]) = (0xfd, n);
    octets
}

pub(crate) fn rule(n: u64, egress: bool, traffic: Traffic, block: &str) -> GroupRule {
    let peer = RulePeer::Block(block.parse().unwrap());
    GroupRule { id: GroupRuleId(n), egress, traffic, peer, description: String::new() }
}

/// Adds an instance on a host, with one interface in a subnet and a group. The instance and the
/// interface have the number `id`.
pub(crate) fn interface(
    world: &mut World,
    id: u64,
    (subnet, group): (SubnetId, GroupId),
    (ipv4, ipv6): (Ipv4Addr, Vec<Ipv6Addr>),
    host: &str,
) {
    let name = String::new;
    let instance = Instance {
        name: name(),
        instance_type: "c7i.large".into(),
        zone: "a".into(),
        placement: None,
        host: Some(host.into()),
        pod: None,
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
        ipv4: vec![ipv4],
        ipv6,
        ipv4_prefixes: Vec::new(),
        ipv6_prefixes: Vec::new(),
        groups: vec![group],
        source_dest_check: true,
        attachment: Some(attachment),
        tracking: TrackingSpec::default(),
    };
    world.enis.insert(EniId(id), eni);
}

/// A world with three instances in one subnet. The subnet's network ACL has `entries` before
/// entries that allow all packets. Instance `n` is in security group `n`, whose rules are
/// `groups[n]`.
pub(crate) fn world(entries: &[AclEntry], groups: [Vec<GroupRule>; 3]) -> World {
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
        let (v4, v6) = (v4(octet), vec![v6(octet).into()]);
        interface(&mut world, id, (subnet, GroupId(id)), (v4, v6), HOST);
    }
    world
}

pub(crate) fn open() -> Vec<GroupRule> {
    let all = |n, egress, block| rule(n, egress, Traffic::All, block);
    vec![
        all(0, false, "0.0.0.0/0"),
        all(1, true, "0.0.0.0/0"),
        all(2, false, "::/0"),
        all(3, true, "::/0"),
    ]
}

pub(crate) struct Lab {
    pub(crate) card: Card,
    pub(crate) ports: Vec<PortId>,
}

impl Lab {
    pub(crate) fn new(world: &World) -> Self {
        let mut card = Card::new(HOST, Arc::new(Rules::compile(world, HOST)), Secret::known(7));
        let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
        let add = |n| {
            let guest = Guest { eni: EniId(n), timeouts: Timeouts::DEFAULT };
            card.add_instance(Instant::ZERO, &profile, &[guest])[0]
        };
        let ports = (0..3).map(add).collect();
        Self { card, ports }
    }

    /// Sends a packet from a guest, and returns the guest that receives it; `None` if the packet
    /// does not arrive.
    pub(crate) fn send(&mut self, from: usize, packet: &[u8]) -> Option<usize> {
        let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
        let mut around = Delivered::default();
        self.card.from_guest(Instant::ZERO, self.ports[from], frame, &mut around);
        let (port, _) = around.0.first()?;
        self.ports.iter().position(|other| other == port)
    }

    pub(crate) fn malformed(&self, guest: usize) -> u64 {
        self.card.drops(self.ports[guest]).of(Cause::Malformed)
    }
}

/// Builds an IPv4 packet from instance `ends.0` to instance `ends.1`. `fragment` is the 16-bit
/// field of flags and fragment offset.
pub(crate) fn packet(ends: (u8, u8), protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let mut out = vec![0x45, 0, total[0], total[1], 0, 7, fragment[0], fragment[1], 64];
    out.extend_from_slice(&[protocol, 0, 0]);
    out.extend_from_slice(&v4(ends.0 + 10).octets());
    out.extend_from_slice(&v4(ends.1 + 10).octets());
    out.extend_from_slice(transport);
    out
}

/// Builds an IPv6 packet from instance `ends.0` to instance `ends.1`. `next` is its next header,
/// and `rest` the bytes after the IPv6 header.
pub(crate) fn packet6(ends: (u8, u8), next: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    let mut out = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
    out.extend_from_slice(&v6(ends.0 + 10));
    out.extend_from_slice(&v6(ends.1 + 10));
    out.extend_from_slice(rest);
    out
}

pub(crate) fn ports(from: u16, to: u16) -> Vec<u8> {
    let mut out = [from.to_be_bytes(), to.to_be_bytes()].concat();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[0x50, 0x02, 1, 0, 0, 0, 0, 0]);
    out
}
