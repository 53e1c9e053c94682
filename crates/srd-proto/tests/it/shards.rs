//! Nodes of several shards: every packet reaches the shard that it is for, whatever the numbers of
//! shards, and packets of all shards count as those of one node.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use srd_proto::rng::Rng;
use srd_proto::wire::HEADER_BYTES;
use srd_proto::{
    Admission, Class, Config, Datagram, Duration, Ecn, Endpoint, Epoch, Event, Instant, Node,
    PacketMeta, PacketRef, PeerConfig, PeerId, Protection, Qpn, ReceiveBuffers, Status,
    TransmitBuf, shard_of,
};

const PORT: u16 = 7471;
const DELAY: Duration = Duration::from_micros(10);

/// A node with its shards, each of which has the other node as a peer.
struct Host {
    shards: Vec<Endpoint>,
    peers: Vec<PeerId>,
}

/// Two hosts, and a network that hands each packet to the shard that its bytes name.
struct Net {
    hosts: [Host; 2],
    config: Config,
    now: Instant,
    wire: VecDeque<(Instant, usize, SocketAddr, Vec<u8>)>,
    loss_permille: u32,
    rng: Rng,
    /// Datagrams that arrived at each host; `again` counts the further copies of all of them.
    arrived: [BTreeSet<u64>; 2],
    again: u32,
    failed: Vec<Status>,
    restarts: u64,
}

fn address(host: usize) -> SocketAddr {
    ([10, 0, 0, host as u8 + 1], PORT).into()
}

fn config(protection: &Protection) -> Config {
    let peer_timeout = Duration::from_millis(1500);
    Config { protection: protection.clone(), paths: 16, peer_timeout, ..Config::sockets() }
}

fn key(host: usize) -> [u8; 32] {
    [host as u8 + 1; 32]
}

impl Host {
    fn new(config: &Config, host: usize, shards: u8, epoch: u64, now: Instant) -> Self {
        let mut config = config.clone();
        if let Protection::Static(private) = &mut config.protection {
            *private = key(host);
        }
        let node = Arc::new(Node::new(config, Epoch(epoch << 32), shards).unwrap());
        let shards = (0..shards).map(|shard| {
            let mut seed = [host as u8 + 1; 32];
            (seed[1], seed[2]) = (shard, epoch as u8);
            let mut endpoint = Endpoint::of_node(node.clone(), shard, seed, now);
            endpoint.open_qp(Qpn(7), ReceiveBuffers::Unlimited);
            endpoint
        });
        Self { shards: shards.collect(), peers: Vec::new() }
    }

    fn know(&mut self, other: usize, key: Option<[u8; 32]>, now: Instant) {
        let peer = PeerConfig::at(address(other)).with_key(key);
        self.peers = self.shards.iter_mut().map(|s| s.add_peer(now, peer).unwrap()).collect();
    }
}

impl Net {
    fn new(protection: &Protection, shards: [u8; 2]) -> Self {
        let (config, now) = (config(protection), Instant::from_nanos(1_000_000_000));
        let [a, b] = [0, 1].map(|host| Host::new(&config, host, shards[host], 1, now));
        let mut net = Self {
            hosts: [a, b],
            config,
            now,
            wire: VecDeque::new(),
            loss_permille: 0,
            rng: Rng::new(7),
            arrived: [BTreeSet::new(), BTreeSet::new()],
            again: 0,
            failed: Vec::new(),
            restarts: 1,
        };
        net.introduce();
        net
    }

    fn introduce(&mut self) {
        let keys = [0, 1].map(|host| self.hosts[host].shards[0].public_key());
        for host in 0..2 {
            if self.hosts[host].peers.is_empty() {
                self.hosts[host].know(1 - host, keys[1 - host], self.now);
            }
        }
    }

    /// Restarts a host with this number of shards and without any state.
    fn restart(&mut self, host: usize, shards: u8) {
        self.restarts += 1;
        self.hosts[host] = Host::new(&self.config, host, shards, self.restarts, self.now);
        self.introduce();
    }

