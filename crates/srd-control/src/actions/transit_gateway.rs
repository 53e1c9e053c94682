//! Transit gateways. They have no effect on packets: the data plane drops packets to them.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{any_block, arn, get, get_mut, new_tags, not_found, now, show};
use super::{Actions, Handler, transit_table, vpn_gateway};
use crate::error::{ApiError, ApiResult};
use crate::state::transit::TransitOptions;
use crate::state::{Region, TransitGateway};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTransitGateway", Handler::Region(create)),
    ("DescribeTransitGateways", Handler::Region(describe)),
    ("ModifyTransitGateway", Handler::Region(modify)),
    ("DeleteTransitGateway", Handler::Region(delete)),
];

/// Largest number of blocks of a gateway.
const BLOCKS_MAX: usize = 5;

/// Returns the blocks in a list. Each block must have the size of an IPv4 /24 or IPv6 /64, or be
/// larger.
fn blocks(list: &Value) -> ApiResult<Vec<String>> {
    let mut blocks: Vec<String> = Vec::new();
    for text in list.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let block = any_block(text, "transitGatewayCidrBlocks")?;
        let largest = if block.addr().is_ipv4() { 24 } else { 64 };
        if block.prefix_len() > largest {
            let message = format!("The block {block} is smaller than a /{largest}");
            return Err(ApiError::invalid(message));
        }
        if !blocks.contains(&block.to_string()) {
            blocks.push(block.to_string());
        }
    }
    if blocks.len() > BLOCKS_MAX {
        return Err(too_many_blocks());
    }
    Ok(blocks)
}

fn too_many_blocks() -> ApiError {
    let message = format!("A transit gateway has at most {BLOCKS_MAX} CIDR blocks");
    ApiError::limit("TransitGatewayCidrBlockLimitExceeded", message)
}

