//! Two interfaces of one card, each behind a socket of vhost-user, and the whole pipeline between
//! them: what a card moves whose only ports are these. It does what `srd card up --busy-poll` does,
//! without what is around it.
//!
//! `cargo run --release -p srd-vhost --example hairpin -- A.sock B.sock` prints the hardware addresses
//! of both interfaces (10.0.1.10 and 10.0.1.20), then packets a second in both directions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use srd_card::l2::fit::Accepts;
use srd_card::l2::{Link, Sent};
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Around, Card, Envelope, Guest, PortId};
use srd_net::clock;
use srd_proto::time::{Duration, Instant};
use srd_vhost::{Device, Frame};
use srd_vpc::compile::Rules;
use srd_vpc::id::VpcId;
use srd_vpc::judge::Service;

const CLOUD: &str = r#"
[vpc.main]
cidr = ["10.0.0.0/16"]
[subnet.s]
cidr = "10.0.1.0/24"
[group.open]
ingress = ["all from 10.0.0.0/16"]
egress = ["all to 0.0.0.0/0"]
[instance.a]
type = "c7i.48xlarge"
host = "here"
[instance.b]
type = "c7i.48xlarge"
host = "here"
[interface.a]
subnet = "s"
address = ["10.0.1.10"]
groups = ["open"]
instance = "a"
[interface.b]
subnet = "s"
address = ["10.0.1.20"]
groups = ["open"]
instance = "b"
"#;
/// Frames of one device in one turn, and of them the card takes so many at once.
const BURST: usize = 64;
const TOGETHER: usize = 16;
/// Turns in which front ends are not asked.
const TURNS: u32 = 64;

struct Port {
    device: Device,
    link: Link,
    given: u64,
    lost: u64,
}

struct Ports(BTreeMap<PortId, Port>);

impl Around for Ports {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        let Some(Port { device, link, given, lost }) = self.0.get_mut(&port) else { return };
        link.to_guest(frame, Accepts::default(), |(ethernet, packet)| {
            let got = device.write(&Frame { ethernet, packet }, 0);
            *given += u64::from(got);
            *lost += u64::from(!got);
        });
    }
    fn to_host(&mut self, _: &Arc<str>, _: VpcId, _: Envelope, _: Vec<u8>, _: bool) {}
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

fn read(port: &mut Port) -> Option<Vec<u8>> {
    loop {
        let Frame { ethernet, packet } = port.device.read()?;
        match port.link.from_guest(&ethernet, packet) {
            Sent::Packet(frame) => return Some(frame),
            Sent::Answer((ethernet, packet)) => {
                port.device.write(&Frame { ethernet, packet }, 0);
            }
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    let [a, b] = &paths[..] else { return Err("say where both sockets shall be".into()) };
    let world = srd_vpc_file::parse(CLOUD, Path::new("cloud.toml"))?.world;
    let rules = Rules::compile(&world, "here");
    let mut card = Card::new("here", Arc::new(rules), 7);
    let kind = InstanceType::find("c7i.48xlarge").map_err(|_| "no type")?;
    let profile = Profile::of(kind).with_packets_per_second(1 << 40);
    let mut ports = Ports(BTreeMap::new());
    let mut enis: Vec<_> = world.enis.iter().collect();
    enis.sort_by_key(|(_, eni)| eni.ipv4.clone());
    for ((id, eni), path) in enis.into_iter().zip([a, b]) {
        println!("{:?} {}", eni.ipv4, eni.mac.map(|byte| format!("{byte:02x}")).join(":"));
        let guest = [Guest { eni: *id, timeouts: Timeouts::DEFAULT }];
        let ipv4 = eni.ipv4.first().map(|address| (*address, 24));
        let link = Link { mac: eni.mac, ipv4, resolver: [10, 0, 0, 2].into(), ipv6: None };
        let device = Device::open(Path::new(path))?;
        if let [port] = card.add_instance(clock::now(), &profile, &guest)[..] {
            ports.0.insert(port, Port { device, link, given: 0, lost: 0 });
        }
    }
    turn(&mut card, &mut ports)
}

fn turn(card: &mut Card, ports: &mut Ports) -> ! {
    let ids: Vec<PortId> = ports.0.keys().copied().collect();
    let mut frames = Vec::with_capacity(TOGETHER);
    let mut said = Instant::ZERO;
    for n in (0..TURNS).cycle() {
        let now = clock::now();
        for id in &ids {
            for part in 0..BURST / TOGETHER {
                let Some(port) = ports.0.get_mut(id) else { break };
                if part == 0 {
                    if n == 0 {
                        port.device.turn();
                    }
                    port.device.wake();
                }
                while frames.len() < TOGETHER
                    && let Some(frame) = read(port)
                {
                    frames.push(frame);
                }
                let few = frames.len() < TOGETHER;
                if !frames.is_empty() {
                    card.from_guest_all(now, *id, &mut frames, ports);
                }
                if few {
                    break;
                }
            }
        }
        card.poll(now, ports);
        ports.0.values_mut().for_each(|port| port.device.flush());
        if n == 0 && now.since(said) >= Duration::from_millis(1000) {
            said = now;
            for port in ports.0.values_mut() {
                println!("given {} lost {}", port.given, port.lost);
                (port.given, port.lost) = (0, 0);
            }
        }
    }
    unreachable!("turns have no end")
}
