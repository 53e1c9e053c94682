//! VPN connections. They have no tunnels: the data plane drops packets to them.

use serde_json::{Value, json};

use super::list::Listing;
use super::support::{
    get_live, get_mut, ipv4_block, new_tags, not_found, show, show_all, success, text_of, trim,
};
use super::{Actions, Handler, customer_gateway, transit_attachment, vpn_gateway};
use crate::error::{ApiError, ApiResult};
use crate::state::vpn::{VpnOptions, VpnRoute};
use crate::state::{Region, VpnConnection};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateVpnConnection", Handler::Region(create)),
    ("DescribeVpnConnections", Handler::Region(describe)),
    ("DeleteVpnConnection", Handler::Region(delete)),
    ("CreateVpnConnectionRoute", Handler::Region(create_route)),
    ("DeleteVpnConnectionRoute", Handler::Region(delete_route)),
];

/// Largest number of static routes of a connection.
const ROUTES_MAX: usize = vpn_gateway::PROPAGATED_MAX;

fn options(request: &Request) -> ApiResult<VpnOptions> {
    let given = request.part("Options");
    let flag = |name: &str| given.is_some_and(|of| of[name].as_bool() == Some(true));
    let block = |name: &str| match text_of(given, name) {
        Some(text) => ipv4_block(text, name).map(|block| block.to_string()),
        None => Ok("0.0.0.0/0".to_owned()),
    };
    let text = |name: &str, default: &str| text_of(given, name).unwrap_or(default).to_owned();
    Ok(VpnOptions {
        enable_acceleration: flag("EnableAcceleration"),
        static_routes_only: flag("StaticRoutesOnly"),
        local_ipv4_network_cidr: block("LocalIpv4NetworkCidr")?,
        remote_ipv4_network_cidr: block("RemoteIpv4NetworkCidr")?,
        tunnel_inside_ip_version: text("TunnelInsideIpVersion", "ipv4"),
        outside_ip_address_type: text("OutsideIpAddressType", "PublicIpv4"),
    })
}

