//! Table of the flows that arrive from peers, and the timeouts of their waits for missing frames.

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::cmp::Reverse;

use hashbrown::HashMap;
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};

use super::budget::Limits;
use super::replaced::Replaced;
use super::senders::Senders;
use super::sink::{Key, OrderCounts, Sink};
use super::store::{Flow, Store, WINDOW};
use crate::hash::Keyed;
use crate::wire::frame::{ChunkPosition, FLOW_NUMBER_BITS};

/// Silence after which a flow is removed. Senders take a new number much earlier. // F4
const IDLE: Duration = Duration::from_secs(120);
/// Sequence number from which the first frame to arrive belongs to a flow that was replaced, if
/// records of replaced flows were dropped: fewer frames of a new flow are overtaken by a later one.
/// // O4
const REPLACED_FROM: u16 = 32;
/// Time between two searches for idle flows.
const SWEEP: Duration = Duration::from_secs(10);

/// Flows of all peers: takes their chunks, and passes complete frames on in order.
#[derive(Debug)]
pub(crate) struct Order {
    flows: HashMap<Key, Flow, Keyed>,
    store: Store,
    /// State of each peer, by its slot.
    peers: Vec<PeerFlows>,
    sweep_at: Instant,
}

/// Flows of one peer, for the replacement of flows.
#[derive(Debug, Default)]
struct PeerFlows {
    senders: Senders,
    replaced: Replaced,
}

impl PeerFlows {
    /// Returns the sequence number of the next frame of a flow without an entry, whose first frame
    /// to arrive has the number `sequence`. // O4
    fn next_of(&mut self, now: Instant, number: u32, sequence: u16) -> u16 {
        // A frame that is far away from the recorded number follows frames that found no entry.
        let is_near = |next: &u16| {
            sequence.wrapping_sub(*next) < WINDOW || next.wrapping_sub(sequence) <= WINDOW
        };
        self.replaced.expire(now);
        if let Some(next) = self.replaced.get(number).filter(is_near) {
            return next;
        }
        // If the first frame to arrive has a high sequence number, the flow had an entry before
        // that was removed, and its earlier frames were delivered.
        let from = if self.replaced.is_incomplete(now) { REPLACED_FROM } else { WINDOW };
        if sequence < from { 0 } else { sequence }
    }
}

impl Order {
    pub(crate) fn new(limits: Limits, secret: Secret) -> Self {
        Self {
            flows: HashMap::with_hasher(Keyed::new(secret)),
            store: Store::new(limits),
            peers: Vec::new(),
            sweep_at: Instant::ZERO,
        }
    }

    /// Sets the longest time for which a flow waits for a missing frame.
    pub(crate) fn set_wait(&mut self, wait: Duration) {
        self.store.wait = wait;
    }

    /// Sets the number of peers that share the limits.
    pub(crate) fn set_peers(&mut self, peers: usize) {
        self.store.budget.set_peers(peers);
    }

    /// Returns the counters of all flows.
    pub(crate) fn counts(&self) -> OrderCounts {
        self.store.counts
    }

    /// Number of flows in the table.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the larger of two shares in percent: the used share of the limit of flows, and of
    /// the limit of bytes.
    pub(crate) fn utilization(&self) -> u64 {
        self.store.budget.utilization()
    }

    /// Takes a chunk from a shard of a peer.
    pub(crate) fn chunk(
        &mut self,
        now: Instant,
        (peer, shard): (u32, u8),
        place: ChunkPosition,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(offset) = place.offset(payload.len()) else {
            self.store.counts.bad_chunks += 1;
            return;
        };
        let key = (peer, u32::from(shard) << FLOW_NUMBER_BITS | place.flow); // F4
        let flow = match self.flows.get_mut(&key) {
            Some(flow) => flow,
            None => {
                let opened = self.open(now, key, place.sequence);
                let Some(flow) = opened.then(|| self.flows.get_mut(&key)).flatten() else {
                    self.store.counts.full += 1;
                    return;
                };
                flow
            }
        };
        flow.used_at = now;
        let listed = flow.source;
        self.store.chunk(now, key, flow, (place, offset, payload), sink);
        if flow.source != listed
            && let Some(of_peer) = self.peers.get_mut(peer as usize)
        {
            of_peer.senders.remove(listed, flow, key.1);
            of_peer.senders.add(flow, key.1);
        }
    }

