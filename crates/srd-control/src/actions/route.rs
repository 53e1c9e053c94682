//! Actions of the EC2 API on routes.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::support::{get, get_live, get_mut, ipv4_block, ipv6_block, not_found, success};
use super::{Actions, Handler, prefix_list, vpn_gateway};
use crate::error::{ApiError, ApiResult};
use crate::state::network::Route;
use crate::state::{Region, RouteTable};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateRoute", Handler::Region(create)),
    ("ReplaceRoute", Handler::Region(replace)),
    ("DeleteRoute", Handler::Region(delete)),
];

/// Largest number of routes of a table that are not propagated.
const ROUTES_MAX: usize = 500;
/// Parameters that name a target.
const TARGETS: [&str; 13] = [
    "VpcEndpointId",
    "TransitGatewayId",
    "LocalGatewayId",
    "CarrierGatewayId",
    "CoreNetworkArn",
    "OdbNetworkArn",
    "GatewayId",
    "EgressOnlyInternetGatewayId",
    "InstanceId",
    "NetworkInterfaceId",
    "VpcPeeringConnectionId",
    "NatGatewayId",
    "LocalTarget",
];

/// Returns a route with the destination of a request.
fn destination(region: &Region, request: &Request) -> ApiResult<Route> {
    let v4 = request.text("DestinationCidrBlock");
    let v6 = request.text("DestinationIpv6CidrBlock");
    let list = request.text("DestinationPrefixListId");
    let mut route = Route { origin: "CreateRoute".to_owned(), ..Route::default() };
    match (v4, v6, list) {
        (Some(block), None, None) => {
            route.destination_cidr_block = Some(ipv4_block(block, "destinationCidrBlock")?);
        }
        (None, Some(block), None) => {
            let block = ipv6_block(block, "destinationIpv6CidrBlock")?;
            route.destination_ipv6_cidr_block = Some(block);
        }
        (None, None, Some(list)) => {
            let list = prefix_list::find(region, list)?.prefix_list_id.clone();
            route.destination_prefix_list_id = Some(list);
        }
        (None, None, None) => return Err(ApiError::missing("destinationCidrBlock")),
        _ => {
            let message = "A route has exactly one destination";
            return Err(ApiError::combination(message));
        }
    }
    Ok(route)
}

fn same(a: &Route, b: &Route) -> bool {
    a.destination_cidr_block == b.destination_cidr_block
        && a.destination_ipv6_cidr_block == b.destination_ipv6_cidr_block
        && a.destination_prefix_list_id == b.destination_prefix_list_id
}

fn text(route: &Route) -> String {
    let v4 = route.destination_cidr_block.map(|block| block.to_string());
    let v6 = || route.destination_ipv6_cidr_block.map(|block| block.to_string());
    let list = || route.destination_prefix_list_id.clone();
    v4.or_else(v6).or_else(list).unwrap_or_default()
}

/// Checks that a target belongs to the VPC of the table.
fn check_vpc(table: &RouteTable, id: &str, vpc: &str) -> ApiResult<()> {
    if vpc == table.vpc_id {
        return Ok(());
    }
    let message =
        format!("route table {} and {id} belong to different networks", table.route_table_id);
    Err(ApiError::invalid(message))
}

