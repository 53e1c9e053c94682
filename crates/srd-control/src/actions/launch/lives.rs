//! States of instances: start, stop, reboot, terminate.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::actions::support::{get, get_mut, now, region_of, success};
use crate::actions::{Actions, Handler, address, interface, volume};
use crate::error::{ApiError, ApiResult};
use crate::machines::{RUNNING, TERMINATED};
use crate::state::interface::InstanceState;
use crate::state::{Cloud, Instance, Region};
use crate::wire::Request;

pub(in crate::actions) const ACTIONS: Actions = &[
    ("StartInstances", Handler::Cloud(start)),
    ("StopInstances", Handler::Region(stop)),
    ("RebootInstances", Handler::Region(reboot)),
    ("TerminateInstances", Handler::Region(terminate)),
];

/// Largest number of characters of the cause for which a machine did not start.
const REASON_MAX: usize = 200;
/// Largest number of terminated instances that are still shown.
const TERMINATED_MAX: usize = 1000;
/// Beginning of the cause for which an instance is stopped because its machine did not start.
pub(in crate::actions) const MACHINE_FAILED: &str = "Server.InternalError";

/// Returns the state with this code.
pub(in crate::actions) fn state(code: i64) -> InstanceState {
    let name = match code {
        0 => "pending",
        16 => "running",
        32 => "shutting-down",
        48 => "terminated",
        64 => "stopping",
        _ => "stopped",
    };
    InstanceState { code, name: name.to_owned() }
}

/// Changes the states of the instances of a request.
fn change(
    region: &mut Region,
    request: &Request,
    member: &str,
    shown: i64,
    step: impl Fn(&mut Region, &Instance) -> ApiResult<()>,
) -> ApiResult<Value> {
    let ids = request.texts("InstanceIds");
    for id in &ids {
        get(&region.instances, id)?;
    }
    let mut changes = Vec::new();
    for id in ids {
        let instance = get(&region.instances, id)?.clone();
        step(region, &instance)?;
        let after = get(&region.instances, id)?.state.clone();
        let current = if after == instance.state { after } else { state(shown) };
        changes.push(json!({"InstanceId": id, "CurrentState": current,
                            "PreviousState": instance.state}));
    }
    Ok(json!({member: changes}))
}

fn wrong_state(instance: &Instance, verb: &str) -> ApiError {
    let (id, state) = (&instance.instance_id, &instance.state.name);
    let message =
        format!("The instance '{id}' is not in a state from which it can be {verb}: {state}");
    ApiError::new("IncorrectInstanceState", message)
}

fn start(cloud: &mut Cloud, at: &(String, String), request: &Request) -> ApiResult<Value> {
    let elsewhere = address::elsewhere(cloud, at);
    let region = region_of(cloud, at)?;
    change(region, request, "StartingInstances", 0, |region, instance| {
        match instance.state.name.as_str() {
            "running" => return Ok(()),
            "stopped" => {}
            _ => return Err(wrong_state(instance, "started")),
        }
        let of = get_mut(&mut region.instances, &instance.instance_id)?;
        of.state = state(RUNNING);
        of.state_transition_reason = String::new();
        give_public_ip(region, &instance.instance_id, &elsewhere)
    })
}

/// Gives an instance that had a public address since its launch another one. As in EC2, an instance
/// with several interfaces or with an elastic address gets none.
fn give_public_ip(region: &mut Region, id: &str, elsewhere: &BTreeSet<Ipv4Addr>) -> ApiResult<()> {
    let own = interface::of_instance(region, id);
    let [own] = own.as_slice() else { return Ok(()) };
    let has_lost = own.attachment.as_ref().is_some_and(|of| of.public_at_start);
    let own = own.network_interface_id.clone();
    if has_lost && region.addresses.linked(&own).next().is_none() {
        let address = address::free(region, elsewhere)?;
        get_mut(&mut region.interfaces, &own)?.auto_public_ip = Some(address);
    }
    Ok(())
}

