//! The flow table: its keys and verdicts, and the replacement of entries.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr};

use hashbrown::HashTable;
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};

use super::counts::Counts;
use super::numbering::Numbering;
use super::share::Shares;
use crate::hash::Keyed;
use crate::meta::Meta;
use crate::meta::key::{Direction, FlowKey};
use crate::queue::scheduler::FlowQueue;
use crate::rules::snapshot::{Rules, Verdict};

/// Silence of a flow after which another flow may replace it.
const UNUSED_AFTER: Duration = Duration::from_secs(1);
/// Largest number of entries that are examined to find an unused entry for a new flow.
const HAND_STEPS_MAX: u32 = 64;
/// Number of entries in the first allocation.
const PLACES_MIN: usize = 64;

/// Largest number of heap bytes for one entry: its columns, the ring that its queue keeps, and its
/// part of the index, which may be half empty and is copied when it grows.
pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>()
    + size_of::<Numbering>()
    + size_of::<FlowQueue>()
    + size_of::<Counts>()
    + FlowQueue::KEPT_BYTES
    + INDEX_BYTES;
const INDEX_BYTES: usize = 24;

/// Key in place of a flow's key, for entries that many flows share.
const NO_FLOW: FlowKey = FlowKey {
    source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    ports: (0, 0),
};

/// One direction of a flow: the slot of the flow's entry, shifted left by one bit, with the
/// direction in the lowest bit (0 egress, 1 ingress).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowId(u32);

impl FlowId {
    pub(crate) fn new(slot: u32, direction: Direction) -> Self {
        Self(slot << 1 | u32::from(direction == Direction::Ingress))
    }

    /// The slot of the entry.
    pub(crate) fn slot(self) -> u32 {
        self.0 >> 1
    }

    fn direction(self) -> Direction {
        if self.0 & 1 == 0 { Direction::Egress } else { Direction::Ingress }
    }
}

/// Peer and flow of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerFlow {
    /// Slot of the peer to which the packet's remote address belongs.
    pub(crate) peer: u32,
    /// Entry of the packet's flow, unless the table has no free entry for it.
    pub(crate) flow: Option<FlowId>,
}

/// Entry of one flow in the table.
#[derive(Debug)]
struct Entry {
    key: FlowKey,
    /// Network to which the key's addresses belong: zero for the guest's network; for a cloud, the
    /// identifier of the sending interface.
    space: u64,
    hash: u64,
    verdict: Verdict,
    used_at: Instant,
    owner: Owner,
}

impl Entry {
    /// Content of an unused entry.
    const EMPTY: Self = Self {
        key: NO_FLOW,
        space: 0,
        hash: 0,
        verdict: Verdict { peer: None, epoch: 0 },
        used_at: Instant::ZERO,
        owner: Owner::Overflow,
    };
}

impl Entry {
    fn is(&self, key: &FlowKey, space: u64) -> bool {
        self.key == *key && self.space == space
    }
}

/// Owner of an entry, to which the entry is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// The guest, which has sent a packet of the flow.
    Guest,
    /// The peer that opened the entry; the guest has sent no packet of the flow.
    Peer(u32),
    /// A path of an interface. The entry is shared by flows whose small packets wait in one queue.
    Path,
    /// The card. The entry is shared by all flows of one peer that find no free entry, and is never
    /// replaced.
    Overflow,
}

/// The flow table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    /// Numbers of each flow at its peer, by the slot of the flow's entry.
    pub(crate) numbering: Vec<Numbering>,
    /// Frames of each flow that wait to be sent, by the slot of the flow's entry.
    pub(crate) queues: Vec<FlowQueue>,
    counts: Vec<Counts>,
    /// Overflow entries of peers that were removed, for reuse.
    overflow_free: Vec<u32>,
    /// Number of entries that are charged to each peer, and their limit.
    opened: Shares,
    flows_max: usize,
    hand: u32,
    secret: Keyed,
}

impl FlowTable {
    pub(crate) fn new(flows_max: u32, secret: Secret) -> Self {
        Self {
            index: HashTable::new(),
            entries: Vec::new(),
            numbering: Vec::new(),
            queues: Vec::new(),
            counts: Vec::new(),
            overflow_free: Vec::new(),
            opened: Shares::new(flows_max as usize / 2),
            flows_max: flows_max as usize,
            hand: 0,
            secret: Keyed::new(secret),
        }
    }

