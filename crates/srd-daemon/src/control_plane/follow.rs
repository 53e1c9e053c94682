//! The thread that applies changes of the controller while the daemon runs.
//!
//! Each change is first stored in the state directory, then applied by the control thread, and then
//! acknowledged. While the controller is away, the daemon uses the peers that it has. The time
//! between the beginnings of two attempts to connect grows to [`PAUSE_MAX`], and is random, so that
//! many hosts do not connect at once after the controller has started again.
//!
//! A controller that does not answer a ping for [`SILENCE_MAX`] may be cut off. A new connection
//! then gets through sooner than the old one, on which TCP repeats packets after pauses that grow
//! with the time of the outage.
//!
//! `srd status` shows the state of the connection, and the reason of the last end of one
//! ([`ControllerPage`]). The log has each reason at its beginning, and again every [`LOG_EVERY`].

mod identity;
mod next_key;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use srd_enrol::message::VERSION;
use srd_enrol::{FromController, FromHost, Identity, Peer, RefusalKind};

use super::cloud::CloudPart;
use super::enrol;
use super::link::{Link, LinkError};
use super::pods::{PodRequests, SharedSession, Turns, accept};
use super::state::Enrolment;
use crate::config::{Config, Enrol, Interface};
use crate::keys::{PublicKey, SecretKey};
use crate::pages::controller::ControllerPage;
use crate::plane::{PlaneError, PlaneHandle};
use crate::run::evidence::Problem;
use crate::waiting::WaitingThread;

/// Shortest pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Longest time between the beginnings of two attempts to connect.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time of a session after which the next pause is [`PAUSE_MIN`].
const LONG_SESSION: Duration = Duration::from_secs(10);
/// Pause after a refusal that a later attempt does not change.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// Interval at which the host sends a message.
const PING_EVERY: Duration = Duration::from_millis(500);
/// Longest time from a ping to the next message of the controller, which answers each ping.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Longest such time before the controller has admitted this host, for which it may need its store.
const ADMISSION_WAIT_MAX: Duration = Duration::from_secs(10);
/// Number of attempts to apply a change, one second apart.
const ATTEMPTS_MAX: u32 = 10;
/// Interval at which the log repeats why the host is not connected.
const LOG_EVERY: Duration = Duration::from_secs(600);

/// Returns the sender of requests about pods; `None` if this host accepts no pods. `session`: the
/// session that the thread of [`prepare`] sets.
///
/// # Errors
/// If the state directory cannot be read.
pub(crate) fn pods(config: &Config, session: &SharedSession) -> Result<Option<PodRequests>> {
    let Some(enrol) = &config.enrol else { return Ok(None) };
    if !enrol.capacity.as_ref().is_some_and(|capacity| capacity.pods) {
        return Ok(None);
    }
    let state = &enrol.directory;
    let identity = state.identity().map_err(anyhow::Error::msg)?;
    let enrolment = state.enrolment().map_err(anyhow::Error::msg)?;
    let enrolment = enrolment.context("this host has not enrolled")?;
    accept(session, &enrolment);
    let (controller, session) = (enrol.controller.clone(), Arc::clone(session));
    let turns = Turns::default();
    Ok(Some(PodRequests { controller, identity, session, turns }))
}

/// Starts the thread, which writes the state of the connection to `page`, and the address of the
/// controller to `session`, as soon as it begins to work. It begins with the enrolment that has
/// changed meanwhile, if there is one, whose peers the daemon uses. Returns `None` if the host has
/// no controller.
///
/// # Errors
/// If the state directory cannot be read, or the thread cannot start.
pub(crate) fn prepare(
    config: &Config,
    plane: PlaneHandle,
    session: SharedSession,
    page: Arc<ControllerPage>,
) -> Result<Option<WaitingThread<Option<Enrolment>>>> {
    let (Some(enrol), Some(key)) = (&config.enrol, config.interface.protection.private_key())
    else {
        return Ok(None);
    };
    let state = &enrol.directory;
    let identity = state.identity().map_err(anyhow::Error::msg)?;
    let enrolment = state.enrolment().map_err(anyhow::Error::msg)?;
    let enrolment = enrolment.context("this host has not enrolled")?;
    let address = enrol.controller.to_string();
    page.begin(address, enrolment.controller.to_string(), enrolment.generation);
    let mut follower = Follower {
        session,
        page,
        applied: enrolment.peers.clone(),
        interface: config.interface.clone(),
        key: key.public(),
        next: state.next_key().map_err(anyhow::Error::msg)?,
        enrol: enrol.clone(),
        enrolment,
        identity,
        plane,
        cloud: CloudPart::default(),
        first_address: 0,
    };
    let work = move |newer: Option<Enrolment>| {
        if let Some(newer) = newer {
            follower.continue_with(newer);
        }
        follower.run();
    };
    Ok(Some(WaitingThread::start("srd-follow", work).context("cannot start a thread")?))
}

