//! Outputs of `srd watch`: text, lines of JSON, an HTML page, saved packets, metrics.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use serde::Serialize;
use srd_http::Server;
use srd_watch::Burst;
use srd_watch::html::{self, Gathered};
use srd_watch::keep::BurstPackets;
use srd_watch::live::Output;
use srd_watch::metrics::Metrics;
use srd_watch::session::{Report, Session};
use srd_watch::source::Opened;
use srd_watch::text::{self, Tally};

use crate::output::{Attempts, JsonLines, JsonOutput, check_writable, say, tell};

/// Outputs that the user requested.
#[derive(Clone, Debug)]
pub(super) struct OutputOptions {
    /// Destination of lines of JSON.
    pub(super) json: JsonOutput,
    /// File for an HTML page with charts; `None` without this output.
    pub(super) html: Option<PathBuf>,
    /// Directory for the saved packets of bursts; `save_max` is the maximum number of files in it.
    pub(super) save_burst: Option<PathBuf>,
    pub(super) save_max: u64,
    /// Whether a summary is printed at the end.
    pub(super) summary: bool,
    /// Address at which metrics are served; `None` without this output.
    pub(super) metrics: Option<SocketAddr>,
    /// Line that is printed once all interfaces are under watch; `None` prints no such line.
    pub(super) greeting: Option<String>,
}

/// The open outputs, and the results for them that are collected until the end.
pub(super) struct Outputs {
    json: Option<JsonLines>,
    html: Option<(PathBuf, Gathered)>,
    save: Option<(PathBuf, u64)>,
    unsaved: u64,
    owns_stdout: bool,
    summary: bool,
    greeting: Option<String>,
    /// Summary (tally) of the bursts of each interface, in the order of their first bursts.
    tallies: Vec<(String, Tally)>,
    failed: Option<anyhow::Error>,
    /// Whether an output has failed. The watch reads this flag and ends.
    pub(super) failing: Arc<AtomicBool>,
    metrics: Option<(Metrics, Server)>,
}

impl Outputs {
    pub(super) fn open(wanted: OutputOptions) -> Result<Self> {
        wanted.json.check()?;
        wanted.html.as_deref().map_or(Ok(()), check_writable)?;
        if let Some(directory) = &wanted.save_burst {
            fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        let metrics = match wanted.metrics {
            None => None,
            Some(at) => {
                let metrics = Metrics::default();
                let server = metrics.serve(at).with_context(|| format!("--metrics {at}"))?;
                Some((metrics, server))
            }
        };
        Ok(Self {
            json: wanted.json.lines(),
            html: wanted.html.map(|file| (file, Gathered::default())),
            save: wanted.save_burst.map(|directory| (directory, wanted.save_max)),
            unsaved: 0,
            owns_stdout: wanted.json.owns_stdout(),
            summary: wanted.summary,
            greeting: wanted.greeting,
            tallies: Vec::new(),
            failed: None,
            failing: Arc::default(),
            metrics,
        })
    }

    pub(super) fn say(&self, text: impl std::fmt::Display) -> Result<()> {
        if self.owns_stdout { Ok(()) } else { say(text) }
    }

    /// Calls `work`, unless an output has failed before. So no report is written after a failure.
    pub(super) fn unless_failed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) {
        if self.failed.is_none() {
            self.failed = work(self).err();
            self.failing.store(self.failed.is_some(), Ordering::Relaxed);
        }
    }

    fn ended(&mut self, burst: &Burst, kept: Option<&BurstPackets>) -> Result<()> {
        if let Some((metrics, _)) = &mut self.metrics {
            metrics.ended(burst);
        }
        self.tally(&burst.interface).add(burst);
        self.say(text::burst(burst, false))?;
        if let (Some(kept), Some((directory, left))) = (kept, &mut self.save) {
            if *left == 0 {
                self.unsaved += 1;
            } else {
                *left -= 1;
                let file = kept.save(burst, directory);
                let file = file.with_context(|| directory.display().to_string())?;
                let (packets, missing) = kept.count();
                let missing =
                    if missing > 0 { format!(", {missing} missing") } else { String::new() };
                self.say(format!("  saved {packets} packets{missing}: {}", file.display()))?;
            }
        }
        if let Some((_, gathered)) = &mut self.html {
            gathered.add(burst);
        }
        self.line(burst)
    }

    /// Writes a line of JSON.
    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let Some(json) = &mut self.json else { return Ok(()) };
        json.add(value)?;
        json.flush()
    }

    fn tally(&mut self, interface: &str) -> &mut Tally {
        let at = self.tallies.iter().position(|(name, _)| name == interface);
        let at = at.unwrap_or_else(|| {
            self.tallies.push((interface.to_owned(), Tally::default()));
            self.tallies.len() - 1
        });
        &mut self.tallies[at].1
    }

    /// Writes the final results. The page contains all bursts so far, even if another output
    /// failed. `not_read` are remarks on packets that belong to no session.
    pub(super) fn end(mut self, sessions: &[(Session, u64)], not_read: &[String]) -> Result<()> {
        let mut attempts = Attempts::default();
        // Without a line, the file is empty.
        attempts.add(self.json.as_mut().map_or(Ok(()), |json| json.open().map(|_| ())));
        match self.failed.take() {
            Some(error) => attempts.add(Err(error)),
            None => attempts.add(self.summarize(sessions, not_read)),
        }
        if let Some((file, gathered)) = &self.html {
            let page = html::page(sessions.iter().map(|(session, _)| session), gathered);
            let written = fs::write(file, page).with_context(|| file.display().to_string());
            attempts.add(written.and_then(|()| self.say(format!("pictures: {}", file.display()))));
        }
        attempts.end()
    }

    fn summarize(&mut self, sessions: &[(Session, u64)], not_read: &[String]) -> Result<()> {
        for (session, lost) in sessions {
            let tally = self.tally(session.watch.name()).clone();
            if self.summary {
                self.say(text::summary(session, &tally, *lost))?;
            } else if tally.worst.is_none() {
                self.say(text::quiet(session))?;
            }
        }
        for line in not_read {
            if self.owns_stdout {
                tell!("{line}");
            } else {
                self.say(line)?;
            }
        }
        if self.unsaved > 0 {
            self.say(format!("{} bursts more were not saved: --save-max", self.unsaved))?;
        }
        Ok(())
    }
}

impl Output for Outputs {
    fn opened(&mut self, opened: &Opened) {
        if let Some((metrics, _)) = &mut self.metrics {
            metrics.opened(opened);
        }
        self.unless_failed(|it| {
            it.greeting.take().map_or(Ok(()), |greeting| it.say(greeting))?;
            it.say(opened)?;
            it.line(opened)
        });
    }

    fn report(&mut self, report: Report) {
        self.unless_failed(|it| match report {
            Report::Began(burst) => it.say(text::burst(&burst, true)),
            Report::Ended(burst, kept) => it.ended(&burst, kept.as_ref()),
        });
    }

    fn figures(&mut self, session: &Session, lost: u64) {
        if let Some((metrics, _)) = &mut self.metrics {
            metrics.figures(session, lost);
        }
    }
}
