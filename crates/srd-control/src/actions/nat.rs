//! Actions of the EC2 API on NAT gateways.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, get_mut, ipv4, new_tags, not_found, now, show};
use super::{Actions, Handler, address, interface, managed};
use crate::error::{ApiError, ApiResult};
use crate::state::interface::NatGatewayAddress;
use crate::state::{Address, NatGateway, Region, Subnet};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateNatGateway", Handler::Region(create)),
    ("DescribeNatGateways", Handler::Region(describe)),
    ("DeleteNatGateway", Handler::Region(delete)),
];

/// Largest number of gateways that are shown although they have failed or are deleted.
const ENDED_MAX: usize = 1000;

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "natgateway")?;
    if request.text("AvailabilityMode") == Some("regional") {
        let message = "Regional NAT gateways are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    for name in
        ["SecondaryAllocationIds", "SecondaryPrivateIpAddresses", "SecondaryPrivateIpAddressCount"]
    {
        if request.has(name) {
            let message = "Secondary addresses of NAT gateways are not served by this endpoint.";
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    }
    let subnet = get(&region.subnets, request.need("SubnetId")?)?.clone();
    let kind = request.text("ConnectivityType").unwrap_or("public");
    let elastic = match (kind, request.text("AllocationId")) {
        ("public", None) => return Err(ApiError::missing("AllocationId")),
        ("public", Some(id)) => {
            let address = get(&region.addresses, id)?;
            if address.association_id.is_some() {
                let message = format!("Elastic IP address [{id}] is already associated");
                return Err(ApiError::new("Resource.AlreadyAssociated", message));
            }
            Some(address.clone())
        }
        (_, Some(_)) => {
            let message = "A private NAT gateway has no elastic IP address";
            return Err(ApiError::combination(message));
        }
        (_, None) => None,
    };
    let mut gateway = NatGateway {
        nat_gateway_id: region.ids.id("nat"),
        vpc_id: subnet.vpc_id.clone(),
        subnet_id: subnet.subnet_id.clone(),
        state: "available".to_owned(),
        failure_code: None,
        failure_message: None,
        connectivity_type: kind.to_owned(),
        nat_gateway_addresses: Vec::new(),
        create_time: now(region),
        delete_time: None,
        tags,
    };
    let has_gateway =
        |g: &crate::state::InternetGateway| g.attachments.iter().any(|a| a.vpc_id == subnet.vpc_id);
    if kind == "public" && region.internet_gateways.find(has_gateway).is_none() {
        // As documented, the request succeeds, and the gateway shows why it does not work.
        "failed".clone_into(&mut gateway.state);
        let message = format!("Network {} has no Internet gateway attached", subnet.vpc_id);
        gateway.failure_code = Some("Gateway.NotAttached".to_owned());
        gateway.failure_message = Some(message);
        gateway.delete_time = Some(now(region));
    } else {
        let primary = request.text("PrivateIpAddress").map(ipv4).transpose()?;
        let address = add_address(region, &gateway.nat_gateway_id, &subnet, (elastic, primary))?;
        gateway.nat_gateway_addresses.push(address);
    }
    drop_ended(region);
    let shown = show(&gateway);
    region.nat_gateways.insert(gateway);
    Ok(json!({"NatGateway": shown, "ClientToken": request.text("ClientToken")}))
}

/// Creates the interface of a gateway, with the private address of the request and the elastic
/// address. Returns the address of the gateway.
fn add_address(
    region: &mut Region,
    id: &str,
    subnet: &Subnet,
    (elastic, primary): (Option<Address>, Option<Ipv4Addr>),
) -> ApiResult<NatGatewayAddress> {
    let mut own = interface::add(region, subnet, Vec::new(), primary)?;
    let private = own
        .private_ip_address
        .ok_or_else(|| ApiError::invalid("A NAT gateway needs a subnet with IPv4 addresses"))?;
    own.description = format!("Interface for NAT Gateway {id}");
    "nat_gateway".clone_into(&mut own.interface_type);
    managed::attach(region, &mut own, "amazon-nat");
    own.source_dest_check = false;
    region.interfaces.insert(own.clone());
    let association_id = match &elastic {
        Some(elastic) => Some(address::map(region, &elastic.allocation_id, &own, private)?),
        None => None,
    };
    Ok(NatGatewayAddress {
        allocation_id: elastic.as_ref().map(|of| of.allocation_id.clone()),
        association_id,
        network_interface_id: own.network_interface_id,
        private_ip: private,
        public_ip: elastic.map(|of| of.public_ip),
        is_primary: true,
        status: "succeeded".to_owned(),
    })
}

/// Removes the oldest of the gateways that have failed or are deleted, beyond the number that is
/// shown.
fn drop_ended(region: &mut Region) {
    let ended = region.nat_gateways.ids_where(|gateway| gateway.state != "available");
    for old in ended.iter().rev().skip(ENDED_MAX) {
        region.nat_gateways.remove(old);
    }
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "NatGatewayIds",
        id: "NatGatewayId",
        not_found: |id| {
            let message = format!("NatGateway {id} was not found");
            ApiError::new("NatGatewayNotFound", message)
        },
        filters: &[
            ("connectivity-type", "ConnectivityType"),
            ("nat-gateway-id", "NatGatewayId"),
            ("state", "State"),
            ("subnet-id", "SubnetId"),
            ("vpc-id", "VpcId"),
        ],
        result: "NatGateways",
    };
    listing.describe(request, &Source::new(&region.nat_gateways))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("NatGatewayId")?;
    let time = now(region);
    let gateway = get_mut(&mut region.nat_gateways, id).map_err(|_| not_found("nat", id))?;
    if gateway.state != "deleted" {
        "deleted".clone_into(&mut gateway.state);
        gateway.delete_time = Some(time);
        let interfaces: Vec<String> = gateway
            .nat_gateway_addresses
            .iter()
            .map(|of| of.network_interface_id.clone())
            .collect();
        for own in interfaces {
            interface::remove(region, &own);
        }
        region.blackhole_routes(|route| route.nat_gateway_id.as_deref() == Some(id));
        drop_ended(region);
    }
    Ok(json!({"NatGatewayId": id}))
}
