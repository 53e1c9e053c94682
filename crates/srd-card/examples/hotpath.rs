//! Measurement of the hot paths: datagrams from one endpoint to another, or a guest's packets from
//! one card to another. There are no sockets, and `count` has no clock either, so each of its runs
//! executes the same instructions.
//!
//! ```sh
//! hotpath count transport|express plain|sealed BYTES PACKETS
//! hotpath speed transport|express plain|sealed BYTES SECONDS WORKERS
//! ```
//!
//! `count` moves the given number of packets. `cargo xtask instructions` runs it under valgrind,
//! which counts the instructions of the functions below whose names begin with `measured_`.
//! `speed` runs one thread for each worker. Each thread drives one shard of each of two nodes, so
//! all threads write the data that the shards of a node share.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant as WallInstant;

use bytes::Bytes;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::{Express, Guest, PeerSettings, Prefix, Reach};
use srd_proto::{
    Class, Config, Datagram, Delivery, Duration, Ecn, Endpoint, Epoch, Instant, Node, PacketMeta,
    PacketRef, PeerConfig, PeerId, Protection, Qpn, ReceiveBuffers, TransmitBuf,
};

const QPN: Qpn = Qpn(7);
const PORT: u16 = 7471;
const DELAY: Duration = Duration::from_micros(5);
const LINK_BPS: u64 = 400_000_000_000;
const PACKET_BYTES_MAX: u16 = 8_956;
/// Number of datagrams, or of a guest's packets, that are sent between two checks for arrived
/// packets.
const BATCH: usize = 16;
const HEADERS_BYTES: usize = 40;
/// Simulated time at which the measurement of `speed` begins, after the handshakes. From then on
/// the simulated time advances with the real time.
const REAL_TIME_NS: u64 = 1_000_000_000;

/// Part of the code that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Transport,
    Express,
}

/// A guest that only counts its frames.
#[derive(Default)]
struct Sink(u64);

impl Guest for Sink {
    fn deliver(&mut self, frame: &[u8]) {
        self.0 += 1;
        std::hint::black_box(frame);
    }
}

/// One end of the measurement: a transport endpoint, and the card that uses it, if there is one.
struct End {
    endpoint: Endpoint,
    express: Option<Express>,
    peer: PeerId,
    guest: Sink,
    delivered: u64,
}

fn outer(end: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, if end == 0 { 1 } else { 2 }), PORT).into()
}

fn inner(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(172, 16, 0, if end == 0 { 1 } else { 2 })
}

fn node(end: usize, is_sealed: bool, shards: u8) -> Arc<Node> {
    let protection = if is_sealed { Protection::JobKey([5; 32]) } else { Protection::Plain };
    let config = Config {
        protection,
        packet_bytes_max: PACKET_BYTES_MAX,
        link_rate_bps: LINK_BPS,
        egress_pacing: true,
        ..Config::sockets()
    };
    let epoch = Epoch(1 + end as u64);
    Arc::new(Node::new(config, epoch, shards).expect("the configuration is within its bounds"))
}

impl End {
    fn new(node: &Arc<Node>, end: usize, shard: u8, stage: Stage) -> Self {
        let mut seed = [1; 32];
        (seed[0], seed[1]) = (u8::from(end == 1), shard);
        let now = Instant::from_nanos(1);
        let mut endpoint = Endpoint::of_node(node.clone(), shard, seed, now);
        endpoint.open_qp(QPN, ReceiveBuffers::Unlimited);
        let other = PeerConfig::at(outer(1 - end));
        let peer = endpoint.add_peer(now, other).expect("the first peer");
        let express = (stage == Stage::Express).then(|| {
            let config = srd_card::Config { mtu: 8_800, ..srd_card::Config::default() };
            let mut express = Express::new(config, &mut endpoint);
            let prefix = Prefix::new(IpAddr::V4(inner(1 - end)), 32);
            let allowed = prefix.into_iter().collect();
            let settings = PeerSettings { id: peer, allowed, express: true, express_udp: true };
            express.add_peer(now, settings);
            express
        });
        Self { endpoint, express, peer, guest: Sink::default(), delivered: 0 }
    }

    /// Runs timers, and handles events.
    fn settle(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        while let Some(event) = self.endpoint.poll_event() {
            if let Some(express) = &mut self.express {
                express.event(now, &event);
            }
        }
        if let Some(express) = &mut self.express {
            express.handle_timeout(now, &mut self.guest);
        }
    }

