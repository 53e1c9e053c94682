//! What the rest may ask of the daemon, and how: a bounded channel of commands to the control
//! thread, an answer that is waited for with a limit, and a waker. Statistics are read, not asked
//! for ([`Statistics`]).
//!
//! ```text
//!   any thread                                       the control thread
//!   PlaneHandle::set      --- Command + Oneshot -->  receiver.try_recv()
//!                         --- waker() ----------->   leaves its pause
//!                  <------- reply.send(answer) ----
//! ```
//!
//! Bounds: [`COMMANDS_MAX`] commands wait, and one more is refused ([`PlaneError::Busy`]). Nobody
//! waits for an answer longer than [`ANSWER_WAIT_MAX`]. Answering never blocks: a [`Oneshot`]
//! holds one answer, and one that nobody waits for any more is dropped.

use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capture::{Filter, TapReader};
use crate::config::{Config, ReloadReport, UdpOrdering};
use crate::snapshot::Snapshot;

/// Commands that may wait for the control thread.
pub const COMMANDS_MAX: usize = 64;
/// How long an answer is waited for.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// A peer's number: the same in all workers, and never given to another peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerNumber(pub u32);

/// What the control thread is asked.
#[derive(Debug)]
pub enum Command {
    /// Change a setting until the next restart or reload.
    Set {
        /// What.
        change: Change,
        /// Whether it was done; else why not, for a person.
        reply: Oneshot<Result<(), String>>,
    },
    /// Say which configuration runs.
    Running {
        /// Where the answer goes.
        reply: Oneshot<Box<Config>>,
    },
    /// Take over what a new configuration changes, as far as that is possible while running.
    Reload {
        /// The new configuration, checked.
        config: Box<Config>,
        /// What was taken over; else why nothing was, for a person.
        reply: Oneshot<Result<ReloadReport, String>>,
    },
    /// Show packets to a capture, until its reader goes away.
    Capture {
        /// Which packets.
        filter: Filter,
        /// Where they arrive; else why not, for a person.
        reply: Oneshot<Result<TapReader, String>>,
    },
    /// End in order.
    Stop,
}

/// How much a snapshot holds beyond interface and peers, which it always does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// Whose paths.
    pub paths: PathsOf,
    /// At most so many flows.
    pub flows_max: usize,
}

/// Whose paths a snapshot lists one by one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PathsOf {
    /// Nobody's.
    #[default]
    Nobody,
    /// Everybody's.
    Everybody,
    /// Those of the peer that goes by this name, or by this beginning of its key.
    Peer(String),
}

/// A setting that changes while the daemon runs. What is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// The peer's name or the beginning of its key; absent: the whole interface.
    pub peer: Option<String>,
    /// Whether packets ride SRD.
    pub express: Option<bool>,
    /// Whether UDP does, too.
    pub udp: Option<bool>,
    /// Whether tunnels without ports do, too. Of the whole interface only.
    pub tunnels: Option<bool>,
    /// How order is kept for UDP. Of the whole interface only.
    pub udp_ordering: Option<UdpOrdering>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |is: bool| if is { "on" } else { "off" };
        write!(f, "to set for {}:", self.peer.as_deref().unwrap_or("the whole interface"))?;
        if let Some(express) = self.express {
            write!(f, " express {}", on(express))?;
        }
        if let Some(udp) = self.udp {
            write!(f, " udp {}", on(udp))?;
        }
        if let Some(tunnels) = self.tunnels {
            write!(f, " tunnels {}", on(tunnels))?;
        }
        match self.udp_ordering {
            Some(UdpOrdering::Ordered) => f.write_str(" udp-ordering ordered"),
            Some(UdpOrdering::Bypass) => f.write_str(" udp-ordering bypass"),
            None => Ok(()),
        }
    }
}

/// How things stand, for any thread that wants to know. No packet waits for it.
pub trait Statistics: Send + Sync {
    /// How things stand, in this detail.
    ///
    /// # Errors
    /// The daemon is ending.
    fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError>;
}

/// Where one answer goes.
#[derive(Debug)]
pub struct Oneshot<T>(SyncSender<T>);

/// A channel for one answer: where it goes in, and where it arrives.
pub fn oneshot<T>() -> (Oneshot<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (Oneshot(sender), receiver)
}

impl<T> Oneshot<T> {
    /// Answers. Never blocks; an answer that nobody waits for any more is dropped.
    pub fn send(self, answer: T) {
        // There is room for the one answer, so only an absent reader can refuse it.
        let _ = self.0.try_send(answer);
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlaneError {
    /// It has ended.
    Gone,
    /// Too many commands wait already.
    Busy,
    /// It did not answer in time.
    Silent,
}

impl fmt::Display for PlaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the daemon is ending",
            Self::Busy => "too many requests wait for the daemon; try again",
            Self::Silent => "the daemon did not answer in time; try again",
        })
    }
}

impl std::error::Error for PlaneError {}

impl From<RecvTimeoutError> for PlaneError {
    fn from(error: RecvTimeoutError) -> Self {
        match error {
            RecvTimeoutError::Timeout => Self::Silent,
            RecvTimeoutError::Disconnected => Self::Gone,
        }
    }
}

