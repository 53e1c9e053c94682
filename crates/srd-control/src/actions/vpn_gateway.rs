//! Virtual private gateways, and the routes that they propagate to route tables.
//!
//! A gateway propagates the static routes of its VPN connections. There are no tunnels behind it:
//! the data plane drops packets to it.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, get_live, get_mut, new_tags, not_found, show, success, trim};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::network::{PropagatingVgw, Route};
use crate::state::vpn::VpnAttachment;
use crate::state::{Region, RouteTable, VpnGateway};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateVpnGateway", Handler::Region(create)),
    ("DescribeVpnGateways", Handler::Region(describe)),
    ("AttachVpnGateway", Handler::Region(attach)),
    ("DetachVpnGateway", Handler::Region(detach)),
    ("DeleteVpnGateway", Handler::Region(delete)),
    ("EnableVgwRoutePropagation", Handler::Region(enable)),
    ("DisableVgwRoutePropagation", Handler::Region(disable)),
];

/// Number of the autonomous system of a gateway if the request contains no number.
pub(super) const DEFAULT_ASN: i64 = 64_512;
/// Largest number of propagated routes of a table.
pub(super) const PROPAGATED_MAX: usize = 100;
/// Origin of propagated routes.
const PROPAGATED: &str = "EnableVgwRoutePropagation";

/// Checks the number of the autonomous system of a gateway of the provider.
pub(super) fn check_asn(asn: i64) -> ApiResult<i64> {
    if (64_512..=65_534).contains(&asn) || (4_200_000_000..=4_294_967_294).contains(&asn) {
        return Ok(asn);
    }
    Err(ApiError::invalid(format!("Value ({asn}) for parameter amazonSideAsn is invalid.")))
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "vpn-gateway")?;
    let zone = request.text("AvailabilityZone");
    if let Some(zone) = zone
        && !crate::regions::zones(&region.name).iter().any(|(name, _)| name == zone)
    {
        let message = format!("Invalid availability zone: [{zone}]");
        return Err(ApiError::invalid(message));
    }
    let gateway = VpnGateway {
        vpn_gateway_id: region.ids.id("vgw"),
        state: "available".to_owned(),
        r#type: request.need("Type")?.to_owned(),
        availability_zone: zone.map(str::to_owned),
        amazon_side_asn: check_asn(request.number("AmazonSideAsn").unwrap_or(DEFAULT_ASN))?,
        vpc_attachments: Vec::new(),
        tags,
    };
    let shown = show(&gateway);
    region.vpn_gateways.insert(gateway);
    Ok(json!({"VpnGateway": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "VpnGatewayIds",
        id: "VpnGatewayId",
        not_found: |id| not_found("vgw", id),
        filters: &[
            ("amazon-side-asn", "AmazonSideAsn"),
            ("attachment.state", "VpcAttachments.State"),
            ("attachment.vpc-id", "VpcAttachments.VpcId"),
            ("availability-zone", "AvailabilityZone"),
            ("state", "State"),
            ("type", "Type"),
            ("vpn-gateway-id", "VpnGatewayId"),
        ],
        result: "VpnGateways",
    };
    listing.describe(request, &Source::new(&region.vpn_gateways))
}

/// Returns a gateway that is not deleted.
pub(super) fn find<'a>(region: &'a Region, id: &str) -> ApiResult<&'a VpnGateway> {
    get_live(&region.vpn_gateways, id, |gateway| gateway.state == "available")
}

fn attach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (id, vpc) = (request.need("VpnGatewayId")?, request.need("VpcId")?);
    let gateway = find(region, id)?;
    let vpc_id = get(&region.vpcs, vpc)?.vpc_id.clone();
    if let Some(old) = gateway.vpc().filter(|old| *old != vpc_id) {
        let message = format!("The vpnGateway '{id}' is already attached to the VPC '{old}'.");
        return Err(ApiError::new("VpnGatewayAttachmentLimitExceeded", message));
    }
    let other = |of: &VpnGateway| of.vpn_gateway_id != id && of.vpc() == Some(&vpc_id);
    if region.vpn_gateways.find(other).is_some() {
        let message = format!("The VPC '{vpc_id}' already has a virtual private gateway.");
        return Err(ApiError::new("VpnGatewayAttachmentLimitExceeded", message));
    }
    let attachment = VpnAttachment { state: "attached".to_owned(), vpc_id };
    let shown = show(&attachment);
    get_mut(&mut region.vpn_gateways, id)?.vpc_attachments = vec![attachment];
    Ok(json!({"VpcAttachment": shown}))
}

