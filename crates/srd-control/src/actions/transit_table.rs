//! Route tables of transit gateways: associations and propagations.

use serde_json::{Value, json};

use super::list::{self, Filters, Listing};
use super::source::Source;
use super::support::{get, get_live, get_mut, new_tags, not_found, now, show, trim};
use super::{Actions, Handler, transit_attachment};
use crate::error::{ApiError, ApiResult};
use crate::state::transit::TransitAssociation;
use crate::state::{Region, Tag, TransitAttachment, TransitRouteTable};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTransitGatewayRouteTable", Handler::Region(create)),
    ("DescribeTransitGatewayRouteTables", Handler::Region(describe)),
    ("DeleteTransitGatewayRouteTable", Handler::Region(delete)),
    ("AssociateTransitGatewayRouteTable", Handler::Region(associate)),
    ("DisassociateTransitGatewayRouteTable", Handler::Region(disassociate)),
    ("EnableTransitGatewayRouteTablePropagation", Handler::Region(enable)),
    ("DisableTransitGatewayRouteTablePropagation", Handler::Region(disable)),
    ("GetTransitGatewayRouteTableAssociations", Handler::Region(associations)),
    ("GetTransitGatewayRouteTablePropagations", Handler::Region(propagations)),
    ("GetTransitGatewayAttachmentPropagations", Handler::Region(attachment_propagations)),
];

/// Filters of associations and propagations.
const FILTERS: Filters = &[
    ("resource-id", "ResourceId"),
    ("resource-type", "ResourceType"),
    ("transit-gateway-attachment-id", "TransitGatewayAttachmentId"),
];

/// Adds a table to a gateway, and returns its identifier. The two flags are true if the table
/// becomes the default table of associations, and of propagations.
pub(super) fn add(
    region: &mut Region,
    gateway: &str,
    [association, propagation]: [bool; 2],
    tags: Vec<Tag>,
) -> String {
    let id = region.ids.id("tgw-rtb");
    region.transit_route_tables.insert(TransitRouteTable {
        transit_gateway_route_table_id: id.clone(),
        transit_gateway_id: gateway.to_owned(),
        state: "available".to_owned(),
        default_association_route_table: association,
        default_propagation_route_table: propagation,
        creation_time: now(region),
        routes: Vec::new(),
        tags,
    });
    id
}

/// Returns a table that is not deleted.
pub(super) fn find<'a>(region: &'a Region, id: &str) -> ApiResult<&'a TransitRouteTable> {
    get_live(&region.transit_route_tables, id, |table| table.state == "available")
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "transit-gateway-route-table")?;
    let gateway = get(&region.transit_gateways, request.need("TransitGatewayId")?)?;
    let gateway = gateway.transit_gateway_id.clone();
    let id = add(region, &gateway, [false; 2], tags);
    Ok(json!({"TransitGatewayRouteTable": show(get(&region.transit_route_tables, &id)?)}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TransitGatewayRouteTableIds",
        id: "TransitGatewayRouteTableId",
        not_found: |id| not_found("tgw-rtb", id),
        filters: &[
            ("default-association-route-table", "DefaultAssociationRouteTable"),
            ("default-propagation-route-table", "DefaultPropagationRouteTable"),
            ("state", "State"),
            ("transit-gateway-id", "TransitGatewayId"),
            ("transit-gateway-route-table-id", "TransitGatewayRouteTableId"),
        ],
        result: "TransitGatewayRouteTables",
    };
    listing.describe(request, &Source::new(&region.transit_route_tables))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TransitGatewayRouteTableId")?;
    let table = find(region, id)?;
    let is_default = table.default_association_route_table || table.default_propagation_route_table;
    let uses = |of: &TransitAttachment| of.association.as_ref().is_some_and(|a| is(a, id));
    if is_default || region.transit_attachments.find(uses).is_some() {
        let message = format!("{id} is a default route table, or has associations.");
        return Err(ApiError::new("IncorrectState", message));
    }
    for of in region.transit_attachments.ids_where(|of| of.propagations.iter().any(|t| t == id)) {
        get_mut(&mut region.transit_attachments, &of)?.propagations.retain(|table| table != id);
    }
    let table = get_mut(&mut region.transit_route_tables, id)?;
    "deleted".clone_into(&mut table.state);
    table.routes.clear();
    let shown = show(table);
    trim(&mut region.transit_route_tables, |table| table.state == "deleted");
    Ok(json!({"TransitGatewayRouteTable": shown}))
}

fn is(association: &TransitAssociation, table: &str) -> bool {
    association.transit_gateway_route_table_id == table
}

