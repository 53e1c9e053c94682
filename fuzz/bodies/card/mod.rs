//! Fuzz target of the card. The card receives arbitrary bytes from its guest and from its peers. A
//! script selects the sender, the bytes and the time.
//!
//! The card under test has three peers: a real card, reached through endpoints and a wire, and two
//! that only exist in the script. All three send datagrams to it: whole frames, chunks in any
//! order, offers, noise. In between, time passes, peers are removed and added again, addresses
//! move, SRD is switched off and on, and the transport reports failures. These conditions must
//! hold:
//!
//! * nothing panics, and nothing loops for ever;
//! * a delivered frame is a packet with a consistent header (`oracle`);
//! * the source address of a frame belongs, at that moment, to the peer that sent the frame, and
//!   this peer has not been removed: each frame carries the mark of its sender;
//! * tables and queues stay within their limits, counters only grow, and no timer stays due;
//! * receivers remove all state after a long silence.
// Each target uses a part of this module, and bytes of a script become choices.
#![allow(dead_code, clippy::cast_possible_truncation)]

mod forge;
mod oracle;
#[path = "../hostile/script.rs"]
mod script;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use srd_card::frame::ChunkPosition;
use srd_card::{
    Config, Counters, Express, FRAME_QPN, FRESH_QPN, OFFER_QPN, PeerSettings, PeerSlot, Prefix,
    Rules,
};
use srd_proto::{
    Config as CoreConfig, Delivery, DownReason, Duration, Ecn, Endpoint, Entropy, Epoch, Event,
    Instant, PacketMeta, PacketRef, PeerConfig, PeerId, Qpn, Status, TransmitBuf,
};

use self::oracle::Oracle;
use self::script::Input;

/// Maximum number of steps of a script.
const STEPS_MAX: usize = 400;
/// Number of peers of the card under test. The first peer is a real card.
const PEERS: usize = 3;
const FLOWS_MAX: u32 = 16;
const RECEIVE_BYTES_MAX: usize = 300_000;
const QUEUE_BYTES_MAX: usize = 150_000;
/// Times by which a step may advance the clock, in microseconds.
const TIMES_US: [u64; 8] = [0, 1, 300, 10_000, 101_000, 1_100_000, 11_000_000, 130_000_000];

/// A peer of the card under test.
struct TestPeer {
    id: PeerId,
    slot: Option<PeerSlot>,
    /// Number of times that the peer was removed.
    generation: u8,
    allowed: Vec<Prefix>,
}

/// The card under test, or the card of the real peer.
struct Node {
    endpoint: Endpoint,
    express: Express,
    guest: Oracle,
    before: Counters,
}

struct World {
    /// The card under test, and the card of the real peer.
    nodes: [Node; 2],
    peers: [TestPeer; PEERS],
    /// Identifier of the card under test at the real peer.
    back: PeerId,
    now: Instant,
    buf: TransmitBuf,
    /// One packet out of this number is lost; zero means that no packet is lost.
    loss: u32,
    packets: u32,
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + node as u8], 7471))
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

/// Returns the addresses that a machine owns. Machine 0 is the card under test, and its peers
/// follow.
fn own_addresses(machine: usize) -> Vec<Prefix> {
    vec![prefix(&format!("10.0.{machine}.0/24")), prefix(&format!("fd00:{machine}::/32"))]
}

fn settings(id: PeerId, allowed: Vec<Prefix>) -> PeerSettings {
    PeerSettings { id, allowed, express: true, express_udp: true }
}

impl Node {
    fn new(node: usize, packet_bytes_max: u16, now: Instant) -> Self {
        let core = CoreConfig {
            packet_bytes_max,
            keepalive: Duration::from_millis(50),
            ..CoreConfig::sockets()
        };
        let run = Epoch(7 + node as u64);
        let mut endpoint = Endpoint::new(core, run, [node as u8; 32], now).expect("valid");
        let config = Config {
            mtu: packet_bytes_max - 72,
            queue_bytes_max: QUEUE_BYTES_MAX,
            flows_max: FLOWS_MAX,
            receive_bytes_max: RECEIVE_BYTES_MAX,
            secret: srd_card::Secret::known(node as u64),
            ..Config::default()
        };
        let express = Express::new(config, &mut endpoint);
        Self { endpoint, express, guest: Oracle::default(), before: Counters::default() }
    }