    /// Each shard of a host sends `each` datagrams to the other host, numbered from `user`; returns
    /// all numbers.
    fn send(&mut self, host: usize, each: u64, user: u64) -> BTreeSet<u64> {
        let mut users = BTreeSet::new();
        let Host { shards, peers } = &mut self.hosts[host];
        for (n, (shard, peer)) in shards.iter_mut().zip(peers).enumerate() {
            for i in 0..each {
                let user = user + n as u64 * each + i;
                let payload = Bytes::copy_from_slice(&user.to_be_bytes());
                let (src_qpn, dst_qpn, class) = (Qpn(1), Qpn(7), Class::Bulk);
                let datagram = Datagram { src_qpn, dst_qpn, imm: 0, payload, class, user };
                shard.send(self.now, *peer, datagram).unwrap();
                users.insert(user);
            }
        }
        users
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_micros(if self.wire.is_empty() { 100 } else { 5 });
            self.deliver();
            for host in 0..2 {
                self.transmit(host);
            }
        }
    }

    fn transmit(&mut self, host: usize) {
        let mut buf = TransmitBuf::new(16, 65_000);
        for shard in &mut self.hosts[host].shards {
            shard.handle_timeout(self.now);
            loop {
                buf.clear();
                let Some(transmit) = shard.poll_transmit(self.now, &mut buf) else { break };
                let astray = transmit.destination.ip() != address(1 - host).ip();
                // The sockets of all paths except the first only send, and drop arriving packets.
                let heard = transmit.destination == address(1 - host);
                let mut source = address(host);
                source.set_port(PORT + transmit.entropy.0);
                for (head, payload) in buf.segments() {
                    if astray {
                        // A stranger receives only demands for a cookie, Resets, and answers to
                        // replayed openings, which it cannot decrypt.
                        assert!([5, 6, 7].contains(&(head[0] & 15)), "{head:?}");
                    }
                    if !heard || self.rng.below(1000) < self.loss_permille {
                        continue;
                    }
                    let bytes = [head, payload].concat();
                    self.wire.push_back((self.now + DELAY, 1 - host, source, bytes));
                }
            }
            while let Some(event) = shard.poll_event() {
                if let Event::Completed { status, .. } = event
                    && status != Status::Ok
                {
                    self.failed.push(status);
                }
            }
        }
    }

    fn deliver(&mut self) {
        while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (received_at, to, source, mut bytes) = self.wire.pop_front().unwrap();
            let Host { shards, peers } = &mut self.hosts[to];
            let shard = usize::from(shard_of(&bytes, shards.len() as u8));
            let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at };
            let endpoint = &mut shards[shard];
            let packet = PacketRef::Whole(&mut bytes);
            let Some(delivery) = endpoint.handle_packet(self.now, meta, packet) else { continue };
            let user = u64::from_be_bytes(delivery.payload.try_into().unwrap());
            let from = delivery.peer;
            if !self.arrived[to].insert(user) {
                self.again += 1;
            }
            assert_eq!(endpoint.node_of(from), peers[shard], "it is the node that was named");
        }
    }
}

fn protections() -> [Protection; 3] {
    [Protection::Plain, Protection::JobKey([9; 32]), Protection::Static([0; 32])]
}

const COUNTS: [[u8; 2]; 6] = [[1, 1], [2, 2], [1, 2], [2, 4], [3, 2], [16, 5]];

#[test]
fn every_shard_reaches_the_other_node_whatever_their_numbers() {
    for protection in protections() {
        for shards in COUNTS {
            for loss_permille in [0, 50] {
                let mut net = Net::new(&protection, shards);
                net.loss_permille = loss_permille;
                let there = net.send(0, 40, 0);
                let back = net.send(1, 40, 100_000);
                net.run(Duration::from_millis(60));
                let what = format!("{protection:?} {shards:?} {loss_permille}");
                assert_eq!(net.arrived[1], there, "{what}");
                assert_eq!(net.arrived[0], back, "{what}");
                assert_eq!((net.again, net.failed.len()), (0, 0), "{what}");
            }
        }
    }
}

