//! Cards of nodes with different numbers of shards: a shard without a counterpart on the other node
//! sends over SRD like the other shards, and the receiver never confuses flows of different shards.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use srd_card::checksum;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::{Config, Express, Guest, Partner, PeerSettings, PeerSlot, Prefix, Reach};
use srd_proto::{
    Config as CoreConfig, Delivery, Duration, Ecn, Endpoint, Epoch, Instant, Node, PacketMeta,
    PacketRef, PeerConfig, Protection, TransmitBuf, shard_of,
};

const PORT: u16 = 7471;
const DELAY: Duration = Duration::from_micros(10);

/// Packets that a guest received: source port and content of each.
#[derive(Default)]
struct Inbox(Vec<(u16, u8)>);

impl Guest for Inbox {
    fn deliver(&mut self, frame: &[u8]) {
        let packet = &frame[OFFLOAD_BYTES..];
        self.0.push((u16::from_be_bytes([packet[20], packet[21]]), *packet.last().unwrap()));
    }
}

/// One shard of a node with its card.
struct Shard {
    endpoint: Endpoint,
    express: Express,
    guest: Inbox,
}

/// Two nodes and a link between them. The bytes of a packet determine the shard that receives it.
struct Net {
    nodes: [Vec<Shard>; 2],
    now: Instant,
    wire: VecDeque<(Instant, usize, SocketAddr, Vec<u8>)>,
    dropped: u64,
}

fn address(node: usize) -> SocketAddr {
    ([10, 0, 0, node as u8 + 1], PORT).into()
}

fn node(at: usize, shards: u8, now: Instant) -> Vec<Shard> {
    let protection = Protection::Plain;
    let config = CoreConfig { protection, paths: 16, ..CoreConfig::sockets() };
    let node = Arc::new(Node::new(config, Epoch(1 << 32), shards).unwrap());
    let shards = (0..shards).map(|shard| {
        let mut endpoint =
            Endpoint::of_node(node.clone(), shard, [at as u8 * 16 + shard + 1; 32], now);
        let id = endpoint.add_peer(now, PeerConfig::at(address(1 - at))).unwrap();
        // All cards have the default secret, so they assign the same flow numbers.
        let mut express = Express::new(Config::default(), &mut endpoint);
        let other = [10, 77, 0, 2 - at as u8];
        let allowed = vec![Prefix::new(other.into(), 32).unwrap()];
        express.add_peer(now, PeerSettings { id, allowed, express: true, express_udp: true });
        Shard { endpoint, express, guest: Inbox::default() }
    });
    shards.collect()
}

impl Net {
    fn new(shards: [u8; 2]) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let nodes = [node(0, shards[0], now), node(1, shards[1], now)];
        Self { nodes, now, wire: VecDeque::new(), dropped: 0 }
    }

    /// Sends a UDP packet from a shard of the first node.
    fn send(&mut self, shard: usize, port: u16, content: u8) {
        let shard = &mut self.nodes[0][shard];
        shard.express.from_guest(self.now, frame(port, content), &mut shard.guest);
    }

    fn run(&mut self, span: Duration, mut lose: impl FnMut(&[u8]) -> bool) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_micros(if self.wire.is_empty() { 100 } else { 5 });
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (received_at, to, source, bytes) = self.wire.pop_front().unwrap();
                self.deliver(to, source, received_at, bytes);
            }
            for at in 0..2 {
                self.step(at, &mut lose);
            }
        }
    }

    fn deliver(&mut self, to: usize, source: SocketAddr, received_at: Instant, mut bytes: Vec<u8>) {
        let shards = &mut self.nodes[to];
        let shard = usize::from(shard_of(&bytes, shards.len() as u8));
        let Shard { endpoint, express, guest } = &mut shards[shard];
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at };
        let packet = PacketRef::Whole(&mut bytes);
        let Some(delivery) = endpoint.handle_packet(self.now, meta, packet) else { return };
        let context = delivery.peer;
        let by = Partner { context, shard: endpoint.partner_of(context) };
        let payload = delivery.payload.to_vec();
        let peer = endpoint.node_of(context);
        let delivery = Delivery { peer, payload: &payload, ..delivery };
        express.delivered_by(self.now, by, &delivery, guest);
    }

    fn step(&mut self, at: usize, lose: &mut impl FnMut(&[u8]) -> bool) {
        let Self { nodes, now, wire, dropped } = self;
        let mut buf = TransmitBuf::new(16, 65_000);
        for Shard { endpoint, express, guest } in &mut nodes[at] {
            endpoint.handle_timeout(*now);
            express.handle_timeout(*now, guest);
            express.pump(*now, endpoint);
            loop {
                buf.clear();
                let Some(transmit) = endpoint.poll_transmit(*now, &mut buf) else { break };
                for (head, payload) in buf.segments() {
                    let bytes = [head, payload].concat();
                    if transmit.destination != address(1 - at) || lose(&bytes) {
                        *dropped += 1;
                        continue;
                    }
                    let mut source = address(at);
                    source.set_port(PORT + transmit.entropy.0);
                    wire.push_back((*now + DELAY, 1 - at, source, bytes));
                }
            }
            while let Some(event) = endpoint.poll_event() {
                express.event(*now, &event);
            }
        }
    }

    /// Returns the packets from one port that arrived at all shards of the second node, in order.
    fn received(&self, port: u16) -> Vec<u8> {
        let all = self.nodes[1].iter().flat_map(|shard| &shard.guest.0);
        all.filter(|(from, _)| *from == port).map(|(_, content)| *content).collect()
    }
}

