//! Answers to readers, which their own threads prepare: the packet thread only copies numbers.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::control::flows::{self, Part, PartRequest};
use crate::control::merge;
use crate::control::orders::{Command, Orders};
use crate::control::protocol::{Flow, FlowLog, Instance, NamespaceName, Status};
use crate::figures::logs;
use crate::figures::pages::directory::{Directory, Listed};
use crate::figures::pages::{WRITTEN_WITHIN, read};
use crate::interfaces::kernel_counts;
use crate::machine::namespace::Device;

/// Longest wait for a part of a list, or for the figures of a new instance.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Returns the current status: that of all workers together.
pub(crate) fn status(orders: &Orders) -> Result<Status> {
    let stale_s = orders.refresh(WRITTEN_WITHIN)?;
    let mut status = read::status(&orders.pages, stale_s);
    for further in orders.all().skip(1) {
        merge::add(&mut status, read::status(&further.pages, stale_s));
    }
    let helper = orders.helper()?;
    match helper.look(places(orders)) {
        Ok(upkeep) => {
            status.rules_restored = upkeep.rules_restored;
            status.warnings = upkeep.warnings;
            kernel_counts::add(&mut status, helper);
        }
        // A helper that hangs adds nothing.
        Err(_) => status.warnings.extend(helper.warning()),
    }
    Ok(status)
}

/// Returns the namespaces of instances, and the devices that they should have.
fn places(orders: &Orders) -> Vec<(NamespaceName, Vec<Device>)> {
    let place = |of: &Listed| {
        let devices = of.interfaces.iter().map(|of| of.device.clone()).collect();
        Some((of.namespace.clone()?, devices))
    };
    let of_worker = |orders: &Orders| {
        let directory = orders.pages.directory.get();
        directory.instances.iter().filter_map(place).collect::<Vec<_>>()
    };
    orders.all().flat_map(of_worker).collect()
}

/// Returns the flow logs of the last published directories.
pub(crate) fn logs(orders: &Orders) -> Vec<FlowLog> {
    let mut all = logs::report(&orders.pages.directory.get().logs);
    for further in orders.all().skip(1) {
        merge::add_logs(&mut all, logs::report(&further.pages.directory.get().logs));
    }
    all
}

/// Returns an instance that was just created.
pub(crate) fn made(orders: &Orders, name: &str) -> Result<Instance> {
    orders.refresh(ANSWER_WAIT_MAX)?;
    let made = (0..).zip(orders.all()).find_map(|(worker, of)| {
        let instance = read::instance_of(&of.pages, name)?;
        Some(Instance { worker, ..instance })
    });
    made.context("the instance is not here")
}

/// Returns the orders to the worker that has an instance, and its directory; `None` if there is no
/// such instance.
pub(crate) fn worker_with<'a>(
    orders: &'a Orders,
    name: &str,
) -> Result<Option<(&'a Orders, Arc<Directory>)>> {
    let find = || {
        let mut all = orders.all().map(|of| (of, of.pages.directory.get()));
        all.find(|(_, directory)| directory.instance(name).is_some())
    };
    if let Some(known) = find() {
        return Ok(Some(known));
    }
    orders.refresh(WRITTEN_WITHIN)?;
    Ok(find())
}

/// Returns the flows of an instance: at most `most` of each interface.
pub(crate) fn flows(orders: &Orders, instance: &str, most: usize) -> Result<Vec<Flow>> {
    let found = worker_with(orders, instance)?;
    let found =
        found.as_ref().and_then(|(of, directory)| Some((*of, directory.instance(instance)?)));
    let Some((orders, Listed { interfaces, .. })) = found else {
        bail!(why_unknown(orders, instance));
    };
    let mut found = Vec::new();
    for interface in interfaces {
        let device = &interface.device.name;
        let mut part = Part::first(interface.port, interface.eni);
        let mut left = most;
        while left > 0 && part.has_next() {
            let (back, filled) = sync_channel(1);
            if !orders.give(Command::Flows(PartRequest { part, back })) {
                bail!("the service has ended");
            }
            part = filled.recv_timeout(ANSWER_WAIT_MAX).context("the service does not answer")?;
            let before = found.len();
            found.extend(part.drain().take(left).map(|flow| flows::in_words(device, &flow)));
            left -= found.len() - before;
        }
    }
    Ok(found)
}

/// Returns the reason why there is no instance of this name on this host.
pub(crate) fn why_unknown(orders: &Orders, instance: &str) -> String {
    let directories: Vec<_> = orders.all().map(|of| of.pages.directory.get()).collect();
    let listed = || directories.iter().flat_map(|directory| &directory.instances);
    let mut all: Vec<&str> = listed().map(|of| of.name.as_str()).collect();
    all.sort_unstable();
    let mut devices = listed().flat_map(|of| &of.interfaces);
    let (first, all) = (all.first().copied().unwrap_or_default(), all.join(", "));
    match devices.any(|of| of.device.name == instance) {
        true => format!(
            "`{instance}` is a device: name its instance first, as in `{first} {instance}`; there \
             are {all}"
        ),
        false => format!("there is no instance `{instance}` on this host: there are {all}"),
    }
}
