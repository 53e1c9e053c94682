//! Messaging layers over endpoints and a lossy wire. The name of each test is the rule that the
//! test shows.

mod basics;
mod batches;
mod credit;
mod fairness;
mod faults;
mod hostile;
mod limits;
mod memory;
mod order;
mod probes;
mod protocols;
mod receives;
mod remote_events;
mod shares;

use srd_proto::rng::Rng;

use super::*;
use crate::layer::*;
use crate::lossy_wire::{Arrival, Wire, address};
use crate::mr::Access;
use crate::ram::Ram;
use crate::rdm::send::operation::Op;
use crate::rdm::state::QPN;
use core::net::SocketAddr;
use srd_proto::{Config as CoreConfig, Duration, Endpoint, Epoch, Instant, PacketRef, TransmitBuf};
use std::vec;
use std::vec::Vec;

/// Bytes of each node's memory.
const RAM_BYTES: usize = 8 << 20;

/// A node of the network.
struct Node {
    endpoint: Endpoint,
    rdm: Rdm,
    ram: Ram,
    incarnation: u64,
}

/// All nodes, and the wire between them.
struct Net {
    nodes: Vec<Node>,
    config: Config,
    now: Instant,
    wire: Wire,
    /// Node of which only the transport runs, and no layer above it.
    frozen: Option<usize>,
    core: CoreConfig,
    /// Whether consecutive messages may share a datagram.
    joins: bool,
}

fn config() -> Config {
    Config { operations_max: 256, receives_max: 256, report_remote: false, seed: 3 }
}

impl Node {
    fn new(net: (&Config, &CoreConfig), node: usize, incarnation: u64, now: Instant) -> Self {
        // Each run has a different seed, and so different context numbers.
        let seed = [u8::try_from(node as u64 + 16 * (incarnation / 1000)).unwrap(); 32];
        let mut endpoint = Endpoint::new(net.1.clone(), Epoch(incarnation), seed, now).unwrap();
        let rdm = Rdm::new(*net.0, &mut endpoint, address(node), incarnation);
        Self { endpoint, rdm, ram: Ram::new(RAM_BYTES), incarnation }
    }
}

/// Returns a wire that loses, duplicates and reorders packets.
fn bad_wire() -> Wire {
    Wire { loss_permille: 50, duplicate_permille: 20, jitter_us: 300, ..Wire::new() }
}

impl Net {
    fn new(nodes: usize) -> Self {
        Self::with(nodes, config())
    }

