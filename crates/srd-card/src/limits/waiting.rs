//! Packets that wait, in the order of the times at which they may continue.
//!
//! Bound: the callers count the packets of each limit, and refuse more than their bound.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

use srd_proto::time::Instant;

/// A packet and the time at which it may continue.
struct Entry<T> {
    due: Instant,
    /// Number of the entry in the order of insertion, by which entries of equal times keep their
    /// order.
    sequence: u64,
    item: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.sequence)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Queue of packets that wait, sorted by the time at which they may continue; packets of equal
/// times keep their order.
pub(super) struct DelayQueue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
}

impl<T> DelayQueue<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub(super) fn push(&mut self, due: Instant, item: T) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { due, sequence: self.sequence, item }));
    }

    /// Returns all packets that wait, in the order in which they continue.
    pub(super) fn all(&self) -> Vec<(Instant, &T)> {
        let mut all: Vec<_> = self.heap.iter().map(|Reverse(entry)| entry).collect();
        all.sort_unstable_by_key(|entry| entry.key());
        all.into_iter().map(|entry| (entry.due, &entry.item)).collect()
    }

    /// Removes and returns all packets, in the order in which they would continue.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> {
        let sorted = core::mem::take(&mut self.heap).into_sorted_vec();
        sorted.into_iter().rev().map(|Reverse(entry)| entry.item)
    }

    /// Time at which the first packet may continue; `None` if no packet waits.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// Removes the first packet if it may continue by `now`, and returns it with the time at which
    /// it may continue.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.due, entry.item))
    }
}
