//! The part of the cloud of each host, its generation, and its acknowledgement.
//!
//! Bounds: one part for each host, and a host has at most the tables of
//! [`srd_enrol::cloud::TABLES_BYTES_MAX`]. Hosts with equal parts share their tables.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use srd_enrol::CloudTables;
use srd_enrol::message::ERROR_CHARACTERS_MAX;
use tokio::sync::watch;

use super::conduct::{Credit, Refusals};

/// Instances of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Number of its instances.
    pub instances: u32,
    /// Sum of the vCPUs of its instances.
    pub vcpus: u32,
}

/// The part of a host.
#[derive(Clone, Debug, Default)]
struct HostPart {
    tables: Arc<CloudTables>,
    generation: u64,
    load: Load,
    /// Number of its session; `None`: the host is not connected, or accepts no instances.
    session: Option<u64>,
    /// Highest number of its sessions.
    newest: u64,
    /// Generation that the host has applied or refused last.
    decided: u64,
    /// Reason of the refusal.
    refused: Option<String>,
    /// Whether the host has not acknowledged a generation in time, and not caught up yet.
    is_behind: bool,
    credit: Credit,
    refusals: Refusals,
}

impl HostPart {
    /// Whether a request that needs this generation waits for the host.
    fn is_awaited(&self, generation: u64) -> bool {
        self.session.is_some() && !self.is_behind && self.decided < generation
    }
}

#[derive(Default)]
struct Shared {
    hosts: Mutex<BTreeMap<String, HostPart>>,
    decided: Condvar,
    /// Number of the last change, which wakes the sessions.
    version: watch::Sender<u64>,
}

/// The parts of all hosts, which requests change and sessions send.
#[derive(Clone, Default)]
pub struct Parts(Arc<Shared>);

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parts({})", self.hosts().len())
    }
}

/// Hosts that do not use a generation that was waited for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Waited {
    /// Hosts that have refused it, each with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// Hosts that are away, or have not acknowledged it in time.
    pub(super) pending: Vec<String>,
}

impl Parts {
    fn hosts(&self) -> MutexGuard<'_, BTreeMap<String, HostPart>> {
        self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a signal for each further change of a part.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Replaces the part of a host. Returns its generation, and whether it has changed.
    pub(crate) fn set(&self, host: &str, tables: Arc<CloudTables>, load: Load) -> (u64, bool) {
        let mut hosts = self.hosts();
        let part = hosts.entry(host.to_owned()).or_default();
        part.load = load;
        if Arc::ptr_eq(&part.tables, &tables) || part.tables == tables {
            return (part.generation, false);
        }
        part.tables = tables;
        part.generation += 1;
        let generation = part.generation;
        drop(hosts);
        self.0.version.send_modify(|version| *version += 1);
        (generation, true)
    }