/// Checks the ends of a connection: a customer gateway, and at most one gateway of the provider.
fn check_ends(region: &Region, request: &Request) -> ApiResult<()> {
    let (vpn, transit) = (request.text("VpnGatewayId"), request.text("TransitGatewayId"));
    if vpn.is_some() && transit.is_some() {
        let message = "The request must not contain both parameter vpnGatewayId and \
                       transitGatewayId";
        return Err(ApiError::invalid(message));
    }
    if request.has("VpnConcentratorId") {
        let message = "VPN concentrators are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    customer_gateway::find(region, request.need("CustomerGatewayId")?)?;
    if let Some(id) = vpn {
        vpn_gateway::find(region, id)?;
    }
    if let Some(id) = transit
        && region.transit_gateways.get(id).is_none()
    {
        let message = format!("The transitGateway ID '{id}' does not exist");
        return Err(ApiError::new("InvalidTransitGatewayID.NotFound", message));
    }
    Ok(())
}

/// Creates a connection. A repetition of a request returns the connection that exists.
fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "vpn-connection")?;
    check_ends(region, request)?;
    let kind = request.need("Type")?;
    if kind != "ipsec.1" {
        return Err(ApiError::invalid(format!("Value ({kind}) for parameter type is invalid.")));
    }
    let text = |name: &str| request.text(name).map(str::to_owned);
    let near = [text("VpnGatewayId"), text("TransitGatewayId")];
    let [vpn_gateway_id, transit_gateway_id] = near;
    let is_associated = vpn_gateway_id.is_some() || transit_gateway_id.is_some();
    let connection = VpnConnection {
        vpn_connection_id: region.ids.id("vpn"),
        state: "available".to_owned(),
        r#type: kind.to_owned(),
        category: "VPN".to_owned(),
        customer_gateway_id: request.need("CustomerGatewayId")?.to_owned(),
        vpn_gateway_id,
        transit_gateway_id,
        gateway_association_state: match is_associated {
            true => "associated".to_owned(),
            false => "not-associated".to_owned(),
        },
        options: options(request)?,
        routes: Vec::new(),
        tags,
    };
    let same = |old: &VpnConnection| {
        old.state == "available"
            && old.customer_gateway_id == connection.customer_gateway_id
            && old.vpn_gateway_id == connection.vpn_gateway_id
            && old.transit_gateway_id == connection.transit_gateway_id
            && old.options == connection.options
    };
    if let Some(old) = region.vpn_connections.find(same) {
        return Ok(json!({"VpnConnection": show(old)}));
    }
    let shown = show(&connection);
    if let Some(gateway) = &connection.transit_gateway_id {
        transit_attachment::add_vpn(region, gateway, &connection.vpn_connection_id)?;
    }
    region.vpn_connections.insert(connection);
    Ok(json!({"VpnConnection": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut all = show_all(&region.vpn_connections);
    for shown in &mut all {
        let far = shown["CustomerGatewayId"].as_str().unwrap_or_default();
        let far = region.customer_gateways.get(far);
        // The filter uses this member. The service model does not contain it, so it does not appear
        // in an answer.
        shown["FarAsn"] = json!(far.and_then(|far| far.bgp_asn.clone()));
    }
    let listing = Listing {
        ids: "VpnConnectionIds",
        id: "VpnConnectionId",
        not_found: |id| not_found("vpn", id),
        filters: &[
            ("bgp-asn", "FarAsn"),
            ("customer-gateway-id", "CustomerGatewayId"),
            ("option.static-routes-only", "Options.StaticRoutesOnly"),
            ("route.destination-cidr-block", "Routes.DestinationCidrBlock"),
            ("state", "State"),
            ("transit-gateway-id", "TransitGatewayId"),
            ("type", "Type"),
            ("vpn-connection-id", "VpnConnectionId"),
            ("vpn-gateway-id", "VpnGatewayId"),
        ],
        result: "VpnConnections",
    };
    listing.answer(request, all)
}

/// Deletes a connection. A connection that is already deleted causes no error.
fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("VpnConnectionId")?;
    let connection = get_mut(&mut region.vpn_connections, id)?;
    "deleted".clone_into(&mut connection.state);
    connection.routes.clear();
    "not-associated".clone_into(&mut connection.gateway_association_state);
    vpn_gateway::propagate(region);
    transit_attachment::end_resource(region, id);
    trim(&mut region.vpn_connections, |connection| connection.state == "deleted");
    success()
}

/// Returns a connection that is not deleted, and the destination of a route of a request.
fn route_of(region: &Region, request: &Request) -> ApiResult<(VpnConnection, ipnet::Ipv4Net)> {
    let id = request.need("VpnConnectionId")?;
    let connection = get_live(&region.vpn_connections, id, |of| of.state == "available")?;
    let block = request.need("DestinationCidrBlock")?;
    Ok((connection.clone(), ipv4_block(block, "destinationCidrBlock")?))
}

fn create_route(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (mut connection, destination) = route_of(region, request)?;
    if !connection.options.static_routes_only {
        let message = "Static routes need a connection with static routes only";
        return Err(ApiError::combination(message));
    }
    if connection.routes.iter().any(|old| old.destination_cidr_block == destination) {
        return success();
    }
    if connection.routes.len() >= ROUTES_MAX {
        let message = format!("A VPN connection has at most {ROUTES_MAX} static routes");
        return Err(ApiError::limit("VpnConnectionRouteLimitExceeded", message));
    }
    connection.routes.push(VpnRoute {
        destination_cidr_block: destination,
        source: "Static".to_owned(),
        state: "available".to_owned(),
    });
    region.vpn_connections.insert(connection);
    vpn_gateway::propagate(region);
    success()
}

fn delete_route(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (mut connection, destination) = route_of(region, request)?;
    let before = connection.routes.len();
    connection.routes.retain(|old| old.destination_cidr_block != destination);
    if connection.routes.len() == before {
        let message = format!("The static route to {destination} does not exist");
        return Err(ApiError::new("InvalidRoute.NotFound", message));
    }
    region.vpn_connections.insert(connection);
    vpn_gateway::propagate(region);
    success()
}
