//! Windows of flow logs that are over, until they are taken.
//!
//! Bound: [`WINDOWS_MAX`] windows wait; later ones are counted and given up.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};
use srd_vpc::id::EniId;

use crate::observe::{Aggregator, Window};

/// Windows that wait until they are taken.
pub const WINDOWS_MAX: usize = 4096;

/// A window of an interface that is over.
#[derive(Clone, Debug)]
pub struct LoggedWindow {
    /// The interface.
    pub eni: EniId,
    /// How long its windows are.
    pub length: Duration,
    /// What was counted.
    pub window: Window,
}

/// Windows that are over, and when the next one is.
#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) done: VecDeque<LoggedWindow>,
    pub(super) next: Option<Instant>,
    /// Windows given up, since nobody took those before.
    pub(super) lost: u64,
    /// How many aggregators there were, for their secrets.
    pub(super) number: u64,
}

impl Logs {
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn add(&mut self, eni: EniId, length: Duration, window: Window) {
        if self.done.len() < WINDOWS_MAX {
            self.done.push_back(LoggedWindow { eni, length, window });
        } else {
            self.lost += 1;
        }
    }

    /// Logs of an interface end.
    pub(super) fn end(&mut self, now: Instant, eni: EniId, logs: Vec<Aggregator>) {
        for log in logs {
            self.add(eni, log.length(), log.finish(now));
        }
    }
}
