//! The sessions of connected hosts, and counters.
//!
//! A host has at most one session here: if its identity connects again, the older session ends. The
//! times of sessions are known to this controller only, and since its start only.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use srd_enrol::{Fingerprint, PodAnswer, PodRequest, Refusal, RefusalKind};
use tokio::sync::Notify;

use super::catch_up::CatchUp;
use super::decide::Decision;
use super::identities::{self, Identities, IdentitySlot};
use super::journal::{self, Journal};
use super::rate::{ChangeRates, INTERVAL};
use super::table::{Hosts, Table};
use crate::clock::now_s;
use crate::control::{Control, shared};
use crate::fleet::Parts;
use crate::store::KeyChange;

/// Counters of the listener for hosts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections whose handshake failed, or that sent no valid first message in time.
    pub(super) strangers: AtomicU64,
    /// Connections that were closed because the host did not take a message in time.
    pub(super) unread: AtomicU64,
    refused: [AtomicU64; RefusalKind::ALL.len()],
}

impl Counters {
    pub(super) fn count(&self, kind: RefusalKind) {
        if let Some(at) = RefusalKind::ALL.iter().position(|known| *known == kind) {
            self.refused[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of connections without a valid first message.
    pub fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Relaxed)
    }

    /// Number of connections that were closed because the host did not take a message in time.
    pub fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// Number of refusals of this kind.
    pub fn refused(&self, kind: RefusalKind) -> u64 {
        let at = RefusalKind::ALL.iter().position(|known| *known == kind);
        at.map_or(0, |at| self.refused[at].load(Ordering::Relaxed))
    }
}

/// A host that is connected, or was connected since the start of this controller.
#[derive(Clone, Debug)]
pub(super) struct Session {
    number: u64,
    /// Whether the host is connected.
    pub(super) is_connected: bool,
    /// Address from which it has connected.
    pub(super) from: SocketAddr,
    /// Time of its last message, in seconds since 1970.
    pub(super) seen_at: u64,
    /// Generation of the peers that the host uses.
    pub(super) applied: u64,
    /// Peers that this controller has sent last; `None`: none since its start.
    sent: Option<Base>,
    end: Arc<Notify>,
}

/// Peers that a host has, which further changes are based on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Base {
    /// Number of the [time line](Table::time_line) of the generation.
    pub(super) time_line: u64,
    /// Generation of the peers; 0: no peers.
    pub(super) generation: u64,
}

/// A session that has begun.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) number: u64,
    /// Signal that a newer session of the same host has begun.
    pub(super) end: Arc<Notify>,
}

/// State that all sessions share.
#[derive(Debug)]
pub struct Hub {
    control: Arc<Mutex<Control>>,
    hosts: Hosts,
    /// Parts of the cloud that hosts need; `None`: instances do not run on hosts.
    parts: Option<Parts>,
    sessions: Mutex<BTreeMap<String, Session>>,
    next_number: AtomicU64,
    rates: Mutex<ChangeRates>,
    /// Rates of requests about pods; `None`: hosts start no pods.
    pod_rates: Option<Mutex<ChangeRates>>,
    identities: Identities,
    catch_up: CatchUp,
    pub(super) journal: Journal,
    /// Counters of the listener.
    pub counters: Counters,
}

impl Hub {
    /// State without sessions. `parts`: the parts of the cloud that are sent to the hosts; `None`:
    /// instances do not run on hosts.
    pub fn new(control: Arc<Mutex<Control>>, parts: Option<Parts>) -> Self {
        let hosts = control.lock().unwrap_or_else(PoisonError::into_inner).hosts();
        Self {
            control,
            hosts,
            parts,
            sessions: Mutex::default(),
            next_number: AtomicU64::new(0),
            rates: Mutex::default(),
            pod_rates: None,
            identities: identities::new(),
            catch_up: CatchUp::default(),
            journal: Journal::default(),
            counters: Counters::default(),
        }
    }

    /// Permits hosts to start instances of their pods in all subnets.
    pub fn permit_pods(&mut self) {
        self.pod_rates = Some(Mutex::new(ChangeRates::of_pods()));
    }

    /// Sets the function that writes lines about hosts to a log. It must not wait.
    pub fn log_by(&mut self, write: journal::Write) {
        self.journal = Journal::new(write);
    }

    /// The hosts.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The parts of the cloud that hosts need; `None`: instances do not run on hosts.
    pub fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    /// Removes a host, and marks its instances as stopped. Returns these instances. The call waits
    /// for the store.
    ///
    /// # Errors
    /// If there is no such host, or the store fails.
    pub fn remove(&self, name: &str) -> Result<Vec<String>, Refusal> {
        shared::run(&self.control, |control| {
            let stopped = control.remove_host(name)?;
            // A host that enrols with this name afterwards has an entry of its own.
            self.parts.iter().for_each(|parts| parts.forget(name));
            Ok(stopped)
        })
    }

