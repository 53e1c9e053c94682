//! Table of the flows that arrive from peers, and the timeouts of their waits for missing frames.

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Reverse;

use hashbrown::HashMap;
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};

use super::budget::Limits;
use super::sink::{Key, OrderCounts, Sink};
use super::store::{Flow, Store};
use crate::hash::Keyed;
use crate::wire::frame::{ChunkPosition, FLOW_NUMBER_BITS};

/// Largest distance of a frame from the next expected one. // O3
const WINDOW: u16 = 4096;
/// Silence after which a flow is removed. Senders take a new number much earlier. // F4
const IDLE: Duration = Duration::from_secs(120);
/// Silence after which another flow may replace a flow. // O4
const UNUSED_AFTER: Duration = Duration::from_secs(1);
/// Largest number of flows that are examined to find one that a new flow may replace.
const LOOKS_MAX: u32 = 64;
/// Time between two searches for idle flows.
const SWEEP: Duration = Duration::from_secs(10);

/// Flows of all peers: takes their chunks, and passes complete frames on in order.
#[derive(Debug)]
pub(crate) struct Order {
    flows: HashMap<Key, Flow, Keyed>,
    store: Store,
    /// For each peer, by its slot, the numbers of all its flows; those that were probably silent
    /// for longest come first. The time is the last use of the flow when the flow was last
    /// examined.
    silent: Vec<VecDeque<(Instant, u32)>>,
    sweep_at: Instant,
}

impl Order {
    pub(crate) fn new(limits: Limits, secret: Secret) -> Self {
        Self {
            flows: HashMap::with_hasher(Keyed::new(secret)),
            store: Store::new(limits),
            silent: Vec::new(),
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
        // O2. Each flow has an order of its own.
        let ahead = place.sequence.wrapping_sub(flow.next);
        if ahead >= WINDOW {
            self.store.counts.bad_chunks += 1;
            return;
        }
        let whole = payload.len() == usize::from(place.frame_bytes);
        if ahead == 0 && whole && !flow.is_begun(place.sequence) {
            // The common case: in sequence, and in one chunk. It needs no storage.
            flow.next = flow.next.wrapping_add(1);
            flow.waits_since = None;
            sink.take(peer, &mut flow.near, payload);
            if flow.entries.is_empty() {
                return;
            }
        } else if whole {
            self.store.put_whole(peer, flow, place.sequence, payload, sink);
        } else {
            self.store.put_part(peer, flow, place, offset, payload, sink);
        }
        self.store.release(now, key, flow, sink);
    }

    /// Creates the entry of a flow whose first frame to arrive has this sequence number. Returns
    /// whether the limits permit it.
    fn open(&mut self, now: Instant, key: Key, sequence: u16) -> bool {
        let (peer, number) = key;
        let budget = &mut self.store.budget;
        let room = budget.open(peer) || self.make_room(now, peer) && self.store.budget.open(peer);
        if !room {
            return false;
        }
        // If the first frame to arrive has a high sequence number, the flow had an entry before
        // that was removed, and its earlier frames were delivered. // O4
        let next = if sequence < WINDOW { 0 } else { sequence };
        self.flows.insert(key, Flow::new(next, now));
        let index = peer as usize;
        if self.silent.len() <= index {
            self.silent.resize_with(index + 1, VecDeque::new);
        }
        self.silent[index].push_back((now, number));
        true
    }

    /// Removes a flow that has been silent for a while and has no waiting frames. The flow belongs
    /// to the peer itself if the peer has used up its part, otherwise to the peer that holds most.
    /// Returns whether a flow was removed.
    fn make_room(&mut self, now: Instant, peer: u32) -> bool {
        let Some(from) = self.store.budget.gives_way(peer) else { return false };
        let Some(silent) = self.silent.get_mut(from as usize) else { return false };
        for _ in 0..LOOKS_MAX {
            let Some((seen, number)) = silent.pop_front() else { return false };
            let Some(flow) = self.flows.get(&(from, number)) else { continue };
            let idle = flow.used_at == seen && flow.entries.is_empty();
            if idle && now.since(seen) > UNUSED_AFTER {
                self.flows.remove(&(from, number));
                self.store.budget.close(from);
                return true;
            }
            silent.push_back((flow.used_at, number));
        }
        false
    }

    /// Removes all flows of a peer that leaves the rules, so that the next peer in the slot begins
    /// without flows.
    pub(crate) fn forget_peer(&mut self, peer: u32) {
        let Self { flows, store, silent, .. } = self;
        flows.retain(|key, flow| {
            let keep = key.0 != peer;
            if !keep {
                store.clear(peer, flow);
            }
            keep
        });
        store.waiting.retain(|Reverse((_, key))| key.0 != peer);
        if let Some(silent) = silent.get_mut(peer as usize) {
            *silent = VecDeque::new();
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
        let Self { flows, store, silent, .. } = self;
        flows.retain(|key, flow| {
            let keep = now.since(flow.used_at) < IDLE;
            if !keep {
                store.clear(key.0, flow);
            }
            keep
        });
        for (peer, silent) in (0..).zip(silent) {
            silent.retain(|(_, number)| flows.contains_key(&(peer, *number)));
        }
    }
}
