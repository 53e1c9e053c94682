//! The seam to the data plane: instances that start and stop, and rules that change.

use crate::state::{Instance, Region};

/// Code of the state `running`.
pub const RUNNING: i64 = 16;

/// Machines behind the instances of the state.
pub trait Machines: Send {
    /// Starts the machine of an instance. The region contains the instance and its interfaces.
    ///
    /// # Errors
    /// If the machine did not start. The request fails, and changes nothing.
    fn start(&mut self, region: &Region, instance: &Instance) -> Result<(), String>;

    /// Stops the machine of an instance.
    fn stop(&mut self, region: &Region, instance: &Instance);

    /// Applies the state of a region after a request has changed it.
    ///
    /// # Errors
    /// If the state cannot be applied. The request fails, and changes nothing.
    fn apply(&mut self, region: &Region) -> Result<(), String> {
        let _ = region;
        Ok(())
    }

    /// Whether clients can run programs through these machines. If so, each request needs a valid
    /// signature.
    fn run_programs(&self) -> bool {
        true
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

/// Starts and stops machines for the changes of a request that is not yet committed.
///
/// # Errors
/// If a machine did not start, or the state was not applied. Machines that this call has started
/// are stopped again.
pub(crate) fn follow(machines: &mut dyn Machines, region: &Region) -> Result<(), String> {
    let runs = |instance: Option<&Instance>| instance.is_some_and(|i| i.state.code == RUNNING);
    let mut started: Vec<&Instance> = Vec::new();
    let mut result = Ok(());
    for (former, instance) in region.instances.changed() {
        if let Some(instance) = instance
            && runs(Some(instance))
            && !runs(former)
        {
            result = machines.start(region, instance);
            if result.is_err() {
                break;
            }
            started.push(instance);
        }
    }
    let result = result.and_then(|()| machines.apply(region));
    if result.is_err() {
        started.into_iter().for_each(|instance| machines.stop(region, instance));
        return result;
    }
    for (former, instance) in region.instances.changed() {
        if let Some(former) = former
            && runs(Some(former))
            && !runs(instance)
        {
            machines.stop(region, instance.unwrap_or(former));
        }
    }
    Ok(())
}
