//! The process that takes over, as the daemon that runs sees it.
//!
//! After `go`, both processes could read packets from the same queues and sockets. So if the
//! hand-over fails after that, the daemon that runs waits for the end of the other process, and
//! then sends SIGKILL to this very process, which has removed nothing yet. A process that survives
//! SIGKILL waits in the kernel. A process of another user does not get the signal: without an
//! account `srd`, each process has a user of its own. If the other process has not ended then, the
//! daemon that runs ends itself, without removing anything. A node continues instead: the other
//! process moves no packets of a node before `ends`, which it does not get any more.
//!
//! Bounds: `END_WAIT_MAX`, then `KILLED_WAIT_MAX`. No packet moves meanwhile.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use srd_trust::process::Process;

/// Longest time in which the other process must end after the line that requests it, or after the
/// end of the connection.
const END_WAIT_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the end of the other process after SIGKILL.
const KILLED_WAIT_MAX: Duration = Duration::from_secs(5);

/// The process that takes over.
#[derive(Debug)]
pub struct Successor {
    id: u32,
    process: Process,
}

impl Successor {
    /// Opens the process that has this id at present. It may have ended, and another process may
    /// have its id. This makes no difference, because it then sends no line.
    ///
    /// # Errors
    /// If there is no such process, or an error of the operating system.
    pub(crate) fn open(id: u32) -> Result<Self> {
        let process = Process::open(id);
        let process = process.with_context(|| format!("process {id}, which is to take over"))?;
        Ok(Self { id, process })
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Waits until the process has ended, and ends it if it does not. Returns whether it has ended.
    pub(super) fn end(&self) -> bool {
        let Self { id, process } = self;
        let ended = process.ends_within(END_WAIT_MAX).and_then(|has_ended| match has_ended {
            true => Ok(true),
            false => self.kill(),
        });
        ended.unwrap_or_else(|error| {
            tracing::error!("process {id}, which was to take over: {error}");
            false
        })
    }

    fn kill(&self) -> io::Result<bool> {
        let Self { id, process } = self;
        tracing::warn!("process {id}, which was to take over, does not end: it gets SIGKILL");
        match process.send(Signal::KILL) {
            Err(error) if !process.ends_within(Duration::ZERO)? => Err(error),
            _ => process.ends_within(KILLED_WAIT_MAX),
        }
    }
}