    /// Checks the conditions that must hold after every step.
    fn check(&mut self, now: Instant) {
        assert!(self.express.resource_utilization() <= 100);
        let (out, back) = self.express.flow_counts();
        assert!(out <= FLOWS_MAX as usize && back <= FLOWS_MAX as usize, "{out} {back}");
        let counters = self.express.counters();
        for ((name, value), (_, before)) in counters.named().iter().zip(self.before.named()) {
            assert!(*value >= before, "{name} fell");
        }
        self.before = counters;
        assert!(self.express.poll_timeout().is_none_or(|at| at > now), "a timer stays due");
    }
}

/// Runs a script.
pub(crate) fn card(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut world = World::new(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.settle();
        world.check();
    }
    world.finish();
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let packet_bytes_max = input.of(&[1472, 600, 256, 9000]);
        let mut nodes = [0, 1].map(|node| Node::new(node, packet_bytes_max, now));
        let [card, other] = &mut nodes;
        let peers = [1, 2, 3].map(|machine| {
            let id = card.endpoint.add_peer(now, PeerConfig::at(address(machine))).expect("room");
            let allowed = own_addresses(machine);
            let slot = Some(card.express.add_peer(now, settings(id, allowed.clone())));
            TestPeer { id, slot, generation: 0, allowed }
        });
        let back = other.endpoint.add_peer(now, PeerConfig::at(address(0))).expect("room");
        other.express.add_peer(now, settings(back, own_addresses(0)));
        other.guest.allowed = vec![own_addresses(0)];
        let buf = TransmitBuf::new(16, 65_000);
        let mut world = Self { nodes, peers, back, now, buf, loss: 0, packets: 0 };
        world.update_oracle();
        world.run(20);
        world
    }

    /// Updates the addresses from which each peer may send, in the oracle.
    fn update_oracle(&mut self) {
        let known = self
            .peers
            .iter()
            .map(|peer| if peer.slot.is_some() { peer.allowed.clone() } else { Vec::new() });
        self.nodes[0].guest.allowed = known.collect();
        self.nodes[0].guest.marks = (0..PEERS).map(|peer| Some(self.mark(peer))).collect();
    }

    /// Returns the mark of a peer's next frames. Frames of the real peer may be in flight for a
    /// long time, so its mark never changes.
    fn mark(&self, peer: usize) -> u8 {
        let generation = if peer == 0 { 0 } else { self.peers[peer].generation };
        oracle::mark(peer, generation)
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        let peer = usize::from(what >> 5) % PEERS;
        match what & 31 {
            0..=5 => self.give(0, input),
            6..=8 => self.give(1, input),
            9..=13 => self.throw_frame(peer, input),
            14..=16 => self.throw_noise(peer, input),
            17 | 18 => self.throw_offer(peer, input),
            19..=22 => {
                self.now += Duration::from_micros(input.of(&TIMES_US));
            }
            23 => self.leave_or_join(peer, input.bit()),
            24 => self.move_addresses(peer, input.byte()),
            25 | 26 => self.switch(peer, input),
            27 => self.happen(peer, input),
            28 => self.loss = u32::from(input.byte() % 16),
            _ => self.run(usize::from(input.byte() % 40)),
        }
    }

    /// Passes a frame from the guest of a node to its card. Most of these frames are plausible.
    fn give(&mut self, node: usize, input: &mut Input<'_>) {
        let mark = self.mark(0);
        let (from, to) = (node, if node == 0 { 1 + input.below(4) } else { 0 });
        let frame = forge::frame(input, mark, from, to);
        let Node { express, guest, .. } = &mut self.nodes[node];
        guest.answers = true;
        express.from_guest(self.now, frame, guest);
        guest.answers = false;
    }

    /// Passes a datagram of a peer directly to the card under test.
    fn receive(&mut self, peer: usize, dst_qpn: Qpn, imm: u64, reliable: bool, payload: &[u8]) {
        let Node { express, guest, .. } = &mut self.nodes[0];
        let peer = self.peers[peer].id;
        let delivery =
            Delivery { peer, src_qpn: FRESH_QPN, dst_qpn, imm, reliable, ce: false, payload };
        express.delivered(self.now, &delivery, guest);
    }

    /// Sends a frame of a peer to the card under test: plainly, in one datagram, or in chunks, some
    /// of which may be missing.
    fn throw_frame(&mut self, peer: usize, input: &mut Input<'_>) {
        let from = 1 + if input.byte() < 200 { peer } else { input.below(4) };
        let frame = forge::frame(input, self.mark(peer), from, 0);
        let flow = u32::from(input.byte() % 24);
        let sequence = match input.byte() {
            near @ 0..=199 => u16::from(near % 8),
            far => input.of(&[4095, 4096, 65_535, 32_768, u16::from(far)]),
        };
        let Ok(frame_bytes) = u16::try_from(frame.len()) else { return };
        let chunks = 1 + input.below(130);
        if input.byte() < 40 {
            return self.receive(peer, FRAME_QPN, 0, false, &frame);
        }
        let size = frame.len().div_ceil(chunks).max(1);
        let count = frame.len().div_ceil(size);
        let (first, missing) = (input.below(count), input.byte());
        for at in 0..count {
            let chunk = (first + at) % count;
            if missing > 200 && chunk % 8 == usize::from(missing % 8) {
                continue;
            }
            let part = &frame[chunk * size..frame.len().min((chunk + 1) * size)];
            let (chunk, last) = (chunk as u8, chunk + 1 == count);
            let place = ChunkPosition { flow, sequence, chunk, last, frame_bytes };
            self.receive(peer, FRAME_QPN, place.encode(), true, part);
        }
    }

    /// Sends a random chunk of a peer to the card under test, with any position and destination.
    fn throw_noise(&mut self, peer: usize, input: &mut Input<'_>) {
        let mut imm = 0;
        for _ in 0..8 {
            imm = imm << 8 | u64::from(input.byte());
        }
        if input.bit() {
            imm &= 0x0000_0f00_0fff_ffff | 0x0f << 40;
        }
        let bytes = input.of(&[0, 1, 9, 10, 30, 31, 200, 1500, 60_000]);
        let fill = input.byte();
        let mut payload = vec![fill; bytes];
        for byte in payload.iter_mut().take(60) {
            *byte = input.byte();
        }
        let reliable = input.byte() < 200;
        let dst_qpn = if input.byte() < 240 { FRAME_QPN } else { Qpn(input.byte().into()) };
        // If the bytes at this position contain the mark, the mark is set to that of the peer.
        let place = ChunkPosition::decode(imm);
        let offset = if reliable { place.offset(bytes) } else { Some(0) };
        let at = offset.and_then(|offset| oracle::MARK_AT.checked_sub(offset));
        if let Some(byte) = at.and_then(|at| payload.get_mut(at)) {
            oracle::stamp(byte, self.mark(peer));
        }
        self.receive(peer, dst_qpn, imm, reliable, &payload);
    }

    fn throw_offer(&mut self, peer: usize, input: &mut Input<'_>) {
        let bytes = [input.byte() % 3, input.byte(), input.byte()];
        let length = input.below(4);
        self.receive(peer, OFFER_QPN, 0, input.byte() < 230, &bytes[..length]);
    }

    /// Removes a peer from the card, or adds it again. `wholly`: it is removed from the transport
    /// endpoint as well.
    fn leave_or_join(&mut self, peer: usize, wholly: bool) {
        let now = self.now;
        let Node { endpoint, express, .. } = &mut self.nodes[0];
        let known = &mut self.peers[peer];
        if let Some(slot) = known.slot.take() {
            express.remove_peer(slot);
            known.generation += 1;
            if wholly {
                endpoint.remove_peer(now, known.id);
            }
        } else {
            let config = PeerConfig::at(address(1 + peer));
            if let Ok(id) = endpoint.add_peer(now, config) {
                known.id = id;
            }
            let settings = settings(known.id, known.allowed.clone());
            known.slot = Some(express.add_peer(now, settings));
        }
        self.update_oracle();
    }

    /// Changes the addresses from which a peer may send. No other peer has the new addresses.
    fn move_addresses(&mut self, peer: usize, choice: u8) {
        let own = own_addresses(1 + peer);
        let allowed = match choice % 4 {
            0 => Vec::new(),
            1 => own[..1].to_vec(),
            2 => vec![prefix(&format!("10.0.{}.128/25", 1 + peer))],
            _ => own,
        };
        let known = &mut self.peers[peer];
        known.allowed = allowed;
        let express = &mut self.nodes[0].express;
        match known.slot {
            // Replaces all rules at once by another snapshot.
            Some(slot) if choice >= 128 => {
                let mut rules = Rules::clone(express.rules());
                rules.set_allowed(slot, known.allowed.clone());
                express.set_rules(self.now, Arc::new(rules));
            }
            Some(slot) => express.set_allowed(slot, known.allowed.clone()),
            None => {}
        }
        self.update_oracle();
    }

    fn switch(&mut self, peer: usize, input: &mut Input<'_>) {
        let (what, on, udp) = (input.byte(), input.bit(), input.bit());
        let express = &mut self.nodes[usize::from(what >> 7)].express;
        match what % 4 {
            0 => express.set_enabled(self.now, on, udp),
            1 => {
                let slot = self.peers[peer].slot.filter(|_| what < 128).unwrap_or(PeerSlot(0));
                express.set_express(self.now, slot, on, udp);
            }
            2 => {
                let wait = Duration::from_millis(u64::from(input.byte()));
                express.set_order(udp, wait);
            }
            _ => express.set_queue_target(Duration::from_micros(u64::from(input.byte()) * 50)),
        }
    }

    /// Reports an event of the transport about a peer to the card under test.
    fn happen(&mut self, peer: usize, input: &mut Input<'_>) {
        let peer = self.peers[peer].id;
        let event = match input.byte() % 4 {
            0 => Event::PeerUp { peer },
            1 => Event::PathMtu {
                peer,
                works_bytes: 100 * u16::from(input.byte() % 16),
                configured_bytes: 1500,
            },
            2 => Event::PeerDown { peer, reason: DownReason::Unresponsive },
            _ => {
                let (id, user) = (srd_proto::DatagramId(0), u64::from(input.byte() % 20));
                Event::Completed { peer, id, user, status: Status::RemoteAbort }
            }
        };
        self.nodes[0].express.event(self.now, &event);
    }

    /// Runs everything that is due, for `turns` times 50 microseconds.
    fn run(&mut self, turns: usize) {
        for _ in 0..turns {
            self.settle();
            self.now += Duration::from_micros(50);
        }
        self.settle();
    }

    /// Runs everything that is due now, until no work is left.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 10_000, "there always is more to do");
            for Node { endpoint, express, guest, .. } in &mut self.nodes {
                endpoint.handle_timeout(self.now);
                express.handle_timeout(self.now, guest);
            }
            // A frame that has just arrived may be due at once.
            let busy = self.drain(0) | self.drain(1);
            let mut timers = self.nodes.iter().filter_map(|node| node.express.poll_timeout());
            if !busy && timers.all(|at| at > self.now) {
                return;
            }
        }
    }

    /// Moves frames of a node to its endpoint, and sends its packets. Returns whether there was any
    /// work.
    fn drain(&mut self, at: usize) -> bool {
        let mut busy = false;
        for turn in 0.. {
            assert!(turn < 100_000, "there always is more to send");
            let Node { endpoint, express, .. } = &mut self.nodes[at];
            let handed = express.pump(self.now, endpoint);
            self.buf.clear();
            let sent = endpoint.poll_transmit(self.now, &mut self.buf);
            while let Some(event) = endpoint.poll_event() {
                busy = true;
                express.event(self.now, &event);
            }
            let Some(transmit) = sent else {
                if handed == 0 {
                    return busy;
                }
                continue;
            };
            busy = true;
            if transmit.destination.ip() == address(1 - at).ip() {
                let packets: Vec<Vec<u8>> =
                    self.buf.segments().map(|(head, body)| [head, body].concat()).collect();
                for packet in packets {
                    self.arrive(1 - at, transmit.entropy, packet);
                }
            }
        }
        busy
    }

    fn arrive(&mut self, at: usize, entropy: Entropy, mut packet: Vec<u8>) {
        self.packets += 1;
        if self.loss > 0 && self.packets.is_multiple_of(self.loss) {
            return;
        }
        let source = SocketAddr::new(address(1 - at).ip(), 7471 + entropy.0);
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
        let Node { endpoint, express, guest, .. } = &mut self.nodes[at];
        let whole = PacketRef::Whole(&mut packet);
        if let Some(delivery) = endpoint.handle_packet(self.now, meta, whole) {
            express.delivered(self.now, &delivery, guest);
        }
    }

    fn check(&mut self) {
        for node in &mut self.nodes {
            node.check(self.now);
        }
        for known in &self.peers {
            let report = known.slot.and_then(|slot| self.nodes[0].express.report(slot));
            assert!(report.is_none_or(|report| report.queued_bytes <= QUEUE_BYTES_MAX));
        }
    }

    /// Lets time pass without packets of peers: pending work ends, and all state of peers is
    /// removed.
    fn finish(mut self) {
        for _ in 0..4 {
            self.now += Duration::from_secs(40);
            self.settle();
            self.check();
        }
        self.now += Duration::from_secs(140);
        for Node { express, guest, .. } in &mut self.nodes {
            express.handle_timeout(self.now, guest);
            let (_, back) = express.flow_counts();
            assert_eq!(back, 0, "flows of peers are not forgotten");
        }
    }
}

/// Returns the peer with the most specific prefix that contains an address.
fn owner(allowed: &[Vec<Prefix>], address: IpAddr) -> Option<usize> {
    let all = allowed.iter().enumerate().flat_map(|(at, list)| list.iter().map(move |p| (p, at)));
    let holding = all.filter(|(prefix, _)| prefix.contains(address));
    holding.max_by_key(|(prefix, _)| prefix.length()).map(|(_, at)| at)
}