fn stop(region: &mut Region, request: &Request) -> ApiResult<Value> {
    change(region, request, "StoppingInstances", 64, |region, instance| {
        match instance.state.name.as_str() {
            "stopped" => return Ok(()),
            "running" => {}
            _ => return Err(wrong_state(instance, "stopped")),
        }
        let reason = format!("User initiated ({})", now(region));
        set_stopped(region, &instance.instance_id, reason)
    })
}

fn set_stopped(region: &mut Region, id: &str, reason: String) -> ApiResult<()> {
    let of = get_mut(&mut region.instances, id)?;
    of.state = state(80);
    of.state_transition_reason = reason;
    let own = interface::of_instance(region, id);
    let own: Vec<String> = own.iter().map(|i| i.network_interface_id.clone()).collect();
    for id in own {
        get_mut(&mut region.interfaces, &id)?.release_public_ip();
    }
    Ok(())
}

/// Marks an instance as stopped because its machine did not start. An instance that is no longer in
/// the state `running` stays unchanged.
///
/// # Errors
/// If an interface of the instance is missing.
pub(crate) fn mark_stopped(region: &mut Region, id: &str, why: &str) -> ApiResult<()> {
    if region.instances.get(id).is_none_or(|of| of.state.code != RUNNING) {
        return Ok(());
    }
    let why: String = why.chars().take(REASON_MAX).collect();
    set_stopped(region, id, format!("{MACHINE_FAILED} ({why})"))
}

fn reboot(region: &mut Region, request: &Request) -> ApiResult<Value> {
    for id in request.texts("InstanceIds") {
        if get(&region.instances, id)?.state.code == TERMINATED {
            return Err(wrong_state(get(&region.instances, id)?, "rebooted"));
        }
    }
    success()
}

fn terminate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let answer = change(region, request, "TerminatingInstances", 32, |region, instance| {
        let id = &instance.instance_id;
        if instance.state.code != TERMINATED && instance.disable_api_termination {
            let message = format!(
                "The instance '{id}' may not be terminated. Modify its 'disableApiTermination' \
                 instance attribute and try again."
            );
            return Err(ApiError::new("OperationNotPermitted", message));
        }
        end(region, id)
    })?;
    forget_terminated(region);
    Ok(answer)
}

/// Terminates an instance: ends its attachments, and removes the interfaces that are deleted with
/// it. A terminated instance stays unchanged. The attribute `disableApiTermination` is ignored.
pub(in crate::actions) fn end(region: &mut Region, id: &str) -> ApiResult<()> {
    if get(&region.instances, id)?.state.code == TERMINATED {
        return Ok(());
    }
    let own: Vec<(String, bool)> = interface::of_instance(region, id)
        .iter()
        .map(|i| {
            let delete = i.attachment.as_ref().is_some_and(|a| a.delete_on_termination);
            (i.network_interface_id.clone(), delete)
        })
        .collect();
    for (interface, delete) in own {
        interface::detach_from(region, &interface)?;
        if delete {
            interface::remove(region, &interface);
        }
    }
    region.blackhole_routes(|route| route.instance_id.as_deref() == Some(id));
    volume::detach_all(region, id);
    let time = now(region);
    let of = get_mut(&mut region.instances, id)?;
    of.state = state(TERMINATED);
    of.state_transition_reason = format!("User initiated ({time})");
    of.vpc_id = None;
    of.subnet_id = None;
    Ok(())
}

/// Removes the oldest terminated instances, so that [`TERMINATED_MAX`] of them remain.
pub(in crate::actions) fn forget_terminated(region: &mut Region) {
    let terminated = region.instances.ids_where(|i| i.state.code == TERMINATED);
    for old in terminated.iter().rev().skip(TERMINATED_MAX) {
        region.instances.remove(old);
    }
}