    /// Waits until these hosts have decided about these generations, for a limited time. A host
    /// that is away or behind is not waited for, and one that was slow is waited for as long as its
    /// [`Credit`] lasts.
    pub(super) fn wait(&self, wanted: &[(String, u64)], until: Instant) -> Waited {
        let begin = Instant::now();
        let mut hosts = self.hosts();
        // Hosts that are waited for, each with its generation and the end of the wait.
        let mut awaited: Vec<(&str, u64, Instant)> = Vec::new();
        for (host, generation) in wanted {
            if let Some(part) = hosts.get(host).filter(|part| part.is_awaited(*generation)) {
                let end = until.min(begin + part.credit.patience(begin));
                awaited.push((host.as_str(), *generation, end));
            }
        }
        loop {
            let now = Instant::now();
            awaited.retain(|(host, generation, end)| {
                let Some(part) = hosts.get_mut(*host) else { return false };
                let is_awaited = part.is_awaited(*generation);
                if is_awaited && now < *end {
                    return true;
                }
                part.is_behind |= is_awaited;
                part.credit.charge(now.saturating_duration_since(begin), now);
                false
            });
            let Some(end) = awaited.iter().map(|(_, _, end)| *end).min() else {
                return outcome(&hosts, wanted);
            };
            let left = end.saturating_duration_since(now);
            let woken = self.0.decided.wait_timeout(hosts, left);
            hosts = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records whether a host has accepted the instances that a request has started there.
    pub(super) fn started(&self, host: &str, is_accepted: bool, now: Instant) {
        if let Some(part) = self.hosts().get_mut(host) {
            part.refusals.started(is_accepted, now);
        }
    }

    /// Whether the host has refused an instance a short time ago, so that others come first.
    pub(super) fn is_avoided(&self, host: &str, now: Instant) -> bool {
        self.hosts().get(host).is_some_and(|part| part.refusals.is_avoided(now))
    }

    /// Whether the host is connected, accepts instances, and acknowledges in time.
    pub(crate) fn is_ready(&self, host: &str) -> bool {
        let is_ready = |p: &HostPart| p.session.is_some() && !p.is_behind && p.refused.is_none();
        self.hosts().get(host).is_some_and(is_ready)
    }

    /// Forgets a host that was removed.
    pub(crate) fn forget(&self, host: &str) {
        self.hosts().remove(host);
        self.0.decided.notify_all();
    }

    /// Begins the session of a host that accepts instances. It has no effect if a newer session has
    /// begun.
    pub fn enter(&self, host: &str, session: u64) {
        let mut hosts = self.hosts();
        let part = hosts.entry(host.to_owned()).or_default();
        if session < part.newest {
            return;
        }
        part.newest = session;
        // Generation 0 is that of a host that never had a part. It is sent, too.
        part.generation = part.generation.max(1);
        (part.session, part.decided, part.refused) = (Some(session), 0, None);
        part.is_behind = true;
    }

    /// Ends a session of a host, unless a newer one has begun.
    pub fn leave(&self, host: &str, session: u64) {
        if let Some(part) = self.hosts().get_mut(host).filter(|p| p.session == Some(session)) {
            part.session = None;
        }
        self.0.decided.notify_all();
    }

    /// Records the decision of a host about a generation. Other generations than those that it was
    /// sent have no effect.
    pub fn decided(&self, host: &str, session: u64, generation: u64, error: Option<String>) {
        let mut hosts = self.hosts();
        let Some(part) = hosts.get_mut(host).filter(|part| part.session == Some(session)) else {
            return;
        };
        if generation < part.decided || generation > part.generation {
            return;
        }
        part.decided = generation;
        part.refused = error.map(|why| why.chars().take(ERROR_CHARACTERS_MAX).collect());
        part.is_behind &= generation < part.generation || part.refused.is_some();
        drop(hosts);
        self.0.decided.notify_all();
    }

    /// Returns the part of a host, and its generation.
    pub fn of(&self, host: &str) -> (u64, Arc<CloudTables>) {
        let hosts = self.hosts();
        hosts.get(host).map(|p| (p.generation, Arc::clone(&p.tables))).unwrap_or_default()
    }

    /// Returns the instances of a host, the generation of its part, and the one that it uses.
    pub fn load(&self, host: &str) -> (Load, u64, u64) {
        let hosts = self.hosts();
        let part = hosts.get(host);
        part.map_or_else(Default::default, |part| {
            let uses = if part.refused.is_some() { 0 } else { part.decided };
            (part.load, part.generation, uses)
        })
    }
}

fn outcome(hosts: &BTreeMap<String, HostPart>, wanted: &[(String, u64)]) -> Waited {
    let mut waited = Waited::default();
    for (host, generation) in wanted {
        let part = hosts.get(host).filter(|part| part.decided >= *generation);
        match part.map(|part| part.refused.clone()) {
            Some(Some(why)) => waited.refused.push((host.clone(), why)),
            Some(None) => {}
            None => waited.pending.push(host.clone()),
        }
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::super::conduct::CREDIT_MAX;
    use super::*;
    use std::time::Duration;

    fn tables(text: &str) -> Arc<CloudTables> {
        let mut tables = CloudTables::default();
        tables.insert("vpc.\"a\"".to_owned(), text.to_owned()).unwrap();
        Arc::new(tables)
    }

    fn wanted(host: &str, generation: u64) -> Vec<(String, u64)> {
        vec![(host.to_owned(), generation)]
    }

    #[test]
    fn a_request_waits_for_the_hosts_that_are_connected_and_in_time() {
        let parts = Parts::default();
        let soon = || Instant::now() + Duration::from_millis(1);
        let long = || Instant::now() + Duration::from_secs(600);
        let (generation, is_new) = parts.set("a", tables("x"), Load::default());
        assert!(is_new && !parts.set("a", tables("x"), Load::default()).1);
        let pending = Waited { pending: vec!["a".to_owned()], ..Waited::default() };
        assert_eq!(parts.wait(&wanted("a", generation), long()), pending, "it is away");
        parts.enter("a", 1);
        assert!(!parts.is_ready("a"), "it has not caught up");
        assert_eq!(parts.wait(&wanted("a", generation), long()), pending);
        parts.decided("a", 1, generation, None);
        assert!(parts.is_ready("a"));
        let (next, _) = parts.set("a", tables("y"), Load::default());
        assert_eq!(parts.wait(&wanted("a", next), soon()), pending, "it is late");
        assert!(!parts.is_ready("a"));
        assert_eq!(parts.wait(&wanted("a", next), long()), pending, "it is not waited for again");
        let waits = std::thread::spawn({
            let parts = parts.clone();
            parts.decided("a", 1, next, None);
            let (last, _) = parts.set("a", tables("z"), Load::default());
            move || parts.wait(&wanted("a", last), long())
        });
        parts.decided("a", 1, next + 1, None);
        assert_eq!(waits.join().unwrap(), Waited::default());
    }

    #[test]
    fn decisions_of_an_older_session_and_about_other_generations_have_no_effect() {
        let parts = Parts::default();
        let (generation, _) = parts.set("a", tables("x"), Load::default());
        parts.enter("a", 2);
        // The older session was delayed.
        parts.enter("a", 1);
        parts.decided("a", 1, generation, None);
        parts.decided("a", 2, generation + 1, None);
        parts.leave("a", 1);
        assert!(!parts.is_ready("a"));
        parts.decided("a", 2, generation, None);
        assert!(parts.is_ready("a"));
        parts.leave("a", 2);
        parts.enter("a", 1);
        parts.decided("a", 1, generation, None);
        assert!(!parts.is_ready("a"));
    }

    /// A host that acknowledged each change too late was waited for at each change.
    #[test]
    fn regression_a_host_that_was_slow_too_often_is_waited_for_only_shortly() {
        let parts = Parts::default();
        parts.enter("a", 1);
        parts.decided("a", 1, 1, None);
        let now = Instant::now();
        let spend = |part: &mut HostPart| part.credit.charge(CREDIT_MAX * 2, now);
        parts.hosts().get_mut("a").into_iter().for_each(spend);
        // The host reconnects, which does not change its credit.
        parts.enter("a", 2);
        parts.decided("a", 2, 1, None);
        let (generation, _) = parts.set("a", tables("x"), Load::default());
        let pending = Waited { pending: vec!["a".to_owned()], ..Waited::default() };
        // Such a wait would end this test only after ten minutes.
        let until = Instant::now() + Duration::from_secs(600);
        assert_eq!(parts.wait(&wanted("a", generation), until), pending);
    }

    #[test]
    fn a_refusal_ends_the_wait_with_its_reason_of_bounded_length() {
        let parts = Parts::default();
        parts.enter("a", 1);
        parts.decided("a", 1, 1, None);
        let (generation, _) = parts.set("a", tables("x"), Load::default());
        parts.decided("a", 1, generation, Some("é".repeat(ERROR_CHARACTERS_MAX + 1)));
        let waited = parts.wait(&wanted("a", generation), Instant::now());
        assert_eq!(waited.refused[0].1.chars().count(), ERROR_CHARACTERS_MAX);
        // The host tries again, and succeeds.
        parts.decided("a", 1, generation, None);
        assert_eq!(parts.wait(&wanted("a", generation), Instant::now()), Waited::default());
    }
}
