//! Actions on the instances of groups.

use serde_json::{Value, json};

use super::activity::{self, Entry};
use super::check::{self, invalid};
use super::{step, view};
use crate::actions::launch::lives;
use crate::actions::support::now;
use crate::actions::{Actions, Handler};
use crate::error::ApiResult;
use crate::machines::RUNNING;
use crate::state::{Region, ScalingActivity, ScalingGroup};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("AttachInstances", Handler::Region(attach)),
    ("DetachInstances", Handler::Region(detach)),
    ("SetInstanceHealth", Handler::Region(set_health)),
    ("SetInstanceProtection", Handler::Region(set_protection)),
    ("TerminateInstanceInAutoScalingGroup", Handler::Region(terminate)),
];

/// Largest number of instances of a request, as Auto Scaling documents it.
const INSTANCES_MAX: usize = 20;

/// Returns the group to which an instance belongs.
fn group_of<'a>(region: &'a Region, id: &str) -> Option<&'a ScalingGroup> {
    let is_member = |group: &ScalingGroup| group.instances.iter().any(|of| of.instance_id == id);
    region.scaling_groups.find(is_member)
}

/// Returns the instances of a request.
fn instances(request: &Request) -> ApiResult<Vec<&str>> {
    let ids = request.texts("InstanceIds");
    if ids.is_empty() || ids.len() > INSTANCES_MAX {
        return Err(invalid(format!("A request names 1 to {INSTANCES_MAX} instances")));
    }
    if let Some((_, id)) = ids.iter().enumerate().find(|(at, id)| ids[..*at].contains(id)) {
        return Err(invalid(format!("Instance {id} is specified twice")));
    }
    Ok(ids)
}

/// Makes running instances members of a group, whose desired capacity grows by their number.
fn attach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut group = check::group(region, request.need("AutoScalingGroupName")?)?.clone();
    let ids = instances(request)?;
    let old = group.desired_capacity;
    let new = old + i64::try_from(ids.len()).unwrap_or(i64::MAX);
    if new > group.max_size {
        let max = group.max_size;
        return Err(invalid(format!(
            "AutoScalingGroup would have a desired capacity of {new}, which is above its max size \
             of {max}"
        )));
    }
    for id in ids {
        let Some(instance) = region.instances.get(id) else {
            return Err(invalid(format!("Invalid Instance ID(s): [{id}] specified")));
        };
        if instance.state.code != RUNNING {
            return Err(invalid(format!("Instance {id} is not in the state running")));
        }
        if !group.availability_zones.contains(&instance.availability_zone) {
            let zone = &instance.availability_zone;
            return Err(invalid(format!("Instance {id} is in {zone}, which the group lacks")));
        }
        if let Some(other) = group_of(region, id) {
            let name = &other.auto_scaling_group_name;
            return Err(invalid(format!(
                "Instance {id} is already part of AutoScalingGroup:{name}"
            )));
        }
        step::join(region, &mut group, id, None)?;
        let cause = format!(
            "At {} an instance was attached in response to a user request, increasing the \
             capacity from {} to {}.",
            now(region),
            group.instances.len() - 1,
            group.instances.len()
        );
        let entry = entry(&group, id, format!("Attaching an existing EC2 instance: {id}"), cause);
        activity::record(region, &group, entry);
    }
    group.desired_capacity = new;
    group.cause = format!(
        "At {} a user request attached instances changing the desired capacity from {old} to \
         {new}.",
        now(region)
    );
    region.scaling_groups.insert(group);
    Ok(json!({}))
}

/// Returns the contents of an activity on a member.
fn entry(group: &ScalingGroup, id: &str, description: String, cause: String) -> Entry {
    let member = group.instances.iter().find(|member| member.instance_id == id);
    let zone = member.map(|member| &member.availability_zone);
    Entry { description, cause, details: json!({"Availability Zone": zone}), error: None }
}

