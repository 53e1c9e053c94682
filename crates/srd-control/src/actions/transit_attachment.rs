//! Attachments of VPCs and VPN connections to transit gateways.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::list::{Filters, Listing};
use super::source::Source;
use super::support::{get, get_live, new_tags, not_found, now, show, text_of, trim};
use super::{Actions, Handler, interface, managed};
use crate::error::{ApiError, ApiResult};
use crate::state::transit::{TransitAssociation, TransitVpcOptions};
use crate::state::{Region, Subnet, TransitAttachment, TransitGateway};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTransitGatewayVpcAttachment", Handler::Region(create)),
    ("DescribeTransitGatewayVpcAttachments", Handler::Region(describe_vpcs)),
    ("DescribeTransitGatewayAttachments", Handler::Region(describe)),
    ("ModifyTransitGatewayVpcAttachment", Handler::Region(modify)),
    ("DeleteTransitGatewayVpcAttachment", Handler::Region(delete)),
];

/// Returns a new attachment to a gateway, with the gateway's default tables. The caller adds the
/// attached resource.
pub(super) fn new(region: &mut Region, gateway: &TransitGateway) -> TransitAttachment {
    let options = &gateway.options;
    let association = options.association_default_route_table_id.clone();
    TransitAttachment {
        transit_gateway_attachment_id: region.ids.id("tgw-attach"),
        transit_gateway_id: gateway.transit_gateway_id.clone(),
        transit_gateway_owner_id: gateway.owner_id.clone(),
        resource_type: String::new(),
        resource_id: String::new(),
        resource_owner_id: region.account.clone(),
        state: "available".to_owned(),
        creation_time: now(region),
        association: association.map(|table| TransitAssociation {
            transit_gateway_route_table_id: table,
            state: "associated".to_owned(),
        }),
        propagations: options.propagation_default_route_table_id.iter().cloned().collect(),
        subnet_ids: Vec::new(),
        network_interface_ids: Vec::new(),
        vpc_options: None,
        peering: None,
        tags: Vec::new(),
    }
}

/// Adds the attachment of a VPN connection.
pub(super) fn add_vpn(region: &mut Region, gateway: &str, connection: &str) -> ApiResult<()> {
    let gateway = get(&region.transit_gateways, gateway)?.clone();
    let mut attachment = new(region, &gateway);
    "vpn".clone_into(&mut attachment.resource_type);
    connection.clone_into(&mut attachment.resource_id);
    region.transit_attachments.insert(attachment);
    Ok(())
}

/// Ends the attachments of a resource.
pub(super) fn end_resource(region: &mut Region, resource: &str) {
    let of = region.transit_attachments.ids_where(|of| of.resource_id == resource);
    of.iter().for_each(|id| drop(end(region, id)));
}

/// Ends an attachment, and returns it: it is shown as deleted, without a table and without
/// interfaces.
fn end(region: &mut Region, id: &str) -> Option<TransitAttachment> {
    let attachment = region.transit_attachments.get_mut(id)?;
    "deleted".clone_into(&mut attachment.state);
    attachment.association = None;
    attachment.propagations.clear();
    let interfaces = std::mem::take(&mut attachment.network_interface_ids);
    let ended = attachment.clone();
    interfaces.iter().for_each(|own| interface::remove(region, own));
    trim_ended(region);
    Some(ended)
}

/// Removes the oldest of too many attachments that have ended. This may be the one that has ended
/// last.
pub(super) fn trim_ended(region: &mut Region) {
    trim(&mut region.transit_attachments, |of| ["deleted", "rejected"].contains(&&*of.state));
}

/// Returns an attachment that is not deleted.
pub(super) fn find<'a>(region: &'a Region, id: &str) -> ApiResult<&'a TransitAttachment> {
    get_live(&region.transit_attachments, id, |attachment| attachment.state != "deleted")
}