/// The way to the control thread, for any number of threads.
#[derive(Clone)]
pub struct PlaneHandle {
    sender: SyncSender<Command>,
    waker: Arc<dyn Fn() + Send + Sync>,
    statistics: Arc<dyn Statistics>,
    /// Held while a configuration is made and taken over.
    changing: Arc<Mutex<()>>,
}

impl fmt::Debug for PlaneHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaneHandle")
    }
}

impl PlaneHandle {
    /// A handle, and where its commands arrive. `waker` must make the control thread leave its
    /// pause; it is called after each command, by any thread.
    pub fn new(
        waker: Arc<dyn Fn() + Send + Sync>,
        statistics: Arc<dyn Statistics>,
    ) -> (Self, Receiver<Command>) {
        let (sender, receiver) = mpsc::sync_channel(COMMANDS_MAX);
        (Self { sender, waker, statistics, changing: Arc::default() }, receiver)
    }

    /// Hands over a command without waiting.
    ///
    /// # Errors
    /// [`PlaneError::Gone`] and [`PlaneError::Busy`].
    pub fn command(&self, command: Command) -> Result<(), PlaneError> {
        self.sender.try_send(command).map_err(|e| match e {
            TrySendError::Full(_) => PlaneError::Busy,
            TrySendError::Disconnected(_) => PlaneError::Gone,
        })?;
        (self.waker)();
        Ok(())
    }

    /// How things stand, read on the calling thread.
    ///
    /// # Errors
    /// The daemon is ending, or a list that was asked for did not come in time.
    pub fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError> {
        self.statistics.snapshot(detail)
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// There was no answer; the inner error is the control thread's refusal.
    pub fn set(&self, change: Change) -> Result<Result<(), String>, PlaneError> {
        self.ask(|reply| Command::Set { change, reply })
    }

    /// Takes over a new configuration, which `make` makes of the one that runs. One such change
    /// happens at a time, so that none is lost.
    ///
    /// # Errors
    /// There was no answer; the inner error is that of `make`, or the control thread's refusal.
    pub fn change<E: From<String>>(
        &self,
        make: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<Result<ReloadReport, E>, PlaneError> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.ask(|reply| Command::Running { reply })?;
        let config = match make(&running) {
            Ok(config) => Box::new(config),
            Err(error) => return Ok(Err(error)),
        };
        let report = self.ask(|reply| Command::Reload { config, reply })?;
        Ok(report.map_err(E::from))
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// There was no answer; the inner error is the control thread's refusal.
    pub fn capture(&self, filter: Filter) -> Result<Result<TapReader, String>, PlaneError> {
        self.ask(|reply| Command::Capture { filter, reply })
    }

    /// Hands over a command and waits for its answer.
    ///
    /// # Errors
    /// There was none.
    pub(crate) fn ask<T>(
        &self,
        command: impl FnOnce(Oneshot<T>) -> Command,
    ) -> Result<T, PlaneError> {
        let (reply, answer) = oneshot();
        self.command(command(reply))?;
        Ok(answer.recv_timeout(ANSWER_WAIT_MAX)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Statistics that are not read here.
    struct None;

    impl Statistics for None {
        fn snapshot(&self, _: &Detail) -> Result<Snapshot, PlaneError> {
            Err(PlaneError::Gone)
        }
    }

    fn quiet() -> (PlaneHandle, Receiver<Command>) {
        PlaneHandle::new(Arc::new(|| {}), Arc::new(None))
    }

    #[test]
    fn a_command_wakes_the_plane_and_its_answer_comes_back() {
        let woken = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&woken);
        let waker = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let (handle, commands) = PlaneHandle::new(Arc::new(waker), Arc::new(None));
        let plane = std::thread::spawn(move || {
            let Ok(Command::Set { change, reply }) = commands.recv() else { return };
            reply.send(Err(change.to_string()));
        });
        let change = Change { udp: Some(true), ..Change::default() };
        let answer = handle.set(change).unwrap();
        assert_eq!(answer, Err("to set for the whole interface: udp on".to_owned()));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        plane.join().unwrap();
        assert_eq!(handle.set(Change::default()), Err(PlaneError::Gone));
    }

    #[test]
    fn beyond_the_bound_a_command_is_refused_at_once() {
        let (handle, commands) = quiet();
        for _ in 0..COMMANDS_MAX {
            handle.command(Command::Stop).unwrap();
        }
        assert_eq!(handle.command(Command::Stop), Err(PlaneError::Busy));
        drop(commands);
        assert_eq!(handle.command(Command::Stop), Err(PlaneError::Gone));
    }

    #[test]
    fn a_plane_that_drops_the_reply_is_gone_and_a_late_answer_harms_nobody() {
        let (handle, commands) = quiet();
        let plane = std::thread::spawn(move || drop(commands.recv()));
        assert_eq!(handle.set(Change::default()), Err(PlaneError::Gone));
        plane.join().unwrap();
        let (reply, answer) = oneshot();
        drop(answer);
        reply.send(1);
    }
}
