//! The flows that carry most, in bounded memory, however many there are: the algorithm of Misra
//! and Gries, in batches.
//!
//! Every flow has an entry with what it was seen to carry, and a credit of as many bytes. When
//! there are twice [`FLOWS_KEPT`] entries, all credits fall by that of the first entry beyond the
//! largest [`FLOWS_KEPT`], and entries without credit go. So each such fall takes as much from at
//! least [`FLOWS_KEPT`] flows, and all falls together are at most bytes / [`FLOWS_KEPT`]: that is
//! [`TopFlows::error_bytes`]. A flow that carries more than this has an entry, which misses no
//! more than this of it. While there are fewer flows than entries, everything is exact.
//!
//! Packets come in runs of one flow. What the flow of the latest packet carries beyond its first
//! one is put aside, so that a run costs its entry two looks, however long it is.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::arrival::Flow;

/// Entries that stay when there are too many.
pub const FLOWS_KEPT: usize = 1024;
/// Largest number of entries; twice as many while two are put together.
pub const FLOWS_MAX: usize = 2 * FLOWS_KEPT;

/// Traffic of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Bytes from the IP header on.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that the model let wait.
    pub queued: u64,
    /// Packets that the model dropped.
    pub dropped: u64,
}

impl Carried {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.queued += other.queued;
        self.dropped += other.dropped;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    carried: Carried,
    credit: u64,
}

/// The flows that carry most.
#[derive(Clone, Debug, Default)]
pub struct TopFlows {
    entries: HashMap<Flow, Entry>,
    /// The flow of the latest packet, which has an entry, and what is not in that yet.
    run: Option<(Flow, Carried)>,
    error_bytes: u64,
    forgotten: u64,
}

impl TopFlows {
    /// Counts what a flow carries.
    pub fn add(&mut self, flow: &Flow, carried: &Carried) {
        if let Some((latest, aside)) = &mut self.run
            && latest == flow
        {
            aside.add(carried);
            return;
        }
        self.settle();
        self.entry(flow, carried);
        self.run = Some((*flow, Carried::default()));
        if self.entries.len() >= FLOWS_MAX {
            self.shrink();
        }
    }

    fn entry(&mut self, flow: &Flow, carried: &Carried) {
        let entry = self.entries.entry(*flow).or_default();
        entry.carried.add(carried);
        entry.credit += carried.bytes;
    }

    /// Ends the run: all that was carried is in the entries.
    fn settle(&mut self) {
        if let Some((flow, aside)) = self.run.take()
            && aside != Carried::default()
        {
            self.entry(&flow, &aside);
        }
    }

    /// Counts everything that `other` has counted, and empties it.
    pub fn absorb(&mut self, other: &mut Self) {
        self.settle();
        other.settle();
        if self.entries.is_empty() {
            std::mem::swap(self, other);
        } else {
            // All of them before any goes, so that their order does not matter.
            other.entries.drain().for_each(|(flow, entry)| {
                let own = self.entries.entry(flow).or_default();
                own.carried.add(&entry.carried);
                own.credit += entry.credit;
            });
            if self.entries.len() >= FLOWS_MAX {
                self.shrink();
            }
            self.error_bytes += other.error_bytes;
            self.forgotten += other.forgotten;
        }
        other.clear();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.run = None;
        (self.error_bytes, self.forgotten) = (0, 0);
    }

    /// Flows that have an entry.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no flow has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries that went, to make room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The most bytes of any one flow that are missing.
    pub fn error_bytes(&self) -> u64 {
        self.error_bytes
    }

    /// The flows with what they carried, the largest first.
    pub fn largest(&self) -> Vec<(Flow, Carried)> {
        let whole = |(flow, entry): (&Flow, &Entry)| {
            let mut carried = entry.carried;
            if let Some((_, aside)) = self.run.filter(|(latest, _)| latest == flow) {
                carried.add(&aside);
            }
            (*flow, carried)
        };
        let mut flows: Vec<_> = self.entries.iter().map(whole).collect();
        flows.sort_unstable_by_key(|(flow, carried)| (Reverse(carried.bytes), *flow));
        flows
    }

    fn shrink(&mut self) {
        // The entry of the latest flow may go.
        self.settle();
        let mut credits: Vec<u64> = self.entries.values().map(|entry| entry.credit).collect();
        let order = |credit: &u64| Reverse(*credit);
        let (_, least, _) = credits.select_nth_unstable_by_key(FLOWS_KEPT, order);
        let least = *least;
        let before = self.entries.len();
        self.entries.retain(|_, entry| {
            entry.credit = entry.credit.saturating_sub(least);
            entry.credit > 0
        });
        self.error_bytes += least;
        self.forgotten += (before - self.entries.len()) as u64;
    }
}

#[cfg(test)]
#[path = "sketch_tests.rs"]
mod tests;
