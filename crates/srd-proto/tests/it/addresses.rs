//! Peers with several addresses, one for each network card. Each card carries its share of the
//! paths.

// Sizes here are small.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use srd_proto::{
    AddPeerError, Class, Config, Datagram, Duration, Ecn, Endpoint, Entropy, Epoch, Event, Instant,
    PacketMeta, PacketRef, PeerConfig, PeerId, Protection, Qpn, ReceiveBuffers, Status,
    TransmitBuf,
};

const PORT: u16 = 7471;
const DELAY: Duration = Duration::from_micros(6);
const QPN: Qpn = Qpn(7);

/// Address of one card of a node.
fn card(node: usize, number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, number as u8, 1 + node as u8], PORT))
}

fn cards(node: usize, count: usize) -> Vec<SocketAddr> {
    (0..count).map(|number| card(node, number)).collect()
}

struct Packet {
    to: SocketAddr,
    source: SocketAddr,
    ecn: Ecn,
    bytes: Vec<u8>,
}

/// A node whose packets leave from its cards in turns, as sockets send them.
struct Node {
    endpoint: Endpoint,
    cards: Vec<SocketAddr>,
    events: Vec<Event>,
    delivered: BTreeSet<u64>,
    /// Number of packets that left each card.
    left: Vec<u64>,
}

/// Two nodes. Cards with the same number are in one network, and the networks are separate.
struct World {
    nodes: [Node; 2],
    now: Instant,
    wire: BTreeMap<(Instant, u64), Packet>,
    sequence: u64,
    dead: BTreeSet<IpAddr>,
    sent: u64,
    /// Longest time without a delivery at the second node.
    silence: Duration,
    delivered_at: Instant,
}

fn node(config: &Config, number: usize, count: usize) -> Node {
    let mut config = Config { local_addresses: count as u8, ..config.clone() };
    if let Protection::Static(key) = &mut config.protection {
        key[0] = number as u8;
    }
    let seed = [3 + number as u8; 32];
    let mut endpoint = Endpoint::new(config, Epoch(1), seed, Instant::ZERO).unwrap();
    endpoint.open_qp(QPN, ReceiveBuffers::Unlimited);
    let (events, delivered) = (Vec::new(), BTreeSet::new());
    Node { endpoint, cards: cards(number, count), events, delivered, left: vec![0; count] }
}

impl World {
    fn new(config: &Config, counts: [usize; 2]) -> Self {
        Self {
            nodes: [node(config, 0, counts[0]), node(config, 1, counts[1])],
            now: Instant::ZERO,
            wire: BTreeMap::new(),
            sequence: 0,
            dead: BTreeSet::new(),
            sent: 0,
            silence: Duration::ZERO,
            delivered_at: Instant::ZERO,
        }
    }

    /// Adds the other node as a peer of `node`. The peer has the first `count` addresses of that
    /// node.
    fn tell(&mut self, node: usize, count: usize) -> PeerId {
        let key = self.nodes[1 - node].endpoint.public_key();
        let peer = PeerConfig::at_each(&cards(1 - node, count)).unwrap().with_key(key);
        self.nodes[node].endpoint.add_peer(self.now, peer).unwrap()
    }

    fn send(&mut self, node: usize, to: PeerId, n: u64, bytes: usize) {
        for _ in 0..n {
            let user = self.sent;
            self.sent += 1;
            let payload = vec![user as u8; bytes].into();
            let class = Class::Bulk;
            let datagram = Datagram { src_qpn: QPN, dst_qpn: QPN, imm: user, payload, class, user };
            self.nodes[node].endpoint.send(self.now, to, datagram).unwrap();
        }
    }

    fn drain(&mut self) {
        let mut buf = TransmitBuf::new(1, 65_000);
        for node in &mut self.nodes {
            loop {
                buf.clear();
                let Some(t) = node.endpoint.poll_transmit(self.now, &mut buf) else { break };
                let count = node.cards.len();
                let place = usize::from(t.entropy.0) % count;
                node.left[place] += 1;
                let from = node.cards[place];
                let port = PORT + t.entropy.0;
                let (head, payload) = buf.segments().next().unwrap();
                let mut bytes = head.to_vec();
                bytes.extend_from_slice(payload);
                let same_network =
                    from.ip().to_string()[..6] == t.destination.ip().to_string()[..6];
                let dead = [from.ip(), t.destination.ip()].iter().any(|ip| self.dead.contains(ip));
                if !same_network || dead {
                    continue;
                }
                self.sequence += 1;
                let source = SocketAddr::new(from.ip(), port);
                let packet = Packet { to: t.destination, source, ecn: t.ecn, bytes };
                self.wire.insert((self.now + DELAY, self.sequence), packet);
            }
            node.events.extend(std::iter::from_fn(|| node.endpoint.poll_event()));
        }
    }

