//! Requests from other threads to the control thread of the daemon. A command goes through a
//! bounded channel, a waker ends the pause of the control thread, and the caller waits for the
//! answer with a time limit. Statistics are read directly, without a command ([`Statistics`]).
//!
//! ```text
//!   any thread                                       the control thread
//!   PlaneHandle::set      --- Command + Oneshot -->  receiver.try_recv()
//!                         --- waker() ----------->   leaves its pause
//!                  <------- reply.send(answer) ----
//! ```
//!
//! Bounds: at most [`COMMANDS_MAX`] commands wait; a further command is refused
//! ([`PlaneError::Busy`]). A caller waits at most [`ANSWER_WAIT_MAX`] for its answer. Sending an
//! answer never blocks: a [`Oneshot`] stores one answer, and drops it if the receiver was dropped.

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capture::{Filter, TapReader};
use crate::config::{Config, ReloadReport, UdpOrdering};
use crate::handover::STOP;
use crate::handover::decision::Decision;
use crate::handover::state::Estate;
use crate::handover::wire::LineConnection;
use crate::keys::SecretKey;
use crate::snapshot::Snapshot;

/// Largest number of commands that may wait for the control thread.
pub const COMMANDS_MAX: usize = 64;
/// Pause before the next attempt of [`PlaneHandle::stop_surely`].
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Longest time that a caller waits for an answer.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Result of [`ReloadInstances`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReloadedInstances {
    /// Whether the VPC's file describes other objects than before. These are now in force.
    pub is_new: bool,
    /// Keys of changed settings of the instances that wait for a restart.
    pub waits: Vec<String>,
    /// Keys of changed settings of the interface and its peers, which the daemon itself applies at
    /// a reload.
    pub of_daemon: Vec<String>,
}

/// Function that applies the changes in the files of instances to the running card. An error is the
/// reason why nothing was changed, as a text for people.
pub type ReloadInstances = Arc<dyn Fn() -> Result<ReloadedInstances, String> + Send + Sync>;

/// Function that makes the running card use the content of a file that describes clouds. An error
/// is the reason why nothing was changed, as a text for people.
pub type ApplyInstances = Arc<dyn Fn(&Path) -> Result<(), String> + Send + Sync>;

/// Function that waits until no other rules for the instances are being applied, and then refuses
/// them until its result is dropped. An error is the reason why it waits no longer, as a text for
/// people.
pub type FreezeInstances = Arc<dyn Fn() -> Result<FrozenInstances, String> + Send + Sync>;

/// Requests for other rules of the instances are refused as long as this exists.
pub struct FrozenInstances(pub Box<dyn Send>);

/// Functions that change the instances of this host.
#[derive(Clone)]
pub struct InstanceChanges {
    /// Applies changes in the files of instances.
    pub reload: ReloadInstances,
    /// Applies another content of the file that describes clouds.
    pub apply: ApplyInstances,
    /// Refuses changes that requests about instances contain, during a hand-over.
    pub freeze: FreezeInstances,
}

/// Number that identifies a peer in all workers. A number is never used for another peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerNumber(pub u32);

/// A command to the control thread.
#[derive(Debug)]
pub enum Command {
    /// Changes a setting until the next restart or reload.
    Set {
        /// The settings to change.
        change: Change,
        /// Receives `Ok`, or the reason of a refusal as a text for people.
        reply: Oneshot<Result<(), String>>,
    },
    /// Requests the configuration that is in use, with all changes since the start.
    Running {
        /// Receives the configuration that is in use.
        reply: Oneshot<Box<Config>>,
    },
    /// Applies the changes of a new configuration, as far as a running daemon can.
    Reload {
        /// The new configuration, checked.
        config: Box<Config>,
        /// Receives the list of changes, or the reason why nothing was changed as a text for
        /// people.
        reply: Oneshot<Result<ReloadReport, String>>,
    },
    /// Copies packets to a capture until its reader is dropped.
    Capture {
        /// Selects the packets that are copied.
        filter: Filter,
        /// Receives the reader of the packets, or the reason of a refusal as a text for people.
        reply: Oneshot<Result<TapReader, String>>,
    },
    /// Requests the state and the descriptors for a hand-over to another process.
    Describe {
        /// Receives the state, or the reason why the daemon cannot be handed over.
        reply: Oneshot<Result<Estate, String>>,
    },
    /// Changes the private key of this node.
    Rekey {
        /// The new key.
        key: SecretKey,
        /// Receives the reason of a refusal.
        reply: Oneshot<Result<(), String>>,
    },
    /// Hands the daemon over to a process that has read the state.
    HandOver {
        /// The connection to the process.
        line: LineConnection,
        /// The decision which of both processes goes on.
        decision: Decision,
        /// The id of the process.
        process: u32,
        /// Receives `Ok` if the daemon is about to end, or the reason why it continues.
        reply: Oneshot<Result<(), String>>,
    },
    /// Ends the daemon in order: it closes its contexts first.
    Stop,
}

/// Amount of detail of a snapshot. Every snapshot contains the interface and all peers; this adds
/// paths and flows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// Peers whose paths are listed.
    pub paths: PathsOf,
    /// Largest number of flows that are listed; 0 lists no flows.
    pub flows_max: usize,
}

