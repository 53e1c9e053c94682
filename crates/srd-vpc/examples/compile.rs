//! How long it takes to compile and to update the tables of a host: 400 interfaces of a cloud that
//! has 50,000, in a group of 10,000 members that a rule names, beside 1,000 rules.
//!
//! `cargo run --release -p srd-vpc --example compile [INTERFACES]`

use core::net::Ipv4Addr;
use ipnet::{IpNet, Ipv4Net};
use srd_vpc::compile::{Flow, Rules};
use srd_vpc::id::*;
use srd_vpc::object::*;
use srd_vpc::packet::{Inner, Packet};
use std::hint::black_box;
use std::time::Instant;

const OF_HOST: u32 = 400;

fn at(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0100 + n)
}

fn world(interfaces: u32) -> World {
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
            1..=900 => RulePeer::Block(block(n.into()).into()),
            _ => RulePeer::Group(GroupId(2)),
        },
        description: description(),
    };
    for (id, rules) in [(1, (0..=1000).map(rule).collect()), (2, vec![])] {
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
            host: Some(format!("host-{}", n / OF_HOST)),
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
            subnet: SubnetId(1),
            mac: [2; 6],
            ipv4: vec![at(n)],
            ipv6: vec![],
            ipv4_prefixes: vec![],
            ipv6_prefixes: vec![],
            groups: if n % 5 == 0 { vec![GroupId(1), GroupId(2)] } else { vec![GroupId(1)] },
            source_dest_check: true,
            attachment: Some(attachment),
            tracking: TrackingSpec::default(),
        };
        world.enis.insert(EniId(id), eni);
    }
    world
}

fn main() {
    let interfaces = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let old = world(interfaces);
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        black_box(Rules::compile(&old, "host-0"));
        best = best.min(start.elapsed().as_secs_f64());
    }
    let mut rules = Rules::compile(&old, "host-0");
    let [ports, mapping, members] = rules.sizes();
    println!("{interfaces} interfaces, {ports} of the host, {mapping} mapped, {members} members");
    println!("compile: {:.1} ms", best * 1e3);
    let mut new = old.clone();
    let last = EniId(u64::from(interfaces) - 1);
    new.enis.get_mut(&last).expect("an interface").groups.push(GroupId(2));
    let start = Instant::now();
    let change = rules.update(&old, &new);
    println!("update: {:.1} ms, {change:?}", start.elapsed().as_secs_f64() * 1e3);
    let (source, destination) = (at(interfaces - 1).into(), at(0).into());
    let packet = Packet { source, destination, inner: Inner::Tcp(40_000, 1000) };
    let back = Packet { source: destination, destination: source, ..packet };
    let rounds = 1_000_000;
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(rules.receive(EniId(0), black_box(&packet), true, Flow::New)).expect("allowed");
    }
    println!("receive: {:.0} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds));
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(rules.send(EniId(0), black_box(&back), Flow::New)).expect("allowed");
    }
    println!("send: {:.0} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds));
}
