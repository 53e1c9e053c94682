//! The table itself: keys, verdicts, and which entry gives way to another.

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

/// A flow that was silent for so long may lose its place to another.
const UNUSED_AFTER: Duration = Duration::from_secs(1);
/// Places that the hand looks at for one newcomer.
const HAND_STEPS_MAX: u32 = 64;
/// Places that are made room for at first.
const PLACES_MIN: usize = 64;

/// Memory of one entry: its columns, a ring that its queue keeps, and its place in the index, which
/// may be half empty and is copied when it grows.
pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>()
    + size_of::<Numbering>()
    + size_of::<FlowQueue>()
    + size_of::<Counts>()
    + FlowQueue::KEPT_BYTES
    + INDEX_BYTES;
const INDEX_BYTES: usize = 24;

/// The key of entries that stand for many flows.
const NO_FLOW: FlowKey = FlowKey {
    source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    ports: (0, 0),
};

/// An entry and a direction of it: `slot << 1 | direction`.
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

/// Where a packet belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// The peer behind its remote address.
    pub(crate) peer: u32,
    /// The entry of its flow, unless the table has no room for it.
    pub(crate) flow: Option<FlowId>,
}

/// One entry.
#[derive(Debug)]
struct Entry {
    key: FlowKey,
    /// The number space that the key's addresses are of: zero, or a cloud's sending interface.
    space: u64,
    hash: u64,
    verdict: Verdict,
    used_at: Instant,
    owner: Owner,
}

impl Entry {
    /// The content of a place until it is filled.
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

/// The side to which the place of an entry is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// The guest, which uses the flow.
    Guest,
    /// A peer, which alone has used it.
    Peer(u32),
    /// A path of an interface: it stands for flows of small packets that share a queue.
    Path,
    /// No one of them: it stands for every flow of a peer that finds no room, and stays.
    Overflow,
}

