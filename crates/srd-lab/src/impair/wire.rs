//! One direction of a wire: it loses packets, and delays the others.
//!
//! Loss and delay of a packet are drawn when it arrives, and follow from the seed and from the
//! number of packets before it. The packet waits for the delay of its path and its jitter; then
//! it leaves. Packets that are due at one moment leave in the order of their arrival. No clock is
//! read here: times are nanoseconds of the caller's, and never run backwards.
//!
//! Invariant: every packet that came is delivered, lost, dropped because the queue was full,
//! refused by the receiver, or under way: [`Carried`] adds up.

use super::{Impairment, MILLION, path::path};
use crate::random::Random;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Counters of packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Carried {
    /// Packets that came.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets handed to the receiving host.
    pub delivered: u64,
    /// Packets lost, as configured.
    pub lost: u64,
    /// Packets dropped because too many were under way.
    pub overflowed: u64,
    /// Packets that the receiving host did not take.
    pub refused: u64,
    /// Packets that were still under way at the end.
    pub under_way: u64,
    /// Packets that left after one that had come later.
    pub overtaken: u64,
    /// The most packets that were under way at once.
    pub under_way_most: u64,
    /// Paths that packets took.
    pub paths_used: u64,
    /// Mean time in microseconds by which packets left later than configured.
    pub late_us_mean: f64,
    /// Longest time in microseconds by which a packet left later than configured.
    pub late_us_max: f64,
}

/// A packet under way. Ordered by when it is due, then by arrival.
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
    /// The latest of the packets that have left.
    newest: u64,
    late_ns_sum: u64,
    late_ns_max: u64,
    carried: Carried,
}

impl Wire {
    /// A wire that nothing is on. Both directions of one have an impairment in common, which
    /// must be valid, and not their fate.
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

    /// Takes a packet that has come.
    pub(super) fn accept(&mut self, now_ns: u64, packet: Vec<u8>) {
        let impairment = &self.impairment;
        // Always two draws: what one knob is set to does not change what another does.
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

    /// Time when the next packet leaves; `None` while nothing is under way.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse(first)| first.due_ns)
    }

    /// A packet that is due.
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

    /// The packet taken last could not be delivered.
    pub(super) fn refused(&mut self) {
        self.carried.delivered -= 1;
        self.carried.refused += 1;
    }

    /// Counters so far.
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

/// The delay of a path: the first has the shortest, the last the longest.
fn delay_ns(impairment: &Impairment, path: u16) -> u64 {
    let steps = u64::from(impairment.paths - 1).max(1);
    let span_ns = impairment.delay_max_ns - impairment.delay_min_ns;
    impairment.delay_min_ns + span_ns * u64::from(path) / steps
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