/// Returns an attachment of this gateway that is not deleted.
pub(super) fn find_of<'a>(
    region: &'a Region,
    id: &str,
    gateway: &str,
) -> ApiResult<&'a TransitAttachment> {
    let attachment = find(region, id)?;
    if attachment.transit_gateway_id != gateway {
        let message = format!("{id} belongs to another transit gateway");
        return Err(ApiError::new("InvalidTransitGatewayAttachmentID.NotFound", message));
    }
    Ok(attachment)
}

/// Returns the subnets with these identifiers. All of them must be in the VPC, and each in a
/// different zone.
fn subnets(region: &Region, vpc: &str, ids: &[&str]) -> ApiResult<Vec<Subnet>> {
    let mut zones = BTreeSet::new();
    let mut subnets: Vec<Subnet> = Vec::new();
    for id in ids {
        let subnet = get(&region.subnets, id)?;
        if subnet.vpc_id != vpc {
            let message = format!("The subnet '{id}' belongs to another VPC");
            return Err(ApiError::new("InvalidSubnetID.NotFound", message));
        }
        if !zones.insert(subnet.availability_zone.as_str()) {
            let message = format!(
                "Duplicate subnets for the zone {} are not allowed",
                subnet.availability_zone
            );
            return Err(ApiError::new("DuplicateSubnetsInSameZone", message));
        }
        subnets.push(subnet.clone());
    }
    Ok(subnets)
}

/// Changes the options of the attachment of a VPC.
fn set_options(options: &mut TransitVpcOptions, given: Option<&Value>) {
    for (name, field) in [
        ("DnsSupport", &mut options.dns_support),
        ("SecurityGroupReferencingSupport", &mut options.security_group_referencing_support),
        ("Ipv6Support", &mut options.ipv6_support),
        ("ApplianceModeSupport", &mut options.appliance_mode_support),
    ] {
        if let Some(value) = text_of(given, name) {
            value.clone_into(field);
        }
    }
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "transit-gateway-attachment")?;
    let gateway = get(&region.transit_gateways, request.need("TransitGatewayId")?)?.clone();
    let vpc = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    let ids = request.texts("SubnetIds");
    if ids.is_empty() {
        return Err(ApiError::missing("SubnetIds"));
    }
    let subnets = subnets(region, &vpc, &ids)?;
    let id = &gateway.transit_gateway_id;
    let same = |old: &TransitAttachment| {
        old.transit_gateway_id == *id && old.resource_id == vpc && old.state != "deleted"
    };
    if region.transit_attachments.find(same).is_some() {
        let message = format!("{id} has non-deleted Transit Gateway Attachments with same VPC ID.");
        return Err(ApiError::new("DuplicateTransitGatewayAttachment", message));
    }
    let mut options = TransitVpcOptions {
        dns_support: "enable".to_owned(),
        security_group_referencing_support: "enable".to_owned(),
        ipv6_support: "disable".to_owned(),
        appliance_mode_support: "disable".to_owned(),
    };
    set_options(&mut options, request.part("Options"));
    let mut attachment = new(region, &gateway);
    "vpc".clone_into(&mut attachment.resource_type);
    attachment.resource_id = vpc;
    attachment.vpc_options = Some(options);
    attachment.tags = tags;
    for subnet in &subnets {
        add_subnet(region, &mut attachment, subnet)?;
    }
    let shown = view(&attachment);
    region.transit_attachments.insert(attachment);
    Ok(json!({"TransitGatewayVpcAttachment": shown}))
}

fn add_subnet(
    region: &mut Region,
    attachment: &mut TransitAttachment,
    subnet: &Subnet,
) -> ApiResult<()> {
    let id = &attachment.transit_gateway_attachment_id;
    let kind = managed::Kind {
        interface_type: "transit_gateway",
        description: format!("Network Interface for Transit Gateway Attachment {id}"),
        requester: "amazon-transit-gateway",
    };
    let own = managed::add(region, subnet, Vec::new(), kind)?;
    attachment.subnet_ids.push(subnet.subnet_id.clone());
    attachment.network_interface_ids.push(own);
    Ok(())
}

