//! Actions of the EC2 API on elastic addresses.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};
use srd_vpc::object::PUBLIC_POOL;

use super::list::{self, Listing};
use super::source::Source;
use super::support::{get, get_mut, ipv4, new_tags, not_found, region_of, show, success};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::interface::PUBLIC;
use crate::state::{Address, Cloud, NetworkInterface, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("AllocateAddress", Handler::Cloud(allocate)),
    ("DescribeAddresses", Handler::Region(describe)),
    ("AssociateAddress", Handler::Region(associate)),
    ("DisassociateAddress", Handler::Region(disassociate)),
    ("ReleaseAddress", Handler::Region(release)),
    ("DescribeAddressesAttribute", Handler::Region(describe_attribute)),
    ("ModifyAddressAttribute", Handler::Region(modify_attribute)),
    ("ResetAddressAttribute", Handler::Region(reset_attribute)),
];

/// Number of addresses of the block from which elastic addresses are taken.
const POOL_SIZE: u64 = 1 << (32 - PUBLIC_POOL.prefix_len());

/// Returns the public addresses of a region.
fn publics(region: &Region) -> impl Iterator<Item = Ipv4Addr> {
    let all = region.addresses.used(PUBLIC).chain(region.interfaces.used(PUBLIC));
    all.filter_map(|(address, _)| Some(u32::try_from(address).ok()?.into()))
}

/// Whether an elastic address or an interface of the region has this public address.
fn is_public(region: &Region, address: Ipv4Addr) -> bool {
    let number = u128::from(u32::from(address));
    region.addresses.user(PUBLIC, number, number, 1).is_some()
        || region.interfaces.user(PUBLIC, number, number, 1).is_some()
}

/// Returns the public addresses of all other regions and accounts. All of them use one pool,
/// because a public address belongs to one interface of the internet.
pub(super) fn elsewhere(cloud: &Cloud, at: &(String, String)) -> BTreeSet<Ipv4Addr> {
    let others = cloud.regions.iter().filter(|(of, _)| *of != at);
    others.flat_map(|(_, region)| publics(region)).collect()
}

/// Returns an address of the pool that is not in use, neither in the region nor `elsewhere`.
pub(super) fn free(region: &mut Region, elsewhere: &BTreeSet<Ipv4Addr>) -> ApiResult<Ipv4Addr> {
    for _ in 0..1000 {
        let offset = u32::try_from(region.ids.next_u64() % POOL_SIZE).unwrap_or(0);
        let address = Ipv4Addr::from(u32::from(PUBLIC_POOL.network()) + offset);
        let [.., last] = address.octets();
        let is_used = elsewhere.contains(&address) || is_public(region, address);
        if !is_used && last != 0 && last != 255 {
            return Ok(address);
        }
    }
    let message = "There are no free addresses in the pool";
    Err(ApiError::limit("InsufficientAddressCapacity", message))
}

fn allocate(cloud: &mut Cloud, at: &(String, String), request: &Request) -> ApiResult<Value> {
    let elsewhere = elsewhere(cloud, at);
    let region = region_of(cloud, at)?;
    let tags = new_tags(request, "elastic-ip")?;
    if request.text("Domain") == Some("standard") {
        let message = "The domain 'standard' (EC2-Classic) is retired";
        return Err(ApiError::invalid(message));
    }
    if request.has("PublicIpv4Pool") || request.has("CustomerOwnedIpv4Pool") {
        let message = "Pools of addresses are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let public_ip = match request.text("Address") {
        Some(text) => {
            let address = ipv4(text)?;
            if !PUBLIC_POOL.contains(&address) {
                let message = format!("The address {address} is not in the pool of addresses");
                return Err(ApiError::invalid(message));
            }
            if elsewhere.contains(&address) || is_public(region, address) {
                let message = format!("The address {address} is in use");
                return Err(ApiError::new("InvalidAddress.InUse", message));
            }
            address
        }
        None => free(region, &elsewhere)?,
    };
    let border_group = request.text("NetworkBorderGroup").unwrap_or(&region.name).to_owned();
    let address = Address {
        allocation_id: region.ids.id("eipalloc"),
        public_ip,
        domain: "vpc".to_owned(),
        public_ipv4_pool: "amazon".to_owned(),
        network_border_group: border_group,
        association_id: None,
        network_interface_id: None,
        network_interface_owner_id: None,
        private_ip_address: None,
        instance_id: None,
        ptr_record: None,
        tags,
    };
    let shown = show(&address);
    region.addresses.insert(address);
    Ok(shown)
}

