//! The thread that writes aggregation windows of flow logs to files.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use srd_card::observe::{InterfaceAttributes, Window, header, line, records};
use srd_vpc::id::FlowLogId;
use srd_vpc::object::{FlowLog, LogFormat};

use super::files::Files;
use super::parquet::Rows;
use super::text::TextFile;
use super::{Active, Message, Plan, records_of};

/// Longest time for which records are added to a file, as on EC2.
const FILE_TIME: Duration = Duration::from_secs(300);

/// The open text file of a log, or the rows for its next Parquet file.
#[derive(Debug)]
enum Open {
    Text(TextFile),
    Parquet(Box<(Rows, InterfaceAttributes)>),
}

/// Writes the files of all flow logs that belong to a thread.
#[derive(Debug)]
pub(crate) struct Writer {
    plan: Plan,
    open: BTreeMap<FlowLogId, (Instant, Open)>,
    queued: Arc<AtomicU64>,
    unix_ns_at_zero: fn() -> u64,
    files: Files,
}

impl Writer {
    pub(crate) fn new(queued: Arc<AtomicU64>, unix_ns_at_zero: fn() -> u64, files: Files) -> Self {
        Self { plan: Plan::default(), open: BTreeMap::new(), queued, unix_ns_at_zero, files }
    }

    /// Writes the windows that arrive until the channel is closed, then completes all files.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let next = self.open.values().map(|(since, _)| *since + FILE_TIME).min();
            let wait = next.map_or(FILE_TIME, |at| at.saturating_duration_since(Instant::now()));
            match messages.recv_timeout(wait) {
                Ok(Message::Plan(plan)) => self.take(*plan),
                Ok(Message::Window(logged)) => {
                    let (eni, length, window) = (logged.eni, logged.length, logged.window);
                    let ids = self.plan.windows.get(&(eni, length)).cloned().unwrap_or_default();
                    if let Some(mut facts) = self.plan.facts.get(&eni).cloned() {
                        facts.unix_ns = (self.unix_ns_at_zero)();
                        for id in ids {
                            self.write(id, &facts, &window);
                        }
                    }
                    self.queued.fetch_sub(window.len() as u64, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.close(|_, since| since.elapsed() >= FILE_TIME);
        }
        self.close(|_, _| true);
    }

    /// Takes another plan. Closes files of logs that have changed.
    fn take(&mut self, plan: Plan) {
        let log = |plan: &Plan, id: &FlowLogId| plan.logs.get(id).map(|active| active.log.clone());
        let changed: Vec<FlowLogId> =
            self.open.keys().filter(|id| log(&self.plan, id) != log(&plan, id)).copied().collect();
        self.close(|id, _| changed.contains(id));
        self.plan = plan;
    }

    fn write(&mut self, id: FlowLogId, facts: &InterfaceAttributes, window: &Window) {
        let Some(active) = self.plan.logs.get(&id).cloned() else { return };
        match active.log.format {
            LogFormat::Text => self.write_text(id, &active, facts, window, false),
            LogFormat::Gzip => self.write_text(id, &active, facts, window, true),
            LogFormat::Parquet => self.write_rows(id, &active, facts, window),
        }
    }

    fn write_text(
        &mut self,
        id: FlowLogId,
        active: &Active,
        facts: &InterfaceAttributes,
        window: &Window,
        gzip: bool,
    ) {
        let Active { log, counts } = active;
        let count = records_of(facts, window, log);
        if count == 0 {
            return;
        }
        if let Err(error) = self.append(id, log, facts, window, gzip) {
            counts.fail(count, log, &error);
            return;
        }
        counts.write(count);
    }

    fn append(
        &mut self,
        id: FlowLogId,
        log: &FlowLog,
        facts: &InterfaceAttributes,
        window: &Window,
        gzip: bool,
    ) -> std::io::Result<()> {
        let is_full =
            |open: &Open| matches!(open, Open::Text(file) if file.is_full() && !file.is_empty());
        if self.open.get(&id).is_some_and(|(_, open)| is_full(open)) {
            self.open.remove(&id);
        }
        let (_, open) = match self.open.entry(id) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let ending = if gzip { "log.gz" } else { "log" };
                let opened = self.files.create(&log.directory, facts, id, ending)?;
                place.insert((Instant::now(), Open::Text(TextFile::new(opened.file, gzip))))
            }
        };
        // If a log changes its format, its file was closed when the plan arrived.
        let Open::Text(file) = open else { return Ok(()) };
        let mut lines = String::new();
        if file.is_empty() {
            lines = header(log.fields()) + "\n";
        }
        for record in records(facts, window, log.traffic) {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "{}", line(&record, log.fields()));
        }
        file.append(&lines)
    }

    fn write_rows(
        &mut self,
        id: FlowLogId,
        active: &Active,
        facts: &InterfaceAttributes,
        window: &Window,
    ) {
        for record in records(facts, window, active.log.traffic) {
            let new = || {
                let rows = Rows::new(active.log.fields());
                (Instant::now(), Open::Parquet(Box::new((rows, facts.clone()))))
            };
            let (_, open) = self.open.entry(id).or_insert_with(new);
            let Open::Parquet(waiting) = open else { return };
            let rows = &mut waiting.0;
            rows.push(&record);
            if rows.is_full() {
                self.close(|other, _| *other == id);
            }
        }
    }

    fn close(&mut self, is_over: impl Fn(&FlowLogId, &Instant) -> bool) {
        let over = self.open.iter().filter(|(id, (since, _))| is_over(id, since));
        let over: Vec<FlowLogId> = over.map(|(id, _)| *id).collect();
        for id in over {
            let Some((_, Open::Parquet(waiting))) = self.open.remove(&id) else { continue };
            let (rows, facts) = *waiting;
            let Some(Active { log, counts }) = self.plan.logs.get(&id) else { continue };
            let files = &self.files;
            let opened = files.create(&log.directory, &facts, id, "log.parquet.part");
            match opened.and_then(|opened| opened.fill(files, |file| rows.write(file))) {
                Ok(()) => counts.write(rows.len() as u64),
                Err(error) => counts.fail(rows.len() as u64, log, &error),
            }
        }
    }
}
