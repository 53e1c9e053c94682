//! Packets between the instances of two hosts with several workers, without sockets and devices:
//! the packet rate of one worker, and of several. The guests are memory.
//!
//! ```sh
//! workers [WORKERS [SECONDS [BYTES]]] [plain]
//! ```
//!
//! Each worker of the first host has an instance that sends packets of BYTES bytes (64) to the
//! instances of all workers of the second host in turn, over sealed sessions (`plain`: without
//! encryption). A thread drives one worker of each host. So a packet passes the card of its sender,
//! the stage with queues and SRD, the transport, and the card of its receiver; with two workers,
//! half of the packets also pass a queue between two workers of the second host. The runs with one
//! worker and with WORKERS (2) alternate. The rates are those of the processor time of all threads:
//! other programs of the machine do not count.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant as WallInstant;

use anyhow::{Context, Result, ensure};
use rustix::event::{EventfdFlags, eventfd};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::workers::{Partition, Redirect};
use srd_card::vpc::{Card, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_card::{
    Arrivals, Arrived, Express, Parcel, Partner, PeerSettings, PeerSlot, Reach, Trailer,
};
use srd_guest::{Exchange, Neighbours, Received};
use srd_proto::{
    Config, Delivery, Duration, Ecn, Endpoint, Epoch, Instant, Node, PacketMeta, PacketRef,
    PeerConfig, Protection, Secret, TransmitBuf,
};
use srd_vpc::compile::Rules;
use srd_vpc::id::{EniId, InstanceId};
use srd_vpc::judge::Service;
use srd_vpc::object::World;
use srd_vpc_file::{Kind, VpcFile};

const HOSTS: [&str; 2] = ["alpha", "beta"];
const KIND: &str = "c7i.48xlarge";
const PORT: u16 = 7471;
const PACKET_BYTES_MAX: u16 = 8_956;
/// Number of packets that an instance sends between two checks for arrived packets.
const BATCH: usize = 16;
/// Number of flows from one instance to another.
const FLOWS: u16 = 32;
/// Number of turns between two readings of the clock.
const TURNS: u32 = 64;
/// Number of runs with each number of workers, of which the median counts.
const ROUNDS: usize = 3;
/// Longest time until the hosts reach each other by SRD.
const CONNECT_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// The guest of the host itself, which takes no frames.
struct NoGuest;

impl srd_card::Guest for NoGuest {
    fn deliver(&mut self, _: &[u8]) {}
}

fn outer(host: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1 + u8::from(host == 1)), PORT).into()
}

fn inner(host: usize, worker: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, 10 + 100 * u8::from(host == 1) + worker)
}

/// A cloud with an instance for each worker of the two hosts.
fn cloud(workers: u8) -> Result<VpcFile> {
    let mut text = String::from(
        "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n[subnet.s]\ncidr = \"10.0.1.0/24\"\n[group.open]\n\
         ingress = [\"all from 10.0.0.0/16\"]\negress = [\"all to 0.0.0.0/0\"]\n",
    );
    for (at, host) in HOSTS.into_iter().enumerate() {
        for worker in 0..workers {
            let (name, address) = (format!("{host}-{worker}"), inner(at, worker));
            write!(
                text,
                "[instance.{name}]\ntype = \"{KIND}\"\nhost = \"{host}\"\n[interface.{name}]\n\
                 subnet = \"s\"\naddress = [\"{address}\"]\ngroups = [\"open\"]\n\
                 instance = \"{name}\"\nexpress = true\nexpress_udp = true\n"
            )?;
        }
    }
    Ok(srd_vpc_file::parse(&text, Path::new("the cloud of this program"))?)
}

fn frame(from: Ipv4Addr, to: Ipv4Addr, flow: u16, bytes: u16) -> Vec<u8> {
    let mut frame = vec![0; OFFLOAD_BYTES];
    let length = bytes.to_be_bytes();
    frame.extend([0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend(2000_u16.to_be_bytes());
    frame.extend((bytes - 20).to_be_bytes());
    frame.resize(OFFLOAD_BYTES + usize::from(bytes), 0);
    frame
}

/// Returns the seconds for which this thread has run on a core.
fn core_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or_default() / 1e9
}

/// Destinations of the packets of one card.
struct Destinations<'a> {
    now: Instant,
    express: &'a mut Express,
    slot: PeerSlot,
    beside: &'a mut Neighbours,
    delivered: &'a mut u64,
    spare: &'a mut Vec<Vec<u8>>,
}

