//! Actions on groups. They change what a group shall be; its instances follow after the request.

use serde_json::{Value, json};

use super::activity::{self, Entry};
use super::check::{self, Sizes, invalid};
use super::source::{self, SOURCES};
use crate::actions::launch::lives;
use crate::actions::support::{now, time};
use crate::actions::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{Region, ScalingGroup};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateAutoScalingGroup", Handler::Region(create)),
    ("UpdateAutoScalingGroup", Handler::Region(update)),
    ("SetDesiredCapacity", Handler::Region(set_desired)),
    ("DeleteAutoScalingGroup", Handler::Region(delete)),
];

/// Largest number of groups of a region.
const GROUPS_MAX: usize = 500;

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let name = request.need("AutoScalingGroupName")?;
    check::name(name)?;
    check::served(request)?;
    if check::group(region, name).is_ok() {
        let message = format!(
            "AutoScalingGroup by this name already exists - A group with the name {name} already \
             exists"
        );
        return Err(ApiError::new("AlreadyExists", message));
    }
    if region.scaling_groups.len() >= GROUPS_MAX {
        let message = format!("A region has at most {GROUPS_MAX} Auto Scaling groups.");
        return Err(ApiError::new("LimitExceeded", message));
    }
    let source = source::of_request(region, request)?.ok_or_else(|| invalid(SOURCES))?;
    let sizes = check::sizes(request, None)?;
    let network = check::network(region, request)?
        .ok_or_else(|| invalid("At least one Availability Zone or VPC Subnet is required."))?;
    let mut group = check::new(region, name, (source.split(), network, sizes));
    check::settings(&mut group, request)?;
    group.tags = check::tags(name, request)?;
    group.cause = format!(
        "At {} a user request created an AutoScalingGroup changing the desired capacity from 0 to \
         {}.",
        now(region),
        sizes.desired
    );
    region.scaling_groups.insert(group);
    Ok(json!({}))
}

fn update(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let name = request.need("AutoScalingGroupName")?;
    check::served(request)?;
    let found = check::group(region, name).cloned();
    let mut group = found.map_err(|_| invalid("AutoScalingGroup name not found - null"))?;
    if let Some(source) = source::of_request(region, request)? {
        (group.launch_template, group.launch_configuration_name) = source.split();
    }
    if let Some(network) = check::network(region, request)? {
        group.availability_zones = network.zones;
        group.vpc_zone_identifier = network.subnets;
    }
    check::settings(&mut group, request)?;
    let old = Sizes { min: group.min_size, max: group.max_size, desired: group.desired_capacity };
    let new = check::sizes(request, Some(old))?;
    (group.min_size, group.max_size, group.desired_capacity) = (new.min, new.max, new.desired);
    if new.desired != old.desired {
        group.cause = format!(
            "At {} a user request update of AutoScalingGroup constraints to min: {}, max: {}, \
             desired: {} changing the desired capacity from {} to {}.",
            now(region),
            new.min,
            new.max,
            new.desired,
            old.desired,
            new.desired
        );
    }
    group.retry_at = 0;
    region.scaling_groups.insert(group);
    Ok(json!({}))
}

fn set_desired(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut group = check::group(region, request.need("AutoScalingGroupName")?)?.clone();
    let desired = request.number("DesiredCapacity").unwrap_or(0);
    let (min, max) = (group.min_size, group.max_size);
    if desired > max {
        return Err(invalid(format!(
            "New SetDesiredCapacity value {desired} is above max value {max} for the \
             AutoScalingGroup."
        )));
    }
    if desired < min {
        return Err(invalid(format!(
            "New SetDesiredCapacity value {desired} is below min value {min} for the \
             AutoScalingGroup."
        )));
    }
    if request.flag("HonorCooldown") == Some(true) {
        cooldown(region, &group)?;
    }
    let old = std::mem::replace(&mut group.desired_capacity, desired);
    group.cause = format!(
        "At {} a user request explicitly set group desired capacity changing the desired capacity \
         from {old} to {desired}.",
        now(region)
    );
    group.retry_at = 0;
    region.scaling_groups.insert(group);
    Ok(json!({}))
}

/// Checks that the cooldown after the last activity of a group is over.
fn cooldown(region: &Region, group: &ScalingGroup) -> ApiResult<()> {
    let arn = &group.auto_scaling_group_arn;
    let last = region.scaling_activities.iter().rev().find(|of| of.auto_scaling_group_arn == *arn);
    let pause = u64::try_from(group.default_cooldown).unwrap_or(0);
    match last.map(|last| last.at + pause) {
        Some(until) if region.now < until => {
            let message = format!("Scaling activity is in its cooldown until {}", time(until));
            Err(ApiError::new("ScalingActivityInProgress", message))
        }
        _ => Ok(()),
    }
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let group = check::group(region, request.need("AutoScalingGroupName")?)?.clone();
    if request.flag("ForceDelete") != Some(true) && !group.instances.is_empty() {
        let message = "You cannot delete an AutoScalingGroup while there are instances or pending \
                       Spot instance request(s) still in the group.";
        return Err(ApiError::new("ResourceInUse", message));
    }
    for member in &group.instances {
        let id = &member.instance_id;
        if region.instances.get(id).is_some() {
            lives::end(region, id)?;
        }
        let cause = format!("At {} a user request force-deleted AutoScalingGroup.", now(region));
        let details = json!({"Availability Zone": member.availability_zone});
        let description = format!("Terminating EC2 instance: {id}");
        activity::record(region, &group, Entry { description, cause, details, error: None });
    }
    lives::forget_terminated(region);
    region.scaling_groups.remove(&group.id);
    Ok(json!({}))
}
