//! The part of the cloud of each host, its generation, and its acknowledgement.
//!
//! Bounds: one part for each host, and a host has at most the tables of
//! [`srd_enrol::cloud::TABLES_BYTES_MAX`]. Hosts with equal parts share their tables.
//! A request in progress has one wait at each host that it concerns.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use srd_enrol::message::ERROR_CHARACTERS_MAX;
use srd_enrol::{CloudTables, CloudUpdate};
use tokio::sync::Notify;

use super::conduct::{Credit, Refusals};
use super::updates::Updates;

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
    /// Wakes this session after a change of the part.
    wake: Arc<Notify>,
    /// Generation that the host has applied or refused last.
    decided: u64,
    /// Reason of the refusal.
    refused: Option<String>,
    /// Generation with which the host catches up, after it has connected, or has not acknowledged
    /// one in time; `None`: it has caught up.
    catches_up_at: Option<u64>,
    credit: Credit,
    refusals: Refusals,
    /// Requests that wait for the host.
    waits: Vec<Wait>,
}

/// The wait of a request for a host.
#[derive(Clone, Debug)]
struct Wait {
    generation: u64,
    by: Arc<Waiter>,
}

/// A request that waits for several hosts. It is woken once, when it waits for none of them.
#[derive(Debug)]
struct Waiter {
    begin: Instant,
    /// Number of hosts. It changes under the lock of the hosts.
    left: AtomicUsize,
    ended: Condvar,
}

impl Waiter {
    fn is_waiting(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Ends the wait for one host.
    fn end_one(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.ended.notify_one();
        }
    }
}

impl HostPart {
    fn is_behind(&self) -> bool {
        self.catches_up_at.is_some()
    }

    /// Whether a request that needs this generation waits for the host. A host that was removed and
    /// has enrolled again never gets the higher generations of its former part.
    fn is_awaited(&self, generation: u64) -> bool {
        let is_undecided = self.decided < generation.min(self.generation);
        self.session.is_some() && !self.is_behind() && is_undecided
    }

    /// Ends all waits for the host. Requests wait for it again as soon as it uses its present part.
    /// A newer part makes no difference: if the changes have no pause, the host may never use the
    /// newest one.
    fn fall_behind(&mut self, now: Instant) {
        self.catches_up_at = Some(self.generation);
        self.release(now);
    }

    /// Ends the waits for the host that have no cause any more.
    fn release(&mut self, now: Instant) {
        for wait in std::mem::take(&mut self.waits) {
            if self.is_awaited(wait.generation) {
                self.waits.push(wait);
            } else {
                self.credit.charge(wait.by.begin, now);
                wait.by.end_one();
            }
        }
    }

    /// Ends the wait of this request. Returns `false` if the request did not wait any more.
    /// Otherwise no request waits for the host again until the host has caught up.
    fn give_up(&mut self, waiter: &Arc<Waiter>, now: Instant) -> bool {
        let waits = self.waits.iter().any(|wait| Arc::ptr_eq(&wait.by, waiter));
        if waits {
            self.fall_behind(now);
        }
        waits
    }
}

/// The parts of all hosts, which requests change and sessions send.
#[derive(Clone, Default)]
pub struct Parts(Arc<Shared>);

#[derive(Default)]
struct Shared {
    hosts: Mutex<BTreeMap<String, HostPart>>,
    updates: Mutex<Updates>,
}

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
    /// Hosts that were in time before, and have not acknowledged it in time.
    pub(super) late: Vec<String>,
}

impl Parts {
    fn hosts(&self) -> MutexGuard<'_, BTreeMap<String, HostPart>> {
        self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the part of a host, and wakes its session. Returns the generation of the part, and
    /// whether it has changed. Other tables are a change, also if their contents are equal.
    pub(crate) fn set(&self, host: &str, tables: Arc<CloudTables>, load: Load) -> (u64, bool) {
        let mut hosts = self.hosts();
        let part = hosts.entry(host.to_owned()).or_default();
        part.load = load;
        if Arc::ptr_eq(&part.tables, &tables) {
            return (part.generation, false);
        }
        part.tables = tables;
        part.generation += 1;
        let (generation, wake) = (part.generation, Arc::clone(&part.wake));
        drop(hosts);
        wake.notify_one();
        (generation, true)
    }

