//! Fuzz targets of the core. For codecs: bytes that can be decoded must encode to the same bytes.
//! For endpoints: a script drives two endpoints and a wire under an attacker's control, and nothing
//! must panic, loop for ever, or grow without bound.
#![allow(dead_code, clippy::cast_possible_truncation)] // each target uses one function

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use srd_proto::wire::ack::{self, AckView};
use srd_proto::wire::data::Data;
use srd_proto::wire::greeting::{GREETING_BYTES, Greeting};
use srd_proto::wire::handshake::{Hello, Reset, decode_retry, encode_retried};
use srd_proto::wire::probe::{PROBE_BYTES, Probe};
use srd_proto::wire::{self, HEADER_BYTES, Header};
use srd_proto::{
    Admission, Class, Config, Datagram, Duration, Ecn, Endpoint, Epoch, Event, Instant, PacketMeta,
    PacketRef, PeerConfig, PeerId, Protection, Qpn, ReceiveBuffers, SendError, TransmitBuf,
};

/// Decodes the input as the header of a packet, and checks that it encodes to the same bytes.
pub(crate) fn header(bytes: &[u8]) {
    let Ok((header, rest)) = Header::decode(bytes) else { return };
    let mut out = Vec::new();
    header.encode(&mut out);
    assert_eq!(out, bytes[..HEADER_BYTES]);
    assert_eq!(rest.len(), bytes.len() - HEADER_BYTES);
    if header.rtt_code != wire::RTT_UNKNOWN {
        let ns = wire::decode_rtt(header.rtt_code);
        assert_eq!(wire::encode_rtt(ns), header.rtt_code);
    }
    let number = wire::expand(header.number, u64::from(header.dst_context));
    assert_eq!(number as u32, header.number);
}

/// Decodes the input as the body of a Data packet, and checks that it encodes to the same bytes.
pub(crate) fn data(bytes: &[u8]) {
    let Ok((data, payload)) = Data::decode(bytes) else { return };
    let mut out = Vec::new();
    data.encode(&mut out);
    out.extend_from_slice(payload);
    assert_eq!(out, bytes);
    assert!(data.first_delta <= data.floor_delta);
}

/// Decodes the input as an acknowledgement, and checks that it decodes to the same fields after it
/// was encoded.
pub(crate) fn ack(bytes: &[u8]) {
    let Ok(view) = AckView::decode(bytes) else { return };
    let sack: Vec<u64> = view.sack().collect();
    let tuples: Vec<_> = view.tuples().collect();
    let verdicts: Vec<_> = view.verdicts().collect();
    let mut out = Vec::new();
    ack::encode(&mut out, &view.head, &sack, &tuples, &verdicts);
    let again = AckView::decode(&out).expect("what we encode decodes");
    assert_eq!(again.head, view.head);
    assert!(again.sack().eq(sack) && again.tuples().eq(tuples) && again.verdicts().eq(verdicts));
    assert_eq!(out.len(), bytes.len());
}

/// Decodes the input as a probe, and checks that its fields encode to the same bytes.
pub(crate) fn probe(bytes: &[u8]) {
    let Ok(probe) = Probe::decode(bytes) else { return };
    let mut out = Vec::new();
    probe.encode(&mut out, bytes.len() - PROBE_BYTES);
    assert_eq!(out[..PROBE_BYTES], bytes[..PROBE_BYTES]);
    assert_eq!(out.len(), bytes.len());
}

/// Decodes the input as a greeting, and checks that it encodes to the same bytes.
pub(crate) fn greeting(bytes: &[u8]) {
    let Ok((greeting, rest)) = Greeting::decode(bytes) else { return };
    let mut out = Vec::new();
    greeting.encode(&mut out);
    out.extend_from_slice(rest);
    assert_eq!(out, bytes);
}

/// Decodes the input as a Hello, as a Reset and as a Retry, and checks that it encodes to the same
/// bytes.
pub(crate) fn hello(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        let mut out = Vec::new();
        hello.encode(&mut out);
        assert_eq!(out, bytes);
    }
    if let Ok(reset) = Reset::decode(bytes) {
        let mut out = Vec::new();
        reset.encode(&mut out);
        assert_eq!(out, bytes);
    }
    if let Ok((cookie, retried)) = decode_retry(bytes) {
        let mut out = cookie.to_vec();
        retried.for_each(|retried| encode_retried(&mut out, retried));
        assert_eq!(out, bytes);
    }
}

