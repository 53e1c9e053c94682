//! A fabric that is up: building, opening and removing it.
//!
//! [`Fabric`] is a handle and owns nothing: dropping it does not remove the fabric. A
//! [`crate::FabricGuard`] removes its fabric when the process ends.

mod breaking;
mod ready;
mod tune;

use crate::build::config::{FabricConfig, check_name};
use crate::build::id::{Family, HostId, Network};
use crate::build::plan::{self, NamespacePlan};
use crate::build::state::{Owner, State, StateLock, Store};
use crate::{build::address, programs::command, programs::namespace, requirements};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;

/// A handle to a fabric that is up.
#[derive(Clone, Debug)]
pub struct Fabric {
    config: FabricConfig,
    store: Store,
}

/// Objects that [`Fabric::down`] removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DownReport {
    /// Names of the removed namespaces.
    pub namespaces: Vec<String>,
    /// Number of processes that still ran inside and were ended.
    pub processes_ended: usize,
}

impl Fabric {
    /// Builds a fabric that stays until [`Fabric::down`]. Remains of an earlier fabric of the same
    /// name are removed first; if a running process guards that fabric, this is an error.
    pub fn up(config: FabricConfig) -> Result<Fabric> {
        Fabric::build(config, None)
    }

    pub(crate) fn build(config: FabricConfig, owner: Option<Owner>) -> Result<Fabric> {
        config.validate()?;
        requirements::check(&config)?;
        let store = Store::open()?;
        let name = config.name_prefix.clone();
        let lock = store.lock(&name)?;
        let previous = store.read(&name).unwrap_or_else(|error| {
            tracing::warn!("cleaning up by name only: {error:#}");
            None
        });
        if let Some(owner) = previous.as_ref().and_then(|s| s.owner).filter(Owner::is_alive) {
            drop(lock);
            bail!(
                "fabric `{name}` is in use by process {}: stop it, or choose another name_prefix",
                owner.pid
            );
        }
        remove_parts(&name, previous.as_ref(), &store)?;
        let mut state = State::new(config.clone(), owner);
        store.write(&state, &lock)?;
        if let Err(error) = construct(&config) {
            let removed = remove_parts(&name, Some(&state), &store);
            let removed = removed.and_then(|_| store.remove(&name, lock));
            if let Err(removal) = removed {
                tracing::warn!("fabric `{name}` is left half-built: {removal:#}");
            }
            return Err(error.context(format!("cannot build fabric `{name}`")));
        }
        state.complete = true;
        store.write(&state, &lock)?;
        Ok(Fabric { config, store })
    }

    /// Finds a fabric that is up, made by this or another process.
    pub fn open(name: &str) -> Result<Fabric> {
        check_name(name)?;
        let store = Store::open()?;
        let lock = store.lock(name)?;
        match store.read(name)? {
            Some(state) if state.complete => Ok(Fabric { config: state.config, store }),
            Some(_) => bail!("fabric `{name}` is half-built: take it down, then up again"),
            None => {
                store.remove(name, lock)?;
                bail!("no fabric `{name}` is up")
            }
        }
    }

    /// Returns the names of all fabrics that are up on this machine.
    pub fn list() -> Result<Vec<String>> {
        Store::open()?.names()
    }

    /// Removes the fabric and ends the processes that still run inside.
    pub fn down(self) -> Result<DownReport> {
        Fabric::down_by_name(&self.config.name_prefix)
    }

    /// Removes a fabric by name, even if it is half-built or its state file is lost. If there is
    /// nothing to remove, this is not an error.
    pub fn down_by_name(name: &str) -> Result<DownReport> {
        check_name(name)?;
        let store = Store::open()?;
        let lock = store.lock(name)?;
        let state = store.read(name).unwrap_or_else(|error| {
            tracing::warn!("cleaning up by name only: {error:#}");
            None
        });
        remove_all(name, state.as_ref(), &store, lock)
    }

    /// Removes a fabric if it belongs to `owner`; used at the end of a guard or its process. If the
    /// state file is damaged, the fabric is removed by its name.
    pub(crate) fn down_if_owned(name: &str, owner: Owner) -> Result<DownReport> {
        let store = Store::open()?;
        let lock = store.lock(name)?;
        match store.read(name) {
            Ok(Some(state)) if state.owner == Some(owner) => {
                remove_all(name, Some(&state), &store, lock)
            }
            Ok(Some(_)) => Ok(DownReport::default()),
            Ok(None) => store.remove(name, lock).map(|()| DownReport::default()),
            Err(error) => {
                tracing::warn!("cleaning up by name only: {error:#}");
                remove_all(name, None, &store, lock)
            }
        }
    }

