//! The flows that carry the most bytes, in bounded memory for any number of flows: the algorithm of
//! Misra and Gries, in batches.
//!
//! The entry of a flow contains the traffic counted for the flow, and a credit, which begins as the
//! same number of bytes. When there are twice [`FLOWS_KEPT`] entries, they are sorted by credit.
//! All credits are then reduced by the credit of the largest entry after the first [`FLOWS_KEPT`],
//! and entries without credit are removed. Each reduction takes its amount from at least
//! [`FLOWS_KEPT`] flows. So the sum of all reductions, [`TopFlows::error_bytes`], is at most the
//! number of all bytes divided by [`FLOWS_KEPT`]. Every flow that carries more than this sum has an
//! entry, and at most this many of its bytes are not counted. While there are fewer flows than
//! entries, all figures are exact.
//!
//! Packets usually arrive in runs of one flow. The first packet of a run is added to the entry at
//! once; the traffic of the other packets is summed outside of the table. So a run of any length
//! needs two lookups of its entry.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::sources::arrival::Flow;

/// Number of entries that are kept when the table is full and is reduced.
pub const FLOWS_KEPT: usize = 1024;
/// Largest number of entries; while two tables are merged, there may be twice this number.
pub const FLOWS_MAX: usize = 2 * FLOWS_KEPT;

/// Traffic of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Bytes from the IP header on.
    pub bytes: u64,
    /// Number of packets of the flow.
    pub packets: u64,
    /// Packets that waited in the model.
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

/// The flows that carry the most bytes.
#[derive(Clone, Debug, Default)]
pub struct TopFlows {
    entries: HashMap<Flow, Entry>,
    /// The flow of the latest packets, which has an entry, and the part of its traffic that is not
    /// in the entry yet.
    run: Option<(Flow, Carried)>,
    error_bytes: u64,
    forgotten: u64,
}

impl TopFlows {
    /// Counts `carried` as traffic of the flow `flow`.
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

    /// Ends the run of one flow: adds the run's traffic to the flow's entry.
    fn settle(&mut self) {
        if let Some((flow, aside)) = self.run.take()
            && aside != Carried::default()
        {
            self.entry(&flow, &aside);
        }
    }

    /// Adds all traffic that `other` has counted, and removes it from `other`.
    pub fn absorb(&mut self, other: &mut Self) {
        self.settle();
        other.settle();
        if self.entries.is_empty() {
            std::mem::swap(self, other);
        } else {
            // All entries are added before any is removed, so that their order does not matter.
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

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.run = None;
        (self.error_bytes, self.forgotten) = (0, 0);
    }

    /// Returns the number of flows that have an entry.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no flow has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of entries that were removed to limit memory; a flow may be counted
    /// several times.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the largest number of bytes that may be missing in the figure of one flow.
    pub fn error_bytes(&self) -> u64 {
        self.error_bytes
    }

    /// Returns the flows that have an entry, with their traffic; the flow with the most bytes is
    /// the first.
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
        // The reduction may remove the entry of the latest flow, so the flow's run is ended before.
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
