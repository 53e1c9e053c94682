//! One thread for each flow log, so that a slow or hanging disk delays no other log.
//!
//! Bound: [`LINES_MAX`] threads, each with its own queue. If there are more logs, they share
//! threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use anyhow::Result;
use srd_card::vpc::LoggedWindow;
use srd_vpc::id::FlowLogId;

use super::files::Files;
use super::{Active, END_WAIT_MAX, Logs, Plan};

/// Maximum number of threads that write flow logs.
pub(crate) const LINES_MAX: usize = 64;

/// The flow logs of a card.
#[derive(Debug)]
pub(crate) struct FlowLogs {
    /// The assignment of interfaces to logs, for all logs.
    pub(crate) plan: Arc<Plan>,
    lines: Vec<Logs>,
    /// Index of the thread that writes a log.
    places: BTreeMap<FlowLogId, usize>,
    unix_ns_at_zero: fn() -> u64,
    files: Files,
}

impl FlowLogs {
    /// Creates the flow logs of a card that has no logs yet. `unix_ns_at_zero`: see
    /// [`Logs::start`].
    pub(crate) fn new(unix_ns_at_zero: fn() -> u64, files: Files) -> Self {
        let (plan, lines, places) = (Arc::default(), Vec::new(), BTreeMap::new());
        Self { plan, lines, places, unix_ns_at_zero, files }
    }

    /// Takes another plan. Each thread gets the part about its own logs.
    ///
    /// # Errors
    /// An error if a thread could not be started. Logs that have a thread get the plan
    /// nevertheless.
    pub(crate) fn set_plan(&mut self, plan: Plan) -> Result<()> {
        self.plan = Arc::new(plan);
        self.places.retain(|id, _| self.plan.logs.contains_key(id));
        let new: Vec<FlowLogId> = self.plan.logs.keys().copied().collect();
        let mut started = Ok(());
        for id in new {
            if !self.places.contains_key(&id)
                && let Err(error) = self.place(id)
            {
                started = Err(error);
            }
        }
        for (number, line) in self.lines.iter_mut().enumerate() {
            line.set_plan(self.plan.of_logs(|id| self.places.get(id) == Some(&number)));
        }
        started
    }

    /// Selects the thread with the fewest logs for a new log, or starts one.
    fn place(&mut self, id: FlowLogId) -> Result<()> {
        let logs = |line: usize| self.places.values().filter(|at| **at == line).count();
        let least = (0..self.lines.len()).min_by_key(|line| logs(*line));
        let at = match least {
            Some(line) if logs(line) == 0 || self.lines.len() >= LINES_MAX => line,
            _ => {
                self.lines.push(Logs::start(self.unix_ns_at_zero, self.files.clone())?);
                self.lines.len() - 1
            }
        };
        self.places.insert(id, at);
        Ok(())
    }

    /// Adds a log with the counters of a previous process, before the first plan.
    pub(crate) fn adopt(&mut self, id: FlowLogId, active: Active) {
        Arc::make_mut(&mut self.plan).logs.insert(id, active);
    }

    /// Sends an aggregation window to all threads whose logs cover its interface.
    pub(crate) fn offer(&mut self, logged: LoggedWindow) {
        let key = (logged.eni, logged.length);
        let mut lines = self.lines.iter_mut().filter(|line| line.plan.windows.contains_key(&key));
        let last = lines.next_back();
        lines.for_each(|line| line.offer(logged.clone()));
        if let Some(line) = last {
            line.offer(logged);
        }
    }

    pub(crate) fn send_plans(&mut self) {
        self.lines.iter_mut().for_each(Logs::send_plan);
    }

    /// Ends the threads, and waits for at most [`END_WAIT_MAX`] until they have written all
    /// windows. Returns the number of threads that have not ended by then.
    pub(crate) fn end(&mut self) -> usize {
        // All threads end at the same time.
        self.lines.iter_mut().for_each(|line| line.queue = None);
        let until = Instant::now() + END_WAIT_MAX;
        let has_not_ended = |line: &Logs| {
            let wait = until.saturating_duration_since(Instant::now());
            line.ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
        };
        let late = self.lines.iter().filter(|line| has_not_ended(line)).count();
        self.lines.clear();
        late
    }

    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.lines.len()
    }
}

impl Plan {
    /// Returns the part of the plan that concerns the logs for which `wanted` returns true.
    fn of_logs(&self, wanted: impl Fn(&FlowLogId) -> bool) -> Self {
        let logs = self.logs.iter().filter(|(id, _)| wanted(id));
        let logs = logs
            .map(|(id, of)| (*id, Active { log: of.log.clone(), counts: Arc::clone(&of.counts) }));
        let windows = self.windows.iter().map(|(key, ids)| {
            (*key, ids.iter().filter(|id| wanted(id)).copied().collect::<Vec<_>>())
        });
        let windows: BTreeMap<_, _> = windows.filter(|(_, ids)| !ids.is_empty()).collect();
        let enis = self.facts.iter();
        let facts = enis.filter(|(eni, _)| windows.keys().any(|(of, _)| of == *eni));
        Self {
            logs: logs.collect(),
            facts: facts.map(|(eni, facts)| (*eni, facts.clone())).collect(),
            windows,
        }
    }
}
