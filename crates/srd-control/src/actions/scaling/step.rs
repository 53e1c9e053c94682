//! Steps of groups that are taken: instances that start and end.

use serde_json::{Map, Value, json};

use super::activity::{self, Entry};
use super::configuration;
use super::plan::{HEALTHY, RETRY_S, Step};
use super::source::{Source, parameter};
use crate::actions::instance;
use crate::actions::launch::data;
use crate::actions::launch::lives::{self, MACHINE_FAILED};
use crate::actions::support::{get, now, put_tags, region_of};
use crate::error::{ApiError, ApiResult};
use crate::state::scaling::{GroupMember, TemplateChoice};
use crate::state::{Cloud, Region, ScalingGroup, Tag};
use crate::wire::Request;

/// Tag of the instances of a group, whose value is the name of the group.
const GROUP_TAG: &str = "aws:autoscaling:groupName";

/// Takes a step of the group with this identifier.
///
/// # Errors
/// If an instance cannot be started. Then, a part of the step may be in the state, which the caller
/// has to undo.
pub(crate) fn take(
    cloud: &mut Cloud,
    at: &(String, String),
    id: &str,
    step: &Step,
) -> ApiResult<()> {
    let region = region_of(cloud, at)?;
    let Some(mut group) = region.scaling_groups.get(id).cloned() else { return Ok(()) };
    match step {
        Step::Drop(ids) => drop_lost(region, &mut group, ids)?,
        Step::End(ids) => end(region, &mut group, ids)?,
        Step::Launch(subnets) => launch(cloud, at, &mut group, subnets)?,
    }
    region_of(cloud, at)?.scaling_groups.insert(group);
    Ok(())
}

/// Records that a start has failed. The group starts no instance for this time, in seconds.
pub(crate) fn fail(region: &mut Region, id: &str, error: &ApiError, pause_s: u64) {
    let Some(mut group) = region.scaling_groups.get(id).cloned() else { return };
    let error = &error.message;
    let description = format!(
        "Launching a new EC2 instance.  Status Reason: {error}. Launching EC2 instance failed."
    );
    let cause = start_cause(region, &group, 1);
    let details = json!({"Availability Zone": group.availability_zones.first()});
    let entry = Entry { description, cause, details, error: Some(error.clone()) };
    activity::record(region, &group, entry);
    group.retry_at = if pause_s > 0 { region.now + pause_s } else { 0 };
    region.scaling_groups.insert(group);
}

/// Returns the cause of a start, with the request that has changed the desired capacity.
fn start_cause(region: &Region, group: &ScalingGroup, count: usize) -> String {
    let old = group.instances.len();
    format!(
        "{}  At {} an instance was started in response to a difference between desired and actual \
         capacity, increasing the capacity from {old} to {}.",
        group.cause,
        now(region),
        old + count
    )
}

/// Ends an instance of a group, and records it. The group keeps its member.
fn finish(region: &mut Region, group: &ScalingGroup, id: &str, cause: String) -> ApiResult<()> {
    let member = group.instances.iter().find(|member| member.instance_id == id);
    let zone = member.map(|member| member.availability_zone.clone());
    let instance = region.instances.get(id).cloned();
    if instance.is_some() {
        lives::end(region, id)?;
    }
    let subnet = instance.and_then(|instance| instance.subnet_id);
    let details = json!({"Subnet ID": subnet, "Availability Zone": zone});
    let description = format!("Terminating EC2 instance: {id}");
    activity::record(region, group, Entry { description, cause, details, error: None });
    Ok(())
}

fn drop_lost(region: &mut Region, group: &mut ScalingGroup, ids: &[String]) -> ApiResult<()> {
    for id in ids {
        let reason = region.instances.get(id).map(|of| of.state_transition_reason.clone());
        if reason.is_some_and(|reason| reason.starts_with(MACHINE_FAILED)) {
            // The machine of the next instance would probably not start either.
            group.retry_at = region.now + RETRY_S;
        }
        let mut members = group.instances.iter();
        let is_set = members.any(|of| of.instance_id == *id && of.health_status != HEALTHY);
        let check = match is_set {
            true => "a user health-check",
            false => "an EC2 health check indicating it has been terminated or stopped",
        };
        let time = now(region);
        let cause =
            format!("At {time} an instance was taken out of service in response to {check}.");
        finish(region, group, id, cause)?;
        group.instances.retain(|member| member.instance_id != *id);
    }
    lives::forget_terminated(region);
    Ok(())
}

fn end(region: &mut Region, group: &mut ScalingGroup, ids: &[String]) -> ApiResult<()> {
    let old = group.instances.len();
    let new = old - ids.len();
    for id in ids {
        let time = now(region);
        let cause = format!(
            "{}  At {time} an instance was taken out of service in response to a difference \
             between desired and actual capacity, shrinking the capacity from {old} to {new}.  At \
             {time} instance {id} was selected for termination.",
            group.cause
        );
        finish(region, group, id, cause)?;
        group.instances.retain(|member| member.instance_id != *id);
    }
    lives::forget_terminated(region);
    Ok(())
}