/// Returns the address with this public address.
fn by_public<'a>(region: &'a Region, text: &str) -> ApiResult<&'a Address> {
    let found = text.parse::<Ipv4Addr>().ok();
    let found = found.and_then(|ip| region.addresses.find(|of| of.public_ip == ip));
    found.ok_or_else(|| {
        ApiError::new("InvalidAddress.NotFound", format!("Address '{text}' not found."))
    })
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let public = request.texts("PublicIps");
    for ip in &public {
        by_public(region, ip)?;
    }
    let public: BTreeSet<Ipv4Addr> = public.iter().filter_map(|ip| ip.parse().ok()).collect();
    let listing = Listing {
        ids: "AllocationIds",
        id: "AllocationId",
        not_found: |id| not_found("eipalloc", id),
        filters: &[
            ("allocation-id", "AllocationId"),
            ("association-id", "AssociationId"),
            ("domain", "Domain"),
            ("instance-id", "InstanceId"),
            ("network-border-group", "NetworkBorderGroup"),
            ("network-interface-id", "NetworkInterfaceId"),
            ("network-interface-owner-id", "NetworkInterfaceOwnerId"),
            ("private-ip-address", "PrivateIpAddress"),
            ("public-ip", "PublicIp"),
        ],
        result: "Addresses",
    };
    let named = |address: &Address| public.is_empty() || public.contains(&address.public_ip);
    let source = Source::new(&region.addresses).only(named);
    let mut all: Vec<Value> = listing.find(request, &source)?.into_iter().map(show).collect();
    for member in ["InstanceId", "NetworkInterfaceId"] {
        // An address that is not associated has empty elements.
        for shown in all.iter_mut().filter(|shown| shown[member].is_null()) {
            shown[member] = "".into();
        }
    }
    Ok(json!({"Addresses": all}))
}

/// Returns the address that a request names by its allocation or by the address.
fn named<'a>(region: &'a Region, request: &Request) -> ApiResult<&'a Address> {
    match (request.text("AllocationId"), request.text("PublicIp")) {
        (Some(_), Some(_)) => {
            let message =
                "You may specify public IP or allocation id, but not both in the same call";
            Err(ApiError::combination(message))
        }
        (Some(id), None) => get(&region.addresses, id),
        (None, Some(ip)) => by_public(region, ip),
        (None, None) => {
            let message = match request.action.as_str() {
                "AssociateAddress" => "Invalid request, expect PublicIp/AllocationId parameter.",
                _ => "Either public IP or allocation id must be specified",
            };
            Err(ApiError::new("MissingParameter", message))
        }
    }
}

/// Returns the interface of a request: by its identifier, or the primary interface of an instance.
fn interface<'a>(region: &'a Region, request: &Request) -> ApiResult<&'a NetworkInterface> {
    if let Some(id) = request.text("NetworkInterfaceId") {
        return get(&region.interfaces, id);
    }
    let Some(id) = request.text("InstanceId") else {
        let message = "Invalid request, expect InstanceId/NetworkId parameter.";
        return Err(ApiError::new("MissingParameter", message));
    };
    get(&region.instances, id)?;
    let primary = |interface: &NetworkInterface| {
        interface.attachment.as_ref().is_some_and(|attachment| {
            attachment.instance_id.as_deref() == Some(id) && attachment.device_index == 0
        })
    };
    region.interfaces.find(primary).ok_or_else(|| {
        let message = format!(
            "The pending-instance-creation instance to which '{id}' refers has no interface"
        );
        ApiError::new("IncorrectInstanceState", message)
    })
}

fn associate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let address = named(region, request)?.clone();
    let interface = interface(region, request)?.clone();
    let private = match request.text("PrivateIpAddress") {
        Some(text) => {
            let ip = ipv4(text)?;
            if !interface.private_ip_addresses.iter().any(|of| of.private_ip_address == ip) {
                let message = format!("{ip} is no address of {}", interface.network_interface_id);
                return Err(ApiError::invalid(message));
            }
            ip
        }
        None => interface
            .private_ip_address
            .ok_or_else(|| ApiError::invalid("The interface has no IPv4 address"))?,
    };
    let same = address.network_interface_id.as_ref() == Some(&interface.network_interface_id)
        && address.private_ip_address == Some(private);
    if let (true, Some(association)) = (same, &address.association_id) {
        return Ok(json!({"AssociationId": association}));
    }
    if address.association_id.is_some() && request.flag("AllowReassociation") != Some(true) {
        let message = format!(
            "resource {} is already associated with another interface",
            address.allocation_id
        );
        return Err(ApiError::new("Resource.AlreadyAssociated", message));
    }
    let has_gateway = region
        .internet_gateways
        .find(|g| g.attachments.iter().any(|a| a.vpc_id == interface.vpc_id))
        .is_some();
    if !has_gateway {
        let message =
            format!("Network {} is not attached to any internet gateway", interface.vpc_id);
        return Err(ApiError::new("Gateway.NotAttached", message));
    }
    // The private address gives up the public address that it has.
    let mut others = region.addresses.linked(&interface.network_interface_id);
    let other = others.find(|of| of.private_ip_address == Some(private));
    let other = other.map(|of| of.allocation_id.clone());
    drop(others);
    if let Some(other) = other {
        if request.flag("AllowReassociation") == Some(false) {
            let message = format!("{private} already has the address of {other}");
            return Err(ApiError::new("Resource.AlreadyAssociated", message));
        }
        clear(get_mut(&mut region.addresses, &other)?);
    }
    if Some(private) == interface.private_ip_address {
        // The elastic address replaces the address of the launch.
        get_mut(&mut region.interfaces, &interface.network_interface_id)?.release_public_ip();
    }
    let id = map(region, &address.allocation_id, &interface, private)?;
    Ok(json!({"AssociationId": id}))
}

