//! ClassicLink. ClassicLink connected instances with EC2-Classic, a network that AWS has retired,
//! so it has no effect on packets. The actions are served for clients that still send them.

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::list::{self, Listing};
use super::support::{get, get_mut, not_found};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{Region, RouteTable, Vpc};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("EnableVpcClassicLink", Handler::Region(enable)),
    ("DisableVpcClassicLink", Handler::Region(|r, q| set(r, q, |vpc| vpc.classic_link = false))),
    ("DescribeVpcClassicLink", Handler::Region(describe)),
    (
        "EnableVpcClassicLinkDnsSupport",
        Handler::Region(|r, q| set(r, q, |vpc| vpc.classic_link_dns = true)),
    ),
    (
        "DisableVpcClassicLinkDnsSupport",
        Handler::Region(|r, q| set(r, q, |vpc| vpc.classic_link_dns = false)),
    ),
    ("DescribeVpcClassicLinkDnsSupport", Handler::Region(describe_dns)),
];

fn set(region: &mut Region, request: &Request, change: fn(&mut Vpc)) -> ApiResult<Value> {
    change(get_mut(&mut region.vpcs, request.need("VpcId")?)?);
    Ok(json!({"Return": true}))
}

/// Whether a route prevents ClassicLink. A route with a destination within 10.0.0.0/8 prevents it,
/// except a local route with a destination within 10.0.0.0/16 or 10.1.0.0/16.
fn prevents(route: &crate::state::network::Route) -> bool {
    let Some(block) = route.destination_cidr_block else { return false };
    let classic = Ipv4Net::new_assert([10, 0, 0, 0].into(), 8);
    let kept = |second| Ipv4Net::new_assert([10, second, 0, 0].into(), 16).contains(&block);
    let is_local = route.gateway_id.as_deref() == Some("local");
    classic.contains(&block) && !(is_local && (kept(0) || kept(1)))
}

fn enable(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("VpcId")?;
    get(&region.vpcs, id)?;
    let prevents = |table: &RouteTable| table.vpc_id == id && table.routes.iter().any(prevents);
    if region.route_tables.find(prevents).is_some() {
        let message = format!("The VPC '{id}' has routes within 10.0.0.0/8.");
        return Err(ApiError::new("InvalidParameterCombination", message));
    }
    set(region, request, |vpc| vpc.classic_link = true)
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "VpcIds",
        id: "VpcId",
        not_found: |id| not_found("vpc", id),
        filters: &[("is-classic-link-enabled", "ClassicLinkEnabled")],
        result: "Vpcs",
    };
    let shown = region.vpcs.iter().map(|vpc| {
        json!({"VpcId": vpc.vpc_id, "ClassicLinkEnabled": vpc.classic_link, "Tags": vpc.tags})
    });
    listing.answer(request, shown.collect())
}

fn describe_dns(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let ids = request.texts("VpcIds");
    for id in &ids {
        get(&region.vpcs, id)?;
    }
    let named = |vpc: &&Vpc| ids.is_empty() || ids.contains(&vpc.vpc_id.as_str());
    let shown =
        region.vpcs.iter().filter(named).map(
            |vpc| json!({"VpcId": vpc.vpc_id, "ClassicLinkDnsSupported": vpc.classic_link_dns}),
        );
    list::page(request, "Vpcs", "VpcId", shown.collect())
}
