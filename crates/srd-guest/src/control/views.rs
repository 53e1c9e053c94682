//! Answers to readers, which their own threads prepare: the packet thread only copies numbers.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::control::flows::{self, Part, PartRequest};
use crate::control::orders::{Command, Orders};
use crate::control::protocol::{Flow, FlowLog, Instance, NamespaceName, Status};
use crate::figures::logs;
use crate::figures::pages::directory::{Directory, Listed};
use crate::figures::pages::{WRITTEN_WITHIN, read};
use crate::interfaces::kernel_counts;
use crate::machine::namespace::Device;

/// Longest wait for a part of a list, or for the figures of a new instance.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Returns the current status.
pub(crate) fn status(orders: &Orders) -> Result<Status> {
    let stale_s = orders.refresh(WRITTEN_WITHIN)?;
    let mut status = read::status(&orders.pages, stale_s);
    let helper = orders.helper()?;
    // A helper that hangs or has ended adds nothing; the log contains a line about it.
    if let Ok(upkeep) = helper.look(places(orders)) {
        status.rules_restored = upkeep.rules_restored;
        status.warnings = upkeep.warnings;
        kernel_counts::add(&mut status, helper);
    }
    Ok(status)
}

/// Returns the namespaces of instances, and the devices that they should have.
fn places(orders: &Orders) -> Vec<(NamespaceName, Vec<Device>)> {
    let directory = orders.pages.directory.get();
    let all = directory.instances.iter().filter_map(|of| {
        let devices = of.interfaces.iter().map(|of| of.device.clone()).collect();
        Some((of.namespace.clone()?, devices))
    });
    all.collect()
}

/// Returns the flow logs of the last published directory.
pub(crate) fn logs(orders: &Orders) -> Vec<FlowLog> {
    logs::report(&orders.pages.directory.get().logs)
}

/// Returns an instance that was just created.
pub(crate) fn made(orders: &Orders, name: &str) -> Result<Instance> {
    orders.refresh(ANSWER_WAIT_MAX)?;
    read::instance_of(&orders.pages, name).context("the instance is not here")
}

/// Returns a directory of instances that contains this instance; `None` if there is no such
/// instance.
fn directory_with(orders: &Orders, name: &str) -> Result<Option<std::sync::Arc<Directory>>> {
    let is_in = |directory: &std::sync::Arc<Directory>| directory.instance(name).is_some();
    let known = Some(orders.pages.directory.get()).filter(is_in);
    if known.is_some() {
        return Ok(known);
    }
    orders.refresh(WRITTEN_WITHIN)?;
    Ok(Some(orders.pages.directory.get()).filter(is_in))
}

/// Returns the flows of an instance: at most `most` of each interface.
pub(crate) fn flows(orders: &Orders, instance: &str, most: usize) -> Result<Vec<Flow>> {
    let directory = directory_with(orders, instance)?;
    let listed = directory.as_ref().and_then(|directory| directory.instance(instance));
    let Some(Listed { interfaces, .. }) = listed else {
        bail!("there is no instance `{instance}` on this host");
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

/// Returns the reason why there is no instance of this name; `None` if it is here.
pub(crate) fn why_unknown(orders: &Orders, instance: &str) -> Result<Option<String>> {
    if directory_with(orders, instance)?.is_some() {
        return Ok(None);
    }
    let directory = orders.pages.directory.get();
    let all: Vec<&str> = directory.instances.iter().map(|of| of.name.as_str()).collect();
    let mut devices = directory.instances.iter().flat_map(|of| &of.interfaces);
    let (first, all) = (all.first().copied().unwrap_or_default(), all.join(", "));
    Ok(Some(match devices.any(|of| of.device.name == instance) {
        true => format!(
            "`{instance}` is a device: name its instance first, as in `{first} {instance}`; there \
             are {all}"
        ),
        false => format!("there is no instance `{instance}` on this host: there are {all}"),
    }))
}
