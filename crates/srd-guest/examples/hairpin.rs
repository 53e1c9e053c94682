//! Two interfaces of one card, each behind a vhost-user socket, and the whole pipeline between
//! them: the packet rate of a card without other ports. The loop works as that of
//! `srd card up --poll spin`, without the rest of the card's process.
//!
//! `cargo run --release -p srd-guest --example hairpin -- A.sock B.sock` prints the hardware
//! addresses of both interfaces (10.0.1.10 and 10.0.1.20), then, in every second, the number of
//! packets that each interface was given. An interface `tun:NAME` is a TUN device of that name;
//! `hairpin tun:NAME` alone writes packets of 64 bytes into one as fast as it can, without a card.

mod cloud;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use srd_card::l2::fit::Accepts;
use srd_card::l2::{FrameOutcome, Link};
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Environment, FrameRoute, Guest, PortId};
use srd_net::{Tun, clock};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vhost::{Device, Frame};
use srd_vpc::compile::Rules;
use srd_vpc::judge::Service;

/// Maximum number of frames that are read from one device before the next device is read.
const BURST: usize = 64;
/// Maximum number of frames that the card processes together.
const TOGETHER: usize = 16;
/// Number of passes of the loop between two polls of the front ends.
const TURNS: u32 = 64;

enum End {
    Vhost(Box<Device>, Link),
    Kernel(Tun),
}

struct Port {
    end: End,
    given: u64,
    lost: u64,
}

impl Port {
    fn open(path: &str, link: Link) -> std::io::Result<Self> {
        let end = match path.strip_prefix("tun:") {
            Some(name) => End::Kernel(Tun::open(name)?),
            None => End::Vhost(Box::new(Device::open(Path::new(path))?), link),
        };
        Ok(Self { end, given: 0, lost: 0 })
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let (device, link) = match &mut self.end {
            End::Vhost(device, link) => (device, link),
            End::Kernel(tun) => return tun.read().ok()?,
        };
        loop {
            let Frame { ethernet, packet } = device.read()?;
            match link.from_guest(&ethernet, packet) {
                FrameOutcome::Packet(frame) => return Some(frame),
                FrameOutcome::Answer((ethernet, packet)) => {
                    device.write(&Frame { ethernet, packet }, 0);
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, frame: Vec<u8>) {
        let mut count = |got: bool| {
            self.given += u64::from(got);
            self.lost += u64::from(!got);
        };
        match &mut self.end {
            End::Kernel(tun) => count(tun.write(&frame).is_ok()),
            End::Vhost(device, link) => {
                link.to_guest(frame, Accepts::default(), |(ethernet, packet)| {
                    count(device.write(&Frame { ethernet, packet }, 0));
                });
            }
        }
    }

    fn wake(&mut self, asks: bool) {
        if let End::Vhost(device, _) = &mut self.end {
            if asks {
                device.turn();
            }
            device.wake();
        }
    }

    fn flush(&mut self) {
        if let End::Vhost(device, _) = &mut self.end {
            device.flush();
        }
    }
}

struct Ports(BTreeMap<PortId, Port>);

impl Environment for Ports {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        if let Some(port) = self.0.get_mut(&port) {
            port.write(frame);
        }
    }
    fn to_host(&mut self, _: FrameRoute<'_>, _: Vec<u8>) {}
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// Writes packets into a TUN device, without a card.
fn bare(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let tun = Tun::open(name)?;
    let mut frame = vec![0; 10];
    frame.extend([0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 1, 10, 10, 0, 1, 20, 3, 232, 7, 208, 0, 44, 0, 0]);
    frame.resize(10 + 64, 0);
    loop {
        let (began, mut given) = (clock::now(), 0_u64);
        while clock::now().since(began) < Duration::from_millis(1000) {
            given += (0..BURST).filter(|_| tun.write(&frame).is_ok()).count() as u64;
        }
        println!("given {given}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if let [path] = &paths[..]
        && let Some(name) = path.strip_prefix("tun:")
    {
        return bare(name);
    }
    let [a, b] = &paths[..] else { return Err("say where both sockets shall be".into()) };
    let world =
        srd_vpc_file::parse(&cloud::two_instances(["here"; 2]), Path::new("cloud.toml"))?.world;
    let rules = Rules::compile(&world, "here");
    let mut card = Card::new("here", Arc::new(rules), Secret::known(7));
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
        if let [port] = card.add_instance(clock::now(), &profile, &guest)[..] {
            ports.0.insert(port, Port::open(path, link)?);
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
                    port.wake(n == 0);
                }
                while frames.len() < TOGETHER
                    && let Some(frame) = port.read()
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
        ports.0.values_mut().for_each(Port::flush);
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