impl Environment for Destinations<'_> {
    fn to_guest(&mut self, _: PortId, frame: Vec<u8>) {
        *self.delivered += 1;
        self.spare.push(frame);
    }

    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        let Err(frame) = self.beside.send(way.host, way.envelope, frame) else { return };
        let parcel = Parcel {
            to: self.slot,
            tenant: way.instance + 1,
            interface: way.envelope.sender(),
            trailer: way.envelope.trailer(),
            express: way.express,
        };
        self.express.from_cloud(self.now, parcel, frame);
    }

    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// Takes the frames of the other host.
struct Inbox<'a> {
    from: &'a Arc<str>,
    received: &'a mut Received,
}

impl Arrivals for Inbox<'_> {
    fn arrived(&mut self, how: Arrived, trailer: Trailer, frame: &[u8]) {
        if let Ok(envelope) = Envelope::of(trailer) {
            self.received.push(self.from, how.by_srd, (envelope, frame.to_vec()));
        }
    }
}

/// One worker of one host.
struct End {
    card: Card,
    port: PortId,
    express: Express,
    endpoint: Endpoint,
    slot: PeerSlot,
    beside: Neighbours,
    /// Name of the other host.
    other: Arc<str>,
    received: Received,
    delivered: u64,
    dropped: u64,
    spare: Vec<Vec<u8>>,
}

impl End {
    fn new(
        (nodes, host): (&[Arc<Node>; 2], usize),
        worker: u8,
        (file, exchange): (&VpcFile, Exchange),
        now: Instant,
    ) -> Result<Self> {
        let own = |kind, worker: u8| {
            let name = format!("{}-{worker}", HOSTS[host]);
            file.names.number(kind, &name).with_context(|| format!("no {name}"))
        };
        let mut partition = Partition::new(HOSTS[host], nodes[host].shards());
        for worker in 0..nodes[host].shards() {
            partition.assign(InstanceId(own(Kind::Instance, worker)?), worker);
        }
        let mut world: World = file.world.clone();
        partition.divide(&mut world, |_| 1);
        let beside = partition.view(worker, &world);
        let rules = Arc::new(Rules::compile(&world, beside.name()));
        let mut card = Card::new(beside.name(), rules, Secret::known(7));
        card.set_beside(&beside);
        let kind = InstanceType::find(KIND).map_err(|error| anyhow::anyhow!("{error}"))?;
        let profile = Profile::of(kind).with_packets_per_second(1 << 40);
        let eni = EniId(own(Kind::Interface, worker)?);
        let guest = [Guest { eni, timeouts: Timeouts::DEFAULT }];
        let port = card.add_instance(now, &profile, &guest)[0];
        let mut seed = [1; 32];
        (seed[0], seed[1]) = (u8::from(host == 1), worker);
        let mut endpoint = Endpoint::of_node(nodes[host].clone(), worker, seed, now);
        let peer = PeerConfig::at(outer(1 - host));
        let id = endpoint.add_peer(now, peer).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let config = srd_card::Config { cloud: true, mtu: 8_800, ..srd_card::Config::default() };
        let mut express = Express::new(config, &mut endpoint);
        let settings = PeerSettings { id, allowed: Vec::new(), express: true, express_udp: true };
        let slot = express.add_peer(now, settings);
        let (received, spare, other) = (Received::default(), Vec::new(), HOSTS[1 - host].into());
        let beside = Neighbours { redirect: Redirect::new(beside), exchange };
        let (delivered, dropped) = (0, 0);
        Ok(Self {
            card,
            port,
            express,
            endpoint,
            slot,
            beside,
            other,
            received,
            delivered,
            dropped,
            spare,
        })
    }

    /// Runs `work` with the card and the destinations of its packets.
    fn with_card(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Card, PortId, &mut Destinations<'_>),
    ) {
        let Self { card, port, express, slot, beside, delivered, spare, .. } = self;
        let slot = *slot;
        let mut around = Destinations { now, express, slot, beside, delivered, spare };
        work(card, *port, &mut around);
    }

    /// Takes a datagram of the other host.
    fn deliver(&mut self, now: Instant, meta: PacketMeta, packet: &mut [u8]) {
        let Self { endpoint, express, received, other, .. } = self;
        let Some(delivery) = endpoint.handle_packet(now, meta, PacketRef::Whole(packet)) else {
            return;
        };
        let shard = endpoint.partner_of(delivery.peer);
        let by = Partner { context: delivery.peer, shard };
        let delivery = Delivery { peer: endpoint.node_of(delivery.peer), ..delivery };
        let mut inbox = Inbox { from: other, received };
        if !express.delivered_of_cloud(now, by, &delivery, &mut inbox) {
            // The offers of the stage.
            express.delivered_by(now, by, &delivery, &mut NoGuest);
        }
    }