    /// Returns the fabric's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name_prefix
    }

    /// Returns the configuration of the fabric.
    #[must_use]
    pub fn config(&self) -> &FabricConfig {
        &self.config
    }

    /// Returns a host's address.
    pub fn host_address(&self, host: HostId, family: Family) -> Result<IpAddr> {
        self.config.check_host(host)?;
        Ok(address::host(host, family))
    }

    /// Returns a host's address in one of its networks. The address in the overlay is reachable
    /// only while a [`crate::express::Overlay`] exists.
    pub fn address_in(&self, host: HostId, network: Network) -> Result<IpAddr> {
        self.config.check_host(host)?;
        Ok(match network {
            Network::V4 | Network::V6 => address::host(host, network.family()),
            Network::Overlay => address::overlay(host).into(),
        })
    }

    /// Returns the path of a host's network namespace, for `setns`.
    pub fn host_namespace_path(&self, host: HostId) -> Result<PathBuf> {
        Ok(namespace::path(&self.host_namespace(host)?))
    }

    /// Runs `work` on a new thread inside of a host. Sockets and processes that `work` creates stay
    /// in the host after it returns; any thread can use them.
    pub fn within<T: Send>(&self, host: HostId, work: impl FnOnce() -> T + Send) -> Result<T> {
        namespace::within(&self.host_namespace(host)?, work)
    }

    /// Returns the name of a host's namespace.
    pub fn host_namespace(&self, host: HostId) -> Result<String> {
        self.config.check_host(host)?;
        Ok(plan::host_namespace(&self.config.name_prefix, host))
    }

    pub(crate) fn state(&self) -> Result<State> {
        let name = self.name();
        self.store.read(name)?.with_context(|| format!("fabric `{name}` is down"))
    }

    /// Reads, changes and writes the state while the lock is held. The state is written even if
    /// `change` fails, so `change` must leave it as accurate as possible.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let name = self.name();
        let lock = self.store.lock(name)?;
        let Some(mut state) = self.store.read(name)? else {
            self.store.remove(name, lock)?;
            bail!("fabric `{name}` is down");
        };
        let result = change(&mut state);
        self.store.write(&state, &lock)?;
        result
    }
}

fn construct(config: &FabricConfig) -> Result<()> {
    let plan = plan::plan(config);
    command::ip_batch(&plan.create)?;
    for space in &plan.namespaces {
        namespace::within(&space.name, || write_sysctls(space))??;
    }
    command::ip_batch(&plan.links)?;
    for space in &plan.namespaces {
        command::tc_batch_in(&space.name, &space.tc)?;
        command::ip_batch_in(&space.name, &space.ip)?;
        if let Some(device) = space.offloads_off {
            command::offloads_off_in(&space.name, device)?;
        }
    }
    ready::wait(plan.namespaces.iter().map(|space| space.name.as_str()))
}

fn write_sysctls(space: &NamespacePlan) -> Result<()> {
    for sysctl in &space.sysctls {
        let path = format!("/proc/sys/{}", sysctl.path);
        match fs::write(&path, &sysctl.value) {
            Err(error) if sysctl.optional && error.kind() == ErrorKind::NotFound => {
                tracing::warn!("{path} is missing in this kernel; going on without it");
            }
            other => {
                other.with_context(|| format!("{path} = {} in {}", sysctl.value, space.name))?;
            }
        }
    }
    Ok(())
}

fn remove_all(
    name: &str,
    state: Option<&State>,
    store: &Store,
    lock: StateLock,
) -> Result<DownReport> {
    let report = remove_parts(name, state, store)?;
    store.remove(name, lock)?;
    Ok(report)
}

/// Removes everything except the state file. The function removes the objects that exist, so it may
/// be called at any time and repeatedly.
fn remove_parts(name: &str, state: Option<&State>, store: &Store) -> Result<DownReport> {
    let namespaces = namespace::existing(name)?;
    let processes_ended = namespace::terminate(&namespaces);
    let deleted = command::ip_batch_force(&plan::delete_batch(&namespaces));
    let left = namespace::existing(name)?;
    if !left.is_empty() {
        deleted.with_context(|| format!("still there: {}", left.join(" ")))?;
    }
    if let Some(state) = state {
        tune::disallow_congestion(&state.congestion_allowed, store)?;
    }
    Ok(DownReport { namespaces, processes_ended })
}