struct Follower {
    /// The present session, for requests about pods.
    session: SharedSession,
    /// The state of the connection, for readers.
    page: Arc<ControllerPage>,
    enrol: Enrol,
    interface: Interface,
    /// The public key that the daemon uses.
    key: PublicKey,
    /// The next key, if the next session offers it to the controller.
    next: Option<SecretKey>,
    identity: Identity,
    enrolment: Enrolment,
    /// The peers of the controller that the daemon uses.
    applied: Vec<Peer>,
    plane: PlaneHandle,
    cloud: CloudPart,
    /// Number of the address of the controller that is tried first.
    first_address: usize,
}

/// Reason for the end of a connection.
enum End {
    Link(LinkError),
    /// The state directory cannot be written.
    State(String),
    /// The controller has sent a part of the cloud that is not accepted.
    Cloud(String),
    /// The daemon ends.
    Daemon,
    /// The controller has stored the next key of this host, which the next session offers.
    NextKey,
}

impl End {
    /// Returns the reason for the log and the status; `None` if the daemon ends.
    fn problem(&self) -> Option<Problem> {
        let (kind, text) = match self {
            Self::Daemon | Self::NextKey => return None,
            Self::Link(LinkError::Refused(refusal))
                if refusal.reason == RefusalKind::HostUnknown =>
            {
                let what = format!(
                    "{refusal}; this host drops all peers of the controller. If it is to return, \
                     make a token on the controller by `srd control token create`, copy it into \
                     the file of `token_file`, and start `srd up` again"
                );
                ("removed", what)
            }
            Self::Link(LinkError::Refused(refusal)) => {
                ("refused", format!("the controller refuses this host: {refusal}"))
            }
            Self::Link(error) => {
                let kind = match error {
                    LinkError::OtherController(_) => "other-controller",
                    _ => "unreachable",
                };
                (kind, format!("{error}; the daemon goes on with the peers that it has"))
            }
            Self::State(why) => ("state-directory", why.clone()),
            Self::Cloud(why) => {
                ("cloud", format!("the part of the cloud of the controller: {why}"))
            }
        };
        Some(Problem { kind, text })
    }
}

