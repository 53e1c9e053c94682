//! The flows of one peer by the interfaces that send them, for the choice of the flow that a new
//! flow replaces. It is a flow of the interface with the most flows, so that an interface with many
//! flows replaces its own flows, and not those of other tenants of its host. // O4
//!
//! Flows are listed by the time of their last use when they were last examined. This time is
//! brought up to date only when a flow is examined.
//!
//! Bound: one entry for each flow of the peer, and [`LOOKS_MAX`] examinations for each choice.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use hashbrown::HashMap;
use srd_proto::time::{Duration, Instant};

use super::sink::{Key, Source};
use super::store::Flow;
use crate::hash::Keyed;

/// Silence after which a flow is replaced without a search for one that has been silent for longer.
/// // O4
const UNUSED_AFTER: Duration = Duration::from_secs(1);
/// Largest number of flows that are examined to find one that a new flow may replace.
const LOOKS_MAX: usize = 64;

/// Position of a flow in the list: the interface, the recorded time, and the number of the flow.
type Listed = (Source, Instant, u32);

/// The flows of a peer.
#[derive(Debug, Default)]
pub(super) struct Senders {
    /// All flows. For each interface, those that were probably silent for longest come first.
    flows: BTreeSet<Listed>,
    /// Number of flows of each interface.
    counts: BTreeMap<Source, u32>,
    /// Interfaces by their numbers of flows.
    by_count: BTreeSet<(u32, Source)>,
}

impl Senders {
    /// Adds a flow of the peer.
    pub(super) fn add(&mut self, flow: &Flow, number: u32) {
        self.flows.insert((flow.source, flow.listed_at, number));
        self.change_count(flow.source, |count| count + 1);
    }

    /// Removes a flow. `source`: the interface under which it is listed.
    pub(super) fn remove(&mut self, source: Source, flow: &Flow, number: u32) {
        if self.flows.remove(&(source, flow.listed_at, number)) {
            self.change_count(source, |count| count - 1);
        }
    }

    fn change_count(&mut self, source: Source, change: impl Fn(u32) -> u32) {
        let before = self.counts.get(&source).copied().unwrap_or(0);
        self.by_count.remove(&(before, source));
        match change(before) {
            0 => {
                self.counts.remove(&source);
            }
            after => {
                self.counts.insert(source, after);
                self.by_count.insert((after, source));
            }
        }
    }

    /// Returns the number of a flow without waiting frames. It belongs to the interface with the
    /// most flows, or to one with fewer flows if all examined flows of the former have waiting
    /// frames. It has been silent for [`UNUSED_AFTER`], or otherwise for longer than the other
    /// examined flows of its interface. `all`: the flows of all peers.
    pub(super) fn longest_silent(
        &mut self,
        all: &mut HashMap<Key, Flow, Keyed>,
        now: Instant,
        peer: u32,
    ) -> Option<u32> {
        let Self { flows, by_count, .. } = self;
        let mut looks = LOOKS_MAX;
        for (_, source) in by_count.iter().rev() {
            let mut longest: Option<(Instant, u32)> = None;
            let mut from = Bound::Included((*source, Instant::ZERO, 0));
            while looks > 0 {
                let next = flows.range((from, Bound::Unbounded)).next().copied();
                let Some(listed) = next.filter(|next| next.0 == *source) else { break };
                let (_, at, number) = listed;
                (looks, from) = (looks - 1, Bound::Excluded(listed));
                let Some(flow) = all.get_mut(&(peer, number)) else { continue };
                let waits = !flow.entries.is_empty();
                let used_at = flow.used_at.max(at);
                // A flow with waiting frames is examined again after the others.
                flow.listed_at = if waits { now.max(at) } else { used_at };
                flows.remove(&listed);
                flows.insert((*source, flow.listed_at, number));
                if waits {
                    continue;
                }
                if longest.is_none_or(|longest| used_at < longest.0) {
                    longest = Some((used_at, number));
                }
                // The flows behind this one were used at this time or later.
                if used_at == at || now.since(used_at) > UNUSED_AFTER {
                    break;
                }
            }
            if let Some((_, number)) = longest {
                return Some(number);
            }
        }
        None
    }

    /// Number of flows that are listed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }
}