    /// Changes secrets of the state: the authority that issues certificates of the servers, and
    /// access keys. The call waits for the store.
    ///
    /// # Errors
    /// The error of `change`.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Control) -> Result<T, String>,
    ) -> Result<T, Refusal> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut control).map_err(|why| Refusal::new(RefusalKind::Unavailable, why))
    }

    /// Takes over the changes of other controllers.
    ///
    /// # Errors
    /// If the store fails.
    pub(super) async fn catch_up(self: &Arc<Self>) -> Result<(), Refusal> {
        let hub = Arc::clone(self);
        self.catch_up.take(move || hub.decide(|_| Ok((Vec::new(), ())))).await
    }

    /// Counts a connection of an identity; `None` if it has too many.
    pub(super) fn admit_connection(&self, identity: Fingerprint) -> Option<IdentitySlot> {
        self.identities.admit(identity)
    }

    /// Makes a decision as one transaction. The call waits for the store.
    ///
    /// # Errors
    /// The refusal.
    pub fn decide<T>(&self, decide: impl FnMut(&Table) -> Decision<T>) -> Result<T, Refusal> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).decide(decide)
    }

    /// Counts changes that a host causes, if there are any.
    ///
    /// # Errors
    /// A temporary refusal, if the host causes changes too often.
    pub(super) fn admit_change(
        &self,
        host: Fingerprint,
        changes: &[KeyChange],
    ) -> Result<(), Refusal> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.is_empty() || rates.admit(host, Instant::now()) {
            return Ok(());
        }
        let what = format!(
            "this host changes too often: the controller stores one change in {} seconds, so try \
             again later",
            INTERVAL.as_secs()
        );
        Err(Refusal::new(RefusalKind::Unavailable, what))
    }

    /// Counts a request of a host about its pods.
    ///
    /// # Errors
    /// If hosts start no pods here, or a temporary refusal, if the host sends too many requests.
    pub(super) fn admit_pod(&self, host: Fingerprint) -> Result<(), Refusal> {
        let Some(rates) = &self.pod_rates else {
            let what = "the controller starts no pods of hosts: start it with --host-pods";
            return Err(Refusal::new(RefusalKind::Invalid, what));
        };
        let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
        match rates.admit(host, Instant::now()) {
            true => Ok(()),
            false => {
                let what = "this host sends too many requests about pods: try again later";
                Err(Refusal::new(RefusalKind::Unavailable, what))
            }
        }
    }

    /// Answers a request of a host about its pods. The call waits for the store and for hosts.
    pub(super) fn pod(&self, host: &str, request: PodRequest) -> PodAnswer {
        shared::run(&self.control, |control| control.pod(host, request, now_s()))
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session of a host, and ends an older one.
    pub(super) fn enter(&self, name: &str, from: SocketAddr, applied: u64) -> Entered {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let end = Arc::new(Notify::new());
        let (seen_at, entered) = (now_s(), Arc::clone(&end));
        let mut sessions = self.sessions();
        let sent = sessions.get(name).and_then(|former| former.sent);
        let new = Session { number, is_connected: true, from, seen_at, applied, sent, end };
        // Records of hosts that were removed have no use.
        let table = self.hosts.table();
        sessions.retain(|name, session| session.is_connected || table.hosts.contains_key(name));
        drop(table);
        if let Some(old) = sessions.insert(name.to_owned(), new).filter(|old| old.is_connected) {
            old.end.notify_one();
        }
        Entered { number, end: entered }
    }

    /// Returns the peers on which the changes for a host that has this generation are based. A
    /// generation counts only if this controller has sent it to the host: another one may belong to
    /// a state that was replaced by a backup.
    pub(super) fn base(&self, name: &str, generation: u64) -> Base {
        let sent = self.sessions().get(name).and_then(|former| former.sent);
        let base = Base { time_line: self.hosts.table().time_line(), generation };
        if sent == Some(base) { base } else { Base { generation: 0, ..base } }
    }

    /// Records the peers that were sent to a host.
    pub(super) fn sent(&self, name: &str, entered: &Entered, base: Base) {
        if let Some(session) = self.sessions().get_mut(name).filter(|s| s.number == entered.number)
        {
            session.sent = Some(base);
        }
    }

    /// Records that a host has sent a message, and the generation that it uses.
    pub(super) fn saw(&self, name: &str, entered: &Entered, applied: Option<u64>) {
        if let Some(session) = self.sessions().get_mut(name).filter(|s| s.number == entered.number)
        {
            session.seen_at = now_s();
            session.applied = applied.unwrap_or(session.applied);
        }
    }

    /// Ends a session.
    pub(super) fn leave(&self, name: &str, entered: &Entered) {
        if let Some(session) = self.sessions().get_mut(name).filter(|s| s.number == entered.number)
        {
            session.is_connected = false;
        }
    }
}