/// Maps an address to a private address of an interface, and returns the association.
pub(super) fn map(
    region: &mut Region,
    allocation: &str,
    interface: &NetworkInterface,
    private: Ipv4Addr,
) -> ApiResult<String> {
    let id = region.ids.id("eipassoc");
    let address = get_mut(&mut region.addresses, allocation)?;
    address.association_id = Some(id.clone());
    address.network_interface_id = Some(interface.network_interface_id.clone());
    address.network_interface_owner_id = Some(interface.owner_id.clone());
    address.private_ip_address = Some(private);
    address.instance_id = interface.attachment.as_ref().and_then(|a| a.instance_id.clone());
    Ok(id)
}

/// Ends the association of an address.
pub(super) fn clear(address: &mut Address) {
    address.association_id = None;
    address.network_interface_id = None;
    address.network_interface_owner_id = None;
    address.private_ip_address = None;
    address.instance_id = None;
}

/// Ends the associations with an interface.
pub(super) fn clear_interface(region: &mut Region, interface: &str) {
    for id in region.addresses.linked_ids(interface) {
        if let Some(address) = region.addresses.get_mut(&id) {
            clear(address);
        }
    }
}

/// Whether a NAT gateway uses the address.
fn is_of_nat(region: &Region, address: &Address) -> bool {
    let uses = |gateway: &crate::state::NatGateway| {
        let mut of = gateway.nat_gateway_addresses.iter();
        gateway.state != "deleted"
            && of.any(|of| of.allocation_id.as_ref() == Some(&address.allocation_id))
    };
    region.nat_gateways.find(uses).is_some()
}

fn disassociate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let address = match (request.text("AssociationId"), request.text("PublicIp")) {
        (Some(id), _) => region
            .addresses
            .find(|of| of.association_id.as_deref() == Some(id))
            .ok_or_else(|| not_found("eipassoc", id))?,
        (None, Some(ip)) => by_public(region, ip)?,
        (None, None) => return Err(ApiError::missing("associationId")),
    };
    if is_of_nat(region, address) {
        let message = "You do not have permission to access the specified resource.";
        return Err(ApiError::new("AuthFailure", message));
    }
    let id = address.allocation_id.clone();
    clear(get_mut(&mut region.addresses, &id)?);
    success()
}

fn release(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let address = named(region, request)?.clone();
    if address.association_id.is_some() {
        let message = format!("Address {} is in use.", address.public_ip);
        return Err(ApiError::new("InvalidIPAddress.InUse", message));
    }
    region.addresses.remove(&address.allocation_id);
    success()
}

fn attribute(address: &Address) -> Value {
    let mut shown = json!({"PublicIp": address.public_ip, "AllocationId": address.allocation_id});
    if let Some(name) = &address.ptr_record {
        shown["PtrRecord"] = name.clone().into();
    }
    shown
}

fn describe_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let ids = request.texts("AllocationIds");
    for id in &ids {
        get(&region.addresses, id)?;
    }
    let of = |a: &&Address| ids.is_empty() || ids.contains(&a.allocation_id.as_str());
    let all: Vec<Value> = region.addresses.iter().filter(of).map(attribute).collect();
    list::page(request, "Addresses", "AllocationId", all)
}

fn modify_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let address = get_mut(&mut region.addresses, request.need("AllocationId")?)?;
    let name = request.need("DomainName")?;
    address.ptr_record = Some(format!("{}.", name.trim_end_matches('.')));
    Ok(json!({"Address": attribute(address)}))
}

fn reset_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let address = get_mut(&mut region.addresses, request.need("AllocationId")?)?;
    address.ptr_record = None;
    Ok(json!({"Address": attribute(address)}))
}
