//! The instances of the control plane as instances of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use srd_enrol::{Capacity, CloudTables};

use super::parts::{Load, Parts};
use super::place::{Candidate, place, vcpus};
use crate::error::ApiError;
use crate::machines::{Machines, RUNNING};
use crate::plane::{Report, printable};
use crate::project::part::{needs, part};
use crate::state::{Cloud, Instance, Region};

/// Longest time that a request waits for hosts.
const APPLY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Largest number of remembered warnings. Beyond it, warnings are reported again.
const WARNINGS_MAX: usize = 4096;

/// Account and region.
type Key = (String, String);

/// Instances that run on hosts that have enrolled.
pub struct HostMachines {
    parts: Parts,
    report: Report,
    /// Hosts with instances of each account and region.
    hosts: BTreeMap<Key, BTreeSet<String>>,
    /// Hosts on which the current request starts instances.
    starting: BTreeSet<String>,
    warnings: BTreeSet<String>,
}

impl fmt::Debug for HostMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMachines").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl HostMachines {
    /// Instances on the hosts to which the parts are sent.
    pub fn new(parts: Parts, mut report: Report) -> Self {
        let report = Box::new(move |text: &str| report(&printable(text)));
        let (hosts, starting, warnings) = <_>::default();
        Self { parts, report, hosts, starting, warnings }
    }

    fn warn(&mut self, warnings: Vec<String>) {
        for warning in warnings {
            if self.warnings.len() >= WARNINGS_MAX {
                self.warnings.clear();
            }
            if self.warnings.insert(warning.clone()) {
                (self.report)(&warning);
            }
        }
    }

    /// Replaces the parts of the hosts that have instances of a region, or had some. Returns the
    /// generations that have changed.
    fn set_parts(&mut self, region: &Region) -> Result<Vec<(String, u64)>, String> {
        let mut parts: BTreeMap<BTreeSet<&str>, Arc<CloudTables>> = BTreeMap::new();
        let mut all: Vec<(&str, Arc<CloudTables>)> = Vec::new();
        for (host, vpcs) in needs(region) {
            let tables = match parts.get(&vpcs) {
                Some(tables) => Arc::clone(tables),
                None => {
                    let part = part(region, &vpcs)?;
                    // A host would refuse the text later.
                    srd_vpc_file::parse(&part.tables.text(), Path::new("the state"))
                        .map_err(|error| format!("the hosts cannot have this: {error}"))?;
                    self.warn(part.warnings);
                    let tables = Arc::new(part.tables);
                    parts.insert(vpcs, Arc::clone(&tables));
                    tables
                }
            };
            all.push((host, tables));
        }
        let loads = loads(region);
        let load = |host: &str| loads.get(host).copied().unwrap_or_default();
        let key = (region.account.clone(), region.name.clone());
        let now: BTreeSet<String> = all.iter().map(|(host, _)| (*host).to_owned()).collect();
        let former = self.hosts.insert(key, now.clone()).unwrap_or_default();
        let gone = former.difference(&now).map(|host| (host.as_str(), Arc::default()));
        let mut changed = Vec::new();
        for (host, tables) in all.into_iter().chain(gone) {
            let (generation, is_new) = self.parts.set(host, tables, load(host));
            if is_new || self.starting.contains(host) {
                changed.push((host.to_owned(), generation));
            }
        }
        Ok(changed)
    }

    fn follow(&mut self, region: &Region) -> Result<(), String> {
        let until = Instant::now() + APPLY_WAIT_MAX;
        let changed = self.set_parts(region)?;
        let waited = self.parts.wait(&changed, until);
        let now = Instant::now();
        for (host, _) in changed.iter().filter(|(host, _)| self.starting.contains(host)) {
            if !waited.pending.contains(host) {
                let is_accepted = !waited.refused.iter().any(|(of, _)| of == host);
                self.parts.started(host, is_accepted, now);
            }
        }
        let mut failed = None;
        for (host, why) in waited.refused {
            let what = format!("the host {host} has refused a change: {why}");
            match self.starting.contains(&host) {
                true => failed = Some(what),
                false => self.warn(vec![what]),
            }
        }
        for host in waited.pending {
            let what = "does not use a change yet: it gets the change as soon as it answers";
            self.warn(vec![format!("the host {host} {what}")]);
        }
        failed.map_or(Ok(()), Err)
    }
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
    for instance in region.instances.iter().filter(|i| i.state.code == RUNNING) {
        if let Some(host) = &instance.host {
            let load = loads.entry(host).or_default();
            load.instances += 1;
            load.vcpus = load.vcpus.saturating_add(vcpus(&instance.instance_type));
        }
    }
    loads
}

impl Machines for HostMachines {
    fn place(&mut self, cloud: &mut Cloud) -> Result<(), ApiError> {
        check(cloud)?;
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
        let applied = self.follow(region);
        self.starting.clear();
        applied
    }

    fn report(&mut self, warning: &str) {
        (self.report)(warning);
    }

    fn clear(&mut self) {
        for host in std::mem::take(&mut self.hosts).into_values().flatten() {
            self.parts.set(&host, Arc::default(), Load::default());
        }
    }

    /// Hosts run no user data, so clients run no programs.
    fn run_programs(&self) -> bool {
        false
    }
}
