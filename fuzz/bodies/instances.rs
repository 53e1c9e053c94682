//! Fuzz target of the cloud's data plane: a card receives arbitrary bytes from guests, other hosts
//! and the internet, in the order of the input.
//!
//! Each step of the input is an opcode, a length of two bytes, and as many bytes of data.
//!
//! A second card receives the same input. If the input requests it, a new card replaces the second
//! card and imports its state, and the first card gets its rules again. Both cards must produce the
//! same output, byte for byte.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use srd_card::Direction;
use srd_card::Trailer;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::nat::Nat;
use srd_card::vpc::{
    Card, Envelope, Environment, FrameRoute, Guest, LoggedWindow, PortCounts, PortId,
};
use srd_proto::{Duration, Instant, Secret};
use srd_vpc::compile::{Concern, Rules};
use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::{Exit, Service};
use srd_vpc::object::World;
use srd_vpc_file::parse;

const HOST: &str = "here";
const OTHER: &str = "there";
const EDGE: &str = "edge";
/// Maximum number of steps of one input. More steps would only be slow.
const STEPS_MAX: usize = 256;
const CLOUD: &str = "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n";
const REST: &str = r#"
[internet_gateway.door]
[route_table.all]
routes = ["0.0.0.0/0 to internet_gateway door"]
[route_table.some]
routes = ["0.0.0.0/0 to internet_gateway door", "9.0.0.0/8 to nat_gateway n"]
[acl.open]
ingress = ["100 allow all from 0.0.0.0/0"]
egress = ["100 allow all to 0.0.0.0/0"]
[subnet.s]
cidr = "10.0.0.0/24"
route_table = "some"
acl = "open"
[subnet.n]
cidr = "10.0.1.0/24"
route_table = "all"
acl = "open"
[nat_gateway.n]
subnet = "n"
private = "10.0.1.5"
elastic_address = "n"
[elastic_address.n]
public = "198.51.100.9"
[group.g]
ingress = ["tcp 80 from 0.0.0.0/0", "udp 53 from 10.0.0.0/16", "icmp from 0.0.0.0/0"]
egress = ["all to 0.0.0.0/0"]
[group.shut]
ingress = ["tcp 81 from 10.0.0.0/16"]
egress = ["tcp 80 to 10.0.0.0/16"]
[instance.a]
type = "c7i.large"
host = "here"
[instance.b]
type = "c7i.large"
host = "here"
[instance.c]
type = "c7i.large"
host = "there"
[interface.a]
subnet = "s"
address = ["10.0.0.4"]
groups = ["GROUP"]
instance = "a"
[interface.b]
subnet = "s"
address = ["10.0.0.5"]
groups = ["GROUP"]
instance = "b"
source_dest_check = false
[interface.c]
subnet = "s"
address = ["10.0.0.6"]
groups = ["g"]
instance = "c"
[elastic_address.a]
public = "198.51.100.4"
interface = "a"
[mirror_filter.all]
ingress = ["1 accept all from 0.0.0.0/0 to 0.0.0.0/0"]
egress = ["1 accept all from 0.0.0.0/0 to 0.0.0.0/0"]
[mirror_target.c]
interface = "c"
[mirror_session.a]
source = "a"
target = "c"
filter = "all"
number = 1
"#;

/// Output of a card. Every frame must contain a valid packet.
#[derive(Default)]
struct Out {
    frames: usize,
    /// Output since the last comparison of both cards.
    said: Vec<SentFrame>,
}

/// A frame that a card has sent, with its destination.
#[derive(PartialEq, Eq, Debug)]
enum SentFrame {
    Guest(PortId, Vec<u8>),
    Host(Arc<str>, u32, Envelope, Vec<u8>, bool),
    Service(PortId, Service, Vec<u8>),
}

impl Out {
    fn take(&mut self, frame: &[u8]) {
        self.frames += 1;
        assert!(Packet::read(&frame[OFFLOAD_BYTES..]).is_some());
    }
}

impl Environment for Out {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.take(&frame);
        self.said.push(SentFrame::Guest(port, frame));
    }
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        self.take(&frame);
        let FrameRoute { host, instance, envelope, express } = way;
        assert_eq!(Envelope::of(envelope.trailer()), Ok(envelope));
        self.said.push(SentFrame::Host(Arc::clone(host), instance, envelope, frame, express));
    }
    fn to_service(&mut self, port: PortId, service: Service, frame: Vec<u8>) {
        self.take(&frame);
        self.said.push(SentFrame::Service(port, service, frame));
    }
}

/// A world, and its compiled rules.
struct Cloud {
    world: World,
    rules: Arc<Rules>,
}

impl Cloud {
    fn new(group: &str) -> Self {
        let text = format!("{CLOUD}{}", REST.replace("GROUP", group));
        let world = parse(&text, Path::new("fuzz.toml")).expect("the cloud is right").world;
        let rules = Arc::new(Rules::compile(&world, HOST));
        Self { world, rules }
    }