fn detach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (id, vpc) = (request.need("VpnGatewayId")?, request.need("VpcId")?);
    if find(region, id)?.vpc() != Some(vpc) {
        let message = format!("The attachment of the vpnGateway '{id}' to '{vpc}' does not exist");
        return Err(ApiError::new("InvalidVpnGatewayAttachment.NotFound", message));
    }
    for attachment in &mut get_mut(&mut region.vpn_gateways, id)?.vpc_attachments {
        "detached".clone_into(&mut attachment.state);
    }
    let of_gateway = PropagatingVgw { gateway_id: id.to_owned() };
    for table in region.route_tables.ids_where(|of| of.propagating_vgws.contains(&of_gateway)) {
        let table = get_mut(&mut region.route_tables, &table)?;
        table.propagating_vgws.retain(|old| *old != of_gateway);
    }
    propagate(region);
    region.blackhole_routes(|route| route.gateway_id.as_deref() == Some(id));
    success()
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("VpnGatewayId")?;
    let gateway = find(region, id)?;
    let uses = |of: &crate::state::VpnConnection| {
        of.state == "available" && of.vpn_gateway_id.as_deref() == Some(id)
    };
    if gateway.vpc().is_some() || region.vpn_connections.find(uses).is_some() {
        let message = "The vpnGateway is in use: it is attached to a VPC, or has a VPN connection.";
        return Err(ApiError::new("IncorrectState", message));
    }
    "deleted".clone_into(&mut get_mut(&mut region.vpn_gateways, id)?.state);
    trim(&mut region.vpn_gateways, |gateway| gateway.state == "deleted");
    success()
}

fn enable(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (gateway, table) = (request.need("GatewayId")?, request.need("RouteTableId")?);
    let vpc = &get(&region.route_tables, table)?.vpc_id;
    if find(region, gateway)?.vpc() != Some(vpc) {
        let message = format!("The vpnGateway '{gateway}' is not attached to the VPC '{vpc}'.");
        return Err(ApiError::new("Gateway.NotAttached", message));
    }
    let of_gateway = PropagatingVgw { gateway_id: gateway.to_owned() };
    let table = get_mut(&mut region.route_tables, table)?;
    if !table.propagating_vgws.contains(&of_gateway) {
        table.propagating_vgws.push(of_gateway);
    }
    propagate(region);
    success()
}

/// Ends the propagation of a gateway. A gateway that does not propagate causes no error.
fn disable(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let of_gateway = PropagatingVgw { gateway_id: request.need("GatewayId")?.to_owned() };
    let table = get_mut(&mut region.route_tables, request.need("RouteTableId")?)?;
    table.propagating_vgws.retain(|old| *old != of_gateway);
    propagate(region);
    success()
}

/// The routes that the gateways of a table propagate to it.
fn propagated(region: &Region, table: &RouteTable) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for of in &table.propagating_vgws {
        let gateway = Some(of.gateway_id.as_str());
        let connections = region.vpn_connections.iter();
        let own = connections.filter(|c| c.state == "available");
        let own = own.filter(|c| c.vpn_gateway_id.as_deref() == gateway);
        for destination in own.flat_map(|c| &c.routes).map(|r| r.destination_cidr_block) {
            let route = Route {
                destination_cidr_block: Some(destination),
                gateway_id: gateway.map(str::to_owned),
                origin: PROPAGATED.to_owned(),
                state: "active".to_owned(),
                ..Route::default()
            };
            if !routes.contains(&route) && routes.len() < PROPAGATED_MAX {
                routes.push(route);
            }
        }
    }
    routes
}

/// Brings the propagated routes of all tables up to date.
pub(super) fn propagate(region: &mut Region) {
    let is_propagated = |route: &Route| route.origin == PROPAGATED;
    let concerned = region.route_tables.ids_where(|table| {
        !table.propagating_vgws.is_empty() || table.routes.iter().any(is_propagated)
    });
    for id in concerned {
        let Some(table) = region.route_tables.get(&id) else { continue };
        let mut routes = table.routes.clone();
        routes.retain(|route| !is_propagated(route));
        routes.extend(propagated(region, table));
        if routes != table.routes
            && let Some(table) = region.route_tables.get_mut(&id)
        {
            table.routes = routes;
        }
    }
}
