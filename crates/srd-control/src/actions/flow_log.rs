//! Actions of the EC2 API on flow logs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::list::Listing;
use super::support::{new_tags, not_found, now, region_of, show_all};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{Cloud, FlowLog, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateFlowLogs", Handler::Cloud(create)),
    ("DescribeFlowLogs", Handler::Region(describe)),
    ("DeleteFlowLogs", Handler::Region(delete)),
];

/// Fields of a record, if the request does not name them.
const DEFAULT_FORMAT: &str = "${version} ${account-id} ${interface-id} ${srcaddr} ${dstaddr} \
    ${srcport} ${dstport} ${protocol} ${packets} ${bytes} ${start} ${end} ${action} ${log-status}";
/// Largest number of objects of a request.
const RESOURCES_MAX: usize = 1000;

fn check_resource(region: &Region, kind: &str, id: &str) -> ApiResult<()> {
    let (exists, prefix) = match kind {
        "VPC" => (region.vpcs.get(id).is_some(), "vpc"),
        "Subnet" => (region.subnets.get(id).is_some(), "subnet"),
        "NetworkInterface" => (region.interfaces.get(id).is_some(), "eni"),
        kind => {
            let message = format!("Resources of the kind {kind} are not served by this endpoint.");
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    };
    if exists { Ok(()) } else { Err(not_found(prefix, id)) }
}

/// The error for a wrong parameter; flow logs have a code of their own for it.
fn wrong(message: impl Into<String>) -> ApiError {
    ApiError::new("InvalidParameter", message)
}

/// Checks the destination. Returns the cause if no log can be written there.
fn destination(cloud: &Cloud, request: &Request) -> ApiResult<Option<String>> {
    let kind = request.text("LogDestinationType").unwrap_or("cloud-watch-logs");
    let name = request.text("LogDestination");
    match kind {
        "cloud-watch-logs" => {
            if name.is_some() && request.has("LogGroupName") {
                let message = "Please only provide LogGroupName or only provide LogDestination.";
                return Err(wrong(message));
            }
            if name.is_none() && !request.has("LogGroupName") {
                return Err(ApiError::missing("LogGroupName"));
            }
            if !request.has("DeliverLogsPermissionArn") {
                let message = "DeliverLogsPermissionArn can't be empty if LogDestinationType is \
                               cloud-watch-logs.";
                return Err(wrong(message));
            }
            Ok(None)
        }
        _ => {
            if request.has("LogGroupName") {
                let message = "LogDestination type must be cloud-watch-logs if LogGroupName is \
                               provided.";
                return Err(wrong(message));
            }
            let name = name.ok_or_else(|| {
                wrong("LogDestination can't be empty if LogGroupName is not provided.")
            })?;
            let bucket = name.split(":::").nth(1).unwrap_or(name);
            let bucket = bucket.split('/').next().unwrap_or_default();
            if kind == "s3" && !cloud.buckets.contains(bucket) {
                return Ok(Some(format!("LogDestination: {bucket} does not exist.")));
            }
            Ok(None)
        }
    }
}

fn create(cloud: &mut Cloud, at: &(String, String), request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "vpc-flow-log")?;
    let unknown = destination(cloud, request)?;
    let region = region_of(cloud, at)?;
    let kind = request.need("ResourceType")?;
    if request.text("TrafficType").is_none() {
        return Err(ApiError::missing("TrafficType"));
    }
    let interval = request.number("MaxAggregationInterval").unwrap_or(600);
    if ![60, 600].contains(&interval) {
        let message = "Invalid Flow Log Max Aggregation Interval";
        return Err(wrong(message));
    }
    let ids = request.texts("ResourceIds");
    if ids.is_empty() || ids.len() > RESOURCES_MAX {
        let message = format!("A request names 1 to {RESOURCES_MAX} resources");
        return Err(wrong(message));
    }
    for id in &ids {
        check_resource(region, kind, id)?;
    }
    let text = |name: &str| request.text(name).map(str::to_owned);
    let destination_type = request.text("LogDestinationType").unwrap_or("cloud-watch-logs");
    // Resources that have a log with the same configuration, those of this request included.
    let mut existing: BTreeSet<String> = region
        .flow_logs
        .iter()
        .filter(|old| {
            old.log_destination.as_deref() == request.text("LogDestination")
                && old.log_group_name.as_deref() == request.text("LogGroupName")
                && old.log_destination_type == destination_type
                && old.traffic_type.as_deref() == request.text("TrafficType")
        })
        .map(|old| old.resource_id.clone())
        .collect();
    let (mut created, mut unsuccessful) = (Vec::new(), Vec::new());
    for id in ids {
        let failed = |code: &str, message: &str| {
            let error = json!({"Code": code, "Message": message});
            json!({"ResourceId": id, "Error": error})
        };
        if let Some(cause) = &unknown {
            unsuccessful.push(failed("400", cause));
            continue;
        }
        let log = FlowLog {
            flow_log_id: region.ids.id("fl"),
            flow_log_status: "ACTIVE".to_owned(),
            creation_time: now(region),
            resource_id: id.to_owned(),
            traffic_type: text("TrafficType"),
            log_destination_type: destination_type.to_owned(),
            log_destination: text("LogDestination"),
            log_group_name: text("LogGroupName"),
            deliver_logs_permission_arn: text("DeliverLogsPermissionArn"),
            deliver_cross_account_role: text("DeliverCrossAccountRole"),
            deliver_logs_status: Some("SUCCESS".to_owned()),
            deliver_logs_error_message: None,
            log_format: text("LogFormat").unwrap_or_else(|| DEFAULT_FORMAT.to_owned()),
            max_aggregation_interval: interval,
            destination_options: request.part("DestinationOptions").cloned(),
            tags: tags.clone(),
        };
        if !existing.insert(id.to_owned()) {
            let message = "Error. There is an existing Flow Log with the same configuration and \
                           log destination.";
            return Err(ApiError::new("FlowLogAlreadyExists", message));
        }
        created.push(log.flow_log_id.clone());
        region.flow_logs.insert(log);
    }
    Ok(json!({"FlowLogIds": created, "Unsuccessful": unsuccessful,
              "ClientToken": request.text("ClientToken")}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "",
        id: "FlowLogId",
        not_found: |id| not_found("fl", id),
        filters: &[
            ("deliver-log-status", "DeliverLogsStatus"),
            ("flow-log-id", "FlowLogId"),
            ("log-destination-type", "LogDestinationType"),
            ("log-group-name", "LogGroupName"),
            ("resource-id", "ResourceId"),
            ("traffic-type", "TrafficType"),
        ],
        result: "FlowLogs",
    };
    // Unknown identifiers are no error here.
    let ids = request.texts("FlowLogIds");
    let mut logs = show_all(&region.flow_logs);
    if !ids.is_empty() {
        logs.retain(|log| log["FlowLogId"].as_str().is_some_and(|id| ids.contains(&id)));
    }
    listing.answer(request, logs)
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let ids = request.texts("FlowLogIds");
    let is_unknown = |id: &&&str| region.flow_logs.get(id).is_none();
    let unknown: Vec<&str> = ids.iter().filter(is_unknown).copied().collect();
    if !unknown.is_empty() {
        let message = format!(
            "These flow log ids in the input list are not found: [TotalCount: {}] {}",
            unknown.len(),
            unknown.join(" ")
        );
        return Err(ApiError::new("InvalidFlowLogId.NotFound", message));
    }
    for id in ids {
        region.flow_logs.remove(id);
    }
    let unsuccessful: Vec<Value> = Vec::new();
    Ok(json!({"Unsuccessful": unsuccessful}))
}