/// Runs a script on two endpoints without protection.
pub(crate) fn endpoint_plain(bytes: &[u8]) {
    World::new(Protection::Plain).run(bytes);
}

/// Runs a script on two endpoints with static keys, or with a job key if the first byte is odd.
pub(crate) fn endpoint_sealed(bytes: &[u8]) {
    let Some((mode, script)) = bytes.split_first() else { return };
    let protection =
        if mode & 1 == 0 { Protection::Static([9; 32]) } else { Protection::JobKey([7; 32]) };
    World::new(protection).run(script);
}

/// Maximum number of steps of a script.
const STEPS_MAX: usize = 256;
/// Time within which all datagrams must end after the script.
const FINISH: Duration = Duration::from_secs(10);
/// Longest time between two calls of the endpoints after the script. If a caller is late for its
/// timers, the delay counts as its own pause, and not as silence of its peers.
const FINISH_STEP: Duration = Duration::from_millis(5);
/// Maximum number of packets on the wire. Beyond it, the oldest packets are lost.
const WIRE_MAX: usize = 64;
/// Maximum number of peers of an endpoint.
const PEERS_MAX: u32 = 8;
/// Size of the largest packet. It is above the size that MTU discovery assumes at first, so that
/// there is something to discover.
const PACKET_BYTES_MAX: u16 = 1600;
/// Size of the largest packet that passes after a script has made the wire narrow.
const NARROW_BYTES: usize = 1400;
const PORT: u16 = 7471;
const ENTROPY_BASE: u16 = 49_152;

#[derive(Clone)]
struct Packet {
    to_b: bool,
    source: SocketAddr,
    ecn: Ecn,
    bytes: Vec<u8>,
}

struct World {
    ends: [Endpoint; 2],
    to: [PeerId; 2],
    now: Instant,
    wire: Vec<Packet>,
    /// The last packets that have left the wire. They may be replayed.
    seen: Vec<Packet>,
    handed: [u64; 2],
    accepted: [u64; 2],
    completed: [u64; 2],
    narrow: bool,
}

/// The part of the script that was not read yet.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte().unwrap_or(0), self.byte().unwrap_or(0)])
    }

    fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

fn address(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, (n >> 8) as u8, n as u8))
}

fn config(protection: Protection, n: usize) -> Config {
    let mut protection = protection;
    if let Protection::Static(key) = &mut protection {
        key[0] = n as u8;
    }
    Config {
        protection,
        admission: Admission::Anyone,
        packet_bytes_max: PACKET_BYTES_MAX,
        mtu_discovery: true,
        paths: 8,
        spray_burst_packets: 2,
        window_packets_max: 128,
        send_queue_datagrams_max: 32,
        flows_max: 4,
        peers_max: PEERS_MAX,
        events_max: 64,
        rnr_retries: 2,
        key_packets_max: 16,
        handshakes_per_second_max: 100,
        peer_timeout: Duration::from_millis(50),
        idle_reclaim: Duration::from_secs(2),
        keepalive: Duration::from_millis(500),
        ..Config::default()
    }
}

impl World {
    fn new(protection: Protection) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let make = |n: usize| {
            let config = config(protection.clone(), n);
            let mut end = Endpoint::new(config, Epoch(1), [n as u8 + 1; 32], now)
                .expect("the configuration is in range");
            end.open_qp(Qpn(7), ReceiveBuffers::Unlimited);
            end.open_qp(Qpn(8), ReceiveBuffers::Counted(3));
            end
        };
        let mut ends = [make(0), make(1)];
        let keys = [ends[0].public_key(), ends[1].public_key()];
        let to = [1, 0].map(|other| {
            let at = SocketAddr::new(address(other), PORT);
            let peer = PeerConfig::at(at).with_key(keys[other]);
            ends[1 - other].add_peer(now, peer).expect("there is room for one")
        });
        Self {
            ends,
            to,
            now,
            wire: Vec::new(),
            seen: Vec::new(),
            handed: [0; 2],
            accepted: [0; 2],
            completed: [0; 2],
            narrow: false,
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        let mut script = Script(bytes);
        for _ in 0..STEPS_MAX {
            let Some(step) = script.byte() else { break };
            self.step(step, &mut script);
            self.drain();
        }
        self.finish();
    }

