//! The table of flows that the guest sends: to which peer, under which number, on which path.
//!
//! Bound: `flows_max`, and an entry per peer. When it is full, the flow that a moving hand finds
//! unused for a while gives up its place; if it finds none, the newcomer has no entry and goes
//! plain.

use alloc::vec::Vec;

use hashbrown::HashMap;
use srd_proto::time::{Duration, Instant};

use crate::hash::Keyed;
use crate::meta::key::FlowKey;
use crate::queue::scheduler::FlowQueue;
use crate::wire::frame::FLOW_NUMBERS;

/// A flow that was silent for so long takes a new number: the receiver may have forgotten it.
const RENUMBER_AFTER: Duration = Duration::from_secs(60);
/// A flow that was silent for so long may lose its place to another.
const UNUSED_AFTER: Duration = Duration::from_secs(1);
/// Places that the hand looks at for one newcomer.
const HAND_STEPS_MAX: u32 = 64;

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: FlowKey,
    /// Its peer.
    pub(super) peer: u32,
    /// Whether it is TCP or UDP with ports in sight.
    pub(super) carriable: bool,
    /// Its number on the wire, taken with its first frame by SRD.
    pub(super) number: Option<u32>,
    /// The next frame's sequence number.
    pub(super) sequence: u16,
    /// The peer's generation when the number was taken.
    pub(super) generation: u32,
    /// Its hash: the path that it takes when it goes plain.
    pub(super) hash: u64,
    /// Packets and bytes sent.
    pub(super) pkts: u64,
    pub(super) bytes: u64,
    /// Whether the last of them rode SRD.
    pub(super) rides_srd: bool,
    /// Bytes at the last look at rates, and the rate since the one before.
    bytes_before: u64,
    bps: u64,
    used_at: Instant,
    /// Whether the peer must be looked up again.
    stale: bool,
    /// Stands for every flow of a peer that found no room: stays.
    pinned: bool,
}

