//! Checks of the parameters of groups.

use serde_json::Value;

use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::scaling::{GroupTag, TemplateChoice};
use crate::state::{Region, ScalingGroup};
use crate::wire::Request;

/// Largest size of a group.
pub(super) const SIZE_MAX: i64 = 1000;
/// Largest number of tags of a group.
pub(super) const TAGS_MAX: usize = 50;
/// Largest number of subnets of a group.
pub(super) const SUBNETS_MAX: usize = 200;
/// Default time in seconds after an activity in which a request with `HonorCooldown` is refused.
const COOLDOWN_DEFAULT_S: i64 = 300;
/// Termination policies that are accepted.
const POLICIES: [&str; 7] = [
    "Default",
    "OldestInstance",
    "NewestInstance",
    "OldestLaunchTemplate",
    "OldestLaunchConfiguration",
    "ClosestToNextInstanceHour",
    "AllocationStrategy",
];
/// Parameters of groups that are served.
const SERVED: [&str; 17] = [
    "AutoScalingGroupName",
    "LaunchTemplate",
    "LaunchConfigurationName",
    "InstanceId",
    "MinSize",
    "MaxSize",
    "DesiredCapacity",
    "DefaultCooldown",
    "AvailabilityZones",
    "VPCZoneIdentifier",
    "HealthCheckType",
    "HealthCheckGracePeriod",
    "TerminationPolicies",
    "NewInstancesProtectedFromScaleIn",
    "ServiceLinkedRoleARN",
    "Tags",
    "DesiredCapacityType",
];

/// An error of a parameter.
pub(super) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new("ValidationError", message)
}

/// Returns the group with this name.
///
/// # Errors
/// If there is no such group.
pub(super) fn group<'a>(region: &'a Region, name: &str) -> ApiResult<&'a ScalingGroup> {
    let found = region.scaling_groups.get(&ScalingGroup::id_of(name));
    found.ok_or_else(|| {
        invalid(format!("AutoScalingGroup name not found - AutoScalingGroup '{name}' not found"))
    })
}

/// Checks that a request has only parameters that are served. An empty list counts as absent.
///
/// # Errors
/// If it has another one.
pub(super) fn served(request: &Request) -> ApiResult<()> {
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    for (name, value) in &request.parameters {
        let is_other_unit = name == "DesiredCapacityType" && value != "units";
        if (!SERVED.contains(&name.as_str()) && !is_empty(value)) || is_other_unit {
            let hint = "a group needs LaunchTemplate, LaunchConfigurationName or InstanceId";
            let message = format!("The parameter {name} is not served by this endpoint; {hint}.");
            return Err(invalid(message));
        }
    }
    Ok(())
}

/// Checks the name of a new group: 1 to 255 printable characters of ASCII, without a colon.
pub(super) fn name(name: &str) -> ApiResult<()> {
    let is_valid = |b: u8| (33..=126).contains(&b) && b != b':';
    if (1..=255).contains(&name.len()) && name.bytes().all(is_valid) {
        return Ok(());
    }
    let message = "AutoScalingGroupName has 1 to 255 printable ASCII characters without colons";
    Err(invalid(message))
}

/// Zones and subnets of a group.
pub(super) struct Network {
    /// Zones, in the order of the subnets.
    pub(super) zones: Vec<String>,
    /// Identifiers of subnets, separated by commas.
    pub(super) subnets: String,
}

/// Returns the zones and subnets of a request; `None` if it names neither.
///
/// # Errors
/// If a zone or a subnet does not exist, if they do not match, or if the subnets belong to several
/// VPCs.
pub(super) fn network(region: &Region, request: &Request) -> ApiResult<Option<Network>> {
    let text = request.text("VPCZoneIdentifier").unwrap_or_default();
    let mut named: Vec<&str> = request.texts("AvailabilityZones");
    named.sort_unstable();
    named.dedup();
    let all = regions::zones(&region.name);
    if let Some(zone) = named.iter().find(|zone| !all.iter().any(|(name, _)| name == *zone)) {
        return Err(invalid(format!("Invalid availability zones: [{zone}]")));
    }
    let (mut zones, mut subnets, mut vpc) = (Vec::<String>::new(), Vec::new(), None);
    for id in text.split(',').map(str::trim).filter(|id| !id.is_empty()) {
        let subnet = region.subnets.get(id);
        let subnet =
            subnet.ok_or_else(|| invalid(format!("The subnet ID '{id}' does not exist")))?;
        if *vpc.get_or_insert(&subnet.vpc_id) != &subnet.vpc_id {
            return Err(invalid("The subnets of a group belong to one VPC"));
        }
        if subnets.contains(&id) {
            return Err(invalid(format!("The subnet ID '{id}' is specified twice")));
        }
        if !zones.contains(&subnet.availability_zone) {
            zones.push(subnet.availability_zone.clone());
        }
        subnets.push(id);
    }
    if subnets.len() > SUBNETS_MAX {
        return Err(invalid(format!("A group has at most {SUBNETS_MAX} subnets")));
    }
    if subnets.is_empty() {
        let zones: Vec<String> = named.into_iter().map(str::to_owned).collect();
        let network = Network { zones, subnets: String::new() };
        return Ok((!network.zones.is_empty()).then_some(network));
    }
    let matches = zones.iter().all(|zone| named.contains(&zone.as_str()));
    let is_same = matches && named.iter().all(|zone| zones.iter().any(|of| of == zone));
    if !named.is_empty() && !is_same {
        let message = "The availability zones of the specified subnets and the Auto Scaling group \
                       do not match";
        return Err(invalid(message));
    }
    Ok(Some(Network { zones, subnets: subnets.join(",") }))
}

