//! The interface to the data plane: instances that start and stop, and rules that change.

use std::fmt;
use std::path::Path;

use srd_enrol::pod::{HOST_TAG, POD_TAG};

use crate::error::ApiError;
use crate::state::{Cloud, Instance, Region};

/// Code of the state `running`.
pub const RUNNING: i64 = 16;
/// Code of the state `terminated`.
pub(crate) const TERMINATED: i64 = 48;

/// Returns the host of the pod of an instance; `None` if the instance has no pod of a host.
pub(crate) fn pod_host(instance: &Instance) -> Option<&str> {
    let tag = |key: &str| instance.tags.iter().find(|tag| tag.key == key);
    tag(POD_TAG)?;
    tag(HOST_TAG).map(|tag| tag.value.as_str())
}

/// Machines behind the instances of the state.
pub trait Machines: Send {
    /// Chooses the host of each instance that starts with the changes of a request. This happens
    /// before the changes are stored.
    ///
    /// # Errors
    /// If there is no room for an instance. The request fails, and changes nothing.
    fn place(&mut self, cloud: &mut Cloud) -> Result<(), ApiError> {
        let _ = cloud;
        Ok(())
    }

    /// Starts the machine of an instance. The region contains the instance and its interfaces.
    ///
    /// # Errors
    /// If the machine did not start. The request fails, and changes nothing.
    fn start(&mut self, region: &Region, instance: &Instance) -> Result<(), String>;

    /// Stops the machine of an instance.
    fn stop(&mut self, region: &Region, instance: &Instance);

    /// Applies the state of a region after a request has changed it. Some machines may use the
    /// state only after the return: [`Self::unconfirmed`] waits for them.
    ///
    /// # Errors
    /// If the state cannot be applied. The request fails, and changes nothing.
    fn apply(&mut self, region: &Region) -> Result<(), String> {
        let _ = region;
        Ok(())
    }

    /// Applies the state of a region that this controller has read from the store. No request waits
    /// for the machines: [`Self::followed`] does.
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    fn follow(&mut self, region: &Region) -> Result<(), String> {
        self.apply(region)
    }

    /// Returns the wait for the machines that do not use yet what earlier calls of [`Self::apply`]
    /// have applied; `None` if there is nothing to wait for. Each wait is returned once.
    fn unconfirmed(&mut self) -> Option<Unconfirmed> {
        None
    }

    /// Lets no request wait for the machines that [`Self::unconfirmed`] would wait for:
    /// [`Self::followed`] waits for them.
    fn set_aside(&mut self) {}

    /// Returns the wait for the machines that do not use a state yet for which no request waits;
    /// `None` if there is nothing to wait for. Each wait is returned once.
    fn followed(&mut self) -> Option<Unconfirmed> {
        None
    }

    /// Reports a warning to the operator.
    fn report(&mut self, warning: &str) {
        let _ = warning;
    }

    /// Returns the directory that contains a directory for each flow log of a region; `None` if
    /// no records are written.
    fn flow_logs(&self, region: &Region) -> Option<&Path> {
        let _ = region;
        None
    }

    /// Removes the machines of all regions, whose state was removed.
    fn clear(&mut self) {}

    /// Whether clients can run programs through these machines. If so, each request needs a valid
    /// signature.
    fn run_programs(&self) -> bool {
        true
    }
}

/// A wait for machines that do not use a change yet.
pub struct Unconfirmed(Box<dyn FnOnce() + Send>);

impl Unconfirmed {
    /// A wait that lasts as long as this function, which reports machines that do not use the
    /// change.
    pub fn new(wait: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(wait))
    }

    /// Waits for a limited time.
    pub fn wait(self) {
        (self.0)();
    }
}

impl fmt::Debug for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unconfirmed").finish_non_exhaustive()
    }
}

/// No machines: instances exist in the state only.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMachines;

impl Machines for NoMachines {
    fn start(&mut self, _: &Region, _: &Instance) -> Result<(), String> {
        Ok(())
    }

    fn stop(&mut self, _: &Region, _: &Instance) {}

    fn run_programs(&self) -> bool {
        false
    }
}

fn runs(instance: Option<&Instance>) -> bool {
    instance.is_some_and(|instance| instance.state.code == RUNNING)
}

/// The instances that run since the changes of a request that is not yet committed.
pub(crate) fn started(region: &Region) -> impl Iterator<Item = &Instance> {
    let changed = region.instances.changed();
    changed.filter(|(former, _)| !runs(*former)).filter_map(|(_, i)| i.filter(|i| runs(Some(i))))
}

/// Starts machines and applies the state for the changes of a request that is not yet committed.
/// [`finish`] follows after the commit.
///
/// # Errors
/// If a machine did not start, or the state was not applied. Machines that this call has started
/// are stopped again. The caller undoes the changes, and applies the former state.
pub(crate) fn prepare(machines: &mut dyn Machines, region: &Region) -> Result<(), String> {
    for (count, instance) in started(region).enumerate() {
        if let Err(error) = machines.start(region, instance) {
            started(region).take(count).for_each(|instance| machines.stop(region, instance));
            return Err(error);
        }
    }
    let result = machines.apply(region);
    if result.is_err() {
        cancel(machines, region);
    }
    result
}

/// Starts the machines of these instances of a state that is in the store already, and applies it.
/// Returns the instances whose machines did not start, each with the cause.
pub(crate) fn enter(
    machines: &mut dyn Machines,
    region: &Region,
    instances: &[String],
) -> Vec<(String, String)> {
    let mut failed = Vec::new();
    for instance in instances.iter().filter_map(|id| region.instances.get(id)) {
        if let Err(why) = machines.start(region, instance) {
            failed.push((instance.instance_id.clone(), why));
        }
    }
    if let Err(why) = machines.follow(region) {
        if instances.is_empty() {
            machines.report(&format!("a change of {} is not in force: {why}", region.name));
        }
        failed = instances.iter().map(|id| (id.clone(), why.clone())).collect();
    }
    failed
}

/// Stops the machines that [`prepare`] has started.
pub(crate) fn cancel(machines: &mut dyn Machines, region: &Region) {
    started(region).for_each(|instance| machines.stop(region, instance));
}

/// Stops the machines of instances that no longer run, after the store has the changes.
pub(crate) fn finish(machines: &mut dyn Machines, region: &Region) {
    for (former, instance) in region.instances.changed() {
        if let Some(former) = former
            && runs(Some(former))
            && !runs(instance)
        {
            machines.stop(region, instance.unwrap_or(former));
        }
    }
}