/// Returns the attachment of a VPC as its description.
fn view(attachment: &TransitAttachment) -> Value {
    let mut shown = show(attachment);
    shown["VpcId"] = attachment.resource_id.clone().into();
    shown["VpcOwnerId"] = attachment.resource_owner_id.clone().into();
    shown["Options"] = shown["VpcOptions"].take();
    if attachment.tags.is_empty() {
        // An empty list of tags is omitted.
        shown["Tags"] = Value::Null;
    }
    shown
}

fn describe_vpcs(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TransitGatewayAttachmentIds",
        id: "TransitGatewayAttachmentId",
        not_found: |id| not_found("tgw-attach", id),
        filters: &[
            ("state", "State"),
            ("transit-gateway-attachment-id", "TransitGatewayAttachmentId"),
            ("transit-gateway-id", "TransitGatewayId"),
            ("vpc-id", "VpcId"),
        ],
        result: "TransitGatewayVpcAttachments",
    };
    let vpcs = region.transit_attachments.iter().filter(|of| of.resource_type == "vpc");
    listing.answer(request, vpcs.map(view).collect())
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    const FILTERS: Filters = &[
        ("association.state", "Association.State"),
        ("association.transit-gateway-route-table-id", "Association.TransitGatewayRouteTableId"),
        ("resource-id", "ResourceId"),
        ("resource-owner-id", "ResourceOwnerId"),
        ("resource-type", "ResourceType"),
        ("state", "State"),
        ("transit-gateway-attachment-id", "TransitGatewayAttachmentId"),
        ("transit-gateway-id", "TransitGatewayId"),
        ("transit-gateway-owner-id", "TransitGatewayOwnerId"),
    ];
    let listing = Listing {
        ids: "TransitGatewayAttachmentIds",
        id: "TransitGatewayAttachmentId",
        not_found: |id| not_found("tgw-attach", id),
        filters: FILTERS,
        result: "TransitGatewayAttachments",
    };
    listing.describe(request, &Source::new(&region.transit_attachments))
}

/// Returns the attachment of a VPC that is not deleted.
fn find_vpc(region: &Region, id: &str) -> ApiResult<TransitAttachment> {
    let attachment = find(region, id)?;
    if attachment.resource_type != "vpc" {
        return Err(not_found("tgw-attach", id));
    }
    Ok(attachment.clone())
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut attachment = find_vpc(region, request.need("TransitGatewayAttachmentId")?)?;
    for id in request.texts("RemoveSubnetIds") {
        let Some(at) = attachment.subnet_ids.iter().position(|old| old == id) else {
            return Err(not_found("subnet", id));
        };
        attachment.subnet_ids.remove(at);
        interface::remove(region, &attachment.network_interface_ids.remove(at));
    }
    let added: Vec<&str> = request.texts("AddSubnetIds");
    let added = added.into_iter().filter(|id| !attachment.subnet_ids.iter().any(|old| old == id));
    let mut all: Vec<&str> = attachment.subnet_ids.iter().map(String::as_str).collect();
    let kept = all.len();
    all.extend(added);
    if all.is_empty() {
        let message = "An attachment needs at least one subnet";
        return Err(ApiError::invalid(message));
    }
    for subnet in subnets(region, &attachment.resource_id, &all)?.iter().skip(kept) {
        add_subnet(region, &mut attachment, subnet)?;
    }
    if let Some(options) = &mut attachment.vpc_options {
        set_options(options, request.part("Options"));
    }
    let shown = view(&attachment);
    region.transit_attachments.insert(attachment);
    Ok(json!({"TransitGatewayVpcAttachment": shown}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let attachment = find_vpc(region, request.need("TransitGatewayAttachmentId")?)?;
    let ended = end(region, &attachment.transit_gateway_attachment_id);
    Ok(json!({"TransitGatewayVpcAttachment": ended.as_ref().map(view)}))
}