/// Peers whose paths a snapshot lists one by one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PathsOf {
    /// No paths are listed.
    #[default]
    Nobody,
    /// The paths to all peers are listed.
    Everybody,
    /// Only the paths to the peer with this name, or with a key that begins with this text, are
    /// listed.
    Peer(String),
}

/// Settings to change while the daemon runs. A setting that is `None` stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// Name of a peer, or the beginning of its key; `None`: the change is for the whole interface.
    pub peer: Option<String>,
    /// Whether packets are sent over SRD.
    pub express: Option<bool>,
    /// Whether UDP packets are sent over SRD, in addition to TCP packets.
    pub udp: Option<bool>,
    /// Whether packets of tunnels without ports (GRE, ESP, IP in IP) are sent over SRD. Valid only
    /// for the whole interface.
    pub tunnels: Option<bool>,
    /// Whether UDP flows are delivered in order. Valid only for the whole interface.
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

/// A source of snapshots that any thread may use. Reading it delays no packet.
pub trait Statistics: Send + Sync {
    /// Returns the present state of the daemon, with as many paths and flows as `detail` requests.
    ///
    /// # Errors
    /// If the daemon is ending.
    fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError>;
}

/// The sending end of a channel for a single answer.
#[derive(Debug)]
pub struct Oneshot<T>(SyncSender<T>);

/// Creates a channel for a single answer: its sender and its receiver.
pub fn oneshot<T>() -> (Oneshot<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (Oneshot(sender), receiver)
}

impl<T> Oneshot<T> {
    /// Sends the answer. Never blocks; if the receiver was dropped, the answer is dropped as well.
    pub fn send(self, answer: T) {
        // The channel has a slot for one answer and this is the only one, so sending fails only if
        // the receiver was dropped.
        let _ = self.0.try_send(answer);
    }
}

/// Reason why a request got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlaneError {
    /// The daemon has ended.
    Gone,
    /// Too many commands are already waiting.
    Busy,
    /// The daemon did not answer in time.
    Silent,
    /// Another process has taken the daemon over.
    HandedOver,
}

impl fmt::Display for PlaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the daemon is ending",
            Self::Busy => "too many requests wait for the daemon; try again",
            Self::Silent => "the daemon did not answer in time; try again",
            Self::HandedOver => "another process is taking the daemon over: try again",
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

/// Handle with which any thread can send commands to the control thread.
#[derive(Clone)]
pub struct PlaneHandle {
    sender: SyncSender<Command>,
    waker: Arc<dyn Fn() + Send + Sync>,
    statistics: Arc<dyn Statistics>,
    /// Changes instances; `None` if this host has no instances.
    instances: Option<InstanceChanges>,
    /// Locked while a configuration is derived from the running one and applied, so that changes do
    /// not overlap.
    changing: Arc<Mutex<()>>,
    /// The connection to the process that has taken over; `None` if no process has.
    successor: Arc<Mutex<Option<UnixStream>>>,
}

impl fmt::Debug for PlaneHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaneHandle")
    }
}

