//! Invariants after every call, which debug builds check.
//!
//! To check everything after each call would take too long. Therefore each call adds [`STEPS`] to a
//! budget. When the budget suffices for a check of the next peer, or of the endpoint's tables, the
//! check is made. So a call checks about [`STEPS`] entries on average, whatever the size of the
//! tables.

use alloc::collections::BTreeSet;

use super::Endpoint;
use crate::ids::PeerId;
use crate::time::Instant;

/// Number of entries that a call may check, on average.
const STEPS: usize = 64;
/// Cost of a check of the tables in addition to their entries, in entries: the counts of 256 coded
/// round-trip times, and the sets that a check builds.
const TABLES_COST: usize = 256;

/// Number of entries that may be checked: added by calls, and not used yet.
#[derive(Debug, Default)]
pub(super) struct Audit {
    peer_steps: usize,
    table_steps: usize,
    /// Index of the slot to be checked next.
    next: usize,
    /// Time of the last call that ran the timers; `None` before the first.
    timers_ran_at: Option<Instant>,
}

impl Endpoint {
    /// Checks a part of the state at the end of a call.
    pub(super) fn audit(&mut self) {
        self.audit.peer_steps += STEPS;
        self.audit.table_steps += STEPS / 4;
        let slots = &self.peers.slots;
        let next = if self.audit.next < slots.len() { self.audit.next } else { 0 };
        let cost = slots.get(next).and_then(Option::as_ref).map_or(1, |peer| peer.audit_cost());
        if self.audit.peer_steps >= cost {
            self.audit.peer_steps = 0;
            self.audit.next = next + 1;
            if let Some(Some(peer)) = slots.get(next) {
                peer.audit(&self.shared.node.config);
            }
        }
        if self.audit.table_steps >= self.peers.audit_cost() {
            self.audit.table_steps = 0;
            self.audit_tables();
        }
    }

    pub(super) fn audit_timers_ran(&mut self) {
        self.audit.timers_ran_at = Some(self.shared.now);
        self.audit();
    }

    /// Checks, when there is nothing to send, that no timer stays due.
    pub(super) fn audit_drained(&mut self) {
        if self.audit.timers_ran_at == Some(self.shared.now) {
            let next = self.poll_timeout();
            assert!(
                next.is_none_or(|at| at > self.shared.now),
                "a timer stays due at {:?}",
                self.shared.now
            );
        }
        self.audit();
    }

    /// Checks all invariants, however long this takes.
    ///
    /// # Panics
    /// Panics if an invariant is violated.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.peers.slots.iter().flatten().for_each(|peer| peer.audit(&self.shared.node.config));
        self.audit_tables();
    }

    fn audit_tables(&self) {
        let Self { peers, by_address, by_key, free, shared, .. } = self;
        let live = || peers.slots.iter().flatten();
        let here = |id: &PeerId| peers.look(*id).is_some();
        assert!(by_address.values().all(here), "an address names a peer that is gone");
        for peer in live() {
            let key = peer.keys.as_ref().and_then(|keys| keys.public_key);
            assert!(
                key.is_none_or(|key| by_key.get(&(key, peer.partner)) == Some(&peer.id)),
                "{:?}",
                peer.id
            );
        }
        let keyed = live().filter(|p| p.keys.as_ref().is_some_and(|k| k.public_key.is_some()));
        assert_eq!(by_key.len(), keyed.count(), "a key names a peer that is gone");
        assert_eq!(peers.slots.len() - live().count(), free.len(), "free slots");
        assert!(live().count() <= self.shared.node.config.peers_max as usize);
        assert!(self.unconfirmed.len() <= 2 * shared.node.config.peers_max as usize);
        peers.audit();
        let mut waiting = BTreeSet::new();
        for id in self.shared.egress.waiting.iter().filter(|id| here(id)) {
            assert!(waiting.insert(*id), "{id:?} waits twice for the link");
        }
        shared.share.audit(live().filter_map(|peer| peer.rx.as_ref().map(|rx| &rx.share)));
    }
}

impl super::peers::Peers {
    /// Number of entries that a check of the endpoint's tables visits.
    fn audit_cost(&self) -> usize {
        TABLES_COST + 4 * (self.slots.len() + self.ready.len()) + self.wakes_len()
    }

    /// Checks that a peer is in the ready queue if and only if its flag indicates it, and that each
    /// peer has a valid wake-up.
    fn audit(&self) {
        let ready: BTreeSet<PeerId> = self.ready.iter().copied().collect();
        let wakes = self.wakes();
        for peer in self.slots.iter().flatten() {
            assert_eq!(peer.queued_ready, ready.contains(&peer.id), "{:?} ready", peer.id);
            let woken = wakes.contains(&(peer.wake_at, peer.id.index()));
            assert!(peer.wake_at == Instant::FAR_FUTURE || woken, "{:?} sleeps on", peer.id);
        }
        let live = self.ready.iter().filter(|id| self.look(**id).is_some()).count();
        assert!(live <= self.slots.iter().flatten().count(), "a peer is ready twice");
    }
}