    /// Creates a card with two instances; returns the card and the ports of their interfaces.
    fn card(&self, now: Instant) -> (Card, Vec<PortId>) {
        // A secret determines the source ports of copies. Both cards have the same secret, so that
        // their output is equal.
        let mut card = Card::new(HOST, Arc::clone(&self.rules), Secret::known(7));
        let kind = InstanceType::find("c7i.large").expect("a type");
        // The rates are low, so that packets wait.
        let profile = Profile::of(kind).with_tracking_allowance(20).scaled(2000);
        let mut ports = Vec::new();
        for name in ["a", "b"] {
            let named = self.world.enis.iter().find(|(_, eni)| eni.name == name);
            let eni = *named.expect("an interface").0;
            let guest = Guest { eni, timeouts: Timeouts::DEFAULT };
            ports.extend(card.add_instance(now, &profile, &[guest]));
        }
        let exits = self.world.internet_gateways.keys().map(|id| Exit::InternetGateway(*id));
        card.set_edges(exits.map(|exit| (exit, Arc::from(EDGE))).collect::<BTreeMap<_, _>>());
        card.set_host_bytes_max(1400);
        (card, ports)
    }

    /// Switches mirrors and flow logs on, which read all packets of guests.
    fn observe(&self, now: Instant, card: &mut Card) {
        card.set_mirrors(&self.world);
        let lengths = self.world.enis.keys().map(|eni| (*eni, [Duration::from_secs(60)].into()));
        card.set_flow_logs(now, &lengths.collect());
    }
}

/// A card, with its NAT gateways and its output.
struct Lane {
    card: Card,
    ports: Vec<PortId>,
    nat: Nat,
    /// NAT gateway of the cloud.
    gateway: NatGatewayId,
    out: Out,
}

impl Lane {
    fn new(cloud: &Cloud) -> Self {
        let (mut card, ports) = cloud.card(Instant::ZERO);
        cloud.observe(Instant::ZERO, &mut card);
        let gateway = *cloud.world.nat_gateways.keys().next().expect("a gateway");
        Self { card, ports, nat: Nat::default(), gateway, out: Out::default() }
    }

    fn step(&mut self, now: Instant, code: u8, data: &[u8]) {
        let Self { card, ports, nat, gateway, out } = self;
        match code {
            n @ (0 | 1) => card.from_guest(now, ports[usize::from(n)], data.to_vec(), out),
            2 => {
                let Some((frame, trailer)) = data.split_last_chunk() else { return };
                if let Ok(envelope) = Envelope::of(Trailer(*trailer)) {
                    let frame = frame.to_vec();
                    card.from_host(now, &Arc::from(OTHER), envelope, frame, out);
                }
            }
            3 => {
                let edge = Arc::from(EDGE);
                card.from_host(now, &edge, Envelope::Arriving, data.to_vec(), out);
            }
            4 => {
                let to = card.eni_of(ports[0]).expect("an interface");
                let envelope = Envelope::FromNat { nat: *gateway, to, port: 0 };
                card.from_host(now, &Arc::from(EDGE), envelope, data.to_vec(), out);
            }
            _ => through_nat(nat, now, data),
        }
    }

    fn settle(&mut self, now: Instant) {
        self.card.poll(now, &mut self.out);
        self.card.expire(now, 100);
        for port in &self.ports {
            let (tracked, untracked) = self.card.flows(*port);
            assert!(tracked <= 20 && untracked <= 20, "{tracked} {untracked}");
        }
    }

    /// Returns the state of the card that can be observed from outside, as text.
    fn facts(&mut self, now: Instant) -> String {
        let Self { card, ports, nat, .. } = self;
        let mut facts = format!("{:?} {:?}", card.drops_of_none(), nat.len());
        for port in ports {
            let mut flows = Vec::new();
            card.list_flows(*port, 0, u32::MAX, &mut flows);
            let mut flows: Vec<String> = flows.iter().map(|flow| format!("{flow:?}")).collect();
            flows.sort();
            let credits = [Direction::Egress, Direction::Ingress]
                .map(|direction| card.credits_bits(now, *port, direction));
            facts += &format!(
                "\n{:?} {:?} {:?} {:?} {credits:?} {flows:?}",
                card.counts(*port),
                card.drops(*port),
                card.allowances(*port),
                card.flows(*port),
            );
        }
        while let Some(window) = card.take_window() {
            let LoggedWindow { eni, length, window } = window;
            let (began, ended, skipped) = (window.began, window.ended, window.skipped_packets);
            facts += &format!("\n{eni} {length:?} {began:?} {ended:?} {skipped}");
            window.flows().iter().for_each(|flow| facts += &format!("\n{flow:?}"));
        }
        facts
    }