impl PlaneHandle {
    /// Creates a handle, and the receiver of its commands. `waker` must end the pause of the
    /// control thread. It is called after each command, on the thread of the caller.
    pub fn new(
        waker: Arc<dyn Fn() + Send + Sync>,
        statistics: Arc<dyn Statistics>,
    ) -> (Self, Receiver<Command>) {
        let (sender, receiver) = mpsc::sync_channel(COMMANDS_MAX);
        let (changing, successor) = (Arc::default(), Arc::default());
        (Self { sender, waker, statistics, instances: None, changing, successor }, receiver)
    }

    /// Puts a command into the queue of the control thread, without waiting.
    ///
    /// # Errors
    /// [`PlaneError::Gone`], [`PlaneError::Busy`] and [`PlaneError::HandedOver`].
    pub fn command(&self, command: Command) -> Result<(), PlaneError> {
        match &*self.successor() {
            Some(_) => Err(PlaneError::HandedOver),
            None => self.put(command),
        }
    }

    /// Ends the daemon in order, or the process that has taken over from it.
    ///
    /// # Errors
    /// [`PlaneError::Gone`] and [`PlaneError::Busy`].
    pub fn stop(&self) -> Result<(), PlaneError> {
        match &*self.successor() {
            Some(successor) => stop(successor),
            None => return self.put(Command::Stop),
        }
        Ok(())
    }

    /// Ends the daemon in order, or the process that has taken over from it. Waits as long as the
    /// queue of commands is full, because a lost request would need another one.
    pub fn stop_surely(&self) {
        while self.stop() == Err(PlaneError::Busy) {
            std::thread::sleep(BUSY_PAUSE);
        }
    }

    /// Passes requests to stop on to the process that has taken over, from now on: also one in
    /// `commands`. All other commands are refused. `successor`: the connection to the process.
    pub(crate) fn hand_over(&self, successor: UnixStream, commands: &Receiver<Command>) {
        let mut slot = self.successor();
        // Each command that no receiver answers is refused as its channel is dropped.
        if commands.try_iter().filter(|command| matches!(command, Command::Stop)).count() > 0 {
            stop(&successor);
        }
        *slot = Some(successor);
    }

    fn successor(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.successor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, command: Command) -> Result<(), PlaneError> {
        self.sender.try_send(command).map_err(|e| match e {
            TrySendError::Full(_) => PlaneError::Busy,
            TrySendError::Disconnected(_) => PlaneError::Gone,
        })?;
        (self.waker)();
        Ok(())
    }

    /// Returns the present state of the daemon, read on the calling thread.
    ///
    /// # Errors
    /// If the daemon is ending, or a requested list did not arrive in time.
    pub fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError> {
        self.statistics.snapshot(detail)
    }

    /// Changes settings until the next restart or reload.
    ///
    /// # Errors
    /// If there was no answer; the inner error is the control thread's refusal.
    pub fn set(&self, change: Change) -> Result<Result<(), String>, PlaneError> {
        let _alone = self.alone();
        self.ask(|reply| Command::Set { change, reply })
    }

    /// Applies a new configuration, which `make` derives from the running one. Changes happen one
    /// at a time, so that no change overwrites another change.
    ///
    /// # Errors
    /// If there was no answer; the inner error is the error of `make`, or the control thread's
    /// refusal.
    pub fn change<E: From<String>>(
        &self,
        make: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<Result<ReloadReport, E>, PlaneError> {
        let _alone = self.alone();
        let running = self.ask(|reply| Command::Running { reply })?;
        let config = match make(&running) {
            Ok(config) => Box::new(config),
            Err(error) => return Ok(Err(error)),
        };
        let report = self.ask(|reply| Command::Reload { config, reply })?;
        Ok(report.map_err(E::from))
    }

    /// Waits until no other thread changes the configuration. No other thread changes it until the
    /// result is dropped.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a handle whose reloads also apply changes in the files of instances.
    pub fn with_instances(self, instances: Option<InstanceChanges>) -> Self {
        Self { instances, ..self }
    }

    /// Makes the card use the content of the file that describes clouds. No reload applies an
    /// earlier content of this file afterwards.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    pub fn apply_cloud(&self, file: &Path) -> Result<(), String> {
        let Some(InstanceChanges { apply, .. }) = &self.instances else {
            return Err("this host runs without instances".to_owned());
        };
        let _alone = self.alone();
        if self.successor().is_some() {
            return Err(PlaneError::HandedOver.to_string());
        }
        apply(file)
    }

