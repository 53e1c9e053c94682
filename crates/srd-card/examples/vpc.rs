//! Measurements of the data plane of a virtual private cloud, without network interfaces.
//!
//! ```sh
//! vpc established WAY FLOWS SECONDS   known flows of 64 bytes, in turns
//! vpc packets WAY FLOWS PACKETS       the same for a number of packets, to count cache misses
//! vpc alone FLOWS SECONDS             the loop that makes and takes the frames, without a card
//! vpc new WAY RULES MEMBERS SECONDS   each packet begins a flow
//! vpc mutation FLOWS SECONDS          known flows, and 1,000 changes of rules a second
//! vpc workers FLOWS SECONDS           known flows of one card, and of two cards on two threads
//! vpc memory FLOWS                    bytes of a flow, both directions
//! vpc count PACKETS                   packets of known flows, and then of new flows
//! ```
//!
//! `cargo xtask instructions` runs `count` under valgrind, which counts the instructions of the
//! functions below whose names begin with `measured_`.
//!
//! WAY is `out`, to another host, which is one pass of the pipeline: a lookup, and the limits of
//! one instance; or `hairpin`, to a guest of the same card, which is two passes. Time is the CPU
//! time of the thread. Frames are written into memory that was used shortly before, as a device
//! writes them into the processor's cache. So all cache misses are those of the card.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant as WallInstant;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{self, Card, Environment, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::*;

const HOST: &str = "here";
/// Number of frames that a device passes on at once.
const TOGETHER: usize = 32;

/// Clock of the CPU time of this thread. If the kernel does not report the CPU time, the clock
/// shows wall-clock time.
struct Clock(WallInstant);

impl Clock {
    fn new() -> Self {
        Self(WallInstant::now())
    }

    fn seconds(&self) -> f64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let on_core = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
        on_core.map_or_else(|| self.0.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
    }
}

/// Receiver that keeps frames, so that their memory is used again.
#[derive(Default)]
struct Sink {
    passed: u64,
    frames: Vec<Vec<u8>>,
}

impl Environment for Sink {
    fn to_guest(&mut self, _: PortId, frame: Vec<u8>) {
        self.passed += 1;
        self.frames.push(frame);
    }
    fn to_host(&mut self, _: vpc::FrameRoute<'_>, frame: Vec<u8>) {
        self.passed += 1;
        self.frames.push(frame);
    }
    fn to_service(&mut self, _: PortId, _: Service, frame: Vec<u8>) {
        self.frames.push(frame);
    }
}

impl Sink {
    /// Writes the frame of a flow into the memory of a frame that has passed.
    fn frame(&mut self, frames: &Frames, flow: u32) -> Vec<u8> {
        let mut frame = self.frames.pop().unwrap_or_default();
        frames.write(flow, &mut frame);
        frame
    }
}

/// Numbers of flows in turns.
struct Turns {
    flow: u32,
    flows: u32,
}

impl Turns {
    fn new(flows: u32) -> Self {
        Self { flow: 0, flows }
    }
}

impl Iterator for Turns {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.flow += 7919;
        while self.flow >= self.flows {
            self.flow -= self.flows;
        }
        Some(self.flow)
    }
}

fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + 256 + n)
}

fn block(text: &str) -> ipnet::IpNet {
    text.parse().expect("a block")
}

