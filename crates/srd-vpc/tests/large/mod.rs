//! A large cloud for tests and measurements.

use core::net::Ipv4Addr;
use ipnet::{IpNet, Ipv4Net};
use srd_vpc::id::*;
use srd_vpc::object::*;

/// Returns the address of the interface with the number `n`.
pub(crate) fn at(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0100 + n)
}

/// Returns the name of the host with the number `n`.
pub(crate) fn host(n: u32) -> String {
    format!("host-{n}")
}

/// Returns a cloud with `interfaces` interfaces, `of_host` on each host, under `rules` rules. Every
/// tenth rule names a group of every fifth interface. On host 0 and on every fiftieth host after
/// it, an interface is in group 3, whose rule names group 4. Group 4 has no member yet.
pub(crate) fn world(interfaces: u32, of_host: u32, rules: u16) -> World {
    let mut world = World::default();
    let everywhere: IpNet = "0.0.0.0/0".parse().expect("a block");
    let (vpc, name, description) = (VpcId(1), String::new, String::new);
    let cloud = Vpc {
        name: name(),
        ipv4: vec![Ipv4Net::new(Ipv4Addr::new(10, 0, 0, 0), 8).expect("a block")],
        ipv6: vec![],
        main_route_table: RouteTableId(1),
        default_acl: AclId(1),
        default_group: GroupId(1),
        dhcp_options: None,
        dns_support: true,
        dns_hostnames: false,
    };
    world.vpcs.insert(vpc, cloud);
    let block = |n: u32| Ipv4Net::new(Ipv4Addr::from(0xac10_0000 + n * 256), 24).expect("a block");
    let route = |n: u32| Route {
        destination: Destination::Block(block(n).into()),
        target: Target::Blackhole,
        propagated: false,
    };
    let table = RouteTable { name: name(), vpc, routes: (0..1000).map(route).collect() };
    world.route_tables.insert(RouteTableId(1), table);
    let entry = |egress| AclEntry {
        number: 100,
        egress,
        allow: true,
        traffic: Traffic::All,
        block: everywhere,
    };
    let entries = vec![entry(false), entry(true)];
    world.acls.insert(AclId(1), Acl { name: name(), vpc, entries });
    let rule = |n: u16| GroupRule {
        id: GroupRuleId(n.into()),
        egress: n == 0,
        traffic: if n == 0 { Traffic::All } else { Traffic::Tcp(n, n) },
        peer: match n {
            0 => RulePeer::Block(everywhere),
            n if n % 10 != 0 => RulePeer::Block(block(n.into()).into()),
            _ => RulePeer::Group(GroupId(2)),
        },
        description: description(),
    };
    let of_four = GroupRule { peer: RulePeer::Group(GroupId(4)), ..rule(1) };
    let rules =
        [(1, (0..=rules).map(rule).collect()), (2, vec![]), (3, vec![of_four]), (4, vec![])];
    for (id, rules) in rules {
        let group = Group { name: name(), description: description(), vpc, rules };
        world.groups.insert(GroupId(id), group);
    }
    let subnet = Subnet {
        name: name(),
        vpc,
        zone: "a".into(),
        ipv4: Ipv4Net::new(Ipv4Addr::new(10, 0, 0, 0), 8).expect("a block"),
        ipv6: None,
        route_table: None,
        acl: AclId(1),
        map_public_ip: false,
    };
    world.subnets.insert(SubnetId(1), subnet);
    for n in 0..interfaces {
        let id = u64::from(n);
        let instance = Instance {
            name: name(),
            instance_type: "c7i.large".into(),
            zone: "a".into(),
            placement: None,
            host: Some(host(n / of_host)),
            pod: None,
        };
        world.instances.insert(InstanceId(id), instance);
        let attachment = Attachment {
            id: AttachmentId(id),
            instance: InstanceId(id),
            device_index: 0,
            express: ExpressSpec::default(),
        };
        let mut groups = vec![GroupId(1)];
        groups.extend((n % 5 == 0).then_some(GroupId(2)));
        groups.extend((n % (50 * of_host) == 0).then_some(GroupId(3)));
        let eni = Eni {
            name: name(),
            subnet: SubnetId(1),
            mac: [2; 6],
            ipv4: vec![at(n)],
            ipv6: vec![],
            ipv4_prefixes: vec![],
            ipv6_prefixes: vec![],
            groups,
            source_dest_check: true,
            attachment: Some(attachment),
            tracking: TrackingSpec::default(),
        };
        world.enis.insert(EniId(id), eni);
    }
    world
}
