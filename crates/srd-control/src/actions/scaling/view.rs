//! Descriptions of groups, of their instances, and of their activities.

use serde_json::{Map, Value, json};

use super::check::{self, invalid};
use crate::actions::list::{self, Filters};
use crate::actions::support::show;
use crate::actions::{Actions, Handler};
use crate::error::ApiResult;
use crate::state::{Region, ScalingActivity};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("DescribeAutoScalingGroups", Handler::Region(groups)),
    ("DescribeAutoScalingInstances", Handler::Region(instances)),
    ("DescribeScalingActivities", Handler::Region(activities)),
];

/// Largest number of objects in one page of an answer, as Auto Scaling documents it.
const PAGE_MAX: i64 = 100;
/// Number of objects in one page of an answer whose request has no number.
const PAGE_DEFAULT: i64 = 50;

/// Groups have filters for tags only.
const FILTERS: Filters = &[];

/// Returns the page that the request selects.
pub(super) fn page(
    request: &Request,
    result: &str,
    id: &str,
    objects: Vec<Value>,
) -> ApiResult<Value> {
    let size = request.number("MaxRecords").unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&size) {
        return Err(invalid(format!("MaxRecords is 1 to {PAGE_MAX}")));
    }
    let mut parameters = Map::new();
    parameters.insert("MaxResults".to_owned(), size.into());
    if let Some(token) = request.text("NextToken") {
        parameters.insert("NextToken".to_owned(), token.into());
    }
    let request = Request { action: request.action.clone(), parameters };
    list::page(&request, result, id, objects)
}

fn groups(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let names = request.texts("AutoScalingGroupNames");
    let named = region.scaling_groups.iter();
    let named =
        named.filter(|of| names.is_empty() || names.contains(&of.auto_scaling_group_name.as_str()));
    let shown = named.map(|group| {
        let mut shown = show(group);
        for list in ["LoadBalancerNames", "TargetGroupARNs", "SuspendedProcesses", "EnabledMetrics"]
        {
            shown[list] = json!([]);
        }
        if request.flag("IncludeInstances") == Some(false) {
            shown["Instances"] = Value::Null;
        }
        if group.launch_template.as_ref().is_some_and(|of| of.version.is_empty()) {
            shown["LaunchTemplate"]["Version"] = Value::Null;
        }
        shown["CapacityRebalance"] = false.into();
        shown["TrafficSources"] = json!([]);
        shown
    });
    let shown = list::filter(request, FILTERS, shown.collect())?;
    page(request, "AutoScalingGroups", "AutoScalingGroupName", shown)
}

fn instances(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let ids = request.texts("InstanceIds");
    let mut shown = Vec::new();
    for group in region.scaling_groups.iter() {
        let members = group.instances.iter();
        for member in members.filter(|of| ids.is_empty() || ids.contains(&of.instance_id.as_str()))
        {
            let mut of = show(member);
            of["AutoScalingGroupName"] = json!(group.auto_scaling_group_name);
            of["HealthStatus"] = "HEALTHY".into();
            shown.push(of);
        }
    }
    page(request, "AutoScalingInstances", "InstanceId", shown)
}

/// Returns an activity as its description. `exists`: whether its group exists.
pub(super) fn activity(of: &ScalingActivity, exists: bool) -> Value {
    let mut shown = show(of);
    if !exists {
        shown["AutoScalingGroupState"] = "Deleted".into();
    }
    shown
}

/// Describes the activities of groups, the newest first.
fn activities(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let with_deleted = request.flag("IncludeDeletedGroups") == Some(true);
    let name = request.text("AutoScalingGroupName");
    if let Some(name) = name.filter(|_| !with_deleted) {
        check::group(region, name)?;
    }
    let ids = request.texts("ActivityIds");
    let exists = |of: &ScalingActivity| {
        let group = check::group(region, &of.auto_scaling_group_name);
        group.is_ok_and(|group| group.auto_scaling_group_arn == of.auto_scaling_group_arn)
    };
    let all = region.scaling_activities.iter().rev();
    let named = all.filter(|of| {
        name.is_none_or(|name| of.auto_scaling_group_name == name)
            && (ids.is_empty() || ids.contains(&of.activity_id.as_str()))
    });
    let shown = named.filter_map(|of| {
        let exists = exists(of);
        (exists || with_deleted).then(|| activity(of, exists))
    });
    let shown = list::filter(request, FILTERS, shown.collect())?;
    page(request, "Activities", "ActivityId", shown)
}