/// Reduces the desired capacity of a group by a number, if the request has the flag for it.
fn decrement(group: &mut ScalingGroup, request: &Request, count: i64) -> ApiResult<()> {
    if request.flag("ShouldDecrementDesiredCapacity") != Some(true) {
        return Ok(());
    }
    let (desired, min) = (group.desired_capacity, group.min_size);
    if desired - count < min {
        return Err(invalid(format!(
            "Currently, desiredSize equals {desired} and minSize equals {min}. Terminating \
             instance without replacement will violate group's min size constraint. Either set \
             shouldDecrementDesiredCapacity flag to false or lower group's min size."
        )));
    }
    group.desired_capacity -= count;
    Ok(())
}

/// Returns an activity in its first state.
fn begun(activity: &ScalingActivity) -> Value {
    let mut shown = view::activity(activity, true);
    shown["StatusCode"] = "InProgress".into();
    shown["Progress"] = 0.into();
    shown["EndTime"] = Value::Null;
    shown
}

/// Ends the membership of instances, which continue to run.
fn detach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut group = check::group(region, request.need("AutoScalingGroupName")?)?.clone();
    let ids = instances(request)?;
    if let Some(id) = ids.iter().find(|id| !group.instances.iter().any(|of| of.instance_id == **id))
    {
        let name = &group.auto_scaling_group_name;
        let message = format!("The instance {id} is not part of Auto Scaling group {name}.");
        return Err(invalid(message));
    }
    decrement(&mut group, request, i64::try_from(ids.len()).unwrap_or(i64::MAX))?;
    let mut activities = Vec::new();
    for id in ids {
        let cause =
            format!("At {} instance {id} was detached in response to a user request.", now(region));
        let entry = entry(&group, id, format!("Detaching EC2 instance: {id}"), cause);
        step::leave(region, &mut group, id);
        activities.push(begun(&activity::record(region, &group, entry)));
    }
    region.scaling_groups.insert(group);
    Ok(json!({"Activities": activities}))
}

/// Terminates an instance of a group, which starts another one unless its desired capacity is
/// reduced.
fn terminate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("InstanceId")?;
    let Some(mut group) = group_of(region, id).cloned() else {
        let what = "No managed instance found for instance ID";
        return Err(invalid(format!("Instance Id not found - {what}: {id}")));
    };
    decrement(&mut group, request, 1)?;
    let cause = format!(
        "At {} instance {id} was taken out of service in response to a user request.",
        now(region)
    );
    let entry = entry(&group, id, format!("Terminating EC2 instance: {id}"), cause);
    group.instances.retain(|member| member.instance_id != id);
    if region.instances.get(id).is_some() {
        lives::end(region, id)?;
    }
    lives::forget_terminated(region);
    let activity = activity::record(region, &group, entry);
    region.scaling_groups.insert(group);
    Ok(json!({"Activity": begun(&activity)}))
}

/// Sets the health of an instance. The group replaces an instance that is not healthy.
fn set_health(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("InstanceId")?;
    let Some(mut group) = group_of(region, id).cloned() else {
        return Err(invalid(format!("Instance Id not found - {id}")));
    };
    let health = request.need("HealthStatus")?;
    if !["Healthy", "Unhealthy"].contains(&health) {
        return Err(invalid(format!("{health} is not Healthy or Unhealthy")));
    }
    for member in group.instances.iter_mut().filter(|member| member.instance_id == id) {
        health.clone_into(&mut member.health_status);
    }
    region.scaling_groups.insert(group);
    Ok(json!({}))
}

/// Sets whether a reduction of the group terminates these instances.
fn set_protection(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut group = check::group(region, request.need("AutoScalingGroupName")?)?.clone();
    let is_protected = request.flag("ProtectedFromScaleIn") == Some(true);
    for id in request.texts("InstanceIds") {
        let Some(member) = group.instances.iter_mut().find(|of| of.instance_id == id) else {
            let name = &group.auto_scaling_group_name;
            let message = format!("The instance {id} is not part of Auto Scaling group {name}.");
            return Err(invalid(message));
        };
        member.protected_from_scale_in = is_protected;
    }
    region.scaling_groups.insert(group);
    Ok(json!({}))
}