    /// Passes the frames of the other host and of the other workers to the card, or to the worker
    /// of their interface.
    fn arrive(&mut self, now: Instant) {
        let mut received = std::mem::take(&mut self.received);
        self.beside.redirect(now, &mut received);
        self.beside.exchange.flush();
        self.take(now, &mut received);
        self.received = received;
        if let Some(mut taken) = self.beside.exchange.take() {
            self.take(now, &mut taken.received);
            self.beside.exchange.give_back(taken);
        }
        self.dropped += self.beside.exchange.take_dropped();
        self.spare.truncate(1024);
    }

    fn take(&mut self, now: Instant, received: &mut Received) {
        let Received { frames, hosts, .. } = received;
        self.with_card(now, |card, _, around| {
            for (host, count, by_srd) in hosts.drain(..) {
                card.set_by_srd(by_srd);
                card.from_host_all(now, &host, frames.drain(..count), around);
            }
            card.set_by_srd(false);
        });
    }

    fn settle(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        while let Some(event) = self.endpoint.poll_event() {
            self.express.event(now, &event);
        }
        let Self { express, received, other, .. } = self;
        express.handle_cloud_timeout(now, &mut Inbox { from: other, received });
        express.handle_timeout(now, &mut NoGuest);
        self.with_card(now, |card, _, around| card.poll(now, around));
    }

    fn reaches(&self) -> bool {
        let report = self.express.report(self.slot);
        matches!(report.map(|of| of.reach), Some(Reach::Express { .. }))
    }
}

/// A worker of each host, and the packets between them.
struct Rig {
    ends: [End; 2],
    start: WallInstant,
    buf: TransmitBuf,
    packet: Vec<u8>,
    templates: Vec<Vec<u8>>,
    next: usize,
    sent: u64,
}

impl Rig {
    fn now(&self) -> Instant {
        let elapsed_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Instant::ZERO + Duration::from_millis(1) + Duration::from_nanos(elapsed_ns)
    }

    /// Moves all packets of one host to the other one.
    fn carry(&mut self, now: Instant, from: usize) {
        let [a, b] = &mut self.ends;
        let (source, to) = if from == 0 { (a, b) } else { (b, a) };
        source.express.pump(now, &mut source.endpoint);
        loop {
            self.buf.clear();
            let Some(transmit) = source.endpoint.poll_transmit(now, &mut self.buf) else { break };
            for (head, payload) in self.buf.segments() {
                self.packet.clear();
                self.packet.extend_from_slice(head);
                self.packet.extend_from_slice(payload);
                let mut address = outer(from);
                address.set_port(PORT + transmit.entropy.0);
                let (source, received_at) = (address, now);
                let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at };
                to.deliver(now, meta, &mut self.packet);
            }
        }
        to.arrive(now);
    }

    fn step(&mut self) {
        for from in 0..2 {
            let now = self.now();
            self.carry(now, from);
        }
        let now = self.now();
        self.ends.iter_mut().for_each(|end| end.settle(now));
    }

    /// Sends some packets, and moves everything that may leave.
    fn turn(&mut self) {
        let now = self.now();
        let Self { ends: [first, second], templates, next, .. } = self;
        let mut frames = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let mut frame = second.spare.pop().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(&templates[*next]);
            frames.push(frame);
            *next = (*next + 1) % templates.len();
        }
        first.with_card(now, |card, port, around| {
            card.from_guest_all(now, port, &mut frames, around);
        });
        self.sent += BATCH as u64;
        self.step();
    }
}

/// Parameters of a run.
#[derive(Clone, Copy)]
struct Parameters {
    seconds: f64,
    bytes: u16,
    is_sealed: bool,
}

/// Figures of one thread.
#[derive(Clone, Copy, Default)]
struct Figures {
    sent: u64,
    delivered: u64,
    /// Frames that found no space in the queue to another worker.
    dropped: u64,
    core_seconds: f64,
}