    fn reaches(&self) -> bool {
        let slot = srd_card::PeerSlot(0);
        let report = self.express.as_ref().and_then(|express| express.report(slot));
        self.express.is_none() || matches!(report.map(|r| r.reach), Some(Reach::Express { .. }))
    }
}

/// Returns a frame: an empty offload header and an IPv4 TCP packet.
fn tcp_frame(from: usize, bytes: usize, flow: u16) -> Vec<u8> {
    let mut frame = vec![0; OFFLOAD_BYTES + bytes.max(HEADERS_BYTES)];
    let packet = &mut frame[OFFLOAD_BYTES..];
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    (packet[8], packet[9]) = (64, 6);
    packet[12..16].copy_from_slice(&inner(from).octets());
    packet[16..20].copy_from_slice(&inner(1 - from).octets());
    packet[20..22].copy_from_slice(&(40_000 + flow).to_be_bytes());
    packet[22..24].copy_from_slice(&5_001_u16.to_be_bytes());
    (packet[32], packet[33]) = (5 << 4, 0x10);
    frame
}

fn datagram(payload: &Bytes) -> Datagram {
    let (src_qpn, dst_qpn, class) = (QPN, QPN, Class::Bulk);
    Datagram { src_qpn, dst_qpn, imm: 0, payload: payload.clone(), class, user: 0 }
}

#[inline(never)]
fn measured_send(end: &mut End, now: Instant, payload: &Bytes) -> bool {
    end.endpoint.send(now, end.peer, datagram(payload)).is_ok()
}

#[inline(never)]
fn measured_transmit(end: &mut End, now: Instant, buf: &mut TransmitBuf) -> Option<u16> {
    Some(end.endpoint.poll_transmit(now, buf)?.entropy.0)
}

#[inline(never)]
fn measured_receive<'a>(
    end: &mut End,
    now: Instant,
    meta: PacketMeta,
    packet: &'a mut [u8],
) -> Option<Delivery<'a>> {
    end.endpoint.handle_packet(now, meta, PacketRef::Whole(packet))
}

/// Receives a packet as [`measured_receive`] does, at the sending end, where nearly all packets
/// are acknowledgements.
#[inline(never)]
fn measured_ack<'a>(
    end: &mut End,
    now: Instant,
    meta: PacketMeta,
    packet: &'a mut [u8],
) -> Option<Delivery<'a>> {
    // Without this line, the compiler would merge the two functions.
    std::hint::black_box(());
    end.endpoint.handle_packet(now, meta, PacketRef::Whole(packet))
}

#[inline(never)]
fn measured_egress(end: &mut End, now: Instant, frame: Vec<u8>) {
    let Some(express) = &mut end.express else { return };
    express.from_guest(now, frame, &mut end.guest);
    express.pump(now, &mut end.endpoint);
}

#[inline(never)]
fn measured_ingress(end: &mut End, now: Instant, delivery: &Delivery<'_>) {
    if let Some(express) = &mut end.express {
        express.delivered(now, delivery, &mut end.guest);
    }
}

/// Two ends, and the packets between them.
struct Rig {
    ends: [End; 2],
    now: Instant,
    /// Start of real time; `None` if the time advances by a fixed delay at each step. Real time is
    /// needed if several shards share the link, because their times must be equal.
    began: Option<WallInstant>,
    buf: TransmitBuf,
    packet: Vec<u8>,
    payload: Bytes,
    frame: Vec<u8>,
}

impl Rig {
    fn new(nodes: &[Arc<Node>; 2], shard: u8, stage: Stage, bytes: usize) -> Self {
        let ends = [0, 1].map(|end| End::new(&nodes[end], end, shard, stage));
        let mut rig = Self {
            ends,
            now: Instant::from_nanos(1_000_000),
            began: None,
            buf: TransmitBuf::new(64, 65_000),
            packet: Vec::with_capacity(usize::from(PACKET_BYTES_MAX)),
            payload: Bytes::from(vec![1; bytes]),
            frame: tcp_frame(0, bytes, shard.into()),
        };
        while !rig.ends[0].reaches() {
            rig.step();
            rig.now += Duration::from_micros(100);
        }
        rig
    }

