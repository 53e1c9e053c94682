//! The data plane of a virtual private cloud alone: frames of a guest to another guest of the same
//! card, without ports and clocks of a machine.
//!
//! ```sh
//! vpc established FLOWS SECONDS     known flows of 64 bytes, in turns
//! vpc new RULES MEMBERS SECONDS     each packet begins a flow
//! vpc mutation FLOWS SECONDS        known flows, without and with 1,000 changes of rules a second
//! ```
//!
//! One packet passes the sender's half and the receiver's: two look-ups, two instances' limits.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant as WallInstant;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Around, Card, Envelope, Guest, PortId};
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::*;

const HOST: &str = "here";
/// Frames that a device hands over at once.
const TOGETHER: usize = 32;

/// Takes frames back, so that their memory is used again.
#[derive(Default)]
struct Sink {
    delivered: u64,
    frames: Vec<Vec<u8>>,
}

impl Around for Sink {
    fn to_guest(&mut self, _: PortId, frame: Vec<u8>) {
        self.delivered += 1;
        self.frames.push(frame);
    }
    fn to_host(&mut self, _: &Arc<str>, _: VpcId, _: Envelope, frame: Vec<u8>, _: bool) {
        self.frames.push(frame);
    }
    fn to_service(&mut self, _: PortId, _: Service, frame: Vec<u8>) {
        self.frames.push(frame);
    }
}

fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + 256 + n)
}

fn block(text: &str) -> ipnet::IpNet {
    text.parse().expect("a block")
}

/// A cloud of one subnet, two instances of this host, and a group of so many rules: all but the
/// last are for other ports. The last names a group of so many other interfaces and, with `open`,
/// everybody.
fn world(rules: u16, members: u32) -> World {
    let mut world = World::default();
    let (vpc, subnet, acl, table, group) =
        (VpcId(1), SubnetId(1), AclId(1), RouteTableId(1), GroupId(1));
    let cloud = Vpc {
        name: String::new(),
        ipv4: vec!["10.0.0.0/8".parse().expect("a block")],
        ipv6: Vec::new(),
        main_route_table: table,
        default_acl: acl,
        default_group: group,
        dhcp_options: None,
        dns_support: true,
        dns_hostnames: false,
    };
    world.vpcs.insert(vpc, cloud);
    world.route_tables.insert(table, RouteTable { name: String::new(), vpc, routes: Vec::new() });
    let all = |egress| AclEntry {
        number: 100,
        egress,
        allow: true,
        traffic: Traffic::All,
        block: block("0.0.0.0/0"),
    };
    world.acls.insert(acl, Acl { name: String::new(), vpc, entries: vec![all(false), all(true)] });
    let rule = |id: u16, egress, traffic, peer| GroupRule {
        id: GroupRuleId(id.into()),
        egress,
        traffic,
        peer,
        description: String::new(),
    };
    let mut of_group: Vec<GroupRule> = (1..rules)
        .map(|n| rule(n, false, Traffic::Tcp(n, n), RulePeer::Block(block("192.0.2.0/24"))))
        .collect();
    of_group.push(rule(0, false, Traffic::Tcp(2000, 65535), RulePeer::Group(group)));
    of_group.push(rule(0, true, Traffic::All, RulePeer::Block(block("0.0.0.0/0"))));
    let (name, description) = (String::new(), String::new());
    world.groups.insert(group, Group { name, description, vpc, rules: of_group });
    let lane = Subnet {
        name: String::new(),
        vpc,
        zone: "a".into(),
        ipv4: "10.0.0.0/8".parse().expect("a block"),
        ipv6: None,
        route_table: None,
        acl,
        map_public_ip: false,
    };
    world.subnets.insert(subnet, lane);
    for n in 0..members.max(2) {
        let host = if n < 2 { HOST } else { "elsewhere" };
        let instance = Instance {
            name: String::new(),
            instance_type: "c7i.48xlarge".into(),
            zone: "a".into(),
            placement: None,
            host: Some(host.into()),
        };
        world.instances.insert(InstanceId(n.into()), instance);
        let attachment = Attachment {
            id: AttachmentId(n.into()),
            instance: InstanceId(n.into()),
            device_index: 0,
            express: ExpressSpec::default(),
        };
        let eni = Eni {
            name: String::new(),
            subnet,
            mac: [2; 6],
            ipv4: vec![address(n)],
            ipv6: Vec::new(),
            ipv4_prefixes: Vec::new(),
            ipv6_prefixes: Vec::new(),
            groups: vec![group],
            source_dest_check: true,
            attachment: Some(attachment),
            tracking: TrackingSpec::default(),
        };
        world.enis.insert(EniId(n.into()), eni);
    }
    world
}