#[test]
fn a_pair_of_nodes_has_as_many_contexts_as_the_larger_has_shards() {
    for shards in COUNTS {
        let mut net = Net::new(&Protection::Static([0; 32]), shards);
        net.send(0, 4, 0);
        net.send(1, 4, 100_000);
        net.run(Duration::from_millis(20));
        let contexts: usize = net.hosts[0].shards.iter().map(Endpoint::peer_count).sum();
        assert_eq!(contexts, usize::from(shards[0].max(shards[1])), "{shards:?}");
    }
}

#[test]
fn a_node_that_restarts_with_another_number_of_shards_is_reached_again() {
    for protection in protections() {
        for [before, after, here] in [[2, 2, 2], [1, 2, 2], [4, 2, 2], [2, 3, 4]] {
            let mut net = Net::new(&protection, [here, before]);
            net.send(0, 10, 0);
            net.send(1, 10, 100_000);
            net.run(Duration::from_millis(20));
            net.restart(1, after);
            let there = net.send(0, 10, 200_000);
            // A silent peer is given up after 1.5 s, and waiting datagrams go to its next run.
            net.run(Duration::from_secs(4));
            let what = format!("{protection:?} {before} then {after}, beside {here}");
            let lost = there.difference(&net.arrived[1]).count();
            assert_eq!(lost, net.failed.len(), "{what}: each is told of");
            let next = net.send(0, 10, 300_000);
            let back = net.send(1, 10, 400_000);
            net.run(Duration::from_millis(100));
            assert!(next.is_subset(&net.arrived[1]), "{what}");
            assert!(back.is_subset(&net.arrived[0]), "{what}");
        }
    }
}

#[test]
fn a_node_that_is_removed_is_removed_with_every_context() {
    let mut net = Net::new(&Protection::Static([0; 32]), [2, 8]);
    net.send(1, 4, 0);
    net.run(Duration::from_millis(20));
    assert_eq!(net.hosts[0].shards[0].peer_count(), 4);
    let peer = net.hosts[0].peers[0];
    net.hosts[0].shards[0].remove_peer(net.now, peer);
    assert_eq!(net.hosts[0].shards[0].peer_count(), 0);
}

#[test]
fn a_stranger_gets_no_context_by_the_number_of_its_shard() {
    let protection = Protection::Static([0; 32]);
    let mut net = Net::new(&protection, [2, 4]);
    // Host 0 admits only configured nodes, and the key that it has for host 1 is not host 1's.
    let config = Config { admission: Admission::Known, ..config(&protection) };
    net.hosts[0] = Host::new(&config, 0, 2, 5, net.now);
    let other = Host::new(&config, 5, 1, 1, net.now).shards[0].public_key();
    net.hosts[0].know(1, other, net.now);
    net.send(1, 4, 0);
    net.run(Duration::from_millis(20));
    assert!(net.arrived[0].is_empty());
    assert!(net.hosts[0].shards.iter().all(|shard| shard.peer_count() == 1));
}

/// Packets from host 0 to host 1 during `span`, without duplicates.
fn recorded(net: &mut Net, span: Duration) -> Vec<Vec<u8>> {
    let (end, mut all) = (net.now + span, Vec::new());
    while net.now < end {
        net.run(Duration::from_nanos(1));
        let there = net.wire.iter().filter(|(_, to, ..)| *to == 1);
        all.extend(there.map(|(.., bytes)| bytes.clone()));
    }
    all.sort();
    all.dedup();
    all
}

/// Offset of the destination context in a packet's header.
const CONTEXT_AT: usize = 4;