    /// Moves all packets of one end to the other end.
    fn carry(&mut self, from: usize) {
        let [a, b] = &mut self.ends;
        let (source, to) = if from == 0 { (a, b) } else { (b, a) };
        loop {
            self.buf.clear();
            let Some(entropy) = measured_transmit(source, self.now, &mut self.buf) else { return };
            for (head, payload) in self.buf.segments() {
                self.packet.clear();
                self.packet.extend_from_slice(head);
                self.packet.extend_from_slice(payload);
                let mut address = outer(from);
                address.set_port(PORT + entropy);
                let received_at = self.now;
                let meta = PacketMeta { source: address, local: 0, ecn: Ecn::NotEct, received_at };
                let receive = if from == 1 { measured_ack } else { measured_receive };
                if let Some(delivery) = receive(to, self.now, meta, &mut self.packet) {
                    to.delivered += 1;
                    measured_ingress(to, self.now, &delivery);
                }
            }
        }
    }

    fn step(&mut self) {
        for end in 0..2 {
            if let End { express: Some(express), endpoint, .. } = &mut self.ends[end] {
                express.pump(self.now, endpoint);
            }
            self.carry(end);
            self.pass();
        }
        for end in &mut self.ends {
            end.settle(self.now);
        }
    }

    /// Advances the time by one step.
    fn pass(&mut self) {
        self.now += match self.began {
            None => DELAY,
            Some(began) => {
                let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Instant::from_nanos(REAL_TIME_NS.saturating_add(elapsed_ns)).since(self.now)
            }
        };
    }

    /// Sends a batch of packets. Then moves to the other end all packets that may leave.
    fn turn(&mut self) {
        for _ in 0..BATCH {
            let end = &mut self.ends[0];
            if end.express.is_some() {
                measured_egress(end, self.now, self.frame.clone());
            } else if !measured_send(end, self.now, &self.payload) {
                break;
            }
        }
        self.step();
    }

    fn done(&self) -> u64 {
        let End { express, guest, delivered, .. } = &self.ends[1];
        if express.is_some() { guest.0 } else { *delivered }
    }
}

fn count(stage: Stage, is_sealed: bool, bytes: usize, packets: u64) {
    let nodes = [0, 1].map(|end| node(end, is_sealed, 1));
    let mut rig = Rig::new(&nodes, 0, stage, bytes);
    while rig.done() < packets {
        rig.turn();
    }
    println!("{} packets of {bytes} bytes in {:?}", rig.done(), rig.now);
}

/// Measures packets per second and per thread with this number of workers, for `seconds` seconds.
fn speed(stage: Stage, is_sealed: bool, bytes: usize, seconds: f64, workers: u8) {
    let nodes = [0, 1].map(|end| node(end, is_sealed, workers));
    let (ready, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let start = WallInstant::now();
    let work = |shard: u8| {
        let mut rig = Rig::new(&nodes, shard, stage, bytes);
        rig.began = Some(start);
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < usize::from(workers) {
            std::hint::spin_loop();
        }
        let (before, began) = (rig.done(), WallInstant::now());
        while !stop.load(Ordering::Relaxed) {
            if began.elapsed().as_secs_f64() >= seconds {
                stop.store(true, Ordering::Relaxed);
            }
            for _ in 0..64 {
                rig.turn();
            }
        }
        #[allow(clippy::cast_precision_loss)] // a count of packets
        let done = (rig.done() - before) as f64;
        done / began.elapsed().as_secs_f64()
    };
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|shard| scope.spawn(move || work(shard))).collect();
        threads.into_iter().map(|t| t.join().expect("a worker ends in order")).collect()
    });
    let each: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    println!("{:.0} packets/s; each {}", rates.iter().sum::<f64>(), each.join(" "));
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let usage = || {
        eprintln!("usage: hotpath count transport|express plain|sealed BYTES PACKETS");
        eprintln!("       hotpath speed transport|express plain|sealed BYTES SECONDS WORKERS");
        ExitCode::from(2)
    };
    let [mode, stage, protection, bytes, amount, rest @ ..] = &words[..] else { return usage() };
    let stage = match *stage {
        "transport" => Stage::Transport,
        "express" => Stage::Express,
        _ => return usage(),
    };
    let is_sealed = *protection == "sealed";
    let Ok(bytes) = bytes.parse::<usize>() else { return usage() };
    match (*mode, amount.parse(), amount.parse::<f64>(), rest) {
        ("count", Ok(packets), _, []) => count(stage, is_sealed, bytes, packets),
        ("speed", _, Ok(seconds), [workers]) => {
            let Ok(workers) = workers.parse() else { return usage() };
            speed(stage, is_sealed, bytes, seconds, workers);
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}