/// Runs this number of workers. Returns the figures of all threads together; `core_seconds` is the
/// mean of the threads.
fn run(workers: u8, wanted: Parameters) -> Result<Figures> {
    let file = cloud(workers)?;
    let node = |host: usize| {
        let protection =
            if wanted.is_sealed { Protection::JobKey([5; 32]) } else { Protection::Plain };
        let config = Config {
            protection,
            packet_bytes_max: PACKET_BYTES_MAX,
            link_rate_bps: 400_000_000_000,
            egress_pacing: true,
            ..Config::sockets()
        };
        Arc::new(Node::new(config, Epoch(1 + host as u64), workers).expect("a good configuration"))
    };
    let nodes = [0, 1].map(node);
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let exchanges = || -> Result<Vec<Exchange>> {
        let wakes = (0..workers).map(|_| Ok(Arc::new(eventfd(0, flags)?)));
        Ok(Exchange::among(&wakes.collect::<Result<Vec<_>>>()?))
    };
    let (ready, stop, start) = (AtomicUsize::new(0), AtomicBool::new(false), WallInstant::now());
    let (of_alpha, of_beta) = (exchanges()?, exchanges()?);
    let work = |worker: u8, exchanges: [Exchange; 2]| -> Result<Figures> {
        let [first, second] = exchanges;
        let now = Instant::ZERO + Duration::from_millis(1);
        let first = End::new((&nodes, 0), worker, (&file, first), now)?;
        let second = End::new((&nodes, 1), worker, (&file, second), now)?;
        let pairs = (0..FLOWS).flat_map(|flow| (0..workers).map(move |to| (flow, to)));
        let templates = pairs.map(|(flow, to)| {
            frame(inner(0, worker), inner(1, to), flow * 8 + u16::from(worker), wanted.bytes)
        });
        let mut rig = Rig {
            ends: [first, second],
            start,
            buf: TransmitBuf::new(64, 65_000),
            packet: Vec::with_capacity(usize::from(PACKET_BYTES_MAX)),
            templates: templates.collect(),
            next: 0,
            sent: 0,
        };
        while !rig.ends.iter().all(End::reaches) {
            ensure!(start.elapsed() < CONNECT_WAIT_MAX, "the hosts do not reach each other");
            rig.step();
        }
        // The first packet of each flow, whose verdict is stored.
        (0..rig.templates.len() * 4).for_each(|_| rig.turn());
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < usize::from(workers) {
            ensure!(start.elapsed() < 2 * CONNECT_WAIT_MAX, "a worker has ended");
            rig.step();
            std::thread::yield_now();
        }
        let before = (rig.sent, rig.ends[1].delivered, rig.ends[1].dropped, core_seconds());
        let began = WallInstant::now();
        while !stop.load(Ordering::Relaxed) {
            if began.elapsed().as_secs_f64() >= wanted.seconds {
                stop.store(true, Ordering::Relaxed);
            }
            (0..TURNS).for_each(|_| rig.turn());
        }
        Ok(Figures {
            sent: rig.sent - before.0,
            delivered: rig.ends[1].delivered - before.1,
            dropped: rig.ends[1].dropped - before.2,
            core_seconds: core_seconds() - before.3,
        })
    };
    let all: Vec<Result<Figures>> = std::thread::scope(|scope| {
        let pairs = of_alpha.into_iter().zip(of_beta);
        let work = &work;
        let threads: Vec<_> = (0..workers)
            .zip(pairs)
            .map(|(worker, (a, b))| scope.spawn(move || work(worker, [a, b])))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker ends in order")).collect()
    });
    let mut sum = Figures::default();
    for figures in all {
        let Figures { sent, delivered, dropped, core_seconds } = figures?;
        sum.sent += sent;
        sum.delivered += delivered;
        sum.dropped += dropped;
        sum.core_seconds += core_seconds / f64::from(workers);
    }
    Ok(sum)
}

/// Returns the packets of a run per second for which each of its threads had a core, in millions.
fn rate(of: Figures) -> f64 {
    of.delivered as f64 / of.core_seconds / 1e6
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_sealed = !words.iter().any(|word| word == "plain");
    words.retain(|word| word != "plain");
    let number = |at: usize, default: u64| words.get(at).map_or(Ok(default), |word| word.parse());
    let workers = u8::try_from(number(0, 2)?)?;
    ensure!((1..=8).contains(&workers), "1 to 8 workers");
    let bytes = u16::try_from(number(2, 64)?)?.clamp(64, 8000);
    let wanted = Parameters { seconds: number(1, 3)? as f64, bytes, is_sealed };
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (rates, workers) in rates.iter_mut().zip([1, workers]) {
            let figures = run(workers, wanted)?;
            println!(
                "{workers} workers: {:.2} M packets/s, {} sent, {} arrived, {} dropped between \
                 workers",
                rate(figures),
                figures.sent,
                figures.delivered,
                figures.dropped
            );
            rates.push(rate(figures));
        }
    }
    let [one, several] = rates.map(median);
    println!(
        "packets of {bytes} bytes, {}: one worker {one:.2} M packets/s, {workers} workers \
         {several:.2}, {:.2} x",
        if is_sealed { "sealed" } else { "plain" },
        several / one
    );
    Ok(())
}
