//! Lists of flows and paths, which are too long for pages: workers copy them on request.
//!
//! ```text
//!   reader: an empty buffer of bounded size --- Order ---> worker: copies raw rows
//!           sorts, names, writes            <-- Oneshot --
//! ```
//!
//! Only one list is made at a time, and all readers together get at most one every [`LIST_PAUSE`].
//! In one round of its loop, a worker copies the paths of one peer, or its busiest flows, at most
//! [`FLOWS_LISTED_MAX`].

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::rows::{FlowList, FlowRow, PathList, PathRow};
use crate::plane::{ANSWER_WAIT_MAX, Oneshot, PeerNumber, PlaneError, oneshot};
use crate::run::orders::{Order, Orders};

/// Shortest time between the end of one list and the start of the next.
pub(crate) const LIST_PAUSE: Duration = Duration::from_millis(20);
/// Largest number of flows that each worker contributes to a list.
pub(crate) const FLOWS_LISTED_MAX: usize = 1000;

/// Requests lists from the workers.
#[derive(Debug)]
pub(crate) struct Lists {
    workers: Vec<Orders>,
    /// Time when the last list was complete. The lock is held while a list is made, so other
    /// readers wait.
    last: Mutex<Option<Instant>>,
}

impl Lists {
    pub(crate) fn new(workers: Vec<Orders>) -> Self {
        Self { workers, last: Mutex::new(None) }
    }

    /// Returns the busiest flows of each worker, at most `most` of each.
    pub(crate) fn flows(&self, most: usize) -> Result<Vec<FlowRow>, PlaneError> {
        let most = most.min(FLOWS_LISTED_MAX);
        self.ask(|done| Order::Flows(FlowList { most, rows: Vec::with_capacity(most), done }))
    }

    /// Returns the paths of some peers as each worker sees them, at most `paths` for each peer and
    /// worker.
    pub(crate) fn paths(
        &self,
        peers: &[PeerNumber],
        paths: usize,
    ) -> Result<Vec<PathRow>, PlaneError> {
        self.ask(|done| {
            let rows = Vec::with_capacity(peers.len() * paths);
            Order::Paths(PathList { peers: peers.iter().rev().copied().collect(), rows, done })
        })
    }

    fn ask<T>(&self, order: impl Fn(Oneshot<Vec<T>>) -> Order) -> Result<Vec<T>, PlaneError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = *last {
            std::thread::sleep(LIST_PAUSE.saturating_sub(last.elapsed()));
        }
        let asked: Result<Vec<Receiver<Vec<T>>>, PlaneError> = self
            .workers
            .iter()
            .map(|worker| {
                let (done, answer) = oneshot();
                if worker.send(order(done)) { Ok(answer) } else { Err(PlaneError::Gone) }
            })
            .collect();
        let deadline = Instant::now() + ANSWER_WAIT_MAX;
        let mut all = Vec::new();
        for answer in asked? {
            let left = deadline.saturating_duration_since(Instant::now());
            all.extend(answer.recv_timeout(left).map_err(PlaneError::from)?);
        }
        *last = Some(Instant::now());
        Ok(all)
    }
}