fn launch(
    cloud: &mut Cloud,
    at: &(String, String),
    group: &mut ScalingGroup,
    subnets: &[String],
) -> ApiResult<()> {
    let cause = start_cause(region_of(cloud, at)?, group, subnets.len());
    for (number, subnet) in subnets.iter().enumerate() {
        if subnets[..number].contains(subnet) {
            continue;
        }
        let count = subnets.iter().filter(|other| *other == subnet).count();
        let (request, source) = request(region_of(cloud, at)?, group, subnet, count)?;
        for id in instance::launch(cloud, at, &request)? {
            join(region_of(cloud, at)?, group, &id, Some(source.clone()))?;
            let details = json!({"Subnet ID": subnet,
                                 "Availability Zone": group.instances.last()
                                     .map(|member| &member.availability_zone)});
            let description = format!("Launching a new EC2 instance: {id}");
            let entry = Entry { description, cause: cause.clone(), details, error: None };
            activity::record(region_of(cloud, at)?, group, entry);
        }
    }
    group.retry_at = 0;
    Ok(())
}

/// Returns the request that starts instances of a group in a subnet, and the source of its
/// parameters; for a template, with the number of its version.
fn request(
    region: &Region,
    group: &ScalingGroup,
    subnet: &str,
    count: usize,
) -> ApiResult<(Request, Source)> {
    let (mut parameters, source) = match Source::of(group)? {
        Source::Template(choice) => {
            let (parameters, template) = of_template(region, &choice, subnet)?;
            (parameters, Source::Template(template))
        }
        Source::Configuration(name) => {
            (configuration::launch(region, &name, subnet)?, Source::Configuration(name))
        }
    };
    for name in ["MinCount", "MaxCount"] {
        parameters.insert(name.to_owned(), count.into());
    }
    Ok((Request { action: "RunInstances".to_owned(), parameters }, source))
}

/// Returns the parameters of a launch from a template, and the template with the number of its
/// version. The subnet replaces those of the template's interfaces and its zone.
fn of_template(
    region: &Region,
    choice: &TemplateChoice,
    subnet: &str,
) -> ApiResult<(Map<String, Value>, TemplateChoice)> {
    let (template, data) = data::chosen(region, &parameter(choice))?;
    let mut parameters = Map::new();
    let mut put = |name: &str, value: Value| _ = parameters.insert(name.to_owned(), value);
    put("LaunchTemplate", parameter(&template).into());
    let mut interfaces = data["NetworkInterfaces"].as_array().cloned().unwrap_or_default();
    for interface in interfaces.iter_mut().filter(|of| of["NetworkInterfaceId"].is_null()) {
        interface["SubnetId"] = subnet.into();
    }
    match interfaces.is_empty() {
        true => put("SubnetId", subnet.into()),
        false => put("NetworkInterfaces", interfaces.into()),
    }
    if let Some(mut placement) = data["Placement"].as_object().cloned() {
        placement.remove("AvailabilityZone");
        put("Placement", placement.into());
    }
    Ok((parameters, template))
}

/// Makes an instance a member of a group, and gives it the tags of the group. `source`: the
/// parameters with which the group has started it; `None` if it was attached.
///
/// # Errors
/// If the instance does not exist or would have too many tags.
pub(super) fn join(
    region: &mut Region,
    group: &mut ScalingGroup,
    id: &str,
    source: Option<Source>,
) -> ApiResult<()> {
    let mut instance = get(&region.instances, id)?.clone();
    let tags = group.tags.iter().filter(|tag| tag.propagate_at_launch && source.is_some());
    let tags = tags.map(|tag| Tag { key: tag.key.clone(), value: tag.value.clone() });
    put_tags(&mut instance.tags, tags.collect())?;
    let name = group.auto_scaling_group_name.clone();
    put_tags(&mut instance.tags, vec![Tag { key: GROUP_TAG.to_owned(), value: name }])?;
    let (launch_template, launch_configuration_name) =
        source.map(Source::split).unwrap_or_default();
    group.instances.push(GroupMember {
        instance_id: id.to_owned(),
        instance_type: instance.instance_type.clone(),
        availability_zone: instance.availability_zone.clone(),
        lifecycle_state: "InService".to_owned(),
        health_status: HEALTHY.to_owned(),
        launch_template,
        launch_configuration_name,
        protected_from_scale_in: group.new_instances_protected_from_scale_in,
    });
    region.instances.insert(instance);
    Ok(())
}

/// Removes an instance from a group. The instance itself stays.
pub(super) fn leave(region: &mut Region, group: &mut ScalingGroup, id: &str) {
    group.instances.retain(|member| member.instance_id != id);
    if let Some(instance) = region.instances.get_mut(id) {
        instance.tags.retain(|tag| tag.key != GROUP_TAG);
    }
}
