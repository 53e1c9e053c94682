//! All nodes, the wire and the simulated time. The event loop is the one that the documentation of
//! `srd_card` describes, for all nodes together.

use srd_card::Reach;
use srd_proto::rng::Rng;
use srd_proto::time::{Duration, Instant};
use srd_proto::{Ecn, Event, PacketMeta, PacketRef, Status, TransmitBuf};
use std::net::SocketAddr;

use super::NODES;
use super::ledger::Ledger;
use super::node::{Inbox, Node, NodeSettings, outer};
use super::wire::Wire;

/// Largest number of rounds until all nodes must be idle at one simulated time.
const ROUNDS_MAX: u32 = 10_000;
/// Simulated time between two checks of the counters.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The simulated nodes, their wire and their guests.
pub(super) struct World {
    pub now: Instant,
    pub nodes: Vec<Node>,
    pub wanted: Vec<NodeSettings>,
    pub wire: Wire,
    pub ledger: Ledger,
    pub rng: Rng,
    /// Number of starts of nodes so far, which is the epoch of the next started node.
    life: u64,
    seed: u64,
    check_at: Instant,
    buf: TransmitBuf,
    /// Largest number of flows in a flow table so far: of outgoing flows, and of incoming flows.
    pub flows_most: (usize, usize),
    pub utilization_most: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let wanted = vec![NodeSettings::all(1); NODES];
        let mut world = Self {
            now,
            nodes: Vec::new(),
            wire: Wire::new(seed ^ 0x31),
            ledger: Ledger::default(),
            rng: Rng::new(seed),
            life: 0,
            seed,
            check_at: now,
            buf: TransmitBuf::new(64, 65_000),
            flows_most: (0, 0),
            utilization_most: 0,
            wanted,
        };
        for index in 0..NODES {
            let node = world.born(index);
            world.nodes.push(node);
        }
        world
    }

    fn born(&mut self, index: usize) -> Node {
        self.life += 1;
        Node::new(index, self.life, self.seed, self.now, &self.wanted[index])
    }

    /// Records a disturbance: the order of packets is not guaranteed across it.
    pub(super) fn disturb(&mut self) {
        self.ledger.era += 1;
    }

    /// Restarts a node without a shutdown, as after a crash.
    pub(super) fn restart(&mut self, index: usize) {
        if let Err(why) = self.nodes[index].check() {
            self.ledger.blame(self.now, &why);
        }
        self.nodes[index] = self.born(index);
        self.disturb();
    }

    /// Applies the configured settings to every node.
    pub(super) fn apply(&mut self) {
        for (node, wanted) in self.nodes.iter_mut().zip(&self.wanted) {
            node.apply_own(self.now, wanted);
            let index = node.index;
            for other in (0..NODES).filter(|other| *other != index) {
                node.apply(self.now, other, wanted);
            }
        }
        self.disturb();
    }

    /// Whether every node reaches all other nodes with SRD, for TCP, UDP and tunnels.
    pub(super) fn is_whole(&self) -> bool {
        self.nodes.iter().all(|node| {
            let others = (0..NODES).filter(|other| *other != node.index);
            others
                .into_iter()
                .all(|o| node.reach[o] == Some(Reach::Express { udp: true, tunnels: true }))
        })
    }

    /// Passes a frame of the guest of a node to its Express; `cells` is the number of its packets.
    pub(super) fn give(&mut self, index: usize, frame: Vec<u8>, cells: u32) {
        let node = &mut self.nodes[index];
        node.given += u64::from(cells);
        let mut inbox =
            Inbox { ledger: &mut self.ledger, now: self.now, node: index, got: &mut node.got };
        node.express.from_guest(self.now, frame, &mut inbox);
    }

    /// Runs the world for a simulated time.
    ///
    /// # Errors
    /// A text with the first error.
    pub(super) fn run(&mut self, time: Duration) -> Result<(), String> {
        let until = self.now + time;
        loop {
            self.settle()?;
            let timers = self.nodes.iter().flat_map(|node| {
                [node.endpoint.poll_timeout(), node.express.poll_timeout()].into_iter().flatten()
            });
            let next = self.wire.next_at().into_iter().chain(timers).min().unwrap_or(until);
            if next > until {
                self.now = until;
                return self.ledger.wrong();
            }
            self.now = next;
            self.arrive();
            for index in 0..NODES {
                let node = &mut self.nodes[index];
                node.endpoint.handle_timeout(self.now);
                let mut inbox = Inbox {
                    ledger: &mut self.ledger,
                    now: self.now,
                    node: index,
                    got: &mut node.got,
                };
                node.express.handle_timeout(self.now, &mut inbox);
            }
        }
    }

    /// Runs the world for a random time below `ms` milliseconds.
    ///
    /// # Errors
    /// A text with the first error.
    pub(super) fn run_up_to_ms(&mut self, ms: u32) -> Result<(), String> {
        let ms = self.rng.below(ms);
        self.run(Duration::from_millis(ms.into()))
    }

    fn arrive(&mut self) {
        while let Some(mut flying) = self.wire.arrived(self.now) {
            let source = SocketAddr::new(outer(flying.from).ip(), 7471 + flying.entropy);
            let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
            let node = &mut self.nodes[flying.to];
            let whole = PacketRef::Whole(&mut flying.bytes);
            if let Some(delivery) = node.endpoint.handle_packet(self.now, meta, whole) {
                let mut inbox = Inbox {
                    ledger: &mut self.ledger,
                    now: self.now,
                    node: flying.to,
                    got: &mut node.got,
                };
                node.express.delivered(self.now, &delivery, &mut inbox);
            }
        }
    }

    /// Runs until no node has work at the current simulated time; afterwards no timer may be due.
    fn settle(&mut self) -> Result<(), String> {
        let mut rounds = 0;
        while (0..NODES).filter(|index| self.drain(*index)).count() > 0 {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(format!("{ROUNDS_MAX} rounds without an end at {:?}", self.now));
            }
        }
        for node in &self.nodes {
            let timers = [
                ("endpoint", node.endpoint.poll_timeout()),
                ("stage", node.express.poll_timeout()),
            ];
            for (whose, at) in timers {
                if at.is_some_and(|at| at <= self.now) {
                    let (index, now) = (node.index, self.now);
                    return Err(format!(
                        "node {index}: a timer of the {whose} stays due ({at:?}, now {now:?})"
                    ));
                }
            }
        }
        self.watch();
        if self.now >= self.check_at {
            self.check_at = self.now + CHECK_EVERY;
            self.nodes.iter_mut().try_for_each(Node::check)?;
        }
        self.ledger.wrong()
    }

    /// Does all current work of a node. Returns whether the node had work.
    fn drain(&mut self, index: usize) -> bool {
        let Self { nodes, wire, ledger, buf, now, .. } = self;
        let node = &mut nodes[index];
        let mut busy = false;
        loop {
            let handed = node.express.pump(*now, &mut node.endpoint);
            buf.clear();
            let Some(transmit) = node.endpoint.poll_transmit(*now, buf) else {
                if handed == 0 {
                    break;
                }
                continue;
            };
            busy = true;
            let Some(to) = (0..NODES).find(|to| outer(*to).ip() == transmit.destination.ip())
            else {
                continue;
            };
            for (head, payload) in buf.segments() {
                wire.send(*now, index, to, transmit.entropy.0, [head, payload].concat());
            }
        }
        while let Some(event) = node.endpoint.poll_event() {
            busy = true;
            let failed = matches!(&event, Event::Completed { status, .. } if *status != Status::Ok);
            if failed || matches!(event, Event::PeerDown { .. } | Event::PeerUp { .. }) {
                ledger.era += 1;
            }
            node.express.event(*now, &event);
        }
        busy
    }

    /// Records how each node reaches each peer; a change is a disturbance.
    fn watch(&mut self) {
        for node in &mut self.nodes {
            for other in 0..NODES {
                let slot = node.peers[other].map(|(_, slot)| slot);
                let reach = slot.and_then(|slot| node.express.report(slot)).map(|r| r.reach);
                if reach != node.reach[other] {
                    node.reach[other] = reach;
                    self.ledger.era += 1;
                }
            }
            let (out, back) = node.express.flow_counts();
            self.flows_most = (self.flows_most.0.max(out), self.flows_most.1.max(back));
            self.utilization_most = self.utilization_most.max(node.express.resource_utilization());
        }
    }
}