    fn with(nodes: usize, config: Config) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let core = CoreConfig {
            packet_bytes_max: 1472,
            keepalive: Duration::from_millis(50),
            peer_timeout: Duration::from_millis(500),
            mtu_discovery: false,
            ..CoreConfig::sockets()
        };
        let new = |node: usize| Node::new((&config, &core), node, 100 + node as u64, now);
        Self {
            nodes: (0..nodes).map(new).collect(),
            config,
            now,
            wire: Wire::new(),
            frozen: None,
            core,
            joins: false,
        }
    }

    /// Returns a network whose wire loses, duplicates and reorders packets.
    fn bad(nodes: usize) -> Self {
        Self { wire: bad_wire(), ..Self::new(nodes) }
    }

    fn node(&self, node: usize) -> Node {
        Node::new((&self.config, &self.core), node, 100 + node as u64, self.now)
    }

    /// Calls `call` with a node's messaging layer and its environment.
    fn on<R>(&mut self, node: usize, call: impl FnOnce(&mut Rdm, &mut World<'_>) -> R) -> R {
        let Node { endpoint, rdm, ram, .. } = &mut self.nodes[node];
        call(rdm, &mut World { now: self.now, endpoint, memory: ram })
    }

    /// Returns the peer number under which node `at` sends to any run of node `of`. The two may be
    /// the same node.
    fn peer(&mut self, at: usize, of: usize) -> Peer {
        self.on(at, |rdm, world| rdm.add_peer(world, address(of), 0).unwrap())
    }

    /// Adds a peer for its current run only.
    fn exact(&mut self, at: usize, of: usize) -> Peer {
        let run = self.nodes[of].incarnation;
        self.on(at, |rdm, world| rdm.add_peer(world, address(of), run).unwrap())
    }

    fn fill(&mut self, node: usize, at: u64, length: u64, seed: u64) {
        let mut rng = Rng::new(seed);
        let at = usize::try_from(at).unwrap();
        for byte in &mut self.nodes[node].ram.0[at..at + usize::try_from(length).unwrap()] {
            *byte = u8::try_from(rng.below(256)).unwrap();
        }
    }

    fn bytes(&self, node: usize, at: u64, length: u64) -> &[u8] {
        let at = usize::try_from(at).unwrap();
        &self.nodes[node].ram.0[at..at + usize::try_from(length).unwrap()]
    }

    fn send(&mut self, node: usize, to: Peer, tag: u64, at: u64, length: u64) {
        self.try_send(node, message(to, tag, &[Iov { addr: at, length }])).unwrap();
    }

    fn try_send(&mut self, node: usize, message: Message<'_>) -> Result<(), Refused> {
        if !self.joins {
            self.nodes[node].rdm.flush_coalesced();
        }
        self.on(node, |rdm, world| rdm.send(world, message))
    }

    fn recv(&mut self, node: usize, from: Option<Peer>, tag: u64, at: u64, length: u64) {
        let iov = [Iov { addr: at, length }];
        self.on(node, |rdm, world| rdm.recv(world, receive(from, tag, &iov))).unwrap();
    }

    fn done(&mut self, node: usize) -> Vec<OperationCompletion> {
        core::iter::from_fn(|| self.nodes[node].rdm.poll()).collect()
    }

    fn outcomes(&mut self, node: usize) -> Vec<(Kind, u64, Outcome)> {
        self.done(node).iter().map(|d| (d.kind, d.context, d.outcome)).collect()
    }

    fn drain(&mut self) {
        let mut buf = TransmitBuf::new(16, 65_000);
        for node in 0..self.nodes.len() {
            loop {
                let frozen = self.frozen == Some(node);
                let took = !frozen
                    && self.on(node, |rdm, world| {
                        rdm.flush_coalesced();
                        rdm.pump(world)
                    });
                let Node { endpoint, rdm, .. } = &mut self.nodes[node];
                buf.clear();
                let transmit = endpoint.poll_transmit(self.now, &mut buf);
                let mut events = 0;
                while let Some(event) = endpoint.poll_event() {
                    rdm.event(self.now, &event);
                    events += 1;
                }
                let Some(t) = transmit else {
                    if took || events > 0 {
                        continue;
                    }
                    break;
                };
                self.wire.put(self.now, node, &t, &buf);
            }
        }
    }

    fn run_ms(&mut self, ms: u64) {
        self.run_us(1000 * ms);
    }

    fn run_us(&mut self, us: u64) {
        let until = self.now + Duration::from_micros(us);
        loop {
            self.drain();
            let timers = self.nodes.iter().filter_map(|node| node.endpoint.poll_timeout());
            let next = self.wire.next().into_iter().chain(timers).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            self.arrivals();
            for node in &mut self.nodes {
                node.endpoint.handle_timeout(self.now);
            }
        }
    }

    fn arrivals(&mut self) {
        while let Some(Arrival { to, meta, mut bytes }) = self.wire.take(self.now) {
            let Some(Node { endpoint, rdm, ram, .. }) = self.nodes.get_mut(to) else { continue };
            let (now, whole) = (self.now, PacketRef::Whole(&mut bytes));
            endpoint.handle_packet_with(now, meta, whole, |d| rdm.admit(now, d, ram));
        }
    }

    /// Restarts a node after a crash, without its former state.
    fn restart(&mut self, node: usize) {
        let incarnation = self.nodes[node].incarnation + 1000;
        let limits = (&self.config, &self.core);
        self.nodes[node] = Node::new(limits, node, incarnation, self.now);
    }
}

fn message(to: Peer, tag: u64, iov: &[Iov]) -> Message<'_> {
    let until = Until::Transmitted;
    Message { to, tag: Some(tag), iov, data: None, context: tag, until, signaled: true }
}

fn receive(from: Option<Peer>, tag: u64, iov: &[Iov]) -> Receive<'_> {
    let want = Selector { tag, ignore: 0, source: from.map(|peer| peer.0) };
    Receive { tagged: true, want, iov, context: tag, multi: None, signaled: true }
}
