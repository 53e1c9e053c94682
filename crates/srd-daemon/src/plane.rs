//! Requests from other threads to the daemon. Commands go to the control thread through a bounded
//! channel, its pause is ended by a waker, and the answer is waited for with a time limit.
//! Statistics are read directly, without a command ([`Statistics`]).
//!
//! ```text
//!   any thread                                       the control thread
//!   PlaneHandle::set      --- Command + Oneshot -->  receiver.try_recv()
//!                         --- waker() ----------->   leaves its pause
//!                  <------- reply.send(answer) ----
//! ```
//!
//! Bounds: at most [`COMMANDS_MAX`] commands wait; a further one is refused ([`PlaneError::Busy`]).
//! A caller waits at most [`ANSWER_WAIT_MAX`] for its answer. To answer never blocks: a [`Oneshot`]
//! holds one answer, and drops it if its reader is gone.

use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capture::{Filter, TapReader};
use crate::config::{Config, ReloadReport, UdpOrdering};
use crate::snapshot::Snapshot;

/// Largest number of commands that may wait for the control thread.
pub const COMMANDS_MAX: usize = 64;
/// Longest time that a caller waits for an answer.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Number of a peer: equal in all workers, and never given to another peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerNumber(pub u32);

/// A command to the control thread.
#[derive(Debug)]
pub enum Command {
    /// Changes a setting until the next restart or reload.
    Set {
        /// The settings to change.
        change: Change,
        /// Receives `Ok`, or the reason of a refusal, for a person.
        reply: Oneshot<Result<(), String>>,
    },
    /// Requests the configuration that runs.
    Running {
        /// Receives the configuration.
        reply: Oneshot<Box<Config>>,
    },
    /// Applies the changes of a new configuration, as far as a running daemon can.
    Reload {
        /// The new configuration, checked.
        config: Box<Config>,
        /// Receives the list of changes, or the reason why nothing was changed, for a person.
        reply: Oneshot<Result<ReloadReport, String>>,
    },
    /// Copies packets to a capture until its reader is dropped.
    Capture {
        /// Selects the packets.
        filter: Filter,
        /// Receives the reader of the packets, or the reason of a refusal, for a person.
        reply: Oneshot<Result<TapReader, String>>,
    },
    /// Ends the daemon in order.
    Stop,
}

/// Parts of a snapshot beyond interface and peers, which it always contains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// Peers whose paths are listed.
    pub paths: PathsOf,
    /// Largest number of flows that are listed.
    pub flows_max: usize,
}

/// Peers whose paths a snapshot lists one by one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PathsOf {
    /// No peer.
    #[default]
    Nobody,
    /// All peers.
    Everybody,
    /// The peer with this name, or with a key that begins with this text.
    Peer(String),
}

/// Settings to change while the daemon runs. A setting that is absent stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// The peer's name or the beginning of its key; absent: the whole interface.
    pub peer: Option<String>,
    /// Whether packets use SRD.
    pub express: Option<bool>,
    /// Whether UDP packets use SRD, too.
    pub udp: Option<bool>,
    /// Whether tunnels without ports use SRD, too. Only for the whole interface.
    pub tunnels: Option<bool>,
    /// Order of UDP flows: kept or bypassed. Only for the whole interface.
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

/// Source of snapshots, for any thread. Reading it delays no packet.
pub trait Statistics: Send + Sync {
    /// The present state, in this detail.
    ///
    /// # Errors
    /// If the daemon is ending.
    fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError>;
}

/// Sender of one answer.
#[derive(Debug)]
pub struct Oneshot<T>(SyncSender<T>);

/// A channel for one answer: its sender and its receiver.
pub fn oneshot<T>() -> (Oneshot<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (Oneshot(sender), receiver)
}

impl<T> Oneshot<T> {
    /// Sends the answer. Never blocks; if the receiver is gone, the answer is dropped.
    pub fn send(self, answer: T) {
        // The channel has a free slot for this one answer, so only a missing receiver can refuse
        // it.
        let _ = self.0.try_send(answer);
    }
}

/// Reason why a request got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlaneError {
    /// The daemon has ended.
    Gone,
    /// Too many commands wait already.
    Busy,
    /// The daemon did not answer in time.
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

/// Handle of the control thread, for any number of threads.
#[derive(Clone)]
pub struct PlaneHandle {
    sender: SyncSender<Command>,
    waker: Arc<dyn Fn() + Send + Sync>,
    statistics: Arc<dyn Statistics>,
    /// Held while a new configuration is made and applied.
    changing: Arc<Mutex<()>>,
}

impl fmt::Debug for PlaneHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaneHandle")
    }
}

impl PlaneHandle {
    /// Makes a handle, and the receiver of its commands. `waker` must end the pause of the control
    /// thread; it is called after each command, by any thread.
    pub fn new(
        waker: Arc<dyn Fn() + Send + Sync>,
        statistics: Arc<dyn Statistics>,
    ) -> (Self, Receiver<Command>) {
        let (sender, receiver) = mpsc::sync_channel(COMMANDS_MAX);
        (Self { sender, waker, statistics, changing: Arc::default() }, receiver)
    }

    /// Queues a command without waiting.
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

    /// The present state, read on the calling thread.
    ///
    /// # Errors
    /// If the daemon is ending, or a requested list did not arrive in time.
    pub fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError> {
        self.statistics.snapshot(detail)
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// If there was no answer; the inner error is the control thread's refusal.
    pub fn set(&self, change: Change) -> Result<Result<(), String>, PlaneError> {
        self.ask(|reply| Command::Set { change, reply })
    }

    /// Applies a new configuration, which `make` derives from the running one. Such changes happen
    /// one at a time, so that none overwrites another.
    ///
    /// # Errors
    /// If there was no answer; the inner error is that of `make`, or the control thread's refusal.
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
    /// If there was no answer; the inner error is the control thread's refusal.
    pub fn capture(&self, filter: Filter) -> Result<Result<TapReader, String>, PlaneError> {
        self.ask(|reply| Command::Capture { filter, reply })
    }

    /// Queues a command and waits for its answer.
    ///
    /// # Errors
    /// If no answer arrived.
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

    /// Statistics that these tests never read.
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
