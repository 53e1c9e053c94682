//! The instances of the control plane as instances of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use srd_enrol::Capacity;

use super::parts::{Load, Parts};
use super::place::{Candidate, place, vcpus};
use super::texts::Texts;
use super::warnings::{Warnings, refused};
use crate::error::ApiError;
use crate::machines::{Machines, RUNNING, Unconfirmed, started};
use crate::plane::Report;
use crate::state::{Cloud, Instance, Region};

/// Longest time that a request waits for hosts.
const APPLY_WAIT_MAX: Duration = Duration::from_secs(2);

/// Account and region.
type Key = (String, String);

/// Instances that run on hosts that have enrolled.
pub struct HostMachines {
    parts: Parts,
    /// Hosts with instances of each account and region.
    hosts: BTreeMap<Key, BTreeSet<String>>,
    /// Tables of the hosts of each account and region.
    texts: BTreeMap<Key, Texts>,
    /// Hosts on which the current request starts instances.
    starting: BTreeSet<String>,
    /// Hosts to which the current request has sent a changed part, and its generation. Nothing has
    /// waited for them.
    unconfirmed: BTreeMap<String, u64>,
    /// Hosts that were sent a changed part for which no request waits, and its generation.
    aside: BTreeMap<String, u64>,
    /// Shared with requests that wait for hosts.
    warnings: Arc<Mutex<Warnings>>,
}

impl fmt::Debug for HostMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMachines").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl HostMachines {
    /// Instances on the hosts to which the parts are sent.
    pub fn new(parts: Parts, report: Report) -> Self {
        let warnings = Arc::new(Mutex::new(Warnings::new(report)));
        let (hosts, texts, starting, unconfirmed, aside) = <_>::default();
        Self { parts, hosts, texts, starting, unconfirmed, aside, warnings }
    }

    /// Replaces the parts of the hosts that have instances of a region, or had some. Returns the
    /// generations that have changed.
    fn set_parts(&mut self, region: &Region) -> Result<Vec<(String, u64)>, String> {
        let key = (region.account.clone(), region.name.clone());
        let made = self.texts.entry(key.clone()).or_default().make(region)?;
        let mut warnings = lock(&self.warnings);
        made.warnings.into_iter().for_each(|warning| warnings.report_once(warning));
        drop(warnings);
        let loads = loads(region);
        let load = |host: &str| loads.get(host).copied().unwrap_or_default();
        let now: BTreeSet<String> = made.hosts.iter().map(|(of, _)| (*of).to_owned()).collect();
        let former = self.hosts.insert(key, now.clone()).unwrap_or_default();
        // A host that has instances of another account or region by now keeps the part with them.
        let is_empty = |host: &&String| !self.hosts.values().any(|hosts| hosts.contains(*host));
        let gone = former.difference(&now).filter(is_empty);
        let gone = gone.map(|host| (host.as_str(), Arc::default()));
        let mut changed = Vec::new();
        for (host, tables) in made.hosts.into_iter().chain(gone) {
            let (generation, is_new) = self.parts.set(host, tables, load(host));
            if is_new || self.starting.contains(host) {
                changed.push((host.to_owned(), generation));
            }
        }
        Ok(changed)
    }

    /// Sends hosts their changed parts. Waits for hosts on which the request starts instances,
    /// because they may refuse them.
    fn send(&mut self, region: &Region) -> Result<(), String> {
        let changed = self.set_parts(region)?;
        let starts = |(host, _): &(String, u64)| self.starting.contains(host);
        let (starting, others): (Vec<_>, Vec<_>) = changed.into_iter().partition(starts);
        self.unconfirmed.extend(others);
        if starting.is_empty() {
            return Ok(());
        }
        let waited = self.parts.wait(&starting, Instant::now() + APPLY_WAIT_MAX);
        let now = Instant::now();
        for (host, _) in starting.iter().filter(|(host, _)| !waited.pending.contains(host)) {
            let is_accepted = !waited.refused.iter().any(|(of, _)| of == host);
            self.parts.started(host, is_accepted, now);
        }
        lock(&self.warnings).report_late(&waited.late, now);
        waited.refused.last().map_or(Ok(()), |(host, why)| Err(refused(host, why)))
    }

    /// Returns the wait for hosts that were sent a changed part; `None` for an empty map.
    fn wait_for(&self, hosts: BTreeMap<String, u64>) -> Option<Unconfirmed> {
        if hosts.is_empty() {
            return None;
        }
        let wanted: Vec<_> = hosts.into_iter().collect();
        let (parts, warnings) = (self.parts.clone(), Arc::clone(&self.warnings));
        Some(Unconfirmed::new(move || {
            let waited = parts.wait(&wanted, Instant::now() + APPLY_WAIT_MAX);
            lock(&warnings).report_wait(&wanted, &waited, Instant::now());
        }))
    }
}