    /// Creates the entry of a flow whose first frame to arrive has this sequence number. Returns
    /// whether the limits permit it.
    fn open(&mut self, now: Instant, key: Key, sequence: u16) -> bool {
        let (peer, number) = key;
        let index = peer as usize;
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, PeerFlows::default);
        }
        // The flow that makes room is recorded, and may displace the record of this flow.
        let next = self.peers[index].next_of(now, number, sequence);
        let budget = &mut self.store.budget;
        let room = budget.open(peer) || self.make_room(now, peer) && self.store.budget.open(peer);
        if !room {
            return false;
        }
        let of_peer = &mut self.peers[index];
        of_peer.replaced.take(number);
        let flow = Flow::new(next, now);
        of_peer.senders.add(&flow, number);
        self.flows.insert(key, flow);
        true
    }

    /// Removes a flow that has no waiting frames. The flow belongs to the peer itself if the peer
    /// has used up its part, otherwise to the peer that holds most. Returns whether a flow was
    /// removed.
    fn make_room(&mut self, now: Instant, peer: u32) -> bool {
        let Some(from) = self.store.budget.gives_way(peer) else { return false };
        let Some(of_peer) = self.peers.get_mut(from as usize) else { return false };
        let Some(number) = of_peer.senders.longest_silent(&mut self.flows, now, from) else {
            return false;
        };
        let Some(flow) = self.flows.remove(&(from, number)) else { return false };
        of_peer.senders.remove(flow.source, &flow, number);
        of_peer.replaced.add(now, number, flow.next, self.store.budget.replaced_max());
        self.store.budget.close(from);
        true
    }

    /// Removes all flows of a peer that leaves the rules, so that the next peer in the slot begins
    /// without flows.
    pub(crate) fn forget_peer(&mut self, peer: u32) {
        let Self { flows, store, peers, .. } = self;
        flows.retain(|key, flow| {
            let keep = key.0 != peer;
            if !keep {
                store.clear(peer, flow);
            }
            keep
        });
        store.waiting.retain(|Reverse((_, key))| key.0 != peer);
        if let Some(of_peer) = peers.get_mut(peer as usize) {
            *of_peer = PeerFlows::default();
        }
    }

    /// Time of the next call of [`Order::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.store.waiting.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether a search for idle flows is due.
    pub(crate) fn sweep_is_due(&self, now: Instant) -> bool {
        now >= self.sweep_at
    }

    /// Ends waits that have lasted too long, and removes idle flows.
    pub(crate) fn handle_timeout(&mut self, now: Instant, sink: &mut impl Sink) {
        while let Some(&Reverse((at, key))) = self.store.waiting.peek() {
            if at > now {
                break;
            }
            self.store.waiting.pop();
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            flow.in_line = false;
            let Some(since) = flow.waits_since else { continue };
            if since + self.store.wait > now {
                // Since then, the flow has begun to wait for another frame.
                flow.in_line = true;
                self.store.waiting.push(Reverse((since + self.store.wait, key)));
                continue;
            }
            self.store.give_up(now, key, flow, sink);
        }
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP;
            self.sweep(now);
        }
    }

    /// Removes flows that have been silent for [`IDLE`] or longer.
    fn sweep(&mut self, now: Instant) {
        let Self { flows, store, peers, .. } = self;
        flows.retain(|key, flow| {
            let keep = now.since(flow.used_at) < IDLE;
            if !keep {
                store.clear(key.0, flow);
                if let Some(of_peer) = peers.get_mut(key.0 as usize) {
                    of_peer.senders.remove(flow.source, flow, key.1);
                }
            }
            keep
        });
        peers.iter_mut().for_each(|of_peer| of_peer.replaced.expire(now));
    }
}
