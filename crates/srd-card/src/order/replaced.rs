//! Flows of one peer that were replaced: the sequence number with which each continues if it sends
//! again. Without this number, its next frame would wait in vain for frames that were delivered, or
//! frames that are behind it in the network would be lost. // O4
//!
//! Bound: a number of records that the caller passes, and [`REPLACED_FOR`]. The oldest record is
//! dropped for a new one.

use alloc::collections::{BTreeMap, BTreeSet};

use srd_proto::time::{Duration, Instant};

/// Time for which a replaced flow is recorded. Senders take a new number after this silence. // F4
const REPLACED_FOR: Duration = Duration::from_secs(60);

/// The replaced flows of a peer.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Time of the replacement, and the next sequence number, by the number of the flow.
    next: BTreeMap<u32, (Instant, u16)>,
    /// Times and numbers of the same flows, the earliest first.
    by_age: BTreeSet<(Instant, u32)>,
    /// Time of the latest replacement whose record was dropped for another one; `None` if none was.
    dropped: Option<Instant>,
}

impl Replaced {
    /// Records that a flow was replaced. Keeps at most `records_max` records, and at least one.
    pub(super) fn add(&mut self, now: Instant, number: u32, next: u16, records_max: usize) {
        self.take(number);
        self.expire(now);
        while self.next.len() >= records_max.max(1) {
            let Some((at, oldest)) = self.by_age.pop_first() else { break };
            self.next.remove(&oldest);
            self.dropped = self.dropped.max(Some(at));
        }
        self.next.insert(number, (now, next));
        self.by_age.insert((now, number));
    }

    /// Returns the next sequence number of a flow, if the flow is recorded.
    pub(super) fn get(&self, number: u32) -> Option<u16> {
        self.next.get(&number).map(|(_, next)| *next)
    }

    /// Removes the record of a flow. Returns its next sequence number, if the flow is recorded.
    pub(super) fn take(&mut self, number: u32) -> Option<u16> {
        let (at, next) = self.next.remove(&number)?;
        self.by_age.remove(&(at, number));
        Some(next)
    }

    /// Whether a replaced flow may be in use whose record was dropped.
    pub(super) fn is_incomplete(&self, now: Instant) -> bool {
        self.dropped.is_some_and(|at| now.since(at) < REPLACED_FOR)
    }

    /// Removes the records of flows that take another number when they send again.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(at, number)) = self.by_age.first()
            && now.since(at) >= REPLACED_FOR
        {
            self.by_age.pop_first();
            self.next.remove(&number);
        }
    }

    /// Number of records.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.next.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(n)
    }

    #[test]
    fn so_many_flows_are_recorded_and_the_oldest_is_dropped() {
        let mut replaced = Replaced::default();
        for number in 0..10 {
            replaced.add(second(number.into()), number, 7, 4);
            assert_eq!(replaced.is_incomplete(second(9)), number >= 4);
        }
        assert_eq!((replaced.len(), replaced.by_age.len()), (4, 4));
        assert_eq!([5, 6, 9].map(|number| replaced.take(number)), [None, Some(7), Some(7)]);
        assert_eq!(replaced.take(9), None);
        // The last dropped record was of second 5.
        assert!(replaced.is_incomplete(second(64)) && !replaced.is_incomplete(second(65)));
        // A flow that is replaced again has one record.
        replaced.add(second(10), 7, 8, 4);
        assert_eq!((replaced.len(), replaced.by_age.len(), replaced.take(7)), (2, 2, Some(8)));
        // A limit that has become smaller drops the others.
        replaced.add(second(11), 20, 1, 0);
        assert_eq!((replaced.len(), replaced.take(8)), (1, None));
    }

    #[test]
    fn a_record_ends_when_the_sender_takes_another_number() {
        let mut replaced = Replaced::default();
        replaced.add(second(0), 1, 7, 4);
        replaced.add(second(1), 2, 8, 4);
        replaced.expire(second(60));
        assert_eq!([1, 2].map(|number| replaced.take(number)), [None, Some(8)]);
        assert!(!replaced.is_incomplete(second(60)));
        assert_eq!(replaced.by_age.len(), 0);
    }
}