    fn deliver(&mut self, mut packet: Packet) {
        let Some((at, local)) = self.nodes.iter().enumerate().find_map(|(at, node)| {
            Some((at, node.cards.iter().position(|card| *card == packet.to)? as u8))
        }) else {
            return;
        };
        let Packet { source, ecn, .. } = packet;
        let meta = PacketMeta { source, local, ecn, received_at: self.now };
        let node = &mut self.nodes[at];
        let whole = PacketRef::Whole(&mut packet.bytes);
        if let Some(d) = node.endpoint.handle_packet(self.now, meta, whole) {
            assert!(node.delivered.insert(d.imm), "datagram {} delivered twice", d.imm);
            if at == 1 {
                self.silence = self.silence.max(self.now.since(self.delivered_at));
                self.delivered_at = self.now;
            }
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        self.drain();
        loop {
            let timers = self.nodes.iter().filter_map(|n| n.endpoint.poll_timeout());
            let next = self.wire.keys().next().map(|(at, _)| *at).into_iter().chain(timers).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            while let Some(entry) = self.wire.first_entry().filter(|e| e.key().0 <= self.now) {
                let packet = entry.remove();
                self.deliver(packet);
            }
            for node in &mut self.nodes {
                node.endpoint.handle_timeout(self.now);
            }
            self.drain();
        }
        self.now = end;
    }

    /// Sends one datagram to `to` in each interval `every`, for the duration `span`.
    fn stream(&mut self, to: PeerId, every: Duration, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.send(0, to, 1, 100);
            self.run_for(every);
        }
    }

    fn assert_all_arrived(&self) {
        let lost =
            |e: &&Event| matches!(e, Event::Completed { status, .. } if *status != Status::Ok);
        for node in &self.nodes {
            assert_eq!(node.events.iter().find(lost), None);
            let down = |e: &&Event| matches!(e, Event::PeerDown { .. });
            assert_eq!(node.events.iter().find(down), None);
        }
        let delivered: usize = self.nodes.iter().map(|n| n.delivered.len()).sum();
        assert_eq!(delivered as u64, self.sent);
    }

    fn share_of_second_card(&self) -> f64 {
        let left = &self.nodes[0].left;
        left[1] as f64 / (left[0] + left[1]) as f64
    }
}

fn plain() -> Config {
    Config { paths: 16, ..Config::default() }
}

fn keyed() -> Config {
    Config { protection: Protection::Static([9; 32]), ..plain() }
}

fn both_know(config: &Config, counts: [usize; 2]) -> (World, PeerId) {
    let mut world = World::new(config, counts);
    world.tell(1, counts[0]);
    let b = world.tell(0, counts[1]);
    (world, b)
}

#[test]
fn two_cards_share_the_traffic() {
    for config in [plain(), keyed()] {
        let (mut world, b) = both_know(&config, [2, 2]);
        for _ in 0..50 {
            world.send(0, b, 100, 1000);
            world.run_for(Duration::from_millis(1));
        }
        world.assert_all_arrived();
        let share = world.share_of_second_card();
        assert!((0.4..0.6).contains(&share), "{share}");
    }
}

#[test]
fn a_node_with_one_card_reaches_both_of_a_peer() {
    // The one network of the sender reaches only the peer's first card, so half of the paths are
    // dead from the beginning.
    for config in [plain(), keyed()] {
        let (mut world, b) = both_know(&config, [1, 2]);
        world.stream(b, Duration::from_micros(100), Duration::from_millis(50));
        world.run_for(Duration::from_millis(50));
        world.assert_all_arrived();
    }
}