/// Smallest, largest and desired size of a group.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) desired: i64,
}

/// Returns the sizes of a request. Sizes that it does not name are those of `old`. A desired
/// capacity that the request does not name is moved into the new bounds.
///
/// # Errors
/// If the sizes contradict each other, or are too large.
pub(super) fn sizes(request: &Request, old: Option<Sizes>) -> ApiResult<Sizes> {
    let min = request.number("MinSize").or(old.map(|old| old.min)).unwrap_or(0);
    let max = request.number("MaxSize").or(old.map(|old| old.max)).unwrap_or(0);
    if min < 0 || max > SIZE_MAX {
        return Err(invalid(format!("The size of a group is 0 to {SIZE_MAX}")));
    }
    if min > max {
        let message =
            format!("Max bound, {max}, must be greater than or equal to min bound, {min}");
        return Err(invalid(message));
    }
    let desired = match request.number("DesiredCapacity") {
        Some(desired) if (min..=max).contains(&desired) => desired,
        Some(desired) => {
            return Err(invalid(format!(
                "Desired capacity:{desired} must be between the specified min size:{min} and max \
                 size:{max}"
            )));
        }
        None => old.map_or(min, |old| old.desired).clamp(min, max),
    };
    Ok(Sizes { min, max, desired })
}

/// Returns the tags of a request for a group.
///
/// # Errors
/// If a key or a value is too long, given twice or reserved, or if there are too many.
pub(super) fn tags(name: &str, request: &Request) -> ApiResult<Vec<GroupTag>> {
    let mut tags = Vec::<GroupTag>::new();
    if request.list("Tags").len() > TAGS_MAX {
        return Err(invalid(format!("A group has at most {TAGS_MAX} tags")));
    }
    for tag in request.list("Tags") {
        let read = crate::actions::support::read_tags(&Value::Array(vec![tag.clone()]))?;
        let Some(read) = read.into_iter().next() else { continue };
        if tags.iter().any(|old| old.key == read.key) {
            return Err(invalid(format!("Duplicate tag key '{}' specified.", read.key)));
        }
        tags.push(GroupTag {
            resource_id: name.to_owned(),
            resource_type: "auto-scaling-group".to_owned(),
            key: read.key,
            value: read.value,
            propagate_at_launch: tag["PropagateAtLaunch"].as_bool().unwrap_or(false),
        });
    }
    Ok(tags)
}

/// Changes the members of a group that a request names and that need no other check.
///
/// # Errors
/// If a value is not accepted.
pub(super) fn settings(group: &mut ScalingGroup, request: &Request) -> ApiResult<()> {
    let seconds = |name: &str, old: i64| match request.number(name) {
        Some(seconds) if seconds < 0 => Err(invalid(format!("{name} is not negative"))),
        seconds => Ok(seconds.unwrap_or(old)),
    };
    group.default_cooldown = seconds("DefaultCooldown", group.default_cooldown)?;
    group.health_check_grace_period =
        seconds("HealthCheckGracePeriod", group.health_check_grace_period)?;
    match request.text("HealthCheckType") {
        None | Some("EC2") => {}
        Some(kind) => return Err(invalid(format!("The health check {kind} is not served"))),
    }
    if request.has("TerminationPolicies") {
        let policies = request.texts("TerminationPolicies");
        if policies.len() > POLICIES.len() {
            let message = format!("A group has at most {} termination policies", POLICIES.len());
            return Err(invalid(message));
        }
        if let Some(policy) = policies.iter().find(|policy| !POLICIES.contains(policy)) {
            return Err(invalid(format!("{policy} is not a valid termination policy")));
        }
        group.termination_policies = policies.into_iter().map(str::to_owned).collect();
        if group.termination_policies.is_empty() {
            group.termination_policies.push("Default".to_owned());
        }
    }
    if let Some(is_protected) = request.flag("NewInstancesProtectedFromScaleIn") {
        group.new_instances_protected_from_scale_in = is_protected;
    }
    if let Some(role) = request.text("ServiceLinkedRoleARN") {
        role.clone_into(&mut group.service_linked_role_arn);
    }
    Ok(())
}

/// Launch template of a group, or the name of its launch configuration.
pub(super) type Launches = (Option<TemplateChoice>, Option<String>);

/// Returns a group without instances, whose settings have their defaults.
pub(super) fn new(
    region: &mut Region,
    name: &str,
    (source, network, sizes): (Launches, Network, Sizes),
) -> ScalingGroup {
    let (launch_template, launch_configuration_name) = source;
    let (at, account) = (&region.name, &region.account);
    let partition = regions::partition(at);
    let uuid = region.ids.uuid();
    let resource = format!("autoScalingGroup:{uuid}:autoScalingGroupName/{name}");
    let role = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling";
    ScalingGroup {
        id: ScalingGroup::id_of(name),
        auto_scaling_group_name: name.to_owned(),
        auto_scaling_group_arn: format!("arn:{partition}:autoscaling:{at}:{account}:{resource}"),
        launch_template,
        launch_configuration_name,
        min_size: sizes.min,
        max_size: sizes.max,
        desired_capacity: sizes.desired,
        default_cooldown: COOLDOWN_DEFAULT_S,
        availability_zones: network.zones,
        vpc_zone_identifier: network.subnets,
        health_check_type: "EC2".to_owned(),
        health_check_grace_period: 0,
        termination_policies: vec!["Default".to_owned()],
        new_instances_protected_from_scale_in: false,
        service_linked_role_arn: format!("arn:{partition}:iam::{account}:role/{role}"),
        created_time: crate::actions::support::now(region),
        instances: Vec::new(),
        tags: Vec::new(),
        cause: String::new(),
        retry_at: 0,
    }
}
