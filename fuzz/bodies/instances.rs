//! What the fuzz target of the cloud's data plane does with its input: guests, other hosts and the
//! internet write what they like to a card, in the order that the bytes say.
//!
//! Each step is an opcode, a length of two bytes, and so many bytes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::nat::Nat;
use srd_card::vpc::{Around, Card, Envelope, Guest, PortId};
use srd_proto::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::{EniId, NatGatewayId, VpcId};
use srd_vpc::judge::{Exit, Service};
use srd_vpc_file::parse;

const HOST: &str = "here";
const OTHER: &str = "there";
const EDGE: &str = "edge";
/// Steps of one input: more is slow, not wrong.
const STEPS_MAX: usize = 256;
const CLOUD: &str = "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n";
const REST: &str = r#"
[internet_gateway.door]
[route_table.all]
routes = ["0.0.0.0/0 to internet_gateway door"]
[acl.open]
ingress = ["100 allow all from 0.0.0.0/0"]
egress = ["100 allow all to 0.0.0.0/0"]
[subnet.s]
cidr = "10.0.0.0/24"
route_table = "all"
acl = "open"
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

/// What comes out is a packet as good as what went in.
#[derive(Default)]
struct Out {
    frames: usize,
}

impl Out {
    fn take(&mut self, frame: &[u8]) {
        self.frames += 1;
        assert!(Packet::read(&frame[OFFLOAD_BYTES..]).is_some());
    }
}

impl Around for Out {
    fn to_guest(&mut self, _: PortId, frame: Vec<u8>) {
        self.take(&frame);
    }
    fn to_host(&mut self, _: &Arc<str>, vpc: VpcId, envelope: Envelope, frame: Vec<u8>, _: bool) {
        self.take(&frame);
        let head = envelope.encode(vpc, &frame);
        let bytes = [&head[..], &frame[OFFLOAD_BYTES..]].concat();
        let (read, offload, packet) = Envelope::decode(&bytes).expect("what is written is read");
        assert_eq!((read, &offload[..], packet), (envelope, &frame[..10], &frame[10..]));
    }
    fn to_service(&mut self, _: PortId, _: Service, frame: Vec<u8>) {
        self.take(&frame);
    }
}

/// Runs the steps; how many frames came out.
pub(crate) fn instances(bytes: &[u8]) -> usize {
    let world = |group: &str| {
        let text = format!("{CLOUD}{}", REST.replace("GROUP", group));
        parse(&text, Path::new("fuzz.toml")).expect("the cloud is right").world
    };
    let worlds = [world("g"), world("shut")];
    let rules = [0, 1].map(|n: usize| Arc::new(Rules::compile(&worlds[n], HOST)));
    let mut now = Instant::ZERO;
    let mut card = Card::new(HOST, Arc::clone(&rules[0]), 7);
    let kind = InstanceType::find("c7i.large").expect("a type");
    let profile = Profile::of(kind).with_tracking_allowance(20);
    let mut ports = Vec::new();
    for name in ["a", "b"] {
        let named = worlds[0].enis.iter().find(|(_, eni)| eni.name == name);
        let eni = *named.expect("an interface").0;
        let guest = Guest { eni, timeouts: Timeouts::DEFAULT };
        ports.extend(card.add_instance(now, &profile, &[guest]));
    }
    let exits = worlds[0].internet_gateways.keys().map(|id| Exit::InternetGateway(*id));
    card.set_edges(exits.map(|exit| (exit, Arc::from(EDGE))).collect::<BTreeMap<_, _>>());
    card.set_host_bytes_max(1400);
    // What is counted and copied reads all that guests write.
    card.set_mirrors(&worlds[0]);
    let lengths = worlds[0].enis.keys().map(|eni| (*eni, [Duration::from_secs(60)].into()));
    card.set_flow_logs(now, &lengths.collect());
    let (mut out, mut nat) = (Out::default(), Nat::default());
    let mut rest = bytes;
    for _ in 0..STEPS_MAX {
        let Some((head, more)) = rest.split_first_chunk::<3>() else { break };
        let length = usize::from(u16::from_be_bytes([head[1], head[2]])).min(more.len());
        let (data, more) = more.split_at(length);
        rest = more;
        match head[0] % 8 {
            n @ (0 | 1) => card.from_guest(now, ports[usize::from(n)], data.to_vec(), &mut out),
            2 => {
                if let Ok((envelope, offload, packet)) = Envelope::decode(data) {
                    let frame = [&offload[..], packet].concat();
                    card.from_host(now, &Arc::from(OTHER), envelope, frame, &mut out);
                }
            }
            3 => {
                let edge = Arc::from(EDGE);
                card.from_host(now, &edge, Envelope::Arriving, data.to_vec(), &mut out);
            }
            4 => {
                let to = card.eni_of(ports[0]).expect("an interface");
                let envelope = Envelope::FromNat { nat: NatGatewayId(1), to };
                card.from_host(now, &Arc::from(EDGE), envelope, data.to_vec(), &mut out);
            }
            5 => now += Duration::from_micros(length as u64 * 1000),
            6 => card.set_rules(Arc::clone(&rules[length % 2])),
            _ => through_nat(&mut nat, now, data),
        }
        card.poll(now, &mut out);
        card.expire(now, 100);
        for port in &ports {
            let (tracked, untracked) = card.flows(*port);
            assert!(tracked <= 20 && untracked <= 20, "{tracked} {untracked}");
        }
    }
    card.set_flow_logs(now, &BTreeMap::new());
    // Whatever waits goes on or is dropped within the longest delay.
    card.poll(now + Duration::from_secs(1), &mut out);
    assert_eq!(card.poll_timeout(), None);
    out.frames
}

/// What leaves by a NAT gateway and is answered comes back to where it was from.
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