/// Returns the table and the attachment of a request, which belong to one gateway.
fn pair(region: &Region, request: &Request) -> ApiResult<(String, TransitAttachment)> {
    let table = find(region, request.need("TransitGatewayRouteTableId")?)?;
    if request.has("TransitGatewayRouteTableAnnouncementId") {
        let message = "Announcements of route tables are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let id = request.need("TransitGatewayAttachmentId")?;
    let attachment = transit_attachment::find_of(region, id, &table.transit_gateway_id)?;
    Ok((table.transit_gateway_route_table_id.clone(), attachment.clone()))
}

/// Returns an association or a propagation in this state.
fn link(attachment: &TransitAttachment, table: &str, state: &str) -> Value {
    json!({"TransitGatewayRouteTableId": table, "State": state,
           "TransitGatewayAttachmentId": attachment.transit_gateway_attachment_id,
           "ResourceId": attachment.resource_id, "ResourceType": attachment.resource_type})
}

fn associate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (table, mut attachment) = pair(region, request)?;
    if let Some(old) = &attachment.association {
        let id = &attachment.transit_gateway_attachment_id;
        let message =
            format!("{id} is already associated to {}.", old.transit_gateway_route_table_id);
        return Err(ApiError::new("Resource.AlreadyAssociated", message));
    }
    attachment.association = Some(TransitAssociation {
        transit_gateway_route_table_id: table.clone(),
        state: "associated".to_owned(),
    });
    let shown = link(&attachment, &table, "associated");
    region.transit_attachments.insert(attachment);
    Ok(json!({"Association": shown}))
}

fn disassociate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (table, mut attachment) = pair(region, request)?;
    if !attachment.association.as_ref().is_some_and(|old| is(old, &table)) {
        let id = &attachment.transit_gateway_attachment_id;
        let message = format!("{id} is not associated to {table}.");
        return Err(ApiError::new("InvalidAssociation.NotFound", message));
    }
    attachment.association = None;
    let shown = link(&attachment, &table, "disassociated");
    region.transit_attachments.insert(attachment);
    Ok(json!({"Association": shown}))
}

fn enable(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (table, mut attachment) = pair(region, request)?;
    if attachment.resource_type == "peering" {
        let message = "A peering attachment propagates no routes.";
        return Err(ApiError::combination(message));
    }
    if attachment.propagations.contains(&table) {
        let id = &attachment.transit_gateway_attachment_id;
        let message = format!("{id} propagates its routes to {table} already.");
        return Err(ApiError::new("TransitGatewayRouteTablePropagation.Duplicate", message));
    }
    attachment.propagations.push(table.clone());
    let shown = link(&attachment, &table, "enabled");
    region.transit_attachments.insert(attachment);
    Ok(json!({"Propagation": shown}))
}

fn disable(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (table, mut attachment) = pair(region, request)?;
    let before = attachment.propagations.len();
    attachment.propagations.retain(|old| *old != table);
    if attachment.propagations.len() == before {
        let id = &attachment.transit_gateway_attachment_id;
        let message = format!("{id} does not propagate its routes to {table}.");
        return Err(ApiError::new("TransitGatewayRouteTablePropagation.NotFound", message));
    }
    let shown = link(&attachment, &table, "disabled");
    region.transit_attachments.insert(attachment);
    Ok(json!({"Propagation": shown}))
}

fn associations(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let table = find(region, request.need("TransitGatewayRouteTableId")?)?;
    let table = &table.transit_gateway_route_table_id;
    let all = region.transit_attachments.iter();
    let all = all.filter(|of| of.association.as_ref().is_some_and(|a| is(a, table)));
    let all = list::filter(request, FILTERS, all.map(|of| link(of, table, "associated")).collect());
    list::page(request, "Associations", "TransitGatewayAttachmentId", all?)
}

fn propagations(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let table = find(region, request.need("TransitGatewayRouteTableId")?)?;
    let table = &table.transit_gateway_route_table_id;
    let all = region.transit_attachments.iter().filter(|of| of.propagations.contains(table));
    let all = list::filter(request, FILTERS, all.map(|of| link(of, table, "enabled")).collect());
    let result = "TransitGatewayRouteTablePropagations";
    list::page(request, result, "TransitGatewayAttachmentId", all?)
}

fn attachment_propagations(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let attachment = transit_attachment::find(region, request.need("TransitGatewayAttachmentId")?)?;
    let all = attachment.propagations.iter().map(|table| link(attachment, table, "enabled"));
    let filters: Filters = &[("transit-gateway-route-table-id", "TransitGatewayRouteTableId")];
    let all = list::filter(request, filters, all.collect())?;
    let result = "TransitGatewayAttachmentPropagations";
    list::page(request, result, "TransitGatewayRouteTableId", all)
}