fn frame(flow: u32) -> Vec<u8> {
    let mut bytes = vec![0; OFFLOAD_BYTES];
    bytes.extend_from_slice(&[0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend_from_slice(&address(0).octets());
    bytes.extend_from_slice(&address(1).octets());
    let ports = [(flow % 60_000) + 1024, 2000 + flow / 60_000];
    for port in ports {
        bytes.extend_from_slice(&u16::try_from(port).unwrap_or(u16::MAX).to_be_bytes());
    }
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(OFFLOAD_BYTES + 64, 0);
    bytes
}

struct Run {
    card: Card,
    sink: Sink,
    now: Instant,
    from: PortId,
}

impl Run {
    fn new(rules: u16, members: u32, allowance: u32) -> Self {
        let rules = Rules::compile(&world(rules, members), HOST);
        let now = Instant::ZERO;
        let mut card = Card::new(HOST, Arc::new(rules), 7);
        let kind = InstanceType::find("c7i.48xlarge").expect("a type");
        let profile =
            Profile::of(kind).with_packets_per_second(1 << 40).with_tracking_allowance(allowance);
        let guest = |n| [Guest { eni: EniId(n), timeouts: Timeouts::DEFAULT }];
        let from = card.add_instance(now, &profile, &guest(0))[0];
        card.add_instance(now, &profile, &guest(1));
        Self { card, sink: Sink::default(), now, from }
    }

    fn send(&mut self, frame: Vec<u8>) {
        self.now += Duration::from_nanos(100);
        self.card.from_guest(self.now, self.from, frame, &mut self.sink);
    }

    /// As a device hands them over: several at once.
    fn send_all(&mut self, frames: &mut Vec<Vec<u8>>) {
        self.now += Duration::from_nanos(100 * frames.len() as u64);
        self.card.from_guest_all(self.now, self.from, frames, &mut self.sink);
    }

    /// A frame of this flow, in the memory of one that was delivered.
    fn of(&mut self, template: &[u8]) -> Vec<u8> {
        let mut frame = self.sink.frames.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(template);
        frame
    }
}

fn established(flows: u32, seconds: u64) {
    let mut run = Run::new(2, 2, flows + 10);
    let frames: Vec<Vec<u8>> = (0..flows).map(frame).collect();
    for template in &frames {
        let frame = run.of(template);
        run.send(frame);
    }
    let judged = run.card.counts(run.from).judged;
    let (began, before) = (WallInstant::now(), run.sink.delivered);
    // Not one after the other: a flow's memory is rarely in the cache.
    let (mut at, mut together) = (0, Vec::new());
    let spent = loop {
        for _ in 0..128 {
            for _ in 0..TOGETHER {
                at = (at + 7919) % frames.len();
                let frame = run.of(&frames[at]);
                together.push(frame);
            }
            run.send_all(&mut together);
        }
        let spent = began.elapsed();
        if spent.as_secs() >= seconds {
            break spent;
        }
    };
    let packets = run.sink.delivered - before;
    let judged = run.card.counts(run.from).judged - judged;
    report(packets, spent.as_secs_f64(), &format!("established, {flows} flows, {judged} judged"));
}

fn new(rules: u16, members: u32, seconds: u64) {
    let (mut packets, mut spent) = (0, 0.0);
    while spent < seconds as f64 {
        let mut run = Run::new(rules, members, 1 << 20);
        let frames: Vec<Vec<u8>> = (0..500_000).map(frame).collect();
        let began = WallInstant::now();
        for frame in frames {
            run.send(frame);
        }
        spent += began.elapsed().as_secs_f64();
        packets += run.sink.delivered;
    }
    report(packets, spent, &format!("new flows, {rules} rules, group of {members}"));
}

/// Each change is another rule that concerns none of the flows; it is compiled before.
fn mutation(flows: u32, seconds: u64) {
    let began = WallInstant::now();
    let other = Arc::new(Rules::compile(&world(3, 2), HOST));
    println!("a host of two interfaces compiles in {} us", began.elapsed().as_micros());
    let both = [Arc::new(Rules::compile(&world(2, 2), HOST)), other];
    let mut run = Run::new(2, 2, flows + 10);
    let frames: Vec<Vec<u8>> = (0..flows).map(frame).collect();
    let mut rates = [0.0; 2];
    for (changes, rate) in rates.iter_mut().enumerate() {
        for template in &frames {
            let frame = run.of(template);
            run.send(frame);
        }
        let (began, before) = (WallInstant::now(), run.sink.delivered);
        let (mut at, mut number, mut longest) = (0, 0_u64, 0);
        while began.elapsed().as_secs() < seconds {
            for _ in 0..256 {
                at = (at + 7919) % frames.len();
                let frame = run.of(&frames[at]);
                run.send(frame);
            }
            if changes == 1 && began.elapsed().as_millis() > u128::from(number) {
                let start = WallInstant::now();
                run.card.set_rules(Arc::clone(&both[usize::from(number % 2 == 0)]));
                longest = start.elapsed().as_nanos().max(longest);
                number += 1;
            }
        }
        let spent = began.elapsed().as_secs_f64();
        *rate = (run.sink.delivered - before) as f64 / spent;
        let changed = if changes == 1 { "with" } else { "without" };
        println!(
            "{flows} flows {changed} changes: {:.2} M packets/s; {number}, longest {longest} ns",
            *rate / 1e6
        );
    }
    println!("with changes / without: {:.2}", rates[1] / rates[0]);
}

fn report(packets: u64, seconds: f64, what: &str) {
    let rate = packets as f64 / seconds;
    println!("{what}: {:.2} M packets/s, {:.0} ns a packet", rate / 1e6, 1e9 / rate);
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u32>().ok());
    match (args.first().map(String::as_str), number(1), number(2), number(3)) {
        (Some("established"), Some(flows), Some(seconds), None) => {
            established(flows.max(1), seconds.into());
        }
        (Some("mutation"), Some(flows), Some(seconds), None) => {
            mutation(flows.max(1), seconds.into());
        }
        (Some("new"), Some(rules), Some(members), Some(seconds)) => {
            new(u16::try_from(rules).unwrap_or(u16::MAX), members, seconds.into());
        }
        _ => {
            eprintln!(
                "usage: vpc established|mutation FLOWS SECONDS | vpc new RULES MEMBERS SECONDS"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