    /// Number of flows in the table.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn utilization(&self) -> u64 {
        (self.len() * 100 / self.flows_max.max(1)) as u64
    }

    /// Sets the number of peers that share the table.
    pub(crate) fn set_peers(&mut self, peers: usize) {
        self.opened.set_peers(peers);
    }

    /// Returns the flow of a packet, and its peer, by the rules. `from` is the peer that sent the
    /// packet, or `None` if the guest sent it. `near` is probably the slot of the flow. Returns
    /// `None` if the remote address belongs to no peer, or not to the peer that sent the packet.
    #[inline]
    pub(crate) fn classify(
        &mut self,
        now: Instant,
        meta: &Meta,
        rules: &Rules,
        from: Option<u32>,
        near: Option<u32>,
    ) -> Option<PeerFlow> {
        let near = near.filter(|slot| self.entries[*slot as usize].is(&meta.key, 0));
        let slot = near.or_else(|| self.find(&meta.key, 0));
        let verdict = match slot {
            Some(slot) => self.verdict(slot, meta, rules),
            None => rules.judge(meta),
        };
        let peer = verdict.peer?;
        if from.is_some_and(|from| from != peer) {
            return None;
        }
        if let Some(slot) = slot {
            self.entries[slot as usize].used_at = now;
            if from.is_none() {
                self.adopt(slot);
            }
        }
        let slot = slot.or_else(|| self.open(now, (meta.key, 0), verdict, from));
        Some(PeerFlow { peer, flow: slot.map(|slot| FlowId::new(slot, meta.direction)) })
    }

    /// Returns the flow of a packet that an interface of a cloud sends to a peer, or `None` if the
    /// table has no free entry for it. Two clouds may use the same addresses, but each interface
    /// belongs to one cloud only.
    pub(crate) fn of_cloud(
        &mut self,
        now: Instant,
        key: FlowKey,
        interface: u64,
        peer: u32,
    ) -> Option<FlowId> {
        let slot = match self.find(&key, interface) {
            Some(slot) => {
                self.entries[slot as usize].used_at = now;
                slot
            }
            None => {
                let verdict = Verdict { peer: Some(peer), epoch: 0 };
                self.open(now, (key, interface), verdict, None)?
            }
        };
        Some(FlowId::new(slot, Direction::Egress))
    }

    /// Returns the entry of a path that plain packets of an interface take to a peer, or `None` if
    /// the table has no free entry for it. `path` is one of a few numbers; `near` is probably the
    /// slot of the path.
    #[inline]
    pub(crate) fn of_path(
        &mut self,
        now: Instant,
        (peer, interface, path): (u32, u64, u8),
        near: u32,
    ) -> Option<u32> {
        let key = path_key(peer, path);
        let slot = match self.entries.get_mut(near as usize) {
            Some(entry) if entry.is(&key, interface) => near,
            _ => self.find_path(now, (key, interface), peer)?,
        };
        self.entries[slot as usize].used_at = now;
        Some(slot)
    }

    #[inline(never)]
    fn find_path(&mut self, now: Instant, key: (FlowKey, u64), peer: u32) -> Option<u32> {
        if let Some(slot) = self.find(&key.0, key.1) {
            return Some(slot);
        }
        let verdict = Verdict { peer: Some(peer), epoch: 0 };
        let slot = self.open(now, key, verdict, None)?;
        self.entries[slot as usize].owner = Owner::Path;
        self.numbering[slot as usize].move_to(peer);
        Some(slot)
    }

    #[inline(never)]
    fn find(&self, key: &FlowKey, space: u64) -> Option<u32> {
        let hash = key.hash_under(&self.secret, space);
        self.index.find(hash, |slot| self.entries[*slot as usize].is(key, space)).copied()
    }

    /// Returns the verdict of an entry. If the rules have changed since it was given, the rules
    /// evaluate the flow again.
    #[inline]
    fn verdict(&mut self, slot: u32, meta: &Meta, rules: &Rules) -> Verdict {
        let entry = &mut self.entries[slot as usize];
        if entry.verdict.epoch != rules.epoch() {
            entry.verdict = rules.judge(meta);
        }
        entry.verdict
    }

    /// Charges an entry to the guest, which uses the flow, instead of to a peer.
    fn adopt(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if let Owner::Peer(peer) = entry.owner {
            self.opened.give_back(peer, 1);
            entry.owner = Owner::Guest;
        }
    }

    /// Opens an entry for a flow. `from` is the peer that sent the first packet, or `None` if the
    /// guest sent it. Returns `None` if there is neither a free entry nor an unused entry to
    /// replace.
    #[cold]
    fn open(
        &mut self,
        now: Instant,
        (key, space): (FlowKey, u64),
        verdict: Verdict,
        from: Option<u32>,
    ) -> Option<u32> {
        let slot = match from {
            None => self.place(now)?,
            Some(peer) => self.place_of_peer(now, peer)?,
        };
        let hash = key.hash_under(&self.secret, space);
        let owner = from.map_or(Owner::Guest, Owner::Peer);
        self.fill(slot, Entry { key, space, hash, verdict, used_at: now, owner });
        let Self { index, entries, .. } = self;
        index.insert_unique(hash, slot, |slot| entries[*slot as usize].hash);
        Some(slot)
    }

    /// Returns a slot: a new slot, or the slot of a flow which has been unused for a while.
    fn place(&mut self, now: Instant) -> Option<u32> {
        if self.len() < self.flows_max {
            return self.push();
        }
        let slot = self.unused(now, |_| true)?;
        if let Owner::Peer(peer) = self.entries[slot as usize].owner {
            self.opened.give_back(peer, 1);
        }
        self.forget(slot);
        Some(slot)
    }

    /// Returns a slot for a flow that a peer opens, and charges the peer. If the peer has used up
    /// its part, the new flow replaces an unused flow of the same peer, and takes over its charge.
    fn place_of_peer(&mut self, now: Instant, peer: u32) -> Option<u32> {
        if !self.opened.take(peer, 1) {
            let slot = self.unused(now, |owner| owner == Owner::Peer(peer))?;
            self.forget(slot);
            return Some(slot);
        }
        let slot = self.place(now);
        if slot.is_none() {
            self.opened.give_back(peer, 1);
        }
        slot
    }

    /// Returns the slot of an unused flow that may be replaced; `may_go`: whether a flow of this
    /// owner may be replaced.
    fn unused(&mut self, now: Instant, may_go: impl Fn(Owner) -> bool) -> Option<u32> {
        for _ in 0..HAND_STEPS_MAX {
            let slot = self.hand;
            self.hand = u32::try_from((slot as usize + 1) % self.entries.len()).unwrap_or(0);
            let entry = &self.entries[slot as usize];
            let idle = now.since(entry.used_at) > UNUSED_AFTER;
            let waits = !self.queues[slot as usize].is_unlisted();
            if entry.owner != Owner::Overflow && may_go(entry.owner) && idle && !waits {
                return Some(slot);
            }
        }
        None
    }

    /// Removes an entry from the index, so that no packet finds it any more.
    fn forget(&mut self, slot: u32) {
        let hash = self.entries[slot as usize].hash;
        if let Ok(found) = self.index.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
    }

    /// Opens the overflow entry of a peer, which all flows of the peer share that find no free
    /// entry. Returns its slot.
    pub(crate) fn open_overflow(&mut self, now: Instant, peer: u32) -> Option<u32> {
        let slot = match self.overflow_free.pop() {
            Some(slot) => slot,
            None => self.push()?,
        };
        // All flows without an entry of their own take the same path to a peer.
        #[allow(clippy::cast_possible_truncation)] // each cast keeps its half
        let key = FlowKey { ports: ((peer >> 16) as u16, peer as u16), ..NO_FLOW };
        let hash = key.hash_under(&self.secret, 0);
        let verdict = Verdict { peer: Some(peer), epoch: 0 };
        let owner = Owner::Overflow;
        self.fill(slot, Entry { key, space: 0, hash, verdict, used_at: now, owner });
        self.numbering[slot as usize].move_to(peer);
        Some(slot)
    }

    /// Releases the overflow entry of a peer that was removed. The caller has removed all frames
    /// that waited for this peer.
    pub(crate) fn close_overflow(&mut self, slot: u32) {
        self.overflow_free.push(slot);
    }

    /// Adds a slot at the end of all columns.
    fn push(&mut self) -> Option<u32> {
        let slot = u32::try_from(self.entries.len()).ok().filter(|slot| *slot < 1 << 31)?;
        if self.entries.len() == self.entries.capacity() {
            self.grow();
        }
        self.entries.push(Entry::EMPTY);
        self.numbering.push(Numbering::default());
        self.queues.push(FlowQueue::default());
        self.counts.push(Counts::default());
        Some(slot)
    }

    /// Doubles the number of allocated entries, up to `flows_max`.
    fn grow(&mut self) {
        let places = self.entries.len();
        let most = self.flows_max.saturating_sub(self.len()).max(1);
        let more = places.max(PLACES_MIN).min(most);
        self.entries.reserve_exact(more);
        self.numbering.reserve_exact(more);
        self.queues.reserve_exact(more);
        self.counts.reserve_exact(more);
    }

    /// Writes an entry into a slot, and resets all columns of the slot, the ring of its queue
    /// included.
    fn fill(&mut self, slot: u32, entry: Entry) {
        let slot = slot as usize;
        self.numbering[slot] = Numbering::default();
        self.queues[slot] = FlowQueue::default();
        self.counts[slot] = Counts::default();
        self.entries[slot] = entry;
    }

    /// Returns the peer in whose queue the next frame of the flow has to wait: `peer`, to which the
    /// rules send the flow, or a previous peer of the flow while earlier frames wait for this
    /// previous peer. So the frames stay in order.
    pub(crate) fn queue_of(&mut self, flow: FlowId, peer: u32) -> u32 {
        let slot = flow.slot() as usize;
        let numbering = &mut self.numbering[slot];
        if numbering.peer != peer && self.queues[slot].is_unlisted() {
            numbering.move_to(peer);
        }
        numbering.peer
    }

    /// Whether an entry is the overflow entry of a peer. All flows of the peer that found no free
    /// entry share it.
    pub(crate) fn is_overflow(&self, slot: u32) -> bool {
        self.entries[slot as usize].owner == Owner::Overflow
    }

    /// Returns the hash of a flow, which selects its path outside of SRD.
    pub(crate) fn hash(&self, slot: u32) -> u64 {
        self.entries[slot as usize].hash
    }

    /// Counts packets of a flow that pass, and notes whether SRD carried them.
    #[inline]
    pub(crate) fn count(&mut self, flow: FlowId, pkts: u64, bytes: u64, by_srd: bool) {
        self.counts[flow.slot() as usize].add(flow.direction(), pkts, bytes, by_srd);
    }

    /// Gives a flow a new number after the loss of one of its frames. An unknown slot is ignored.
    pub(crate) fn renumber(&mut self, slot: u32) {
        if let Some(numbering) = self.numbering.get_mut(slot as usize) {
            numbering.renumber();
        }
    }

    /// Computes the rates of all flows since the last call, which was `elapsed` ago.
    pub(crate) fn take_rates(&mut self, elapsed: Duration) {
        for counts in &mut self.counts {
            counts.take_rate(elapsed);
        }
    }

    /// Returns at most `most` flows: those in which the guest sends at the highest rates, busiest
    /// first.
    pub(crate) fn busiest(&self, most: usize) -> Vec<(FlowKey, u32, Counts)> {
        let flows = self.entries.iter().zip(&self.numbering).zip(&self.counts);
        let is_flow = |owner| !matches!(owner, Owner::Overflow | Owner::Path);
        let active = flows.filter(|((e, _), counts)| counts.bps > 0 && is_flow(e.owner));
        let mut active = active.map(|((e, n), counts)| (e.key, n.peer, *counts));
        let order = |(key, _, counts): &(FlowKey, u32, Counts)| (Reverse(counts.bps), *key);
        // At most twice as many as requested are kept at a time, so that the others are not
        // sorted.
        let mut kept: Vec<_> = Vec::new();
        loop {
            let room = most.saturating_mul(2).saturating_sub(kept.len());
            kept.extend(active.by_ref().take(room));
            kept.sort_unstable_by_key(order);
            if kept.len() <= most {
                return kept;
            }
            kept.truncate(most);
        }
    }
}

/// Key of a path to a peer. No packet has this key: protocol zero has no ports.
fn path_key(peer: u32, path: u8) -> FlowKey {
    let destination = IpAddr::V4(Ipv4Addr::from_bits(peer));
    FlowKey { destination, ports: (u16::from(path) + 1, 0), ..NO_FLOW }
}

#[cfg(test)]
mod tests;