/// The table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    /// Columns, by the slot of the entry.
    pub(crate) numbering: Vec<Numbering>,
    pub(crate) queues: Vec<FlowQueue>,
    counts: Vec<Counts>,
    /// Entries that stood for flows of peers which are gone.
    overflow_free: Vec<u32>,
    /// Places that peers have opened.
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

    /// Flows known.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn utilization(&self) -> u64 {
        (self.len() * 100 / self.flows_max.max(1)) as u64
    }

    /// So many peers share the table from now on.
    pub(crate) fn set_peers(&mut self, peers: usize) {
        self.opened.set_peers(peers);
    }

    /// The flow of a packet, and its peer, by the rules. `from`: the peer that the packet came
    /// from, or none if the guest sent it; `near`: a slot that is probably the right one. `None`:
    /// the remote address belongs to no peer, or not to the one that sent it.
    #[inline]
    pub(crate) fn classify(
        &mut self,
        now: Instant,
        meta: &Meta,
        rules: &Rules,
        from: Option<u32>,
        near: Option<u32>,
    ) -> Option<Found> {
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
        Some(Found { peer, flow: slot.map(|slot| FlowId::new(slot, meta.direction)) })
    }

    /// The flow of a packet that an interface of a cloud sends to a peer; none if the table has no
    /// room for it. Two clouds may have the same addresses, and no interface is in both.
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

    /// The entry of a path, by its number among few, that plain packets of an interface take to a
    /// peer; none if the table has no room for it. `near`: a slot that is probably the right one.
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

    /// The verdict of an entry, given again if the rules have changed since.
    #[inline]
    fn verdict(&mut self, slot: u32, meta: &Meta, rules: &Rules) -> Verdict {
        let entry = &mut self.entries[slot as usize];
        if entry.verdict.epoch != rules.epoch() {
            entry.verdict = rules.judge(meta);
        }
        entry.verdict
    }

    /// The guest uses a flow: its place counts as no peer's any more.
    fn adopt(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if let Owner::Peer(peer) = entry.owner {
            self.opened.give_back(peer, 1);
            entry.owner = Owner::Guest;
        }
    }

    /// Makes an entry, if there is room.
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

    /// A place: a new one, or that of a flow which has been unused for a while.
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

    /// A place for a flow that a peer opens, charged to it. A peer that has used up its part gives
    /// up a flow that it has opened itself, whose charge the newcomer takes over.
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

    /// A flow that can go.
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

    /// Takes an entry out of the index.
    fn forget(&mut self, slot: u32) {
        let hash = self.entries[slot as usize].hash;
        if let Ok(found) = self.index.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
    }

    /// An entry that stands for every flow of a peer that finds no room.
    pub(crate) fn open_overflow(&mut self, now: Instant, peer: u32) -> Option<u32> {
        let slot = match self.overflow_free.pop() {
            Some(slot) => slot,
            None => self.push()?,
        };
        // Flows without places of their own take one path to each peer.
        #[allow(clippy::cast_possible_truncation)] // each half is what its cast keeps
        let key = FlowKey { ports: ((peer >> 16) as u16, peer as u16), ..NO_FLOW };
        let hash = key.hash_under(&self.secret, 0);
        let verdict = Verdict { peer: Some(peer), epoch: 0 };
        let owner = Owner::Overflow;
        self.fill(slot, Entry { key, space: 0, hash, verdict, used_at: now, owner });
        self.numbering[slot as usize].move_to(peer);
        Some(slot)
    }

    /// The peer is gone that this entry belonged to; nothing waits for it any more.
    pub(crate) fn close_overflow(&mut self, slot: u32) {
        self.overflow_free.push(slot);
    }

    /// A place at the end of all columns.
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

    /// Makes room for twice as many entries, but not for more than there may be.
    fn grow(&mut self) {
        let places = self.entries.len();
        let most = self.flows_max.saturating_sub(self.len()).max(1);
        let more = places.max(PLACES_MIN).min(most);
        self.entries.reserve_exact(more);
        self.numbering.reserve_exact(more);
        self.queues.reserve_exact(more);
        self.counts.reserve_exact(more);
    }

    /// Puts an entry into a place. Nothing of the previous entry stays, nor the ring of its queue.
    fn fill(&mut self, slot: u32, entry: Entry) {
        let slot = slot as usize;
        self.numbering[slot] = Numbering::default();
        self.queues[slot] = FlowQueue::default();
        self.counts[slot] = Counts::default();
        self.entries[slot] = entry;
    }

    /// The peer in whose queue a flow's next frame waits: that of its verdict, unless frames still
    /// wait for the previous peer: then the frame follows them.
    pub(crate) fn queue_of(&mut self, flow: FlowId, peer: u32) -> u32 {
        let slot = flow.slot() as usize;
        let numbering = &mut self.numbering[slot];
        if numbering.peer != peer && self.queues[slot].is_unlisted() {
            numbering.move_to(peer);
        }
        numbering.peer
    }

    /// Whether an entry stands for flows that found no room.
    pub(crate) fn is_overflow(&self, slot: u32) -> bool {
        self.entries[slot as usize].owner == Owner::Overflow
    }

    /// The hash of a flow: the path that it takes when it goes plainly.
    pub(crate) fn hash(&self, slot: u32) -> u64 {
        self.entries[slot as usize].hash
    }

    /// Counts packets of a flow that pass, and whether they ride SRD.
    #[inline]
    pub(crate) fn count(&mut self, flow: FlowId, pkts: u64, bytes: u64, by_srd: bool) {
        self.counts[flow.slot() as usize].add(flow.direction(), pkts, bytes, by_srd);
    }

    /// A frame of this flow was lost on its way out. A slot that is unknown is not minded.
    pub(crate) fn renumber(&mut self, slot: u32) {
        if let Some(numbering) = self.numbering.get_mut(slot as usize) {
            numbering.renumber();
        }
    }

    /// Takes the rates of all flows, which were last taken `elapsed` ago.
    pub(crate) fn take_rates(&mut self, elapsed: Duration) {
        for counts in &mut self.counts {
            counts.take_rate(elapsed);
        }
    }

    /// The flows that the guest sends with the highest rates, busiest first, at most `most`.
    pub(crate) fn busiest(&self, most: usize) -> Vec<(FlowKey, u32, Counts)> {
        let flows = self.entries.iter().zip(&self.numbering).zip(&self.counts);
        let is_flow = |owner| !matches!(owner, Owner::Overflow | Owner::Path);
        let active = flows.filter(|((e, _), counts)| counts.bps > 0 && is_flow(e.owner));
        let mut active = active.map(|((e, n), counts)| (e.key, n.peer, *counts));
        let order = |(key, _, counts): &(FlowKey, u32, Counts)| (Reverse(counts.bps), *key);
        // Never more than twice as many as are asked for, so that the rest is not sorted.
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

/// The key of a path to a peer. No packet has it: protocol zero has no ports.
fn path_key(peer: u32, path: u8) -> FlowKey {
    let destination = IpAddr::V4(Ipv4Addr::from_bits(peer));
    FlowKey { destination, ports: (u16::from(path) + 1, 0), ..NO_FLOW }
}

#[cfg(test)]
mod tests;
