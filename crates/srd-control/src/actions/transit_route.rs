//! Routes of transit gateways.
//!
//! Static routes are parts of their table. Propagated routes follow from the attachments: the
//! blocks of a VPC, and the static routes of a VPN connection. A static route takes precedence over
//! a propagated route with the same destination.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::list::{self, Filters};
use super::support::{any_block, get_mut};
use super::{Actions, Handler, transit_attachment, transit_table};
use crate::error::{ApiError, ApiResult};
use crate::state::transit::TransitRoute;
use crate::state::{Region, TransitAttachment, TransitRouteTable};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTransitGatewayRoute", Handler::Region(create)),
    ("ReplaceTransitGatewayRoute", Handler::Region(replace)),
    ("DeleteTransitGatewayRoute", Handler::Region(delete)),
    ("SearchTransitGatewayRoutes", Handler::Region(search)),
];

/// Largest number of static routes of a table.
const ROUTES_MAX: usize = 10_000;
/// Largest number of routes of an answer.
const ANSWER_MAX: i64 = 1000;

/// Filters that compare texts. Filters whose names begin with [`SEARCHES`] compare blocks.
const FILTERS: Filters = &[
    ("attachment.resource-id", "TransitGatewayAttachments.ResourceId"),
    ("attachment.resource-type", "TransitGatewayAttachments.ResourceType"),
    (
        "attachment.transit-gateway-attachment-id",
        "TransitGatewayAttachments.TransitGatewayAttachmentId",
    ),
    ("prefix-list-id", "PrefixListId"),
    ("state", "State"),
    ("type", "Type"),
];

/// Prefix of the names of filters that compare blocks.
const SEARCHES: &str = "route-search.";

/// Returns a route as its description.
fn view(region: &Region, route: &TransitRoute) -> Value {
    let attachment = route.transit_gateway_attachment_id.as_ref();
    let attachment = attachment.and_then(|id| region.transit_attachments.get(id));
    let lives = attachment.is_some_and(|of| of.state == "available");
    let mut shown = json!({
        "DestinationCidrBlock": route.destination_cidr_block,
        "Type": "static",
        "State": if lives { "active" } else { "blackhole" },
    });
    if let Some(of) = attachment {
        shown["TransitGatewayAttachments"] = json!([link(of)]);
    }
    shown
}

fn link(of: &TransitAttachment) -> Value {
    json!({"ResourceId": of.resource_id, "ResourceType": of.resource_type,
           "TransitGatewayAttachmentId": of.transit_gateway_attachment_id})
}

/// Returns the table of a request, and the destination.
fn place(region: &Region, request: &Request) -> ApiResult<(TransitRouteTable, IpNet)> {
    let table = transit_table::find(region, request.need("TransitGatewayRouteTableId")?)?;
    let block = any_block(request.need("DestinationCidrBlock")?, "destinationCidrBlock")?;
    Ok((table.clone(), block))
}

/// Returns the route of a request.
fn route(
    region: &Region,
    request: &Request,
    table: &TransitRouteTable,
    destination_cidr_block: IpNet,
) -> ApiResult<TransitRoute> {
    let id = request.text("TransitGatewayAttachmentId");
    let blackhole = request.flag("Blackhole") == Some(true);
    match (id, blackhole) {
        (None, true) => {}
        (None, false) => return Err(ApiError::missing("TransitGatewayAttachmentId")),
        (Some(_), true) => {
            let message = "A blackhole route has no attachment";
            return Err(ApiError::combination(message));
        }
        (Some(id), false) => {
            transit_attachment::find_of(region, id, &table.transit_gateway_id)?;
        }
    }
    let transit_gateway_attachment_id = id.map(str::to_owned);
    Ok(TransitRoute { destination_cidr_block, transit_gateway_attachment_id })
}

fn position(table: &TransitRouteTable, block: IpNet) -> Option<usize> {
    table.routes.iter().position(|old| old.destination_cidr_block == block)
}

fn missing(table: &TransitRouteTable, block: IpNet) -> ApiError {
    let id = &table.transit_gateway_route_table_id;
    ApiError::new("InvalidRoute.NotFound", format!("{id} has no static route to {block}"))
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (table, block) = place(region, request)?;
    let route = route(region, request, &table, block)?;
    let id = &table.transit_gateway_route_table_id;
    if position(&table, block).is_some() {
        let message = format!("{id} has a static route to {block} already");
        return Err(ApiError::new("RouteAlreadyExists", message));
    }
    if table.routes.len() >= ROUTES_MAX {
        let message = format!("A table has at most {ROUTES_MAX} routes");
        return Err(ApiError::limit("TransitGatewayRouteLimitExceeded", message));
    }
    let shown = view(region, &route);
    get_mut(&mut region.transit_route_tables, id)?.routes.push(route);
    Ok(json!({"Route": shown}))
}

