//! Sums of the arrivals in a bin, a short interval of fixed length, in one direction.

use srd_card::limits::Limit;

use crate::analysis::model::{Fate, LIMITS};
use crate::analysis::sketch::{Carried, TopFlows};
use crate::sources::arrival::Arrival;

/// Numbers of packets that a limit queued or dropped in the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LimitCounters {
    pub(crate) queued: u64,
    pub(crate) dropped: u64,
}

/// Sum of the arrivals of one direction in one or several bins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// Largest bytes and largest packets of a single arrival, which may be a super-packet.
    pub(crate) largest: (u64, u64),
    /// Packets that were queued or dropped, each counted at its first limit only.
    pub(crate) first: LimitCounters,
    /// Packets that each limit queued or dropped, indexed by the limit's number.
    pub(crate) held: [LimitCounters; LIMITS],
    pub(crate) flows: TopFlows,
}

impl Sum {
    /// Counts an arrival, and the model's decision about it.
    pub(crate) fn add(&mut self, arrival: &Arrival, fate: Fate) {
        let packets = u64::from(arrival.packets);
        let mut carried = Carried { bytes: arrival.bytes.into(), packets, ..Carried::default() };
        match fate {
            Fate::Passed => {}
            Fate::Queued(limit) => {
                carried.queued = packets;
                self.held[limit as usize].queued += packets;
            }
            Fate::Dropped(limit) => {
                carried.dropped = packets;
                self.held[limit as usize].dropped += packets;
            }
        }
        self.bytes += carried.bytes;
        self.packets += packets;
        self.largest = larger(self.largest, (carried.bytes, packets));
        self.first.queued += carried.queued;
        self.first.dropped += carried.dropped;
        self.flows.add(&arrival.flow, &carried);
    }

    /// Counts packets that waited before an earlier limit and were then dropped by `limit`.
    pub(crate) fn drop_late(&mut self, limit: Limit, packets: u64) {
        self.held[limit as usize].dropped += packets;
        self.first.dropped += packets;
    }

    /// Adds the sum `other`, and resets `other` to zero.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.largest = larger(self.largest, other.largest);
        self.first.queued += other.first.queued;
        self.first.dropped += other.first.dropped;
        for (own, held) in self.held.iter_mut().zip(&other.held) {
            own.queued += held.queued;
            own.dropped += held.dropped;
        }
        self.flows.absorb(&mut other.flows);
        other.clear();
    }

    pub(crate) fn clear(&mut self) {
        let mut flows = std::mem::take(&mut self.flows);
        flows.clear();
        *self = Self { flows, ..Self::default() };
    }

    /// Whether a limit of this direction alone queued or dropped packets. If fewer than `little`
    /// bytes arrived, limits with a queue do not count, because their packets only waited behind
    /// earlier packets.
    pub(crate) fn is_held(&self, little: u64) -> bool {
        let own = |(n, held): (usize, &LimitCounters)| {
            let queues = n != Limit::Fragments as usize && n != Limit::LinkLocal as usize;
            let counts = n != Limit::Packets as usize && !(queues && self.bytes < little);
            counts && held.queued + held.dropped > 0
        };
        self.held.iter().enumerate().any(own)
    }

    /// Whether the limit of packets per second, which both directions share, queued or dropped
    /// packets.
    pub(crate) fn is_held_by_both(&self) -> bool {
        let held = &self.held[Limit::Packets as usize];
        held.queued + held.dropped > 0
    }
}

/// Returns a pair of the larger first and the larger second component of two pairs.
pub(crate) fn larger(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0.max(other.0), one.1.max(other.1))
}