    /// Replaces this card by another one that imports its state.
    fn hand_over(&mut self, cloud: &Cloud, now: Instant) {
        let (mut card, ports) = cloud.card(now);
        assert_eq!(card.import(&self.card.export()), Ok(ports.len()));
        cloud.observe(now, &mut card);
        (self.card, self.ports) = (card, ports);
        self.nat = Nat::import(&self.nat.export()).expect("what is written is read");
    }

    /// Runs a few steps on a new card that imports a damaged copy of this card's state.
    fn hand_over_damaged(&mut self, cloud: &Cloud, now: Instant, data: &[u8], last: &[u8]) {
        let Some((at, with)) = data.split_first_chunk::<4>() else { return };
        let at = u32::from_le_bytes(*at);
        let damage = |bytes: &mut Vec<u8>| {
            let place = at as usize % bytes.len();
            if with.is_empty() {
                bytes.truncate(place);
            }
            bytes[place..].iter_mut().zip(with).for_each(|(byte, other)| *byte ^= other);
        };
        let (mut state, mut nat) = (self.card.export(), self.nat.export());
        damage(&mut state);
        damage(&mut nat);
        let (card, ports) = cloud.card(now);
        let nat = Nat::import(&nat).unwrap_or_default();
        let gateway = self.gateway;
        let mut lane = Self { card, ports, nat, gateway, out: Out::default() };
        if lane.card.import(&state).is_err() {
            assert_eq!(lane.card.counts(lane.ports[0]), PortCounts::default());
        }
        cloud.observe(now, &mut lane.card);
        (0..8).for_each(|code| lane.step(now, code, last));
        lane.card.poll(now + Duration::from_secs(3600), &mut lane.out);
        lane.card.expire(now + Duration::from_secs(3600), 10_000);
        lane.facts(now);
    }
}

/// Runs the steps of an input. Returns the number of frames that both cards have sent.
pub(crate) fn instances(bytes: &[u8]) -> usize {
    let clouds = [Cloud::new("g"), Cloud::new("shut")];
    let (mut now, mut cloud) = (Instant::ZERO, &clouds[0]);
    let (mut stays, mut passes_on) = (Lane::new(cloud), Lane::new(cloud));
    let mut frames = 0;
    let (mut rest, mut last) = (bytes, &[][..]);
    for _ in 0..STEPS_MAX {
        let Some((head, more)) = rest.split_first_chunk::<3>() else { break };
        let length = usize::from(u16::from_be_bytes([head[1], head[2]])).min(more.len());
        let (data, more) = more.split_at(length);
        rest = more;
        match head[0] % 10 {
            5 => now += Duration::from_micros(length as u64 * 1000),
            6 => cloud = &clouds[length % 2],
            8 => passes_on.hand_over(cloud, now),
            9 => stays.hand_over_damaged(cloud, now, data, last),
            code => {
                stays.step(now, code, data);
                passes_on.step(now, code, data);
                last = data;
            }
        }
        if matches!(head[0] % 10, 6 | 8) {
            // A new card evaluates the rules for every flow again, so both cards have to do this.
            for lane in [&mut stays, &mut passes_on] {
                let rules = Arc::clone(&cloud.rules);
                lane.card.set_rules_that_concern(rules, &Concern::Everything);
            }
        }
        stays.settle(now);
        passes_on.settle(now);
        assert_eq!(stays.out.said, passes_on.out.said);
        assert_eq!(stays.facts(now), passes_on.facts(now));
        frames = stays.out.frames;
        stays.out.said.clear();
        passes_on.out.said.clear();
    }
    for lane in [&mut stays, &mut passes_on] {
        lane.card.set_flow_logs(now, &BTreeMap::new());
        // Every waiting packet is sent or dropped within the longest delay of each limit.
        let mut at = now;
        while let Some(next) = lane.card.poll_timeout() {
            at = at.max(next);
            assert!(at.since(now) < Duration::from_secs(10), "it waits for ever");
            lane.card.poll(at, &mut lane.out);
        }
    }
    assert_eq!(stays.out.said, passes_on.out.said);
    assert_eq!(stays.facts(now), passes_on.facts(now));
    frames.max(stays.out.frames)
}

/// Passes copies of a packet through a NAT gateway in both directions, and checks the results.
fn through_nat(nat: &mut Nat, now: Instant, data: &[u8]) {
    let mut frame = data.to_vec();
    let public = Ipv4Addr::new(198, 51, 100, 9);
    let before = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
    if nat.leave(now, NatGatewayId(1), public, EniId(1), &mut frame).is_ok() {
        let after = Packet::read(&frame[OFFLOAD_BYTES..]).expect("still a packet");
        assert_eq!(after.source, IpAddr::V4(public));
        assert_eq!(before.map(|packet| packet.destination), Some(after.destination));
    }
    let mut frame = data.to_vec();
    if nat.arrive(now, &mut frame).is_some() {
        assert!(Packet::read(&frame[OFFLOAD_BYTES..]).is_some());
    }
}
