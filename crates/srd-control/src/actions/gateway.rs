//! Actions of the EC2 API on internet gateways and egress-only internet gateways.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, get_mut, new_tags, not_found, show, success};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::interface::GatewayAttachment;
use crate::state::{EgressOnlyGateway, InternetGateway, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateInternetGateway", Handler::Region(create)),
    ("DescribeInternetGateways", Handler::Region(describe)),
    ("AttachInternetGateway", Handler::Region(attach)),
    ("DetachInternetGateway", Handler::Region(detach)),
    ("DeleteInternetGateway", Handler::Region(delete)),
    ("CreateEgressOnlyInternetGateway", Handler::Region(create_egress_only)),
    ("DescribeEgressOnlyInternetGateways", Handler::Region(describe_egress_only)),
    ("DeleteEgressOnlyInternetGateway", Handler::Region(delete_egress_only)),
];

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "internet-gateway")?;
    let gateway = InternetGateway {
        internet_gateway_id: region.ids.id("igw"),
        owner_id: region.account.clone(),
        attachments: Vec::new(),
        tags,
    };
    let shown = show(&gateway);
    region.internet_gateways.insert(gateway);
    Ok(json!({"InternetGateway": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "InternetGatewayIds",
        id: "InternetGatewayId",
        not_found: |id| not_found("igw", id),
        filters: &[
            ("attachment.state", "Attachments.State"),
            ("attachment.vpc-id", "Attachments.VpcId"),
            ("internet-gateway-id", "InternetGatewayId"),
            ("owner-id", "OwnerId"),
        ],
        result: "InternetGateways",
    };
    listing.describe(request, &Source::new(&region.internet_gateways))
}

fn attach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("InternetGatewayId")?;
    let gateway = get(&region.internet_gateways, id)?;
    let vpc = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    if let Some(old) = gateway.attachments.first() {
        let message = format!("resource {id} is already attached to network {}", old.vpc_id);
        return Err(ApiError::new("Resource.AlreadyAssociated", message));
    }
    let of_vpc = |g: &InternetGateway| g.attachments.iter().any(|a| a.vpc_id == vpc);
    if region.internet_gateways.find(of_vpc).is_some() {
        let message = format!("Network {vpc} already has an internet gateway attached");
        return Err(ApiError::invalid(message));
    }
    let gateway = get_mut(&mut region.internet_gateways, id)?;
    gateway.attachments.push(GatewayAttachment { state: "available".to_owned(), vpc_id: vpc });
    success()
}

fn detach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (id, vpc) = (request.need("InternetGatewayId")?, request.need("VpcId")?);
    let gateway = get(&region.internet_gateways, id)?;
    if !gateway.attachments.iter().any(|a| a.vpc_id == vpc) {
        let message = format!("resource {id} is not attached to network {vpc}");
        return Err(ApiError::new("Gateway.NotAttached", message));
    }
    let mapped = |address: &crate::state::Address| {
        let interface = address.network_interface_id.as_deref();
        let interface = interface.and_then(|id| region.interfaces.get(id));
        interface.is_some_and(|interface| interface.vpc_id == vpc)
    };
    if region.addresses.find(mapped).is_some() {
        let message = format!(
            "Network {vpc} has some mapped public address(es). Please unmap those public \
             address(es) before detaching the gateway."
        );
        return Err(ApiError::in_use(message));
    }
    get_mut(&mut region.internet_gateways, id)?.attachments.clear();
    region.blackhole_routes(|route| route.gateway_id.as_deref() == Some(id));
    success()
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("InternetGatewayId")?;
    if !get(&region.internet_gateways, id)?.attachments.is_empty() {
        let message = format!("The internetGateway '{id}' has dependencies and cannot be deleted.");
        return Err(ApiError::in_use(message));
    }
    region.internet_gateways.remove(id);
    success()
}

fn create_egress_only(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "egress-only-internet-gateway")?;
    let vpc_id = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    let gateway = EgressOnlyGateway {
        egress_only_internet_gateway_id: region.ids.id("eigw"),
        attachments: vec![GatewayAttachment { state: "attached".to_owned(), vpc_id }],
        tags,
    };
    let shown = show(&gateway);
    region.egress_only_gateways.insert(gateway);
    let token = request.text("ClientToken");
    Ok(json!({"EgressOnlyInternetGateway": shown, "ClientToken": token}))
}

fn describe_egress_only(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "",
        id: "EgressOnlyInternetGatewayId",
        not_found: |id| not_found("eigw", id),
        filters: &[],
        result: "EgressOnlyInternetGateways",
    };
    // Unknown identifiers are no error here: clients wait for an empty answer after a deletion.
    let ids = request.texts("EgressOnlyInternetGatewayIds");
    let named = |of: &&EgressOnlyGateway| {
        ids.is_empty() || ids.contains(&of.egress_only_internet_gateway_id.as_str())
    };
    listing.answer(request, region.egress_only_gateways.iter().filter(named).map(show).collect())
}

fn delete_egress_only(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("EgressOnlyInternetGatewayId")?;
    region.egress_only_gateways.remove(id).ok_or_else(|| not_found("eigw", id))?;
    region.blackhole_routes(|route| route.egress_only_internet_gateway_id.as_deref() == Some(id));
    Ok(json!({"ReturnCode": true}))
}