    /// Waits until no other rules for the instances are being applied, and refuses them until the
    /// result is dropped. Returns `None` if there are no instances.
    ///
    /// # Errors
    /// The reason why the wait has ended, as a text for people.
    pub(crate) fn freeze_instances(&self) -> Result<Option<FrozenInstances>, String> {
        self.instances.as_ref().map(|of| (of.freeze)()).transpose()
    }

    /// Applies the configuration that `load` reads again, and changes in the files of instances.
    /// `load` runs after every earlier change has been applied, so that a reload never applies a
    /// file that is older than the running configuration. If `load` fails, and the helper of the
    /// instances can read the configuration, only the changes of the instances are applied.
    ///
    /// # Errors
    /// If there was no answer; the inner error is that of `load`, or the refusal of the control
    /// thread or of the instances. If the changes of the instances were applied before the error,
    /// the text of the error contains this fact.
    pub fn reload<E: From<String> + fmt::Display>(
        &self,
        load: impl FnOnce() -> Result<Config, E>,
    ) -> Result<Result<ReloadReport, E>, PlaneError> {
        let _alone = self.alone();
        if self.successor().is_some() {
            return Err(PlaneError::HandedOver);
        }
        let config = match load() {
            Ok(config) => Box::new(config),
            Err(error) => return Ok(self.reload_unread(error)),
        };
        let reloaded = match self.instances.as_ref().map(|of| (of.reload)()) {
            None => None,
            Some(Ok(reloaded)) => Some(reloaded),
            Some(Err(why)) => return Ok(Err(E::from(format!("nothing was changed: {why}")))),
        };
        let report = self.ask(|reply| Command::Reload { config, reply });
        let Some(ReloadedInstances { is_new, waits, .. }) = reloaded else {
            return Ok(report?.map_err(E::from));
        };
        let partly = |why: &dyn fmt::Display| {
            E::from(format!(
                "the rules of the instances were applied; of all other settings, {why}"
            ))
        };
        Ok(match report {
            Ok(Ok(mut report)) => {
                report.vpc = is_new;
                report.restart.extend(waits);
                Ok(report)
            }
            Ok(Err(why)) => Err(partly(&why)),
            Err(error) => Err(partly(&error)),
        })
    }

    /// Changes the private key of this node, which ends all sessions. They open again with the
    /// peers that have the new public key.
    ///
    /// # Errors
    /// If there was no answer; the inner error is the control thread's refusal.
    pub(crate) fn rekey(&self, key: SecretKey) -> Result<Result<(), String>, PlaneError> {
        let _alone = self.alone();
        self.ask(|reply| Command::Rekey { key, reply })
    }

    /// Applies changes in the files of instances, although this process could not read the
    /// configuration, because of `error`. The helper of the instances may have the right to do so.
    /// All other changes wait for a restart.
    ///
    /// # Errors
    /// The error of the process that can read the configuration.
    fn reload_unread<E: From<String> + fmt::Display>(&self, error: E) -> Result<ReloadReport, E> {
        let Some(instances) = &self.instances else { return Err(error) };
        match (instances.reload)() {
            Ok(ReloadedInstances { is_new, waits, of_daemon }) => {
                let restart = waits.into_iter().chain(of_daemon).collect();
                Ok(ReloadReport { vpc: is_new, restart, ..ReloadReport::default() })
            }
            Err(why) if error.to_string().contains(&why) => Err(error),
            Err(why) => Err(E::from(format!("nothing was changed: {why}"))),
        }
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// If there was no answer; the inner error is the control thread's refusal.
    pub fn capture(&self, filter: Filter) -> Result<Result<TapReader, String>, PlaneError> {
        self.ask(|reply| Command::Capture { filter, reply })
    }

    /// Sends a command to the control thread, and waits for its answer.
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

/// Requests that the process that has taken over stops. That process has read everything, so this
/// never waits.
fn stop(mut successor: &UnixStream) {
    if let Err(error) = successor.write_all(format!("{STOP}\n").as_bytes()) {
        tracing::error!(
            "the process that has taken over continues, and has to be stopped: {error}"
        );
    }
}