fn lock(warnings: &Mutex<Warnings>) -> MutexGuard<'_, Warnings> {
    warnings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that the changes of a request need neither user data nor flow logs, which hosts do not
/// have.
fn check(cloud: &Cloud) -> Result<(), ApiError> {
    let refused = |what: &str| {
        let message = format!("{what}: instances of this control plane run on hosts.");
        Err(ApiError::new("UnsupportedOperation", message))
    };
    for region in cloud.regions.values() {
        let mut instances = region.instances.changed();
        let has_data = |of: &Instance| of.user_data.as_ref().is_some_and(|data| !data.is_empty());
        if instances.any(|(former, of)| former.is_none() && of.is_some_and(has_data)) {
            return refused("User data is not run");
        }
        if region.flow_logs.changed().any(|(former, of)| former.is_none() && of.is_some()) {
            return refused("Flow logs are not recorded");
        }
    }
    Ok(())
}

/// The running instances of each host.
fn loads(region: &Region) -> BTreeMap<&str, Load> {
    let mut loads: BTreeMap<&str, Load> = BTreeMap::new();
    // Many instances have few types.
    let mut sizes: BTreeMap<&str, u32> = BTreeMap::new();
    for instance in region.instances.iter().filter(|i| i.state.code == RUNNING) {
        if let Some(host) = &instance.host {
            let kind = instance.instance_type.as_str();
            let size = *sizes.entry(kind).or_insert_with(|| vcpus(kind));
            let load = loads.entry(host).or_default();
            load.instances += 1;
            load.vcpus = load.vcpus.saturating_add(size);
        }
    }
    loads
}

impl Machines for HostMachines {
    fn place(&mut self, cloud: &mut Cloud) -> Result<(), ApiError> {
        check(cloud)?;
        if cloud.regions.values().all(|region| started(region).next().is_none()) {
            return Ok(());
        }
        let candidates: Vec<Candidate> = {
            let table = cloud.hosts.table();
            let ready = table.capacities().filter(|(name, _)| self.parts.is_ready(name));
            let now = Instant::now();
            let candidate = |(name, of): (&str, &Capacity)| {
                let is_avoided = self.parts.is_avoided(name, now);
                Candidate::new(name.to_owned(), of.clone(), is_avoided)
            };
            ready.map(candidate).collect()
        };
        place(cloud, candidates)
    }

    fn start(&mut self, _: &Region, instance: &Instance) -> Result<(), String> {
        let id = &instance.instance_id;
        let Some(host) = &instance.host else {
            return Err(format!("{id} has run on the machine of the controller"));
        };
        self.starting.insert(host.clone());
        Ok(())
    }

    fn stop(&mut self, _: &Region, _: &Instance) {}

    fn apply(&mut self, region: &Region) -> Result<(), String> {
        let applied = self.send(region);
        self.starting.clear();
        applied
    }

    fn follow(&mut self, region: &Region) -> Result<(), String> {
        let of_request = std::mem::take(&mut self.unconfirmed);
        let applied = self.apply(region);
        self.set_aside();
        self.unconfirmed = of_request;
        applied
    }

    fn unconfirmed(&mut self) -> Option<Unconfirmed> {
        let hosts = std::mem::take(&mut self.unconfirmed);
        self.wait_for(hosts)
    }

    fn set_aside(&mut self) {
        for (host, generation) in std::mem::take(&mut self.unconfirmed) {
            let newest = self.aside.entry(host).or_default();
            *newest = generation.max(*newest);
        }
    }

    fn followed(&mut self) -> Option<Unconfirmed> {
        let hosts = std::mem::take(&mut self.aside);
        self.wait_for(hosts)
    }

    fn report(&mut self, warning: &str) {
        lock(&self.warnings).report(warning);
    }

    fn clear(&mut self) {
        self.texts.clear();
        for host in std::mem::take(&mut self.hosts).into_values().flatten() {
            self.parts.set(&host, Arc::default(), Load::default());
        }
    }

    /// Hosts run no user data, so clients run no programs.
    fn run_programs(&self) -> bool {
        false
    }
}
