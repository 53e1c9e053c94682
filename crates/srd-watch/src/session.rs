//! A session: the analysis of one interface or file, with the driver's counters and the packets
//! that are kept to be saved.

use std::collections::VecDeque;

use srd_proto::time::Instant;

use crate::analysis::allowances::Allowances;
use crate::analysis::burst::Burst;
use crate::analysis::watch::{Event, Watch};
use crate::sources::arrival::PacketDirection;
use crate::sources::keep::{BurstPackets, Keeper};
use crate::sources::other::SkipCounts;
use crate::sources::read::Raw;

/// Largest number of ended bursts that wait for a sample of the driver's counters. If more bursts
/// wait, or if their packets take more memory than the limit for saved packets, the first of them
/// is reported without waiting longer.
const WAITING_MAX: usize = 64;
/// Number of samples after which a burst stops waiting for a sample from after its end. This
/// matters if the clock was set, so that the samples have earlier times.
const SAMPLES_MAX: u64 = 2;

/// Report of a session.
#[derive(Debug)]
pub enum Report {
    /// A burst is under way.
    Began(Box<Burst>),
    /// A burst has ended. The packets are present if the session keeps packets.
    Ended(Box<Burst>, Option<BurstPackets>),
}

/// A session: one interface or file under watch.
#[derive(Debug)]
pub struct Session {
    /// Analysis of the session's packets.
    pub watch: Watch,
    /// The driver's allowance counters; `None` if the driver lacks them.
    pub allowances: Option<Allowances>,
    keeper: Option<Keeper>,
    kept_bytes: usize,
    begun: VecDeque<Box<Burst>>,
    waiting: VecDeque<PendingBurst>,
    waiting_bytes: usize,
    others: SkipCounts,
}

/// A burst that has ended and waits for a sample of the driver's counters, with its packets.
#[derive(Debug)]
struct PendingBurst {
    burst: Box<Burst>,
    kept: Option<BurstPackets>,
    bytes: usize,
    /// Number of samples of the driver's counters at the time when the burst was queued.
    samples: u64,
}

impl Session {
    /// Returns a session. `kept_bytes` is the memory in bytes for packets that are kept to be
    /// saved; zero keeps no packets.
    pub fn new(watch: Watch, allowances: Option<Allowances>, kept_bytes: usize) -> Self {
        let keeper = (kept_bytes > 0).then(|| Keeper::new(kept_bytes));
        Self {
            watch,
            allowances,
            keeper,
            kept_bytes,
            begun: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            others: SkipCounts::default(),
        }
    }

    /// Adds a packet to the analysis.
    pub fn see(&mut self, raw: &Raw<'_>) {
        let Some(arrival) = raw.arrival() else {
            self.others.add(raw.other());
            return;
        };
        let set_back = self.watch.set_back();
        self.watch.arrive(&arrival);
        if self.watch.set_back() > set_back {
            // The clock was set back. From now on, the times of earlier packets could match other
            // bursts, so these packets are removed.
            self.gather();
            self.keeper.iter_mut().for_each(Keeper::clear);
        }
        if let Some(keeper) = &mut self.keeper {
            let open =
                PacketDirection::BOTH.into_iter().filter_map(|way| self.watch.since(way)).min();
            keeper.push(raw, open);
        }
    }

    /// Notes that all packets that arrived before `now` have been added.
    pub fn advance(&mut self, now: Instant) {
        self.watch.advance(now);
    }

    /// Ends the session at `now`, after its last packet.
    pub fn finish(&mut self, now: Instant) {
        self.watch.finish(now);
    }

    /// Ends the session at the time of the latest packet.
    pub fn end(&mut self) {
        self.watch.end();
    }

    /// Returns the numbers of skipped packets: frames without IP, and packets that are not
    /// supported.
    pub fn others(&self) -> &SkipCounts {
        &self.others
    }

    /// Returns the next report; `None` if no report is ready. `last` is set if no further sample of
    /// the driver's counters will follow, so that no burst waits for one.
    pub fn next_report(&mut self, last: bool) -> Option<Report> {
        self.gather();
        if let Some(burst) = self.begun.pop_front() {
            return Some(Report::Began(burst));
        }
        let is_full =
            self.waiting.len() > WAITING_MAX || self.waiting_bytes > self.kept_bytes.max(1);
        if !last && !is_full && !self.is_sampled(self.waiting.front()?) {
            return None;
        }
        let PendingBurst { mut burst, kept, bytes, .. } = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes;
        if let Some(allowances) = &mut self.allowances {
            allowances.attribute(&mut burst);
        }
        Some(Report::Ended(burst, kept))
    }

    /// Takes the events of the analysis from its queue. A burst that has ended is queued with its
    /// packets.
    fn gather(&mut self) {
        while let Some(event) = self.watch.next_event() {
            match event {
                Event::Began(burst) => self.begun.push_back(burst),
                Event::Ended(burst) => {
                    let kept = self.keeper.as_mut().map(|keeper| keeper.of(&burst));
                    let bytes = kept.as_ref().map_or(0, BurstPackets::bytes);
                    let samples = self.allowances.as_ref().map_or(0, Allowances::samples);
                    self.waiting_bytes += bytes;
                    self.waiting.push_back(PendingBurst { burst, kept, bytes, samples });
                }
            }
        }
    }

    /// Whether the driver's counters were sampled after the end of a burst, or often enough since.
    fn is_sampled(&self, waiting: &PendingBurst) -> bool {
        let Some(allowances) = &self.allowances else { return true };
        let after = allowances.sampled_ns().is_some_and(|at| at >= waiting.burst.end_ns());
        after || allowances.samples() >= waiting.samples + SAMPLES_MAX
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
