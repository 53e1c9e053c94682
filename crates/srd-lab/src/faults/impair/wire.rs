//! One direction of a wire: it loses some packets, and delays the other packets.
//!
//! Loss and delay of a packet are drawn when it arrives, and depend on the seed and on the number
//! of packets before it. The packet waits for the delay of its path and its jitter; then it leaves.
//! Packets that are due at the same time leave in the order of their arrival. The module reads no
//! clock: the caller passes times in nanoseconds, which never decrease.
//!
//! Invariant: every packet that arrived is delivered, lost, dropped because the queue was full,
//! refused by the receiver, or under way: [`Carried`] adds up.

use super::{Impairment, MILLION, path::path};
use crate::random::Random;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Counters of the packets of one direction of a wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Carried {
    /// Packets that arrived at the wire.
    pub packets: u64,
    /// Bytes of the packets that arrived.
    pub bytes: u64,
    /// Packets delivered to the receiving host.
    pub delivered: u64,
    /// Packets lost, as configured.
    pub lost: u64,
    /// Packets dropped because too many were under way.
    pub overflowed: u64,
    /// Packets that the receiving host did not accept.
    pub refused: u64,
    /// Packets that were still under way at the end.
    pub under_way: u64,
    /// Packets that left after a packet that had arrived later.
    pub overtaken: u64,
    /// Largest number of packets that were under way at once.
    pub under_way_most: u64,
    /// Number of paths that packets took.
    pub paths_used: u64,
    /// Mean time in microseconds by which packets left later than configured.
    pub late_us_mean: f64,
    /// Longest time in microseconds by which a packet left later than configured.
    pub late_us_max: f64,
}

/// A packet under way. Ordered by due time, then by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    due_ns: u64,
    number: u64,
    packet: Vec<u8>,
}

/// One direction of a wire.
#[derive(Debug)]
pub(super) struct Wire {
    impairment: Impairment,
    random: Random,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    paths_used: Vec<bool>,
    /// Number of the latest-arrived packet among the packets that have left.
    newest: u64,
    late_ns_sum: u64,
    late_ns_max: u64,
    carried: Carried,
}

impl Wire {
    /// Returns an empty wire. Both directions of a wire have the same impairment, which must be
    /// valid, and different seeds.
    pub(super) fn new(impairment: &Impairment, seed: u64) -> Wire {
        Wire {
            impairment: impairment.clone(),
            random: Random::new(seed),
            under_way: BinaryHeap::new(),
            paths_used: vec![false; impairment.paths.into()],
            newest: 0,
            late_ns_sum: 0,
            late_ns_max: 0,
            carried: Carried::default(),
        }
    }

    /// Accepts a packet that has arrived.
    pub(super) fn accept(&mut self, now_ns: u64, packet: Vec<u8>) {
        let impairment = &self.impairment;
        // There are always two draws, so that the setting of loss does not change the drawn jitter,
        // and the reverse.
        let lost = self.random.next_u64() % u64::from(MILLION) < u64::from(impairment.loss_ppm);
        let jitter_ns = self.random.next_u64() % (impairment.jitter_ns + 1);
        self.carried.packets += 1;
        self.carried.bytes += packet.len() as u64;
        let path = path(&packet, impairment.seed, impairment.paths);
        self.paths_used[usize::from(path)] = true;
        if lost {
            self.carried.lost += 1;
            return;
        }
        if self.under_way.len() as u64 >= u64::from(impairment.queue_packets_max) {
            self.carried.overflowed += 1;
            return;
        }
        let due_ns = now_ns + delay_ns(impairment, path) + jitter_ns;
        let number = self.carried.packets;
        self.under_way.push(Reverse(UnderWay { due_ns, number, packet }));
        let now = self.under_way.len() as u64;
        self.carried.under_way_most = self.carried.under_way_most.max(now);
    }

    /// Returns the time when the next packet leaves; `None` while nothing is under way.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse(first)| first.due_ns)
    }

    /// Removes and returns a packet that is due.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let Reverse(first) = self.under_way.pop()?;
        self.carried.overtaken += u64::from(first.number < self.newest);
        self.newest = self.newest.max(first.number);
        let late_ns = now_ns - first.due_ns;
        self.late_ns_sum += late_ns;
        self.late_ns_max = self.late_ns_max.max(late_ns);
        self.carried.delivered += 1;
        Some(first.packet)
    }

    /// Counts the packet that was taken last as refused instead of delivered.
    pub(super) fn refused(&mut self) {
        self.carried.delivered -= 1;
        self.carried.refused += 1;
    }

    /// Returns the current counters.
    pub(super) fn carried(&self) -> Carried {
        let left = self.carried.delivered + self.carried.refused;
        Carried {
            under_way: self.under_way.len() as u64,
            paths_used: self.paths_used.iter().filter(|used| **used).count() as u64,
            late_us_mean: self.late_ns_sum as f64 / 1e3 / left.max(1) as f64,
            late_us_max: self.late_ns_max as f64 / 1e3,
            ..self.carried.clone()
        }
    }
}

/// Returns the delay of a path: the first path has the shortest delay, the last path the longest.
fn delay_ns(impairment: &Impairment, path: u16) -> u64 {
    let steps = u64::from(impairment.paths - 1).max(1);
    let span_ns = impairment.delay_max_ns - impairment.delay_min_ns;
    impairment.delay_min_ns + span_ns * u64::from(path) / steps
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