#[test]
fn packets_of_one_shard_played_to_another_deliver_nothing_and_disturb_nobody() {
    for protection in [Protection::JobKey([9; 32]), Protection::Static([0; 32])] {
        let mut net = Net::new(&protection, [2, 2]);
        net.send(0, 40, 0);
        let packets = recorded(&mut net, Duration::from_millis(20));
        assert_eq!(net.arrived[1].len(), 80);
        let names: BTreeSet<[u8; 4]> = packets
            .iter()
            .map(|bytes| bytes[CONTEXT_AT..CONTEXT_AT + 4].try_into().unwrap())
            .collect();
        assert!(names.len() >= 3, "none, and one for each shard: {names:?}");
        let stranger: SocketAddr = ([10, 0, 0, 77], PORT).into();
        for (source, bytes) in packets.iter().flat_map(|p| [(address(0), p), (stranger, p)]) {
            for name in &names {
                for shard in &mut net.hosts[1].shards {
                    let mut bytes = bytes.clone();
                    bytes[CONTEXT_AT..CONTEXT_AT + 4].copy_from_slice(name);
                    let meta =
                        PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: net.now };
                    let taken = shard.handle_packet(net.now, meta, PacketRef::Whole(&mut bytes));
                    assert!(taken.is_none(), "{protection:?}");
                }
            }
        }
        for shard in &net.hosts[1].shards {
            assert!(shard.peer_count() <= 2, "{protection:?}: {}", shard.peer_count());
        }
        // The packets replayed from elsewhere have redirected no traffic.
        let (there, back) = (net.send(0, 40, 1_000), net.send(1, 40, 100_000));
        net.run(Duration::from_millis(60));
        assert!(there.is_subset(&net.arrived[1]), "{protection:?}");
        assert!(back.is_subset(&net.arrived[0]), "{protection:?}");
        assert_eq!((net.again, net.failed.len()), (0, 0), "{protection:?}");
    }
}

#[test]
fn no_two_shards_seal_under_one_key_and_number() {
    for protection in [Protection::JobKey([9; 32]), Protection::Static([0; 32])] {
        let mut net = Net::new(&protection, [4, 4]);
        let Host { shards, peers } = &mut net.hosts[0];
        for (shard, peer) in shards.iter_mut().zip(peers) {
            for user in 0..20u64 {
                let payload = Bytes::copy_from_slice(&user.to_be_bytes());
                let (src_qpn, dst_qpn, class) = (Qpn(1), Qpn(7), Class::Bulk);
                let datagram = Datagram { src_qpn, dst_qpn, imm: 0, payload, class, user };
                shard.send(net.now, *peer, datagram).unwrap();
            }
        }
        let packets = recorded(&mut net, Duration::from_millis(20));
        assert_eq!(net.again, 60, "four shards sent the same twenty");
        // Equal plaintexts under one key and one number would give equal bytes.
        let (mut sealed, mut blocks) = (BTreeSet::new(), 0);
        let data = packets.iter().filter(|bytes| bytes[0] & 15 == 1);
        for block in data.filter_map(|bytes| bytes.get(HEADER_BYTES..HEADER_BYTES + 16)) {
            sealed.insert(block.to_vec());
            blocks += 1;
        }
        assert!(blocks >= 80, "{blocks}");
        assert_eq!(sealed.len(), blocks, "{protection:?}");
    }
}

#[test]
fn regression_an_opening_for_one_shard_is_not_looked_at_by_another() {
    for protection in [Protection::JobKey([9; 32]), Protection::Static([0; 32])] {
        let mut net = Net::new(&protection, [2, 2]);
        net.send(0, 4, 0);
        let packets = recorded(&mut net, Duration::from_millis(20));
        let source: SocketAddr = ([10, 0, 0, 77], PORT).into();
        let mut played = 0;
        for bytes in packets.iter().filter(|bytes| bytes[0] & 15 == 4) {
            let other = &mut net.hosts[1].shards[1 - usize::from(shard_of(bytes, 2))];
            let mut bytes = bytes.clone();
            let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: net.now };
            other.handle_packet(net.now, meta, PacketRef::Whole(&mut bytes));
            let mut buf = TransmitBuf::new(16, 65_000);
            while let Some(transmit) = other.poll_transmit(net.now, &mut buf) {
                assert_ne!(
                    transmit.destination.ip(),
                    source.ip(),
                    "{protection:?}: it is answered"
                );
                buf.clear();
            }
            played += 1;
        }
        assert!(played >= 2);
    }
}