#[test]
fn a_card_that_dies_costs_what_dead_paths_cost_and_is_used_again_when_it_is_back() {
    for (config, dead) in [(plain(), 0), (plain(), 1), (keyed(), 0), (keyed(), 1)] {
        let (mut world, b) = both_know(&config, [2, 2]);
        world.stream(b, Duration::from_micros(100), Duration::from_millis(50));
        world.dead.insert(card(1, dead).ip());
        world.silence = Duration::ZERO;
        world.stream(b, Duration::from_micros(100), Duration::from_millis(100));
        assert!(world.silence < Duration::from_millis(2), "{:?}", world.silence);
        world.dead.clear();
        world.stream(b, Duration::from_micros(100), Duration::from_millis(500));
        world.nodes[0].left = vec![0; 2];
        world.stream(b, Duration::from_micros(100), Duration::from_millis(100));
        let share = world.share_of_second_card();
        assert!((0.3..0.7).contains(&share), "{share}");
        world.run_for(Duration::from_millis(50));
        world.assert_all_arrived();
    }
}

#[test]
fn a_session_opens_whichever_card_is_dead() {
    for config in [plain(), keyed()] {
        for dead in [card(0, 0), card(0, 1), card(1, 0), card(1, 1)] {
            let (mut world, b) = both_know(&config, [2, 2]);
            world.dead.insert(dead.ip());
            world.send(0, b, 1, 100);
            world.run_for(Duration::from_millis(300));
            assert_eq!(world.nodes[1].delivered.len(), 1, "{dead} is dead");
            world.assert_all_arrived();
        }
    }
}

#[test]
fn a_session_opens_under_load_whichever_card_is_dead() {
    // Every opening is answered with a demand for a cookie first.
    let config = Config { handshakes_per_second_max: 0, ..keyed() };
    for dead in [None, Some(card(1, 0)), Some(card(1, 1))] {
        let (mut world, b) = both_know(&config, [2, 2]);
        world.dead.extend(dead.map(|card| card.ip()));
        world.send(0, b, 1, 100);
        world.run_for(Duration::from_secs(2));
        assert_eq!(world.nodes[1].delivered.len(), 1, "{dead:?} is dead");
    }
}

#[test]
fn a_packet_from_the_second_address_is_no_move() {
    let (mut world, b) = both_know(&keyed(), [2, 2]);
    world.stream(b, Duration::from_micros(100), Duration::from_millis(20));
    let a = world.nodes[1].endpoint.peer_at(card(0, 0)).unwrap();
    assert_eq!(world.nodes[1].endpoint.peer_at(card(0, 1)), Some(a));
    assert_eq!(world.nodes[1].endpoint.addresses_of(a), cards(0, 2));
    assert_eq!(world.nodes[1].endpoint.address_of(a), Some(card(0, 0)));
    for entropy in 0..16 {
        let to = world.nodes[1].endpoint.destination(a, Entropy(entropy));
        assert_eq!(to, Some(card(0, usize::from(entropy) % 2)));
    }
}

#[test]
fn an_address_belongs_to_one_peer() {
    let (mut world, _) = both_know(&plain(), [2, 2]);
    let now = world.now;
    let endpoint = &mut world.nodes[0].endpoint;
    let other = SocketAddr::from(([10, 9, 9, 9], PORT));
    let twice = PeerConfig::at_each(&[other, other]).unwrap();
    assert_eq!(endpoint.add_peer(now, twice), Err(AddPeerError::AddressInUse));
    let shared = PeerConfig::at_each(&[other, card(1, 1)]).unwrap();
    assert_eq!(endpoint.add_peer(now, shared), Err(AddPeerError::AddressInUse));
    assert_eq!(endpoint.peer_at(other), None);
    let gone = endpoint.peer_at(card(1, 1)).unwrap();
    endpoint.remove_peer(now, gone);
    assert!(endpoint.add_peer(now, shared).is_ok());
}

#[test]
fn a_peer_has_as_many_addresses_as_may_be_and_no_more() {
    assert!(PeerConfig::at_each(&[]).is_none());
    assert!(PeerConfig::at_each(&cards(1, srd_proto::ADDRESSES_MAX)).is_some());
    assert!(PeerConfig::at_each(&cards(1, srd_proto::ADDRESSES_MAX + 1)).is_none());
}

#[test]
fn a_peer_that_is_told_one_address_of_two_is_reached_all_the_same() {
    let mut world = World::new(&keyed(), [2, 2]);
    let a = world.tell(1, 1);
    let b = world.tell(0, 2);
    for _ in 0..50 {
        world.stream(b, Duration::from_micros(100), Duration::from_millis(5));
        world.send(1, a, 1, 100);
    }
    world.run_for(Duration::from_millis(100));
    world.assert_all_arrived();
}
