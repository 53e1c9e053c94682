//! Lists that are too long for pages: flows and paths, on request.
//!
//! ```text
//!   reader: an empty buffer of bounded size --- Order ---> worker: copies raw rows
//!           sorts, names, writes            <-- Oneshot --
//! ```
//!
//! Only one list is made at a time, and all readers together get one at most every [`LIST_PAUSE`].
//! A worker copies the paths of one peer in each turn. It copies the busiest flows of its table in
//! one turn, at most [`FLOWS_LISTED_MAX`].

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::rows::{FlowList, FlowRow, PathList, PathRow};
use crate::plane::{ANSWER_WAIT_MAX, Oneshot, PeerNumber, PlaneError, oneshot};
use crate::run::orders::{Order, Orders};

/// Shortest time between two lists.
pub(crate) const LIST_PAUSE: Duration = Duration::from_millis(20);
/// Largest number of flows of each worker in a list.
pub(crate) const FLOWS_LISTED_MAX: usize = 1000;

/// Requests lists from the workers.
#[derive(Debug)]
pub(crate) struct Lists {
    workers: Vec<Orders>,
    /// Time of the last list. Locked while a list is made: other readers wait.
    last: Mutex<Option<Instant>>,
}

impl Lists {
    pub(crate) fn new(workers: Vec<Orders>) -> Self {
        Self { workers, last: Mutex::new(None) }
    }

    /// The busiest flows of each worker, at most `most` of each.
    pub(crate) fn flows(&self, most: usize) -> Result<Vec<FlowRow>, PlaneError> {
        let most = most.min(FLOWS_LISTED_MAX);
        self.ask(|done| Order::Flows(FlowList { most, rows: Vec::with_capacity(most), done }))
    }

    /// The paths of peers as each worker sees them: at most `paths` of each peer.
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
