//! A malicious peer with valid credentials: two messaging layers, and an attacker behind the
//! encryption of both that changes, drops, repeats, delays and forges their datagrams.
//!
//! These conditions must hold, whatever the attacker does:
//!
//! * nothing panics, and nothing loops for ever;
//! * no byte is accessed outside of posted buffers and shared regions, and no sent byte is still
//!   referred to when its operation has ended (`memory`);
//! * every operation ends at most once (`node`);
//! * every refusal is counted once;
//! * tables stay within their bounds.
// Each target uses a part of this module, and bytes of a script become choices.
#![allow(dead_code, clippy::cast_possible_truncation)]

pub(crate) mod forge;
pub(crate) mod man;
mod memory;
mod node;
pub(crate) mod script;
mod steps;

use srd_efa::layer::Peer;
use srd_proto::{Duration, Ecn, Instant, PacketMeta, PacketRef, TransmitBuf};

use self::man::Man;
use self::node::Node;
use self::script::Input;

/// Maximum number of steps of a script.
const STEPS_MAX: usize = 300;

/// Two nodes, the network between them, and the attacker.
struct Pair {
    nodes: [Node; 2],
    now: Instant,
    man: Man,
    buf: TransmitBuf,
}

/// Runs a script.
pub(crate) fn hostile(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut pair = Pair::new();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        pair.step(&mut input);
        pair.check();
    }
    pair.finish();
}

impl Pair {
    fn new() -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut pair = Self {
            nodes: [Node::new(0, 1, now), Node::new(1, 1, now)],
            now,
            man: Man::default(),
            buf: TransmitBuf::new(16, 65_000),
        };
        for (at, of) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            pair.meet(at, of);
        }
        pair
    }

    /// Adds a node as a peer of node `at`: the other node, or `at` itself.
    fn meet(&mut self, at: usize, of: usize) {
        if let Some(peer) = self.nodes[at].add_peer(self.now, node::address(of)) {
            self.nodes[at].peers[usize::from(of == at)] = peer;
        }
    }

    /// Ends a node, with all its pending operations, and starts a new run of it.
    fn restart(&mut self, at: usize) {
        let run = self.nodes[at].run + 1;
        self.man.forget(at);
        let memory = std::mem::replace(&mut self.nodes[at], Node::new(at, run, self.now)).end();
        memory.assert_untouched();
        self.meet(at, 1 - at);
        self.meet(at, at);
    }

    /// Runs everything that is due, for `turns` times 50 microseconds.
    fn run(&mut self, turns: u32) {
        for _ in 0..turns {
            for at in 0..2 {
                self.drain(at);
            }
            self.now += Duration::from_micros(50);
            for node in &mut self.nodes {
                node.endpoint.handle_timeout(self.now);
            }
        }
    }

    /// Sends all packets of a node, until no work is left.
    fn drain(&mut self, at: usize) {
        for turn in 0.. {
            assert!(turn < 100_000, "there always is more to send");
            let node = &mut self.nodes[at];
            let took = node.on(self.now, |rdm, world| rdm.pump(world));
            let sent = node.endpoint.poll_transmit(self.now, &mut self.buf);
            let packets: Vec<Vec<u8>> =
                self.buf.segments().map(|(head, body)| [head, body].concat()).collect();
            // The batch is released before events are processed, because it refers to the buffers
            // that it carries.
            self.buf.clear();
            let told = node.take_events(self.now);
            let Some(transmit) = sent else {
                if took || told {
                    continue;
                }
                return;
            };
            let source = node::source(at, transmit.entropy);
            for packet in packets {
                self.arrive(1 - at, source, packet);
            }
        }
    }

    fn arrive(&mut self, at: usize, source: std::net::SocketAddr, mut packet: Vec<u8>) {
        if self.man.loses() {
            return;
        }
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
        let (now, man) = (self.now, &mut self.man);
        let Node { endpoint, judge, .. } = &mut self.nodes[at];
        endpoint.handle_packet_with(now, meta, PacketRef::Whole(&mut packet), |delivery| {
            man.meddle(at, delivery, |delivery| judge.admit(now, delivery))
        });
        self.nodes[at].take_events(now);
    }

    /// Delivers a forged datagram to node `at`, in the name of the other node.
    fn throw(&mut self, at: usize, imm: u64, payload: &[u8]) {
        let Some(peer) = self.nodes[at].endpoint.peer_at(node::address(1 - at)) else { return };
        self.nodes[at].judge.admit(self.now, &man::delivery(peer, imm, payload));
        self.nodes[at].take_events(self.now);
    }

    fn check(&self) {
        self.nodes.iter().for_each(Node::check);
    }

    /// Ends the run. From now on the network drops all packets. Pending operations end when their
    /// peer times out or is removed; receives end when they are cancelled.
    fn finish(mut self) {
        self.man = Man::dead();
        for node in &mut self.nodes {
            node.polls = true;
            node.take_ends();
        }
        self.silence();
        for at in 0..2 {
            for peer in self.nodes[at].peers {
                self.remove(at, peer);
            }
        }
        self.silence();
        for node in &mut self.nodes {
            node.cancel_all();
            node.take_ends();
        }
        self.silence();
        for node in self.nodes {
            node.assert_all_ended();
            node.end().assert_untouched();
        }
    }

    fn remove(&mut self, at: usize, peer: Peer) {
        self.nodes[at].on(self.now, |rdm, world| rdm.remove_peer(world, peer));
    }

    /// Lets ten seconds pass without arrivals: longer than any timeout.
    fn silence(&mut self) {
        let end = self.now + Duration::from_secs(10);
        for turn in 0.. {
            assert!(turn < 20_000, "timers without end");
            self.run(1);
            // The time of the next timer is known only after all packets have been sent.
            self.drain(0);
            self.drain(1);
            let due = self.nodes.iter().filter_map(|node| node.endpoint.poll_timeout()).min();
            match due {
                Some(due) if due < end => self.now = self.now.max(due),
                // The last timer may have effects, which are processed in another turn.
                _ => return self.run(1),
            }
        }
    }
}