impl Flow {
    /// A flow that has sent nothing, and may not ride SRD.
    fn new(now: Instant, key: FlowKey, peer: u32, hash: u64) -> Self {
        Self {
            key,
            peer,
            carriable: false,
            number: None,
            sequence: 0,
            generation: 0,
            hash,
            pkts: 0,
            bytes: 0,
            rides_srd: false,
            bytes_before: 0,
            bps: 0,
            used_at: now,
            stale: false,
            pinned: false,
        }
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Flows {
    by_key: HashMap<FlowKey, u32, Keyed>,
    flows: Vec<Flow>,
    /// What waits of each flow, by the same slot.
    pub(super) queues: Vec<FlowQueue>,
    /// Entries of peers that are gone, for those that come.
    pins_free: Vec<u32>,
    flows_max: u32,
    hand: u32,
    next_number: u32,
    seed: u64,
}

/// What was found.
pub(super) enum Found {
    /// An entry.
    Slot(u32),
    /// Its peer must be looked up: there is none yet, or routes have changed.
    Unknown,
}

impl Flows {
    pub(super) fn new(flows_max: u32, seed: u64) -> Self {
        Self {
            by_key: HashMap::with_hasher(Keyed::new(seed)),
            flows: Vec::new(),
            queues: Vec::new(),
            pins_free: Vec::new(),
            flows_max,
            hand: 0,
            // Anywhere: a restarted card must not use numbers that its peers remember.
            #[allow(clippy::cast_possible_truncation)] // masked
            next_number: (seed >> 13) as u32 & (FLOW_NUMBERS - 1),
            seed,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn utilization(&self) -> u64 {
        self.by_key.len() as u64 * 100 / u64::from(self.flows_max.max(1))
    }

    pub(super) fn flow(&self, slot: u32) -> &Flow {
        &self.flows[slot as usize]
    }

    /// Finds the entry of a flow, and notes that it is in use.
    pub(super) fn find(&mut self, now: Instant, key: &FlowKey) -> Found {
        let Some(&slot) = self.by_key.get(key) else { return Found::Unknown };
        let flow = &mut self.flows[slot as usize];
        if now.since(flow.used_at) > RENUMBER_AFTER {
            flow.number = None;
        }
        flow.used_at = now;
        if flow.stale { Found::Unknown } else { Found::Slot(slot) }
    }

    /// Makes an entry, or puts the peer of a stale one right. `None`: the table is full.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        key: FlowKey,
        peer: u32,
        carriable: bool,
    ) -> Option<u32> {
        if let Some(&slot) = self.by_key.get(&key) {
            let unlisted = self.queues[slot as usize].is_unlisted();
            let flow = &mut self.flows[slot as usize];
            if flow.peer != peer && !unlisted {
                // The old peer's scheduler names it, perhaps with frames: packets follow them
                // until it does no more.
                return Some(slot);
            }
            if flow.peer != peer {
                (flow.peer, flow.number) = (peer, None);
            }
            flow.stale = false;
            return Some(slot);
        }
        let hash = key.hash_under(&Keyed::new(self.seed));
        let flow = Flow { carriable, ..Flow::new(now, key, peer, hash) };
        let slot = if self.by_key.len() < self.flows_max as usize {
            self.push(flow)?
        } else {
            let slot = self.unused(now)?;
            let before = core::mem::replace(&mut self.flows[slot as usize], flow);
            self.by_key.remove(&before.key);
            // Nor does what the old flow's queue once held stay allocated.
            self.queues[slot as usize] = FlowQueue::default();
            slot
        };
        self.by_key.insert(key, slot);
        Some(slot)
    }

    /// An entry that stands for every flow of a peer that finds no room.
    pub(super) fn pin(&mut self, now: Instant, peer: u32, key: FlowKey) -> Option<u32> {
        let hash = key.hash_under(&Keyed::new(self.seed ^ u64::from(peer)));
        let flow = Flow { pinned: true, ..Flow::new(now, key, peer, hash) };
        let Some(slot) = self.pins_free.pop() else { return self.push(flow) };
        self.flows[slot as usize] = flow;
        Some(slot)
    }

    fn push(&mut self, flow: Flow) -> Option<u32> {
        self.flows.push(flow);
        self.queues.push(FlowQueue::default());
        u32::try_from(self.flows.len() - 1).ok()
    }

    /// A flow that can go.
    fn unused(&mut self, now: Instant) -> Option<u32> {
        for _ in 0..HAND_STEPS_MAX {
            let slot = self.hand;
            self.hand = u32::try_from((slot as usize + 1) % self.flows.len()).unwrap_or(0);
            let flow = &self.flows[slot as usize];
            let queue = &self.queues[slot as usize];
            if !flow.pinned && queue.is_unlisted() && now.since(flow.used_at) > UNUSED_AFTER {
                return Some(slot);
            }
        }
        None
    }

    /// The number and sequence number for a flow's next frame.
    pub(super) fn number(&mut self, slot: u32, generation: u32) -> (u32, u16) {
        let flow = &mut self.flows[slot as usize];
        let number = match flow.number {
            Some(number) if flow.generation == generation => number,
            _ => {
                let number = self.next_number;
                self.next_number = (number + 1) % FLOW_NUMBERS;
                (flow.number, flow.sequence, flow.generation) = (Some(number), 0, generation);
                number
            }
        };
        let sequence = flow.sequence;
        flow.sequence = sequence.wrapping_add(1);
        (number, sequence)
    }

    /// Counts a frame that leaves.
    pub(super) fn count(&mut self, slot: u32, pkts: u64, bytes: u64, rides_srd: bool) {
        let flow = &mut self.flows[slot as usize];
        flow.pkts += pkts;
        flow.bytes += bytes;
        flow.rides_srd = rides_srd;
    }

    /// Takes the rates of all flows, which were last taken `elapsed` ago.
    pub(super) fn take_rates(&mut self, elapsed: Duration) {
        let ns = elapsed.as_nanos().max(1);
        for flow in &mut self.flows {
            let bits = u128::from(flow.bytes - flow.bytes_before) * 8;
            flow.bps = u64::try_from(bits * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX);
            flow.bytes_before = flow.bytes;
        }
    }

    /// The flows with the highest rates, busiest first, at most `most`.
    pub(super) fn busiest(&self, most: usize) -> Vec<(&Flow, u64)> {
        let active = self.flows.iter().filter(|flow| flow.bps > 0 && !flow.pinned);
        let mut active: Vec<_> = active.map(|flow| (flow, flow.bps)).collect();
        active.sort_by_key(|(flow, bps)| (core::cmp::Reverse(*bps), flow.key));
        active.truncate(most);
        active
    }

    /// A frame of this flow was lost: the next ones begin anew.
    pub(super) fn renumber(&mut self, slot: u32) {
        if let Some(flow) = self.flows.get_mut(slot as usize) {
            flow.number = None;
        }
    }

    /// Addresses have moved: every flow's peer is looked up again.
    pub(super) fn forget_routes(&mut self) {
        for flow in &mut self.flows {
            flow.stale = !flow.pinned;
        }
    }

    /// A peer is gone, and with it what waited for it.
    pub(super) fn forget_peer(&mut self, peer: u32) {
        for (slot, (flow, queue)) in (0..).zip(self.flows.iter_mut().zip(&mut self.queues)) {
            if flow.peer != peer {
                continue;
            }
            *queue = FlowQueue::default();
            if !flow.pinned {
                // Whoever gets the peer's slot next knows nothing of its number.
                (flow.stale, flow.number) = (true, None);
            } else if !self.pins_free.contains(&slot) {
                self.pins_free.push(slot);
            }
        }
    }
}
