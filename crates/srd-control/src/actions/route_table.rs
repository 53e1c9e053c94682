//! Actions of the EC2 API on route tables.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, get_mut, new_tags, not_found, show, success};
use super::{Actions, Handler, vpn_gateway};
use crate::defaults;
use crate::error::{ApiError, ApiResult};
use crate::state::Region;
use crate::state::network::{BlockState, RouteTableAssociation};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateRouteTable", Handler::Region(create)),
    ("DescribeRouteTables", Handler::Region(describe)),
    ("DeleteRouteTable", Handler::Region(delete)),
    ("AssociateRouteTable", Handler::Region(associate)),
    ("DisassociateRouteTable", Handler::Region(disassociate)),
    ("ReplaceRouteTableAssociation", Handler::Region(replace)),
];

const LISTING: Listing = Listing {
    ids: "RouteTableIds",
    id: "RouteTableId",
    not_found: |id| not_found("rtb", id),
    filters: &[
        ("association.gateway-id", "Associations.GatewayId"),
        ("association.route-table-association-id", "Associations.RouteTableAssociationId"),
        ("association.route-table-id", "Associations.RouteTableId"),
        ("association.subnet-id", "Associations.SubnetId"),
        ("association.main", "Associations.Main"),
        ("owner-id", "OwnerId"),
        ("route-table-id", "RouteTableId"),
        ("route.destination-cidr-block", "Routes.DestinationCidrBlock"),
        ("route.destination-ipv6-cidr-block", "Routes.DestinationIpv6CidrBlock"),
        ("route.destination-prefix-list-id", "Routes.DestinationPrefixListId"),
        ("route.egress-only-internet-gateway-id", "Routes.EgressOnlyInternetGatewayId"),
        ("route.gateway-id", "Routes.GatewayId"),
        ("route.instance-id", "Routes.InstanceId"),
        ("route.nat-gateway-id", "Routes.NatGatewayId"),
        ("route.network-interface-id", "Routes.NetworkInterfaceId"),
        ("route.origin", "Routes.Origin"),
        ("route.state", "Routes.State"),
        ("route.transit-gateway-id", "Routes.TransitGatewayId"),
        ("route.vpc-peering-connection-id", "Routes.VpcPeeringConnectionId"),
        ("transit-gateway-id", "Routes.TransitGatewayId"),
        ("vpc-id", "VpcId"),
    ],
    result: "RouteTables",
};

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "route-table")?;
    let vpc_id = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    let id = defaults::route_table(region, &vpc_id);
    let table = get_mut(&mut region.route_tables, &id)?;
    table.tags = tags;
    Ok(json!({"RouteTable": show(table), "ClientToken": request.text("ClientToken")}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    LISTING.describe(request, &Source::new(&region.route_tables))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("RouteTableId")?;
    if !get(&region.route_tables, id)?.associations.is_empty() {
        let message = format!("The routeTable '{id}' has dependencies and cannot be deleted.");
        return Err(ApiError::in_use(message));
    }
    region.route_tables.remove(id);
    for endpoint in region.endpoints.ids_where(|of| of.route_table_ids.iter().any(|t| t == id)) {
        get_mut(&mut region.endpoints, &endpoint)?.route_table_ids.retain(|table| table != id);
    }
    success()
}

fn associate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let table = get(&region.route_tables, request.need("RouteTableId")?)?.clone();
    let (subnet_id, gateway_id) = (request.text("SubnetId"), request.text("GatewayId"));
    let vpc = match (subnet_id, gateway_id) {
        (Some(subnet), None) => get(&region.subnets, subnet)?.vpc_id.clone(),
        (None, Some(gateway)) if gateway.starts_with("vgw-") => {
            vpn_gateway::find(region, gateway)?.vpc().unwrap_or_default().to_owned()
        }
        (None, Some(gateway)) => {
            let gateway = get(&region.internet_gateways, gateway)?;
            gateway.attachments.first().map(|a| a.vpc_id.clone()).unwrap_or_default()
        }
        (None, None) => {
            let message = "The request must contain either SubnetId or GatewayId";
            return Err(ApiError::new("MissingParameter", message));
        }
        (Some(_), Some(_)) => {
            let message = "Only one of SubnetId and GatewayId can be given";
            return Err(ApiError::combination(message));
        }
    };
    if vpc != table.vpc_id {
        let message = format!(
            "Route table {} and {} belong to different networks",
            table.route_table_id,
            subnet_id.or(gateway_id).unwrap_or_default()
        );
        return Err(ApiError::invalid(message));
    }
    let same = |a: &RouteTableAssociation| {
        !a.main && a.subnet_id.as_deref() == subnet_id && a.gateway_id.as_deref() == gateway_id
    };
    for other in region.route_tables.iter() {
        let Some(old) = other.associations.iter().find(|a| same(a)) else { continue };
        if other.route_table_id == table.route_table_id {
            return Ok(json!({"AssociationId": old.route_table_association_id,
                             "AssociationState": old.association_state}));
        }
        let message = format!(
            "the specified association for route table {} conflicts with an existing association",
            table.route_table_id
        );
        return Err(ApiError::new("Resource.AlreadyAssociated", message));
    }
    let id = region.ids.id("rtbassoc");
    let state = BlockState { state: "associated".to_owned() };
    let association = RouteTableAssociation {
        route_table_association_id: id.clone(),
        route_table_id: table.route_table_id.clone(),
        main: false,
        subnet_id: subnet_id.map(str::to_owned),
        gateway_id: gateway_id.map(str::to_owned),
        association_state: state.clone(),
    };
    get_mut(&mut region.route_tables, &table.route_table_id)?.associations.push(association);
    Ok(json!({"AssociationId": id, "AssociationState": state}))
}

/// Returns the table and the association with this identifier.
fn association(region: &Region, id: &str) -> ApiResult<(String, RouteTableAssociation)> {
    let mut all = region.route_tables.iter().flat_map(|table| {
        table.associations.iter().map(|a| (table.route_table_id.clone(), a.clone()))
    });
    let found = all.find(|(_, a)| a.route_table_association_id == id);
    found.ok_or_else(|| not_found("rtbassoc", id))
}

fn disassociate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("AssociationId")?;
    let (table, association) = association(region, id)?;
    if association.main {
        let message = format!("cannot disassociate the main route table association {id}");
        return Err(ApiError::invalid(message));
    }
    let table = get_mut(&mut region.route_tables, &table)?;
    table.associations.retain(|a| a.route_table_association_id != id);
    success()
}

fn replace(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("AssociationId")?;
    let to = get(&region.route_tables, request.need("RouteTableId")?)?;
    let (to, vpc) = (to.route_table_id.clone(), to.vpc_id.clone());
    let (from, mut association) = association(region, id)?;
    if get(&region.route_tables, &from)?.vpc_id != vpc {
        let message = format!("Route table {to} belongs to another network");
        return Err(ApiError::invalid(message));
    }
    let state = association.association_state.clone();
    if from == to {
        return Ok(json!({"NewAssociationId": id, "AssociationState": state}));
    }
    let table = get_mut(&mut region.route_tables, &from)?;
    table.associations.retain(|a| a.route_table_association_id != id);
    let new_id = region.ids.id("rtbassoc");
    association.route_table_association_id.clone_from(&new_id);
    association.route_table_id.clone_from(&to);
    get_mut(&mut region.route_tables, &to)?.associations.push(association);
    Ok(json!({"NewAssociationId": new_id, "AssociationState": state}))
}
