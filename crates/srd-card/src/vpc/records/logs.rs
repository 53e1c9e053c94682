//! Windows of flow logs that are over, which wait until the caller takes them.
//!
//! Bound: [`WINDOWS_MAX`] windows wait; later windows are counted and dropped.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};
use srd_vpc::id::EniId;

use crate::observe::{Aggregator, Window};

/// Largest number of windows that wait for the caller.
pub const WINDOWS_MAX: usize = 4096;

/// A window of an interface's flow log that is over.
#[derive(Clone, Debug)]
pub struct LoggedWindow {
    /// Interface whose packets were counted.
    pub eni: EniId,
    /// Length of the log's windows. This window may be shorter, if the log was ended.
    pub length: Duration,
    /// The window, with the flows that were counted in it.
    pub window: Window,
}

/// Windows that are over, and the end of the next window.
#[derive(Debug, Default)]
pub(in crate::vpc) struct Logs {
    pub(in crate::vpc) done: VecDeque<LoggedWindow>,
    pub(in crate::vpc) next: Option<Instant>,
    /// Number of windows that were dropped because [`WINDOWS_MAX`] windows waited.
    pub(in crate::vpc) lost: u64,
    /// Number of aggregators so far, from which their secrets are derived.
    pub(in crate::vpc) number: u64,
}

impl Logs {
    pub(in crate::vpc) fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(in crate::vpc) fn add(&mut self, eni: EniId, length: Duration, window: Window) {
        if self.done.len() < WINDOWS_MAX {
            self.done.push_back(LoggedWindow { eni, length, window });
        } else {
            self.lost += 1;
        }
    }

    /// Ends flow logs of an interface: their current windows are over.
    pub(in crate::vpc) fn end(&mut self, now: Instant, eni: EniId, logs: Vec<Aggregator>) {
        for log in logs {
            self.add(eni, log.length(), log.finish(now));
        }
    }
}