fn replace(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (table, block) = place(region, request)?;
    let route = route(region, request, &table, block)?;
    let at = position(&table, block).ok_or_else(|| missing(&table, block))?;
    let shown = view(region, &route);
    let table = &table.transit_gateway_route_table_id;
    get_mut(&mut region.transit_route_tables, table)?.routes[at] = route;
    Ok(json!({"Route": shown}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (table, block) = place(region, request)?;
    let at = position(&table, block).ok_or_else(|| missing(&table, block))?;
    let mut shown = view(region, &table.routes[at]);
    shown["State"] = "deleted".into();
    let table = &table.transit_gateway_route_table_id;
    get_mut(&mut region.transit_route_tables, table)?.routes.remove(at);
    Ok(json!({"Route": shown}))
}

/// Blocks that an attachment propagates.
fn blocks_of(region: &Region, of: &TransitAttachment) -> Vec<IpNet> {
    if let Some(vpc) = region.vpcs.get(&of.resource_id) {
        let v4 = vpc.cidr_block_association_set.iter().map(|a| IpNet::V4(a.cidr_block));
        let v6 = vpc.ipv6_cidr_block_association_set.iter().map(|a| IpNet::V6(a.ipv6_cidr_block));
        let uses_v6 = of.vpc_options.as_ref().is_some_and(|o| o.ipv6_support == "enable");
        return v4.chain(v6.filter(|_| uses_v6)).collect();
    }
    let connection = region.vpn_connections.get(&of.resource_id);
    let routes = connection.into_iter().flat_map(|connection| &connection.routes);
    routes.map(|route| IpNet::V4(route.destination_cidr_block)).collect()
}

/// Returns the routes of a table: static routes, and propagated routes to other destinations. If
/// several attachments propagate the same block, they share one route.
fn all(region: &Region, table: &TransitRouteTable) -> Vec<(IpNet, Value)> {
    let own = table.routes.iter();
    let mut routes: Vec<(IpNet, Value)> =
        own.map(|route| (route.destination_cidr_block, view(region, route))).collect();
    let fixed = routes.len();
    let id = &table.transit_gateway_route_table_id;
    let attachments = region.transit_attachments.iter();
    for of in attachments.filter(|of| of.state == "available" && of.propagations.contains(id)) {
        for block in blocks_of(region, of) {
            match routes.iter().position(|(old, _)| *old == block) {
                Some(at) if at < fixed => {}
                Some(at) => {
                    let list = routes[at].1["TransitGatewayAttachments"].as_array_mut();
                    list.into_iter().for_each(|list| list.push(link(of)));
                }
                None => {
                    let shown = json!({"DestinationCidrBlock": block, "Type": "propagated",
                                       "State": "active",
                                       "TransitGatewayAttachments": [link(of)]});
                    routes.push((block, shown));
                }
            }
        }
    }
    routes
}

/// Keeps the routes that a filter of blocks selects.
fn search_blocks(routes: &mut Vec<(IpNet, Value)>, kind: &str, blocks: &[IpNet]) -> ApiResult<()> {
    let any = |condition: &dyn Fn(&IpNet) -> bool| blocks.iter().any(condition);
    match kind {
        "exact-match" => routes.retain(|(route, _)| any(&|block| block == route)),
        "subnet-of-match" => routes.retain(|(route, _)| any(&|block| block.contains(route))),
        "supernet-of-match" => routes.retain(|(route, _)| any(&|block| route.contains(block))),
        "longest-prefix-match" => {
            let longest = |block: &IpNet| {
                let covers = routes.iter().map(|(route, _)| *route).filter(|r| r.contains(block));
                covers.max_by_key(IpNet::prefix_len)
            };
            let longest: Vec<IpNet> = blocks.iter().filter_map(longest).collect();
            routes.retain(|(route, _)| longest.contains(route));
        }
        kind => {
            let message = format!("The filter '{SEARCHES}{kind}' is invalid");
            return Err(ApiError::invalid(message));
        }
    }
    Ok(())
}

fn search(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let table = transit_table::find(region, request.need("TransitGatewayRouteTableId")?)?;
    let mut routes = all(region, table);
    let mut others = request.clone();
    let mut texts = Vec::new();
    for filter in request.list("Filters") {
        let name = filter["Name"].as_str().unwrap_or_default();
        let Some(kind) = name.strip_prefix(SEARCHES) else {
            texts.push(filter.clone());
            continue;
        };
        let values = filter["Values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let blocks: Vec<IpNet> =
            values.map(|value| any_block(value, name)).collect::<ApiResult<_>>()?;
        search_blocks(&mut routes, kind, &blocks)?;
    }
    others.parameters.insert("Filters".to_owned(), texts.into());
    let routes = routes.into_iter().map(|(_, route)| route).collect();
    let mut routes = list::filter(&others, FILTERS, routes)?;
    let max = request.number("MaxResults").unwrap_or(ANSWER_MAX);
    let Some(max) = usize::try_from(max).ok().filter(|_| (5..=ANSWER_MAX).contains(&max)) else {
        let message = format!("MaxResults is 5 to {ANSWER_MAX}");
        return Err(ApiError::invalid(message));
    };
    let more = routes.len() > max;
    routes.truncate(max);
    Ok(json!({"Routes": routes, "AdditionalRoutesAvailable": more}))
}
