//! One interface or file under watch: its analysis, the driver's counters, and the packets that are
//! kept to be saved.

use std::collections::VecDeque;

use srd_proto::time::Instant;

use crate::allowances::Allowances;
use crate::arrival::PacketDirection;
use crate::burst::Burst;
use crate::keep::{BurstPackets, Keeper};
use crate::other::SkipCounts;
use crate::read::Raw;
use crate::watch::{Event, Watch};

/// Bursts that wait for a sample of the driver's counters, at most: the first goes without beyond.
/// The same holds when their packets take more memory than those that may be saved.
const WAITING_MAX: usize = 64;
/// Samples after which a burst waits no longer, whatever their times: the clock was set.
const SAMPLES_MAX: u64 = 2;

/// Report of a session.
#[derive(Debug)]
pub enum Report {
    /// A burst is under way.
    Began(Box<Burst>),
    /// A burst is over; with its packets, if they are kept.
    Ended(Box<Burst>, Option<BurstPackets>),
}

/// One interface or file under watch.
#[derive(Debug)]
pub struct Session {
    /// The analysis.
    pub watch: Watch,
    /// The driver's counters, where it has them.
    pub allowances: Option<Allowances>,
    keeper: Option<Keeper>,
    kept_bytes: usize,
    begun: VecDeque<Box<Burst>>,
    waiting: VecDeque<PendingBurst>,
    waiting_bytes: usize,
    others: SkipCounts,
}

/// A burst that is over, with its packets.
#[derive(Debug)]
struct PendingBurst {
    burst: Box<Burst>,
    kept: Option<BurstPackets>,
    bytes: usize,
    /// Samples of the driver's counters before.
    samples: u64,
}

impl Session {
    /// A session. `kept_bytes`: memory for packets that may be saved; zero keeps none.
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

    /// A packet.
    pub fn see(&mut self, raw: &Raw<'_>) {
        let Some(arrival) = raw.arrival() else {
            self.others.add(raw.other());
            return;
        };
        let set_back = self.watch.set_back();
        self.watch.arrive(&arrival);
        if self.watch.set_back() > set_back {
            // The times of packets before are those of other bursts from now on.
            self.gather();
            self.keeper.iter_mut().for_each(Keeper::clear);
        }
        if let Some(keeper) = &mut self.keeper {
            let open =
                PacketDirection::BOTH.into_iter().filter_map(|way| self.watch.since(way)).min();
            keeper.push(raw, open);
        }
    }

    /// All that arrived before `now` was shown.
    pub fn advance(&mut self, now: Instant) {
        self.watch.advance(now);
    }

    /// Nothing comes any more.
    pub fn finish(&mut self, now: Instant) {
        self.watch.finish(now);
    }

    /// Nothing comes after the latest packet.
    pub fn end(&mut self) {
        self.watch.end();
    }

    /// Frames without IP, and packets that were not read.
    pub fn others(&self) -> &SkipCounts {
        &self.others
    }

    /// The next report. `last`: no further sample of the driver's counters comes.
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

    /// Takes what happened from the analysis, with the packets of bursts that are over.
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

    /// Whether the driver's counters were sampled after a burst.
    fn is_sampled(&self, waiting: &PendingBurst) -> bool {
        let Some(allowances) = &self.allowances else { return true };
        let after = allowances.sampled_ns().is_some_and(|at| at >= waiting.burst.end_ns());
        after || allowances.samples() >= waiting.samples + SAMPLES_MAX
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
