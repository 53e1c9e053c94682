//! Actions of the EC2 API that describe regions, zones, and attributes of the account.

use serde_json::{Value, json};

use super::list::{self, Listing};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::Region;
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("DescribeRegions", Handler::Region(describe_regions)),
    ("DescribeAvailabilityZones", Handler::Region(describe_zones)),
    ("DescribeAccountAttributes", Handler::Region(describe_account)),
];

fn describe_regions(_: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "RegionNames",
        id: "RegionName",
        not_found: |name| ApiError::invalid(format!("Invalid region provided: '{name}'")),
        filters: &[
            ("endpoint", "Endpoint"),
            ("opt-in-status", "OptInStatus"),
            ("region-name", "RegionName"),
        ],
        result: "Regions",
    };
    let names = regions::names().filter(|name| regions::partition(name) == "aws");
    let regions = names.map(|name| {
        json!({"RegionName": name, "OptInStatus": "opt-in-not-required",
               "Endpoint": format!("ec2.{name}.amazonaws.com")})
    });
    listing.answer(request, regions.collect())
}

fn describe_zones(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let name = region.name.clone();
    let zones = regions::zones(&name).into_iter().map(|(zone, id)| {
        json!({"ZoneName": zone, "ZoneId": id, "RegionName": name, "State": "available",
               "GroupName": name, "NetworkBorderGroup": name, "ZoneType": "availability-zone",
               "OptInStatus": "opt-in-not-required", "Messages": []})
    });
    let mut zones: Vec<Value> = zones.collect();
    let ids = request.texts("ZoneIds");
    if let Some(id) = ids.iter().find(|id| !zones.iter().any(|zone| zone["ZoneId"] == **id)) {
        return Err(ApiError::invalid(format!("Invalid availability zone-id: [{id}]")));
    }
    if !ids.is_empty() {
        zones.retain(|zone| zone["ZoneId"].as_str().is_some_and(|id| ids.contains(&id)));
    }
    let listing = Listing {
        ids: "ZoneNames",
        id: "ZoneName",
        not_found: |name| ApiError::invalid(format!("Invalid availability zone: [{name}]")),
        filters: &[
            ("group-name", "GroupName"),
            ("message", "Messages.Message"),
            ("opt-in-status", "OptInStatus"),
            ("region-name", "RegionName"),
            ("state", "State"),
            ("zone-id", "ZoneId"),
            ("zone-name", "ZoneName"),
            ("zone-type", "ZoneType"),
        ],
        result: "AvailabilityZones",
    };
    listing.answer(request, zones)
}

fn describe_account(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let default = region.vpcs.find(|vpc| vpc.is_default).map(|vpc| vpc.vpc_id.clone());
    let mut all = vec![
        ("supported-platforms", "VPC".to_owned()),
        ("default-vpc", default.unwrap_or_else(|| "none".to_owned())),
        ("vpc-max-security-groups-per-interface", "5".to_owned()),
        ("max-elastic-ips", "5".to_owned()),
        ("vpc-max-elastic-ips", "5".to_owned()),
        ("max-instances", "20".to_owned()),
    ];
    let names = request.texts("AttributeNames");
    all.retain(|(name, _)| names.is_empty() || names.contains(name));
    let shown = all.into_iter().map(|(name, value)| {
        json!({"AttributeName": name, "AttributeValues": [{"AttributeValue": value}]})
    });
    list::page(request, "AccountAttributes", "AttributeName", shown.collect())
}