    /// Waits until these hosts have decided about these generations, for a limited time. A host
    /// that is away or behind is not waited for, and one that was slow is waited for as long as its
    /// [`Credit`] lasts.
    pub(super) fn wait(&self, wanted: &[(String, u64)], until: Instant) -> Waited {
        let (left, ended) = <_>::default();
        let waiter = Arc::new(Waiter { begin: Instant::now(), left, ended });
        let mut hosts = self.hosts();
        // Hosts that are waited for, each with the end of the wait.
        let (mut ends, mut late): (Vec<(Instant, &str)>, _) = (Vec::new(), Vec::new());
        for (host, generation) in wanted {
            let part = hosts.get_mut(host);
            if let Some(part) = part.filter(|part| part.is_awaited(*generation)) {
                let patience = part.credit.patience(waiter.begin);
                ends.push((until.min(waiter.begin + patience), host));
                part.waits.push(Wait { generation: *generation, by: Arc::clone(&waiter) });
            }
        }
        waiter.left.store(ends.len(), Ordering::Relaxed);
        // The wait that ends first is the last one.
        ends.sort_unstable_by(|a, b| b.cmp(a));
        while waiter.is_waiting() {
            let now = Instant::now();
            while let Some((_, host)) = ends.pop_if(|(end, _)| *end <= now) {
                if hosts.get_mut(host).is_some_and(|part| part.give_up(&waiter, now)) {
                    late.push(host.to_owned());
                }
            }
            let Some((end, _)) = ends.last() else { break };
            let woken = waiter.ended.wait_timeout(hosts, end.saturating_duration_since(now));
            hosts = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Waited { late, ..outcome(&hosts, wanted) }
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
        let is_ready = |p: &HostPart| p.session.is_some() && !p.is_behind() && p.refused.is_none();
        self.hosts().get(host).is_some_and(is_ready)
    }

    /// Forgets a host that was removed.
    pub(crate) fn forget(&self, host: &str) {
        let mut hosts = self.hosts();
        let part = hosts.remove(host);
        part.iter().flat_map(|part| &part.waits).for_each(|wait| wait.by.end_one());
    }

    /// Begins the session of a host that accepts instances. Returns the signal for each further
    /// change of its part, until a newer session begins. If a newer session has begun, the call has
    /// no effect, and the signal never comes.
    pub fn enter(&self, host: &str, session: u64) -> Arc<Notify> {
        let wake = Arc::<Notify>::default();
        let mut hosts = self.hosts();
        let part = hosts.entry(host.to_owned()).or_default();
        if session < part.newest {
            return wake;
        }
        part.newest = session;
        part.wake = Arc::clone(&wake);
        // Generation 0 is that of a host that never had a part. It is sent, too.
        part.generation = part.generation.max(1);
        (part.session, part.decided, part.refused) = (Some(session), 0, None);
        part.fall_behind(Instant::now());
        wake
    }

    /// Ends a session of a host, unless a newer one has begun.
    pub fn leave(&self, host: &str, session: u64) {
        if let Some(part) = self.hosts().get_mut(host).filter(|p| p.session == Some(session)) {
            part.session = None;
            part.release(Instant::now());
        }
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
        let is_refused = part.refused.is_some();
        part.catches_up_at = part.catches_up_at.filter(|at| is_refused || generation < *at);
        part.release(Instant::now());
    }

    /// Returns the part of a host, and its generation.
    pub fn of(&self, host: &str) -> (u64, Arc<CloudTables>) {
        let hosts = self.hosts();
        hosts.get(host).map(|p| (p.generation, Arc::clone(&p.tables))).unwrap_or_default()
    }

    /// Returns the sections of an update that leads a host from earlier tables to these, as
    /// [`CloudTables::since`] does. Hosts share the changes.
    pub(crate) fn since(
        &self,
        former: Option<&Arc<CloudTables>>,
        present: &Arc<CloudTables>,
        generation: u64,
    ) -> Vec<CloudUpdate> {
        let Some(former) = former else { return present.since(None, generation) };
        let mut updates = self.0.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let sections = updates.between(former, present);
        drop(updates);
        let mut sections = Arc::unwrap_or_clone(sections);
        sections.iter_mut().for_each(|section| section.generation = generation);
        sections
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
        // A host that was removed uses nothing any more.
        let Some(part) = hosts.get(host) else { continue };
        match &part.refused {
            _ if part.decided < *generation => waited.pending.push(host.clone()),
            Some(why) => waited.refused.push((host.clone(), why.clone())),
            None => {}
        }
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::super::conduct::CREDIT_MAX;
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};
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
    fn hosts_get_the_changes_that_they_share_with_generations_of_their_own() {
        let parts = Parts::default();
        let [x, y] = ["x", "y"].map(tables);
        for generation in [4, 9] {
            let whole = parts.since(None, &y, generation);
            assert_eq!(whole, y.since(None, generation));
            let changes = parts.since(Some(&x), &y, generation);
            assert_eq!(changes, y.since(Some(x.as_ref()), generation));
        }
    }

    #[test]
    fn a_request_waits_for_the_hosts_that_are_connected_and_in_time() {
        let parts = Parts::default();
        let soon = || Instant::now() + Duration::from_millis(1);
        let long = || Instant::now() + Duration::from_secs(600);
        let x = tables("x");
        let (generation, is_new) = parts.set("a", Arc::clone(&x), Load::default());
        assert!(is_new && !parts.set("a", x, Load::default()).1);
        let pending = Waited { pending: vec!["a".to_owned()], ..Waited::default() };
        assert_eq!(parts.wait(&wanted("a", generation), long()), pending, "it is away");
        parts.enter("a", 1);
        assert!(!parts.is_ready("a"), "it has not caught up");
        assert_eq!(parts.wait(&wanted("a", generation), long()), pending);
        parts.decided("a", 1, generation, None);
        assert!(parts.is_ready("a"));
        let (next, _) = parts.set("a", tables("y"), Load::default());
        let late = Waited { late: vec!["a".to_owned()], ..pending.clone() };
        assert_eq!(parts.wait(&wanted("a", next), soon()), late, "it is late");
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
    fn a_request_waits_for_all_of_its_hosts_and_for_no_removed_one() {
        let parts = Parts::default();
        let mut wanted = Vec::new();
        for host in ["a", "b", "c", "d"] {
            parts.enter(host, 1);
            parts.decided(host, 1, 1, None);
            wanted.push((host.to_owned(), parts.set(host, tables("x"), Load::default()).0));
        }
        let begun = |part: &HostPart| part.waits.len() == 1;
        let until = Instant::now() + Duration::from_secs(600);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| parts.wait(&wanted, until));
            while !parts.hosts().values().all(begun) {
                std::thread::sleep(Duration::from_millis(1));
            }
            parts.decided("a", 1, wanted[0].1, None);
            parts.leave("b", 1);
            parts.forget("c");
            assert!(!wait.is_finished());
            parts.decided("d", 1, wanted[3].1, Some("no space".to_owned()));
            let waited = wait.join().unwrap();
            assert_eq!(waited.pending, ["b"]);
            assert_eq!(waited.refused, [("d".to_owned(), "no space".to_owned())]);
        });
        assert!(parts.hosts().values().all(|part| part.waits.is_empty()));
    }

    /// A host that connected, or was late, and got changes without a pause was not waited for, and
    /// got no new instances, until the changes had a pause.
    #[test]
    fn regression_a_host_catches_up_while_its_part_changes() {
        let parts = Parts::default();
        parts.enter("a", 1);
        let (first, _) = parts.set("a", tables("x"), Load::default());
        parts.decided("a", 1, 1, None);
        assert!(parts.is_ready("a"), "it uses the part that it had when it connected");
        let waited = parts.wait(&wanted("a", first), Instant::now());
        assert!(waited.pending == ["a"] && !parts.is_ready("a"));
        let (second, _) = parts.set("a", tables("y"), Load::default());
        parts.decided("a", 1, first, Some("no space".to_owned()));
        parts.decided("a", 1, first, None);
        assert!(parts.is_ready("a"));
        // Requests wait for it again, for a limited time.
        let waited = parts.wait(&wanted("a", second), Instant::now());
        assert!(waited.pending == ["a"] && !parts.is_ready("a"));
    }

    /// A request waited until a host with the name of a removed one had as many generations as the
    /// removed one, and the host then counted as late, although it used its newest part.
    #[test]
    fn regression_a_host_that_enrols_again_is_not_waited_for_because_of_its_former_part() {
        let parts = Parts::default();
        parts.enter("a", 1);
        for name in ["x", "y", "z"] {
            parts.set("a", tables(name), Load::default());
        }
        let former = parts.load("a").1;
        parts.forget("a");
        parts.enter("a", 2);
        parts.decided("a", 2, 1, None);
        let until = Instant::now() + Duration::from_secs(600);
        assert!(parts.wait(&wanted("a", former), until).refused.is_empty());
        assert!(parts.is_ready("a"));
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

    /// Each change woke the sessions of all hosts.
    #[test]
    fn regression_a_change_wakes_only_the_session_of_its_host() {
        fn is_woken(wake: &Notify) -> bool {
            let mut context = Context::from_waker(Waker::noop());
            pin!(wake.notified()).poll(&mut context).is_ready()
        }
        let parts = Parts::default();
        let [a, b] = ["a", "b"].map(|host| parts.enter(host, 1));
        let x = tables("x");
        parts.set("a", Arc::clone(&x), Load::default());
        assert!(is_woken(&a) && !is_woken(&b));
        parts.set("a", x, Load::default());
        assert!(!is_woken(&a), "the part is the former one");
        let newer = parts.enter("a", 3);
        let older = parts.enter("a", 2);
        parts.set("a", tables("y"), Load::default());
        assert!(is_woken(&newer) && ![a, older, b].iter().any(|of| is_woken(of)));
    }

    /// A host that acknowledged each change too late was waited for at each change.
    #[test]
    fn regression_a_host_that_was_slow_too_often_is_waited_for_only_shortly() {
        let parts = Parts::default();
        parts.enter("a", 1);
        parts.decided("a", 1, 1, None);
        let now = Instant::now();
        let spend = |part: &mut HostPart| part.credit.charge(now, now + CREDIT_MAX * 2);
        parts.hosts().get_mut("a").into_iter().for_each(spend);
        // The host reconnects, which does not change its credit.
        parts.enter("a", 2);
        parts.decided("a", 2, 1, None);
        let (generation, _) = parts.set("a", tables("x"), Load::default());
        let [pending, late] = [(); 2].map(|()| vec!["a".to_owned()]);
        let waited = Waited { pending, late, ..Waited::default() };
        // Such a wait would end this test only after ten minutes.
        let until = Instant::now() + Duration::from_secs(600);
        assert_eq!(parts.wait(&wanted("a", generation), until), waited);
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
