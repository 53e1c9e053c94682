//! One interface or file under watch: its analysis, the driver's counters, and the packets that are
//! kept to be saved.

use std::collections::VecDeque;

use srd_proto::time::Instant;

use crate::allowances::Allowances;
use crate::arrival::Way;
use crate::burst::Burst;
use crate::keep::{Keeper, Kept};
use crate::read::Raw;
use crate::watch::{Event, Watch};

/// Bursts that wait for a sample of the driver's counters, at most: the first goes without beyond.
const WAITING_MAX: usize = 64;

/// What a session reports.
#[derive(Debug)]
pub enum Report {
    /// A burst is under way.
    Began(Box<Burst>),
    /// A burst is over; with its packets, if they are kept.
    Ended(Box<Burst>, Option<Kept>),
}

/// One interface or file under watch.
#[derive(Debug)]
pub struct Session {
    /// The analysis.
    pub watch: Watch,
    /// The driver's counters, where it has them.
    pub allowances: Option<Allowances>,
    keeper: Option<Keeper>,
    waiting: VecDeque<(Box<Burst>, Option<Kept>)>,
    others: u64,
}

impl Session {
    /// A session. `kept_bytes`: memory for packets that may be saved; zero keeps none.
    pub fn new(watch: Watch, allowances: Option<Allowances>, kept_bytes: usize) -> Self {
        let keeper = (kept_bytes > 0).then(|| Keeper::new(kept_bytes));
        Self { watch, allowances, keeper, waiting: VecDeque::new(), others: 0 }
    }

    /// A packet.
    pub fn see(&mut self, raw: &Raw<'_>) {
        let Some(arrival) = raw.arrival() else {
            self.others += 1;
            return;
        };
        self.watch.arrive(&arrival);
        if let Some(keeper) = &mut self.keeper {
            let open = Way::BOTH.into_iter().filter_map(|way| self.watch.since(way)).min();
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

    /// Frames that were no IP packets.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// What there is to report. `last`: no further sample of the driver's counters comes.
    pub fn next_report(&mut self, last: bool) -> Option<Report> {
        while let Some(event) = self.watch.next_event() {
            match event {
                Event::Began(burst) => return Some(Report::Began(burst)),
                Event::Ended(burst) => {
                    let kept = self.keeper.as_mut().map(|keeper| keeper.of(&burst));
                    self.waiting.push_back((burst, kept));
                }
            }
        }
        let (burst, _) = self.waiting.front()?;
        let sampled = match &self.allowances {
            Some(allowances) => allowances.sampled_ns().is_some_and(|at| at >= burst.end_ns()),
            None => true,
        };
        if !sampled && !last && self.waiting.len() <= WAITING_MAX {
            return None;
        }
        let (mut burst, kept) = self.waiting.pop_front()?;
        if let Some(allowances) = &mut self.allowances {
            allowances.attribute(&mut burst);
        }
        Some(Report::Ended(burst, kept))
    }
}