/// Returns the options of a new gateway.
fn options(given: &Value) -> ApiResult<TransitOptions> {
    let switch = |name: &str, default: &str| given[name].as_str().unwrap_or(default).to_owned();
    let asn = given["AmazonSideAsn"].as_i64().unwrap_or(vpn_gateway::DEFAULT_ASN);
    Ok(TransitOptions {
        amazon_side_asn: vpn_gateway::check_asn(asn)?,
        transit_gateway_cidr_blocks: blocks(&given["TransitGatewayCidrBlocks"])?,
        auto_accept_shared_attachments: switch("AutoAcceptSharedAttachments", "disable"),
        default_route_table_association: switch("DefaultRouteTableAssociation", "enable"),
        association_default_route_table_id: None,
        default_route_table_propagation: switch("DefaultRouteTablePropagation", "enable"),
        propagation_default_route_table_id: None,
        vpn_ecmp_support: switch("VpnEcmpSupport", "enable"),
        dns_support: switch("DnsSupport", "enable"),
        security_group_referencing_support: switch("SecurityGroupReferencingSupport", "disable"),
        multicast_support: switch("MulticastSupport", "disable"),
    })
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "transit-gateway")?;
    let empty = json!({});
    let mut options = options(request.part("Options").unwrap_or(&empty))?;
    let id = region.ids.id("tgw");
    let associates = options.default_route_table_association == "enable";
    let propagates = options.default_route_table_propagation == "enable";
    if associates || propagates {
        let table = transit_table::add(region, &id, [associates, propagates], Vec::new());
        options.association_default_route_table_id = associates.then(|| table.clone());
        options.propagation_default_route_table_id = propagates.then_some(table);
    }
    let gateway = TransitGateway {
        transit_gateway_arn: arn(region, "transit-gateway", &id),
        transit_gateway_id: id,
        state: "available".to_owned(),
        owner_id: region.account.clone(),
        description: request.text("Description").map(str::to_owned),
        creation_time: now(region),
        options,
        tags,
    };
    let shown = show(&gateway);
    region.transit_gateways.insert(gateway);
    Ok(json!({"TransitGateway": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TransitGatewayIds",
        id: "TransitGatewayId",
        not_found: |id| not_found("tgw", id),
        filters: &[
            ("options.amazon-side-asn", "Options.AmazonSideAsn"),
            (
                "options.association-default-route-table-id",
                "Options.AssociationDefaultRouteTableId",
            ),
            ("options.auto-accept-shared-attachments", "Options.AutoAcceptSharedAttachments"),
            ("options.default-route-table-association", "Options.DefaultRouteTableAssociation"),
            ("options.default-route-table-propagation", "Options.DefaultRouteTablePropagation"),
            ("options.dns-support", "Options.DnsSupport"),
            (
                "options.propagation-default-route-table-id",
                "Options.PropagationDefaultRouteTableId",
            ),
            ("options.vpn-ecmp-support", "Options.VpnEcmpSupport"),
            ("owner-id", "OwnerId"),
            ("state", "State"),
            ("transit-gateway-id", "TransitGatewayId"),
        ],
        result: "TransitGateways",
    };
    listing.describe(request, &Source::new(&region.transit_gateways))
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TransitGatewayId")?;
    let mut gateway = get(&region.transit_gateways, id)?.clone();
    if let Some(description) = request.text("Description") {
        gateway.description = Some(description.to_owned());
    }
    if let Some(given) = request.part("Options") {
        modify_options(region, &mut gateway, given)?;
        modify_tables(region, &mut gateway, given)?;
    }
    let shown = show(&gateway);
    region.transit_gateways.insert(gateway);
    Ok(json!({"TransitGateway": shown}))
}

fn modify_options(region: &Region, gateway: &mut TransitGateway, given: &Value) -> ApiResult<()> {
    if !given["EncryptionSupport"].is_null() {
        let message = "Encryption of transit gateways is not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let options = &mut gateway.options;
    for (name, field) in [
        ("VpnEcmpSupport", &mut options.vpn_ecmp_support),
        ("DnsSupport", &mut options.dns_support),
        ("SecurityGroupReferencingSupport", &mut options.security_group_referencing_support),
        ("AutoAcceptSharedAttachments", &mut options.auto_accept_shared_attachments),
    ] {
        if let Some(value) = given[name].as_str() {
            value.clone_into(field);
        }
    }
    if let Some(asn) = given["AmazonSideAsn"].as_i64() {
        let id = gateway.transit_gateway_id.as_str();
        let is_vpn = |of: &crate::state::TransitAttachment| {
            of.transit_gateway_id == id && of.resource_type == "vpn" && of.state != "deleted"
        };
        if region.transit_attachments.find(is_vpn).is_some() {
            let message = format!("{id} has VPN attachments.");
            return Err(ApiError::new("IncorrectState", message));
        }
        options.amazon_side_asn = vpn_gateway::check_asn(asn)?;
    }
    let removed = blocks(&given["RemoveTransitGatewayCidrBlocks"])?;
    options.transit_gateway_cidr_blocks.retain(|block| !removed.contains(block));
    for block in blocks(&given["AddTransitGatewayCidrBlocks"])? {
        if !options.transit_gateway_cidr_blocks.contains(&block) {
            options.transit_gateway_cidr_blocks.push(block);
        }
    }
    if options.transit_gateway_cidr_blocks.len() > BLOCKS_MAX {
        return Err(too_many_blocks());
    }
    Ok(())
}

/// Changes the default tables of a gateway. A default that is switched on without a table gets the
/// other default table, or a new one.
fn modify_tables(
    region: &mut Region,
    gateway: &mut TransitGateway,
    given: &Value,
) -> ApiResult<()> {
    let id = gateway.transit_gateway_id.clone();
    let options = &mut gateway.options;
    let mut current = [
        options.association_default_route_table_id.clone(),
        options.propagation_default_route_table_id.clone(),
    ];
    let names = [
        ("DefaultRouteTableAssociation", "AssociationDefaultRouteTableId"),
        ("DefaultRouteTablePropagation", "PropagationDefaultRouteTableId"),
    ];
    for (at, (switch, member)) in names.into_iter().enumerate() {
        if let Some(table) = given[member].as_str() {
            let table = transit_table::find(region, table)?;
            if table.transit_gateway_id != id {
                return Err(not_found("tgw-rtb", &table.transit_gateway_route_table_id));
            }
            current[at] = Some(table.transit_gateway_route_table_id.clone());
        }
        match given[switch].as_str() {
            Some("disable") => current[at] = None,
            Some(_) if current[at].is_none() => {
                let other = current[1 - at].clone();
                let new =
                    |region: &mut Region| transit_table::add(region, &id, [false; 2], Vec::new());
                current[at] = Some(other.unwrap_or_else(|| new(region)));
            }
            _ => {}
        }
    }
    for table in region.transit_route_tables.ids_where(|t| t.transit_gateway_id == id) {
        let is = |default: &Option<String>| default.as_ref() == Some(&table);
        let defaults = [is(&current[0]), is(&current[1])];
        let table = get_mut(&mut region.transit_route_tables, &table)?;
        [table.default_association_route_table, table.default_propagation_route_table] = defaults;
    }
    let switch = |of: &Option<String>| if of.is_some() { "enable" } else { "disable" }.to_owned();
    options.default_route_table_association = switch(&current[0]);
    options.default_route_table_propagation = switch(&current[1]);
    let [association, propagation] = current;
    options.association_default_route_table_id = association;
    options.propagation_default_route_table_id = propagation;
    Ok(())
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TransitGatewayId")?;
    let gateway = get(&region.transit_gateways, id)?.clone();
    let lives = |of: &crate::state::TransitAttachment| {
        of.transit_gateway_id == id && !["deleted", "rejected"].contains(&&*of.state)
    };
    if let Some(of) = region.transit_attachments.find(lives) {
        let message =
            format!("{id} has non-deleted attachments: {}.", of.transit_gateway_attachment_id);
        return Err(ApiError::new("IncorrectState", message));
    }
    for table in region.transit_route_tables.ids_where(|table| table.transit_gateway_id == id) {
        region.transit_route_tables.remove(&table);
    }
    region.blackhole_routes(|route| route.transit_gateway_id.as_deref() == Some(id));
    region.transit_gateways.remove(id);
    let mut shown = show(&gateway);
    shown["State"] = "deleted".into();
    Ok(json!({"TransitGateway": shown}))
}