    /// Runs one step: the low bits select the action, the top bit selects the endpoint.
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let end = usize::from(step >> 7);
        match step & 15 {
            0 | 1 => self.deliver(script.word()),
            2 => self.deliver_all(),
            3 => self.lose(script.word()),
            4 => self.corrupt(script),
            5 => self.replay(script),
            6 => self.advance(u64::from(script.word())),
            7 => self.advance(u64::from(script.word()) * 1000),
            8 => self.advance(u64::from(script.word()) * 100_000),
            9 | 10 => self.send(end, script),
            11 => self.inject_raw(end, script),
            12 => self.inject_crafted(end, script),
            13 => {
                self.ends[end].post_receives(Qpn(8), script.byte().unwrap_or(0).into());
            }
            14 => self.ends[end].close_qp(self.now, Qpn(u16::from(script.byte().unwrap_or(0)))),
            _ if step & 16 != 0 => self.narrow ^= true,
            _ => self.ends[end].open_qp(Qpn(7), ReceiveBuffers::Counted(u32::from(step >> 5))),
        }
    }

    fn advance(&mut self, ns: u64) {
        self.now += Duration::from_nanos(ns + 1);
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
    }

    fn send(&mut self, end: usize, script: &mut Script<'_>) {
        let how = script.byte().unwrap_or(0);
        let bytes = usize::from(script.word()) % (self.ends[end].payload_bytes_max() + 1);
        let datagram = Datagram {
            src_qpn: Qpn(u16::from(how & 7)),
            dst_qpn: Qpn(6 + u16::from(how >> 3 & 3)),
            imm: u64::from(how),
            payload: vec![how; bytes].into(),
            class: if how & 128 == 0 { Class::Bulk } else { Class::LowLatency },
            user: self.accepted[end],
        };
        match self.ends[end].send(self.now, self.to[end], datagram) {
            Ok(_) => self.accepted[end] += 1,
            Err(SendError::TooLarge { max_bytes }) => {
                assert!(max_bytes < bytes, "{bytes} bytes refused where {max_bytes} fit");
            }
            Err(_) => {}
        }
    }

    fn pick(&self, which: u16) -> Option<usize> {
        (!self.wire.is_empty()).then(|| usize::from(which) % self.wire.len())
    }

    fn deliver(&mut self, which: u16) {
        let Some(at) = self.pick(which) else { return };
        let packet = self.wire.remove(at);
        self.hand(packet);
    }

    fn deliver_all(&mut self) {
        for packet in std::mem::take(&mut self.wire) {
            self.hand(packet);
        }
    }

    fn lose(&mut self, which: u16) {
        if let Some(at) = self.pick(which) {
            self.wire.remove(at);
        }
    }

    fn corrupt(&mut self, script: &mut Script<'_>) {
        let Some(at) = self.pick(script.word()) else { return };
        let mut packet = self.wire[at].clone();
        let place = usize::from(script.word()) % packet.bytes.len().max(1);
        let mask = script.byte().unwrap_or(1);
        if let Some(byte) = packet.bytes.get_mut(place) {
            *byte ^= mask;
        }
        self.hand(packet);
    }

    /// Delivers a packet again that was delivered before, possibly from another address.
    fn replay(&mut self, script: &mut Script<'_>) {
        if self.seen.is_empty() {
            return;
        }
        let mut packet = self.seen[usize::from(script.word()) % self.seen.len()].clone();
        let from = script.byte().unwrap_or(0);
        if from > 1 {
            packet.source = SocketAddr::new(address(usize::from(from)), PORT);
        }
        self.hand(packet);
    }

    /// Delivers random bytes to an endpoint, from a random address.
    fn inject_raw(&mut self, end: usize, script: &mut Script<'_>) {
        let from = usize::from(script.byte().unwrap_or(0) & 7);
        let n = usize::from(script.byte().unwrap_or(0));
        let bytes = script.take(n).to_vec();
        self.inject(end, from, bytes);
    }

    /// Delivers random bytes behind a header that names a context in use, from the peer's own
    /// address.
    fn inject_crafted(&mut self, end: usize, script: &mut Script<'_>) {
        let to_b = end == 1;
        let known = self.seen.iter().rev().find(|p| p.to_b == to_b && p.bytes[4..8] != [0; 4]);
        let context: [u8; 4] =
            known.map_or([0; 4], |p| p.bytes[4..8].try_into().expect("a packet has a header"));
        let (kind, flags) = (script.byte().unwrap_or(0), script.byte().unwrap_or(0));
        let mut bytes = vec![wire::VERSION << 4 | kind & 15, flags & wire::FLAGS_KNOWN, flags >> 4];
        bytes.push(script.byte().unwrap_or(0));
        bytes.extend_from_slice(&context);
        bytes.extend_from_slice(script.take(4));
        let n = usize::from(script.byte().unwrap_or(0));
        bytes.extend_from_slice(script.take(n));
        self.inject(end, 1 - end, bytes);
    }

    fn inject(&mut self, end: usize, from: usize, bytes: Vec<u8>) {
        let source = SocketAddr::new(address(from), ENTROPY_BASE);
        self.hand(Packet { to_b: end == 1, source, ecn: Ecn::Ce, bytes });
    }

    fn hand(&mut self, packet: Packet) {
        let end = usize::from(packet.to_b);
        let meta =
            PacketMeta { source: packet.source, local: 0, ecn: packet.ecn, received_at: self.now };
        let mut bytes = packet.bytes.clone();
        self.handed[end] += 1;
        let delivery = self.ends[end].handle_packet(self.now, meta, PacketRef::Whole(&mut bytes));
        if let Some(delivery) = delivery {
            assert!(delivery.payload.len() <= packet.bytes.len());
        }
        // The peer's address never changes, even if copies of its packets arrive from other
        // addresses.
        let at = SocketAddr::new(address(1 - end), PORT);
        assert_eq!(self.ends[end].address_of(self.to[end]), Some(at), "an address moved");
        let stats = self.ends[end].stats();
        assert_eq!(stats.rx_pkts + stats.rx_drops, self.handed[end], "a packet is not accounted");
        if packet.bytes.len() >= HEADER_BYTES {
            if self.seen.len() == WIRE_MAX {
                self.seen.remove(0);
            }
            self.seen.push(packet);
        }
    }

    /// Sends all packets of the endpoints, and checks that this ends.
    fn drain(&mut self) {
        let mut buf = TransmitBuf::new(4, 8000);
        for end in 0..2 {
            self.ends[end].handle_timeout(self.now);
            for n in 0.. {
                buf.clear();
                let Some(t) = self.ends[end].poll_transmit(self.now, &mut buf) else { break };
                assert!(n < 1000, "poll_transmit never ends");
                assert!(t.segments == buf.len() && t.segments > 0);
                let source = SocketAddr::new(address(end), ENTROPY_BASE + t.entropy.0);
                // Packets to another address do not arrive.
                let lost = t.destination.ip() != address(1 - end);
                for (head, payload) in buf.segments() {
                    let bytes = [head, payload].concat();
                    let max = usize::from(PACKET_BYTES_MAX) + GREETING_BYTES;
                    assert!(bytes.len() <= max, "a packet of {} bytes", bytes.len());
                    if lost || self.narrow && bytes.len() > NARROW_BYTES {
                        continue;
                    }
                    self.wire.push(Packet { to_b: end == 0, source, ecn: t.ecn, bytes });
                }
            }
            let livelock = self.ends[end].poll_timeout().is_some_and(|at| at <= self.now);
            assert!(!livelock, "a timer stays due");
            let mut events = 0;
            while let Some(event) = self.ends[end].poll_event() {
                events += 1;
                if matches!(event, Event::Completed { .. }) {
                    self.completed[end] += 1;
                }
            }
            assert!(events < 1000, "events without end");
            assert!(self.completed[end] <= self.accepted[end], "completed more than was sent");
        }
        let excess = self.wire.len().saturating_sub(WIRE_MAX);
        self.wire.drain(..excess);
    }

    /// Lets time pass on a good wire until all datagrams have completed.
    fn finish(&mut self) {
        self.wire.clear();
        let (half, end) = (self.now + FINISH.over(2), self.now + FINISH);
        while self.now < end {
            if self.completed == self.accepted {
                return;
            }
            // If the wire becomes narrow after MTU discovery, the endpoints do not notice this as
            // long as the peer answers.
            self.narrow &= self.now < half;
            self.advance(FINISH_STEP.as_nanos());
            self.drain();
            self.advance(10_000);
            self.deliver_all();
            self.drain();
        }
        panic!("of {:?} datagrams only {:?} ended", self.accepted, self.completed);
    }
}
