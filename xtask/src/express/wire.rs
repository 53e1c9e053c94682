//! The simulated wire between the nodes. Its paths differ in delay, lose and repeat packets, and
//! fail.
//!
//! Packets on one path stay in order; packets on different paths may overtake each other. Each node
//! sends at a fixed rate; a packet that would wait longer than [`QUEUE_MAX`] before it is sent is
//! dropped.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use srd_proto::rng::Rng;
use srd_proto::time::{Duration, Instant};

use super::NODES;

/// Number of paths between two nodes; the source port of a packet determines its path.
pub(super) const PATHS: usize = 8;
/// Time to send a byte, in nanoseconds, for a rate of 2 Gb/s.
const NS_PER_BYTE: u64 = 4;
const QUEUE_MAX: Duration = Duration::from_millis(1);
const BASE: Duration = Duration::from_micros(20);

/// A packet in flight.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flying {
    pub at: Instant,
    /// Sequence number, by which packets with the same arrival time are ordered, so that runs are
    /// deterministic.
    number: u64,
    pub from: usize,
    pub to: usize,
    pub entropy: u16,
    pub bytes: Vec<u8>,
}

/// Numbers of packets by their fate on the wire.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WireCounts {
    pub carried: u64,
    pub lost: u64,
    pub repeated: u64,
    pub swallowed: u64,
}

/// Packets in flight, faults and counters of the wire between all nodes.
pub(super) struct Wire {
    flying: BinaryHeap<Reverse<Flying>>,
    rng: Rng,
    number: u64,
    free_at: [Instant; NODES],
    /// Arrival time of the last packet, by sender, receiver and path.
    last_at: [[[Instant; PATHS]; NODES]; NODES],
    /// Number of lost packets and of repeated packets per thousand.
    pub loss_permille: u32,
    pub repeat_permille: u32,
    /// Pairs of sender and receiver between which all packets are dropped.
    pub dead: BTreeSet<(usize, usize)>,
    /// Paths on which all packets are dropped, between any two nodes.
    pub dead_paths: BTreeSet<usize>,
    pub counts: WireCounts,
}

impl Wire {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            flying: BinaryHeap::new(),
            rng: Rng::new(seed),
            number: 0,
            free_at: [Instant::ZERO; NODES],
            last_at: [[[Instant::ZERO; PATHS]; NODES]; NODES],
            loss_permille: 0,
            repeat_permille: 0,
            dead: BTreeSet::new(),
            dead_paths: BTreeSet::new(),
            counts: WireCounts::default(),
        }
    }

    /// Removes all faults.
    pub(super) fn heal(&mut self) {
        self.dead.clear();
        self.dead_paths.clear();
        (self.loss_permille, self.repeat_permille) = (0, 0);
    }

    /// Accepts a packet that a node sends: drops it, or schedules its arrival.
    pub(super) fn send(
        &mut self,
        now: Instant,
        from: usize,
        to: usize,
        entropy: u16,
        bytes: Vec<u8>,
    ) {
        let path = usize::from(entropy) % PATHS;
        if self.dead.contains(&(from, to)) || self.dead_paths.contains(&path) {
            self.counts.swallowed += 1;
            return;
        }
        let begin = self.free_at[from].max(now);
        if self.rng.below(1000) < self.loss_permille || begin.since(now) > QUEUE_MAX {
            self.counts.lost += 1;
            return;
        }
        let sent = begin + Duration::from_nanos(bytes.len() as u64 * NS_PER_BYTE);
        self.free_at[from] = sent;
        let own = Duration::from_micros(15 * path as u64 + u64::from(self.rng.below(30)));
        let last = &mut self.last_at[from][to][path];
        let at = (sent + BASE + own).max(*last + Duration::from_nanos(1));
        *last = at;
        self.counts.carried += 1;
        if self.rng.below(1000) < self.repeat_permille {
            self.counts.repeated += 1;
            let again = Duration::from_micros(u64::from(self.rng.below(400)));
            self.push(at + again, from, to, entropy, bytes.clone());
        }
        self.push(at, from, to, entropy, bytes);
    }

    fn push(&mut self, at: Instant, from: usize, to: usize, entropy: u16, bytes: Vec<u8>) {
        self.number += 1;
        let number = self.number;
        self.flying.push(Reverse(Flying { at, number, from, to, entropy, bytes }));
    }

    /// Returns the arrival time of the next packet; `None` if no packet is in flight.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.flying.peek().map(|Reverse(flying)| flying.at)
    }

    /// Removes and returns the next packet that has arrived by `now`; `None` if none has.
    pub(super) fn arrived(&mut self, now: Instant) -> Option<Flying> {
        self.next_at().filter(|at| *at <= now)?;
        self.flying.pop().map(|Reverse(flying)| flying)
    }
}