/// A cloud of one subnet, with two instances on this host, one on another host, and a security
/// group with `rules` rules. All rules except the last rule are for ports that the packets do not
/// use. The last rule refers to the group itself, which has `members` members.
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
    for n in 0..members.max(3) {
        let host = if n < 2 { HOST } else { "elsewhere" };
        let instance = Instance {
            name: String::new(),
            instance_type: "c7i.48xlarge".into(),
            zone: "a".into(),
            placement: None,
            host: Some(host.into()),
            pod: None,
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

/// Route of the packets; the value is the number of the receiving interface.
#[derive(Clone, Copy, PartialEq)]
enum PacketRoute {
    Hairpin = 1,
    Out = 2,
}

impl PacketRoute {
    fn of(text: Option<&String>) -> Option<Self> {
        match text?.as_str() {
            "hairpin" => Some(Self::Hairpin),
            "out" => Some(Self::Out),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        if self == Self::Out { "to another host" } else { "hairpin" }
    }
}

/// Offset of the ports in a frame.
const PORTS_AT: usize = OFFLOAD_BYTES + 20;

/// The frames of all flows, which differ in their ports.
struct Frames {
    template: Vec<u8>,
}

impl Frames {
    fn new(way: PacketRoute) -> Self {
        let mut bytes = vec![0; OFFLOAD_BYTES];
        bytes.extend_from_slice(&[0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend_from_slice(&address(0).octets());
        bytes.extend_from_slice(&address(way as u32).octets());
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&[0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        bytes.resize(OFFLOAD_BYTES + 64, 0);
        Self { template: bytes }
    }

    /// Writes the frame of a flow.
    fn write(&self, flow: u32, frame: &mut Vec<u8>) {
        frame.clear();
        frame.extend_from_slice(&self.template);
        let ports = [(flow % 60_000) + 1024, 2000 + flow / 60_000];
        for (at, port) in [PORTS_AT, PORTS_AT + 2].into_iter().zip(ports) {
            let port = u16::try_from(port).unwrap_or(u16::MAX).to_be_bytes();
            frame[at..at + 2].copy_from_slice(&port);
        }
    }
}

struct Run {
    card: Card,
    sink: Sink,
    now: Instant,
    from: PortId,
}

impl Run {
    fn new(world: &World, allowance: u32) -> Self {
        let rules = Rules::compile(world, HOST);
        let now = Instant::ZERO;
        let mut card = Card::new(HOST, Arc::new(rules), Secret::known(7));
        let kind = InstanceType::find("c7i.48xlarge").expect("a type");
        let profile =
            Profile::of(kind).with_packets_per_second(1 << 40).with_tracking_allowance(allowance);
        let guest = |n| [Guest { eni: EniId(n), timeouts: Timeouts::DEFAULT }];
        let from = card.add_instance(now, &profile, &guest(0))[0];
        card.add_instance(now, &profile, &guest(1));
        Self { card, sink: Sink::default(), now, from }
    }

    fn with_flows(way: PacketRoute, flows: u32) -> (Self, Frames) {
        let mut run = Self::new(&world(2, 3), flows + 10);
        let frames = Frames::new(way);
        run.send_each(&frames, flows);
        (run, frames)
    }

    /// Sends several frames at once, as a device does.
    fn send_all(&mut self, frames: &mut Vec<Vec<u8>>) {
        self.now += Duration::from_nanos(100 * frames.len() as u64);
        self.card.from_guest_all(self.now, self.from, frames, &mut self.sink);
    }

    /// Sends a frame of each flow. Returns the number of packets that passed.
    fn send_each(&mut self, frames: &Frames, flows: u32) -> u64 {
        let before = self.sink.passed;
        let mut together = Vec::new();
        for flow in 0..flows {
            together.push(self.sink.frame(frames, flow));
            if together.len() == TOGETHER || flow + 1 == flows {
                self.send_all(&mut together);
            }
        }
        self.sink.passed - before
    }

    /// Sends packets until `until` returns true; it gets the number of packets and the time that
    /// they took, which are also the result. The packets are of all flows in turns, so that the
    /// memory of a flow is rarely in the processor's cache.
    fn pass(
        &mut self,
        (frames, flows): (&Frames, u32),
        mut until: impl FnMut(&mut Self, u64, f64) -> bool,
    ) -> (u64, f64) {
        let (clock, before) = (Clock::new(), self.sink.passed);
        let began = clock.seconds();
        let (mut turns, mut together) = (Turns::new(flows), Vec::new());
        loop {
            for _ in 0..16 {
                together.extend(turns.by_ref().take(TOGETHER).map(|n| self.sink.frame(frames, n)));
                self.send_all(&mut together);
            }
            let (packets, spent) = (self.sink.passed - before, clock.seconds() - began);
            if until(self, packets, spent) {
                return (packets, spent);
            }
        }
    }

    fn judged(&self) -> u64 {
        let ports = [self.from, PortId(1)];
        ports.iter().map(|port| self.card.counts(*port).judged).sum()
    }
}

fn established(way: PacketRoute, flows: u32, seconds: u64) {
    let (mut run, frames) = Run::with_flows(way, flows);
    let before = run.judged();
    let (packets, spent) = run.pass((&frames, flows), |_, _, spent| spent >= seconds as f64);
    let judged = run.judged() - before;
    report(packets, spent, &format!("established, {}, {flows} flows, {judged} judged", way.name()));
}

fn packets(way: PacketRoute, flows: u32, most: u64) {
    let (mut run, frames) = Run::with_flows(way, flows);
    let (packets, spent) = run.pass((&frames, flows), |_, packets, _| packets >= most);
    report(packets, spent, &format!("{packets} packets, {}, {flows} flows", way.name()));
}

/// Measures the loop of the other measurements without a card.
fn alone(flows: u32, seconds: u64) {
    let (frames, mut sink, clock) = (Frames::new(PacketRoute::Out), Sink::default(), Clock::new());
    let (mut turns, mut together, mut packets) = (Turns::new(flows), Vec::new(), 0);
    let began = clock.seconds();
    while clock.seconds() - began < seconds as f64 {
        for _ in 0..16 {
            together.extend(turns.by_ref().take(TOGETHER).map(|n| sink.frame(&frames, n)));
            packets += together.len() as u64;
            sink.frames.append(std::hint::black_box(&mut together));
        }
    }
    report(packets, clock.seconds() - began, "frames without a card");
}

fn new(way: PacketRoute, rules: u16, members: u32, seconds: u64) {
    let (mut packets, mut spent) = (0, 0.0);
    let (world, frames) = (world(rules, members), Frames::new(way));
    while spent < seconds as f64 {
        let mut run = Run::new(&world, 1 << 20);
        let clock = Clock::new();
        let began = clock.seconds();
        packets += run.send_each(&frames, 500_000);
        spent += clock.seconds() - began;
    }
    let what = format!("new flows, {}, {rules} rules, group of {members}", way.name());
    report(packets, spent, &what);
}

/// Names of the objects that change, and change back, a thousand times a second; each is measured.
const CHANGES: [&str; 6] = [
    "nothing",
    "rules of another interface",
    "the place of another interface",
    "rules of both interfaces, for other ports",
    "the list of their subnet, for other addresses",
    "the place of the receiver, seen by another interface",
];

fn changed(change: &str) -> World {
    let mut other = world(2, 4);
    let spare = GroupId(2);
    let group = Group { rules: Vec::new(), ..other.groups[&GroupId(1)].clone() };
    other.groups.insert(spare, group);
    // The fourth interface is on this host, with a group of its own.
    other.instances.get_mut(&InstanceId(3)).expect("it is there").host = Some(HOST.into());
    other.enis.get_mut(&EniId(3)).expect("it is there").groups = vec![spare];
    let one = |id: u64| GroupRule {
        id: GroupRuleId(id),
        egress: false,
        traffic: Traffic::Tcp(7, 7),
        peer: RulePeer::Block(block("192.0.2.0/24")),
        description: String::new(),
    };
    let rules = |world: &mut World, id| {
        world.groups.get_mut(&id).expect("it is there").rules.push(one(99));
    };
    match change {
        "rules of another interface" => rules(&mut other, spare),
        "rules of both interfaces, for other ports" => rules(&mut other, GroupId(1)),
        "the place of another interface" => {
            let eni = other.enis.get_mut(&EniId(3)).expect("it is there");
            eni.ipv4 = vec![address(77)];
        }
        "the list of their subnet, for other addresses" => {
            let acl = other.acls.get_mut(&AclId(1)).expect("it is there");
            let entry = AclEntry { number: 7, block: block("192.0.2.0/24"), ..acl.entries[0] };
            acl.entries.push(entry);
        }
        "the place of the receiver, seen by another interface" => {
            let eni = other.enis.get_mut(&EniId(1)).expect("it is there");
            eni.ipv4.push(address(78));
        }
        _ => {}
    }
    other
}

/// Measures packets of known flows while the rules change. The rules of each change are compiled
/// before the measurement.
fn mutation(flows: u32, seconds: u64) {
    let (mut run, frames) = Run::with_flows(PacketRoute::Hairpin, flows);
    let mut without = 0.0;
    for change in CHANGES {
        let both = ["nothing", change].map(|what| Arc::new(Rules::compile(&changed(what), HOST)));
        run.card.set_rules(both[0].clone());
        run.send_each(&frames, flows);
        let (before, mut number, mut longest) = (run.judged(), 0_u64, 0);
        let (packets, spent) = run.pass((&frames, flows), |run, _, spent| {
            if change != "nothing" && spent * 1000.0 > number as f64 {
                number += 1;
                let rules = both[usize::from(!number.is_multiple_of(2))].clone();
                let start = WallInstant::now();
                run.card.set_rules(rules);
                longest = start.elapsed().as_nanos().max(longest);
            }
            spent >= seconds as f64
        });
        let rate = packets as f64 / spent;
        let judged = 100.0 * (run.judged() - before) as f64 / packets as f64;
        if change == "nothing" {
            without = rate;
        }
        let (rate, ratio) = (rate / 1e6, rate / without);
        println!(
            "{flows} flows, {number} changes of {change}: {rate:.2} M packets/s, {ratio:.2}; \
             {judged:.1} % judged; longest change {} us",
            longest / 1000
        );
    }
}

fn workers(flows: u32, seconds: u64) {
    let one = || {
        let (mut run, frames) = Run::with_flows(PacketRoute::Out, flows);
        move || {
            let (packets, spent) =
                run.pass((&frames, flows), |_, _, spent| spent >= seconds as f64);
            packets as f64 / spent / 1e6
        }
    };
    let alone = one()();
    let threads = [one(), one()].map(std::thread::spawn);
    let both: f64 = threads.into_iter().map(|one| one.join().expect("a worker")).sum();
    println!(
        "{flows} flows of a worker: one {alone:.2} M packets/s, two {both:.2}, {:.2} x",
        both / alone
    );
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn memory(flows: u32) {
    let mut run = Run::new(&world(2, 3), flows);
    let (before, began) = (resident(), WallInstant::now());
    run.send_each(&Frames::new(PacketRoute::Out), flows);
    let (tracked, _) = run.card.flows(run.from);
    let bytes = (resident() - before) as f64 / f64::from(flows);
    println!(
        "{tracked} of {flows} flows are tracked: {bytes:.0} bytes each, {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

/// Number of flows that are known before [`count`] begins.
const KNOWN: u32 = 100;
/// Number of rules of the group in [`count`].
const RULES: u16 = 60;

type Measured = fn(&mut Run, &mut Vec<Vec<u8>>);

/// Passes packets of known flows to the card.
#[inline(never)]
fn measured_known(run: &mut Run, frames: &mut Vec<Vec<u8>>) {
    run.send_all(frames);
}

/// Passes packets to the card, each of which begins a flow.
#[inline(never)]
fn measured_new(run: &mut Run, frames: &mut Vec<Vec<u8>>) {
    // Without this line, the compiler would merge the two functions.
    std::hint::black_box(());
    run.send_all(frames);
}

fn count(packets: u32) {
    let mut run = Run::new(&world(RULES, 3), packets + KNOWN + 10);
    let frames = Frames::new(PacketRoute::Hairpin);
    run.send_each(&frames, KNOWN);
    let parts: [(&str, Measured); 2] = [("known", measured_known), ("new", measured_new)];
    for (name, measured) in parts {
        let (passed, judged) = (run.sink.passed, run.judged());
        for n in 0..packets {
            let flow = if name == "new" { KNOWN + n } else { n % KNOWN };
            let mut frame = vec![run.sink.frame(&frames, flow)];
            measured(&mut run, &mut frame);
        }
        let (passed, judged) = (run.sink.passed - passed, run.judged() - judged);
        println!("{name}: {passed} of {packets} packets passed, {judged} were judged");
    }
}

fn report(packets: u64, seconds: f64, what: &str) {
    let rate = packets as f64 / seconds;
    println!("{what}: {:.2} M packets/s, {:.0} ns a packet", rate / 1e6, 1e9 / rate);
}

fn run(args: &[String]) -> Option<()> {
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u32>().ok());
    match args.first()?.as_str() {
        "established" => {
            established(PacketRoute::of(args.get(1))?, number(2)?.max(1), number(3)?.into())
        }
        "packets" => packets(PacketRoute::of(args.get(1))?, number(2)?.max(1), number(3)?.into()),
        "alone" => alone(number(1)?.max(1), number(2)?.into()),
        "new" => {
            let rules = u16::try_from(number(2)?).ok()?;
            new(PacketRoute::of(args.get(1))?, rules, number(3)?, number(4)?.into());
        }
        "mutation" => mutation(number(1)?.max(1), number(2)?.into()),
        "workers" => workers(number(1)?.max(1), number(2)?.into()),
        "memory" => memory(number(1)?.max(1)),
        "count" => count(number(1)?),
        _ => return None,
    }
    Some(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if run(&args).is_some() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "usage: vpc established out|hairpin FLOWS SECONDS\n       \
         vpc packets out|hairpin FLOWS PACKETS\n       vpc alone FLOWS SECONDS\n       \
         vpc new out|hairpin RULES MEMBERS SECONDS\n       \
         vpc mutation FLOWS SECONDS\n       vpc workers FLOWS SECONDS\n       \
         vpc memory FLOWS\n       vpc count PACKETS"
    );
    ExitCode::from(2)
}