/// The reason that the log had last, and its time.
#[derive(Debug, Default)]
struct LogRate(Option<(&'static str, Instant)>);

impl LogRate {
    /// Whether the log needs a line about the end of a connection for this reason. `is_new`: it is
    /// the end of a connection, not of another attempt.
    fn is_due(&mut self, kind: &'static str, is_new: bool, now: Instant) -> bool {
        let is_logged = |(logged, at): (&str, Instant)| {
            !is_new && logged == kind && now.duration_since(at) < LOG_EVERY
        };
        if self.0.is_some_and(is_logged) {
            return false;
        }
        self.0 = Some((kind, now));
        true
    }
}

impl From<LinkError> for End {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl Follower {
    /// Continues with an enrolment that another process has stored meanwhile, and whose peers the
    /// daemon uses.
    fn continue_with(&mut self, newer: Enrolment) {
        self.applied = newer.peers.clone();
        self.enrolment = newer;
        accept(&self.session, &self.enrolment);
        match self.enrol.directory.next_key() {
            Ok(next) => self.next = next,
            Err(why) => tracing::error!("the next key of this host is as before for now: {why}"),
        }
    }

    fn run(&mut self) {
        let mut pause = PAUSE_MIN;
        let mut log = LogRate::default();
        loop {
            let (mut admitted_at, began) = (None, Instant::now());
            let end = match self.session(&mut admitted_at) {
                Ok(never) => match never {},
                Err(end) => end,
            };
            self.set_session(None);
            if matches!(end, End::NextKey) {
                continue;
            }
            let Some(problem) = self.problem(&end) else { return };
            let is_new = admitted_at.is_some() && matches!(end, End::Link(_));
            match log.is_due(problem.kind, is_new, Instant::now()) {
                false => tracing::debug!("{}", problem.text),
                true if problem.kind == "unreachable" => tracing::warn!("{}", problem.text),
                true => tracing::error!("{}", problem.text),
            }
            if admitted_at.is_none() || is_temporary(&end) {
                // Another controller may be able to serve this host.
                self.first_address = self.first_address.wrapping_add(1);
            }
            let served = admitted_at.map_or(Duration::ZERO, |at: Instant| at.elapsed());
            pause = pause_after(pause, served, &end);
            if let End::Link(LinkError::Refused(refusal)) = &end
                && refusal.reason == RefusalKind::HostUnknown
                && let Err(End::Daemon) = self.leave()
            {
                return;
            }
            if let End::Link(LinkError::Refused(refusal)) = &end
                && refusal.reason == RefusalKind::OtherKey
            {
                self.turn_key();
            }
            self.page.lost(problem, self.enrolment.generation);
            // An attempt that has waited for an answer needs no further pause.
            let waited = if admitted_at.is_some() { Duration::ZERO } else { began.elapsed() };
            thread::sleep(jittered(pause).saturating_sub(waited));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns the reason of the end of a connection; `None` if the daemon ends.
    fn problem(&self, end: &End) -> Option<Problem> {
        let mut problem = end.problem()?;
        if let End::Link(LinkError::Refused(refusal)) = end
            && refusal.reason == RefusalKind::OtherKey
            && (self.next.is_some() || self.has_next_key())
        {
            problem.text.push_str("; this host offers the other one of its two keys");
        }
        Some(problem)
    }

    fn set_session(&self, address: Option<SocketAddr>) {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).address = address;
    }

    /// Connects, and applies changes until the connection ends.
    fn session(
        &mut self,
        admitted_at: &mut Option<Instant>,
    ) -> Result<std::convert::Infallible, End> {
        let identities = self.enrolment.identities();
        let (at, accepted) = (&self.enrol.controller, identities.accepted());
        let mut link = Link::open(at, &self.identity, &accepted, self.first_address)?;
        let endpoints = enrol::endpoints(&self.interface, &self.enrol, link.local()?);
        let endpoints = endpoints.unwrap_or_else(|| self.enrolment.endpoints.clone());
        let key = self.next.as_ref().map_or(self.key, SecretKey::public);
        let host = enrol::describe(key, endpoints, self.enrol.capacity.clone());
        // A host that was removed has forgotten its peers.
        let generation = self.enrolment.generation;
        if self.next.is_some() {
            // The controller may send the key to the peers as soon as it has the message, and this
            // host may be killed before it has the answer.
            self.enrol.directory.mark_offered().map_err(End::State)?;
        }
        let identities = Some(identities);
        link.send(&FromHost::Follow { version: VERSION, generation, host, identities })?;
        self.set_session(Some(link.address()?));
        let mut pinged_at = Instant::now();
        // Time of the first ping since the last message of the controller.
        let mut awaited_since = None;
        loop {
            if let Some(message) = link.receive()? {
                awaited_since = None;
                admitted_at.get_or_insert_with(Instant::now);
                let taken = self.take(&mut link, message);
                self.page.heard(self.enrolment.generation);
                taken?;
            }
            let now = Instant::now();
            let wait_max = if admitted_at.is_some() { SILENCE_MAX } else { ADMISSION_WAIT_MAX };
            if awaited_since.is_some_and(|since| now.duration_since(since) > wait_max) {
                let what = format!("{}: the controller is silent", self.enrol.controller);
                return Err(End::Link(LinkError::Broken(what)));
            }
            if now.duration_since(pinged_at) > PING_EVERY {
                pinged_at = now;
                awaited_since.get_or_insert(now);
                link.send(&FromHost::Ping)?;
                self.apply_cloud(&mut link)?;
            }
        }
    }

    fn take(&mut self, link: &mut Link, message: FromController) -> Result<(), End> {
        match message {
            FromController::Welcome { name, address } => {
                tracing::info!("connected to the controller {} as {name}", self.enrol.controller);
                if address != self.enrolment.address {
                    tracing::warn!("the overlay address of this host is {address} after a restart");
                    self.enrolment.address = address;
                }
                self.enrolment.name = name;
                self.enrolment.is_removed = false;
                self.adopt_key()?;
                let generation = self.enrolment.generation;
                link.send(&FromHost::Applied { generation })?;
                self.offer_key(link, false)?;
            }
            FromController::Snapshot { generation, peers } => {
                self.apply(link, generation, peers)?;
            }
            FromController::Delta { generation, changed, removed } => {
                let peers = merge(&self.enrolment.peers, changed, &removed);
                self.apply(link, generation, peers)?;
            }
            FromController::Cloud(section) if self.enrol.capacity.is_some() => {
                if self.cloud.take(section).map_err(End::Cloud)? {
                    self.apply_cloud(link)?;
                }
            }
            FromController::Rotate => self.offer_key(link, true)?,
            FromController::KeyStored { public_key } => self.keep_key(&public_key)?,
            FromController::Identities(identities) => self.accept(link, identities)?,
            FromController::Cloud(_)
            | FromController::Pong
            | FromController::Pod { .. }
            | FromController::Refused(_) => {}
        }
        Ok(())
    }

    /// Stores, applies and acknowledges the peers of a generation.
    fn apply(&mut self, link: &mut Link, generation: u64, peers: Vec<Peer>) -> Result<(), End> {
        self.enrolment.generation = generation;
        self.enrolment.peers = peers;
        let stored = self.enrol.directory.store(&self.enrolment);
        // A removal counts even if the disk is full.
        let changed = self.change();
        if stored.is_err() || changed.is_err() {
            // The next session sends all peers again.
            self.enrolment.generation = 0;
        }
        changed?;
        stored.map_err(End::State)?;
        Ok(link.send(&FromHost::Applied { generation })?)
    }

    /// Makes the card use the part of the cloud, unless it uses it, and acknowledges it.
    fn apply_cloud(&mut self, link: &mut Link) -> Result<(), End> {
        if !self.cloud.is_pending() {
            return Ok(());
        }
        let acknowledgement = self.cloud.apply(&self.enrol.directory, &self.plane);
        Ok(link.send(&acknowledgement)?)
    }

    /// Makes the daemon use the stored peers.
    fn change(&mut self) -> Result<(), End> {
        for _ in 0..ATTEMPTS_MAX {
            let (old, new) = (&self.applied, &self.enrolment.peers);
            let changed =
                self.plane.change(|running| Ok::<_, String>(running.with_roster(old, new)));
            let why = match changed {
                Ok(Ok(report)) => {
                    tracing::info!("generation {}: {report}", self.enrolment.generation);
                    self.applied = self.enrolment.peers.clone();
                    return Ok(());
                }
                Err(PlaneError::Gone) => return Err(End::Daemon),
                Ok(Err(why)) => why,
                Err(error) => error.to_string(),
            };
            tracing::warn!("generation {} is not applied yet: {why}", self.enrolment.generation);
            thread::sleep(Duration::from_secs(1));
        }
        Err(End::State("the daemon does not apply the peers of the controller".to_owned()))
    }

    /// Forgets all peers of the controller, because it has removed this host.
    fn leave(&mut self) -> Result<(), End> {
        if self.enrolment.is_removed && self.applied.is_empty() && !self.cloud.is_pending() {
            return Ok(());
        }
        self.enrolment.peers.clear();
        self.enrolment.generation = 0;
        self.enrolment.is_removed = true;
        if let Err(why) = self.enrol.directory.store(&self.enrolment) {
            tracing::error!("{why}");
        }
        if self.enrol.capacity.is_some() {
            self.cloud.clear();
            self.cloud.apply(&self.enrol.directory, &self.plane);
        }
        self.change()
    }
}

/// Returns the pause after a session that the controller has served for this time. After a long
/// session, the pause is the shortest one. After a short session it is `pause`, because the
/// controller may end each session at once.
fn pause_after(pause: Duration, served: Duration, end: &End) -> Duration {
    match end {
        End::Link(LinkError::Refused(refusal)) if !refusal.reason.is_temporary() => REFUSED_PAUSE,
        End::Cloud(_) => REFUSED_PAUSE,
        _ if served > LONG_SESSION => PAUSE_MIN,
        _ => pause,
    }
}

/// Whether the controller has refused this host for now.
fn is_temporary(end: &End) -> bool {
    matches!(end, End::Link(LinkError::Refused(refusal)) if refusal.reason.is_temporary())
}

/// Returns the peers after a delta.
fn merge(before: &[Peer], changed: Vec<Peer>, removed: &[String]) -> Vec<Peer> {
    let is_kept = |peer: &&Peer| {
        !removed.contains(&peer.name) && !changed.iter().any(|new| new.name == peer.name)
    };
    let mut peers: Vec<Peer> = before.iter().filter(is_kept).cloned().collect();
    peers.extend(changed);
    peers.sort_by(|a, b| a.name.cmp(&b.name));
    peers
}

/// Returns a random time from half of `pause` to `pause`.
fn jittered(pause: Duration) -> Duration {
    let random = srd_net::clock::seed().map_or(0, |seed| u32::from(seed[0]));
    pause / 2 + pause / 2 * random / 255
}