/// Adds the target of a request to a route.
fn target(
    region: &Region,
    request: &Request,
    table: &RouteTable,
    route: &mut Route,
) -> ApiResult<()> {
    let given: Vec<&str> = TARGETS.into_iter().filter(|name| request.has(name)).collect();
    let [name] = given.as_slice() else {
        if given.is_empty() {
            return Err(ApiError::missing("gatewayId"));
        }
        let message = "A route has exactly one target";
        return Err(ApiError::combination(message));
    };
    let id = request.text(name).unwrap_or_default();
    let here = |vpc: &str| check_vpc(table, id, vpc);
    "active".clone_into(&mut route.state);
    match *name {
        "LocalTarget" => route.gateway_id = Some("local".to_owned()),
        "GatewayId" if id == "local" => route.gateway_id = Some("local".to_owned()),
        "GatewayId" if id.starts_with("vgw-") => {
            here(vpn_gateway::find(region, id)?.vpc().unwrap_or_default())?;
            route.gateway_id = Some(id.to_owned());
        }
        "GatewayId" => {
            let gateway = get(&region.internet_gateways, id)?;
            let vpc = gateway.attachments.first().map(|a| a.vpc_id.as_str()).unwrap_or_default();
            here(vpc)?;
            route.gateway_id = Some(id.to_owned());
        }
        "EgressOnlyInternetGatewayId" => {
            let gateway = get(&region.egress_only_gateways, id)?;
            let vpc = gateway.attachments.first().map(|a| a.vpc_id.as_str()).unwrap_or_default();
            here(vpc)?;
            if route.destination_cidr_block.is_some() {
                let message = "The destination of an egress-only internet gateway is IPv6";
                return Err(ApiError::invalid(message));
            }
            route.egress_only_internet_gateway_id = Some(id.to_owned());
        }
        "NatGatewayId" => {
            let gateway = get_live(&region.nat_gateways, id, |of| of.state == "available")?;
            here(&gateway.vpc_id)?;
            route.nat_gateway_id = Some(id.to_owned());
        }
        "InstanceId" => instance(region, id, route, &here)?,
        "NetworkInterfaceId" => {
            let interface = get(&region.interfaces, id)?;
            here(&interface.vpc_id)?;
            route.network_interface_id = Some(id.to_owned());
            let attachment = interface.attachment.as_ref();
            route.instance_id = attachment.and_then(|a| a.instance_id.clone());
            route.instance_owner_id = attachment.map(|a| a.instance_owner_id.clone());
            if attachment.is_none() {
                "blackhole".clone_into(&mut route.state);
            }
        }
        "VpcPeeringConnectionId" => {
            let peering = get(&region.peerings, id)?;
            let sides = [&peering.requester_vpc_info, &peering.accepter_vpc_info];
            if !sides.iter().any(|s| s.vpc_id == table.vpc_id && s.region == region.name) {
                here("")?;
            }
            if peering.status.code != "active" {
                "blackhole".clone_into(&mut route.state);
            }
            route.vpc_peering_connection_id = Some(id.to_owned());
        }
        "VpcEndpointId" | "TransitGatewayId" | "CarrierGatewayId" => {
            around(region, (name, id), table, route)?;
        }
        name => {
            let message = format!("Targets of the kind {name} are not served by this endpoint.");
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    }
    Ok(())
}

/// Sets the target of a route if it is an endpoint, a transit gateway or a carrier gateway.
fn around(
    region: &Region,
    (name, id): (&str, &str),
    table: &RouteTable,
    route: &mut Route,
) -> ApiResult<()> {
    let here = |vpc: &str| check_vpc(table, id, vpc);
    match name {
        "VpcEndpointId" => {
            let endpoint = get_live(&region.endpoints, id, |of| of.state != "deleted")?;
            if endpoint.vpc_endpoint_type != "GatewayLoadBalancer" {
                let message = format!(
                    "Route table contains unsupported route target: {id}. VPC Endpoints of this \
                     type cannot be used as route targets."
                );
                return Err(ApiError::new("RouteNotSupported", message));
            }
            here(&endpoint.vpc_id)?;
            route.gateway_id = Some(id.to_owned());
        }
        "TransitGatewayId" => {
            let gateway = get(&region.transit_gateways, id)?.transit_gateway_id.clone();
            let attached = |of: &crate::state::TransitAttachment| {
                of.transit_gateway_id == id
                    && of.resource_id == table.vpc_id
                    && of.state == "available"
            };
            if region.transit_attachments.find(attached).is_none() {
                return Err(not_found("tgw", id));
            }
            route.transit_gateway_id = Some(gateway);
        }
        _ => {
            here(&get(&region.carrier_gateways, id)?.vpc_id)?;
            route.carrier_gateway_id = Some(id.to_owned());
        }
    }
    Ok(())
}

fn instance(
    region: &Region,
    id: &str,
    route: &mut Route,
    here: &dyn Fn(&str) -> ApiResult<()>,
) -> ApiResult<()> {
    get(&region.instances, id)?;
    let of_instance = |interface: &crate::state::NetworkInterface| {
        interface.attachment.as_ref().is_some_and(|a| a.instance_id.as_deref() == Some(id))
    };
    let mut interfaces = region.interfaces.linked(id).filter(|interface| of_instance(interface));
    match (interfaces.next(), interfaces.next()) {
        (Some(interface), None) => {
            here(&interface.vpc_id)?;
            route.instance_id = Some(id.to_owned());
            route.instance_owner_id = Some(region.account.clone());
            route.network_interface_id = Some(interface.network_interface_id.clone());
            Ok(())
        }
        _ => {
            let message = format!("There are multiple interfaces attached to instance '{id}'.");
            Err(ApiError::new("InvalidInstanceID", message))
        }
    }
}

/// Checks that a destination does not belong to services of the network's own.
fn check_destination(route: &Route) -> ApiResult<()> {
    let v4 = route.destination_cidr_block.map(IpNet::V4);
    let block = v4.or(route.destination_ipv6_cidr_block.map(IpNet::V6));
    if !block.is_some_and(|block| srd_vpc_file::is_reserved(&block)) {
        return Ok(());
    }
    let message = format!(
        "The destination CIDR block {} is equal to or more specific than 169.254.168.0/22 or \
         fd00:ec2::/32, which are reserved for services of the network.",
        text(route)
    );
    Err(ApiError::invalid(message))
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let table = get(&region.route_tables, request.need("RouteTableId")?)?.clone();
    // A target that does not exist is reported before a missing destination.
    target(region, request, &table, &mut Route::default())?;
    let mut route = destination(region, request)?;
    check_destination(&route)?;
    target(region, request, &table, &mut route)?;
    if table.routes.iter().any(|old| same(old, &route)) {
        let message = format!("The route identified by {} already exists.", text(&route));
        return Err(ApiError::new("RouteAlreadyExists", message));
    }
    if table.routes.len() >= ROUTES_MAX {
        let message = format!("A route table has at most {ROUTES_MAX} routes");
        return Err(ApiError::limit("RouteLimitExceeded", message));
    }
    if is_inside_local(&table, &route)
        && route.network_interface_id.is_none()
        && route.nat_gateway_id.is_none()
    {
        let message = format!(
            "The destination CIDR block {} is equal to or more specific than one of this VPC's \
             CIDR blocks. This route can target only an interface or an instance.",
            text(&route)
        );
        return Err(ApiError::invalid(message));
    }
    get_mut(&mut region.route_tables, &table.route_table_id)?.routes.push(route);
    Ok(json!({"Return": true}))
}

/// Whether the destination lies in the destination of a local route.
fn is_inside_local(table: &RouteTable, route: &Route) -> bool {
    let mut local = table.routes.iter().filter(|old| old.origin == "CreateRouteTable");
    local.any(|local| match (local.destination_cidr_block, route.destination_cidr_block) {
        (Some(local), Some(block)) => local.contains(&block),
        _ => match (local.destination_ipv6_cidr_block, route.destination_ipv6_cidr_block) {
            (Some(local), Some(block)) => local.contains(&block),
            _ => false,
        },
    })
}

fn missing(route: &Route, table: &RouteTable) -> ApiError {
    let message = format!(
        "no route with destination-cidr-block {} in route table {}",
        text(route),
        table.route_table_id
    );
    ApiError::new("InvalidRoute.NotFound", message)
}

fn replace(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let table = get(&region.route_tables, request.need("RouteTableId")?)?.clone();
    let mut route = destination(region, request)?;
    target(region, request, &table, &mut route)?;
    let at = table.routes.iter().position(|old| same(old, &route));
    let at = at.ok_or_else(|| missing(&route, &table))?;
    route.origin.clone_from(&table.routes[at].origin);
    get_mut(&mut region.route_tables, &table.route_table_id)?.routes[at] = route;
    success()
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let table = get(&region.route_tables, request.need("RouteTableId")?)?.clone();
    let route = destination(region, request)?;
    let at = table.routes.iter().position(|old| same(old, &route));
    let at = at.ok_or_else(|| missing(&route, &table))?;
    let gateway = table.routes[at].gateway_id.as_deref().unwrap_or_default();
    if gateway.starts_with("vpce-") && route.destination_prefix_list_id.is_some() {
        let message = format!("the route {} belongs to the endpoint {gateway}", text(&route));
        return Err(ApiError::invalid(message));
    }
    if table.routes[at].origin == "CreateRouteTable" {
        let message = format!("cannot remove local route {} in route table", text(&route));
        return Err(ApiError::invalid(message));
    }
    get_mut(&mut region.route_tables, &table.route_table_id)?.routes.remove(at);
    success()
}