/// A UDP packet from the first node's guest to the second's, with its offload header.
fn frame(port: u16, content: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
    packet.extend(port.to_be_bytes());
    packet.extend([0, 80, 0, 0, 0, 0]);
    packet.extend([content; 100]);
    let bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&bytes.to_be_bytes());
    packet[24..26].copy_from_slice(&(bytes - 20).to_be_bytes());
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    [vec![0; OFFLOAD_BYTES], packet].concat()
}

const COUNTS: [[u8; 2]; 5] = [[1, 1], [2, 1], [3, 1], [5, 2], [1, 3]];

#[test]
fn every_shard_sends_by_srd_whatever_the_number_of_the_other_nodes_shards() {
    for shards in COUNTS {
        let mut net = Net::new(shards);
        for shard in 0..usize::from(shards[0]) {
            net.send(shard, 1000 + shard as u16, 0);
        }
        net.run(Duration::from_millis(50), |_| false);
        for (number, shard) in net.nodes[0].iter().enumerate() {
            let reach = shard.express.report(PeerSlot(0)).unwrap().reach;
            assert_eq!(
                reach,
                Reach::Express { udp: true, tunnels: false },
                "{shards:?}, shard {number}"
            );
        }
    }
}

#[test]
fn a_change_of_the_rules_reaches_every_shard_of_the_other_node() {
    for shards in COUNTS {
        let mut net = Net::new(shards);
        for shard in 0..usize::from(shards[0]) {
            net.send(shard, 1000 + shard as u16, 0);
        }
        net.run(Duration::from_millis(50), |_| false);
        let now = net.now;
        for shard in &mut net.nodes[1] {
            shard.express.set_enabled(now, false, false);
        }
        net.run(Duration::from_millis(50), |_| false);
        for (number, shard) in net.nodes[0].iter().enumerate() {
            let reach = shard.express.report(PeerSlot(0)).unwrap().reach;
            assert_eq!(reach, Reach::Off, "{shards:?}, shard {number}");
        }
    }
}

#[test]
fn flows_of_two_shards_with_one_number_are_two_flows() {
    for shards in COUNTS {
        let mut net = Net::new(shards);
        let ports = (0..shards[0]).map(|shard| 1000 + u16::from(shard));
        for shard in 0..usize::from(shards[0]) {
            net.send(shard, 1000 + shard as u16, 0);
        }
        net.run(Duration::from_millis(50), |_| false);
        let mut count = 0;
        for content in 1..=200 {
            for shard in 0..usize::from(shards[0]) {
                net.send(shard, 1000 + shard as u16, content);
            }
            net.run(Duration::from_micros(50), |_| {
                count += 1;
                count % 10 == 3
            });
        }
        net.run(Duration::from_millis(500), |_| false);
        assert!(net.dropped > 10);
        for port in ports {
            let received = net.received(port);
            assert_eq!(received, (0..=200).collect::<Vec<u8>>(), "{shards:?}, port {port}");
        }
    }
}
