//! Actions of the EC2 API on addresses and prefixes of network interfaces.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde_json::{Value, json};

use super::free::{PREFIX_V4, PREFIX_V6, block, block_v6};
use super::interface_view::private_name;
use super::subnet::is_kept;
use super::support::{get, get_mut, ipv4, ipv4_block, ipv6, ipv6_block, success};
use super::{Actions, Handler, address, free};
use crate::error::{ApiError, ApiResult};
use crate::state::interface::{Ipv4Prefix, Ipv6Address, Ipv6Prefix, PrivateIpAddress};
use crate::state::{NetworkInterface, Region, Subnet};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("AssignPrivateIpAddresses", Handler::Region(assign)),
    ("UnassignPrivateIpAddresses", Handler::Region(unassign)),
    ("AssignIpv6Addresses", Handler::Region(assign_v6)),
    ("UnassignIpv6Addresses", Handler::Region(unassign_v6)),
];

/// Largest number of addresses and prefixes of an interface, of each version: that of the largest
/// instance types.
const ADDRESSES_MAX: usize = 50;

fn too_many(id: &str) -> ApiError {
    let message = format!("{id} has more than {ADDRESSES_MAX} addresses and prefixes");
    ApiError::limit("PrivateIpAddressLimitExceeded", message)
}

/// Checks an address that a request names.
pub(super) fn check_v4(region: &Region, subnet: &Subnet, ip: Ipv4Addr) -> ApiResult<()> {
    let block = block(subnet)?;
    if !block.contains(&ip) {
        let message = format!("Address does not fall within the subnet's address range: {ip}");
        return Err(ApiError::invalid(message));
    }
    if is_kept(block, ip) {
        let message = format!("Address {ip} is in subnet's reserved address range");
        return Err(ApiError::invalid(message));
    }
    if free::user_v4(region, &subnet.subnet_id, ip.into()).is_some() {
        let message = format!("The specified address {ip} is already in use.");
        return Err(ApiError::new("InvalidIPAddress.InUse", message));
    }
    Ok(())
}

/// Returns an entry for an address.
pub(super) fn entry(region: &Region, vpc: &str, ip: Ipv4Addr, primary: bool) -> PrivateIpAddress {
    let dns = region.vpcs.get(vpc).is_some_and(|vpc| vpc.enable_dns_hostnames);
    PrivateIpAddress {
        private_ip_address: ip,
        primary,
        private_dns_name: dns.then(|| private_name(region, ip)),
    }
}

/// Checks an IPv4 prefix that a request names.
fn check_prefix_v4(region: &Region, subnet: &Subnet, prefix: Ipv4Net) -> ApiResult<()> {
    let block = block(subnet)?;
    if prefix.prefix_len() != PREFIX_V4 || !block.contains(&prefix) {
        let message = format!("{prefix} is no /{PREFIX_V4} prefix of the subnet");
        return Err(ApiError::invalid(message));
    }
    let used = prefix.broadcast() == block.broadcast()
        || prefix.network() == block.network()
        || free::user_v4(region, &subnet.subnet_id, prefix).is_some();
    if used {
        let message = format!("The prefix {prefix} has addresses in use");
        return Err(ApiError::new("InvalidIPAddress.InUse", message));
    }
    Ok(())
}

/// Checks an IPv6 address that a request names.
fn check_v6(region: &Region, subnet: &Subnet, ip: Ipv6Addr) -> ApiResult<()> {
    block_v6(subnet)?;
    if !subnet.ipv6_cidr_block_association_set.iter().any(|of| of.ipv6_cidr_block.contains(&ip)) {
        let message = format!("Address does not fall within the subnet's address range: {ip}");
        return Err(ApiError::invalid(message));
    }
    if free::is_used_v6(region, ip.into()) {
        let message = format!("The specified address {ip} is already in use.");
        return Err(ApiError::new("InvalidIPAddress.InUse", message));
    }
    Ok(())
}

/// Checks an IPv6 prefix that a request names.
fn check_prefix_v6(region: &Region, subnet: &Subnet, prefix: Ipv6Net) -> ApiResult<()> {
    if prefix.prefix_len() != PREFIX_V6 || !block_v6(subnet)?.contains(&prefix) {
        let message = format!("{prefix} is no /{PREFIX_V6} prefix of the subnet");
        return Err(ApiError::invalid(message));
    }
    if free::is_used_v6(region, prefix) {
        let message = format!("The prefix {prefix} has addresses in use");
        return Err(ApiError::new("InvalidIPAddress.InUse", message));
    }
    Ok(())
}

/// Returns a count of a request, within the bound of an interface.
fn count(request: &Request, name: &str) -> ApiResult<usize> {
    let number = request.number(name).unwrap_or(0);
    usize::try_from(number).ok().filter(|number| *number <= ADDRESSES_MAX).ok_or_else(|| {
        ApiError::invalid(format!("Value ({number}) for parameter {name} is invalid."))
    })
}

fn both(request: &Request, names: [&str; 2]) -> ApiResult<()> {
    if request.has(names[0]) && request.has(names[1]) {
        let message = format!("Only one of {} and {} can be given", names[0], names[1]);
        return Err(ApiError::combination(message));
    }
    Ok(())
}

/// Checks the number of addresses and prefixes.
fn check_number(interface: &NetworkInterface) -> ApiResult<()> {
    let v4 = interface.private_ip_addresses.len() + interface.ipv4_prefixes.len();
    let v6 = interface.ipv6_addresses.len() + interface.ipv6_prefixes.len();
    if v4.max(v6) > ADDRESSES_MAX {
        return Err(too_many(&interface.network_interface_id));
    }
    Ok(())
}

/// Interface that gets addresses and prefixes, its subnet, and the request with their counts.
pub(super) struct Target<'a> {
    pub(super) id: &'a str,
    pub(super) subnet: &'a Subnet,
    pub(super) request: &'a Request,
}

/// Addresses and prefixes that a request contains.
pub(super) struct Named<'a> {
    pub(super) addresses: Vec<&'a str>,
    pub(super) prefixes: Vec<&'a str>,
}

/// Functions for one kind of addresses or prefixes.
struct Kind<T> {
    /// Parameter of a request with the number of values that the control plane chooses.
    count: &'static str,
    parse: fn(&str) -> ApiResult<T>,
    /// Checks a value that a request contains.
    check: fn(&Region, &Subnet, T) -> ApiResult<()>,
    /// Returns free values.
    free: fn(&mut Region, &Subnet, usize) -> ApiResult<Vec<T>>,
    /// Adds a value to an interface.
    add: fn(&mut Region, &str, T) -> ApiResult<()>,
}

const ADDRESSES_V4: Kind<Ipv4Addr> = Kind {
    count: "SecondaryPrivateIpAddressCount",
    parse: ipv4,
    check: check_v4,
    free: |region, subnet, count| free::v4(region, subnet, count),
    add: add_v4,
};

const PREFIXES_V4: Kind<Ipv4Net> = Kind {
    count: "Ipv4PrefixCount",
    parse: |text| ipv4_block(text, "ipv4Prefix"),
    check: check_prefix_v4,
    free: |region, subnet, count| free::prefixes_v4(region, subnet, count),
    add: add_prefix_v4,
};

const ADDRESSES_V6: Kind<Ipv6Addr> =
    Kind { count: "Ipv6AddressCount", parse: ipv6, check: check_v6, free: free::v6, add: add_v6 };

const PREFIXES_V6: Kind<Ipv6Net> = Kind {
    count: "Ipv6PrefixCount",
    parse: |text| ipv6_block(text, "ipv6Prefix"),
    check: check_prefix_v6,
    free: free::prefixes_v6,
    add: add_prefix_v6,
};

/// Adds to an interface the values that the request contains, and the number of free values that it
/// requests. Each value is added at once, so that the next free value differs from it. Returns the
/// added values.
fn add_all<T: Copy>(
    region: &mut Region,
    target: &Target<'_>,
    kind: &Kind<T>,
    named: &[&str],
) -> ApiResult<Vec<T>> {
    let Target { id, subnet, request } = *target;
    let mut added = Vec::new();
    for text in named {
        let value = (kind.parse)(text)?;
        (kind.check)(region, subnet, value)?;
        (kind.add)(region, id, value)?;
        added.push(value);
    }
    let count = count(request, kind.count)?;
    for value in (kind.free)(region, subnet, count)? {
        (kind.add)(region, id, value)?;
        added.push(value);
    }
    Ok(added)
}

/// Adds IPv4 addresses and prefixes to an interface, and returns them. Addresses that the interface
/// already has are skipped. With `AllowReassignment`, secondary addresses of other interfaces are
/// taken from them.
pub(super) fn add_all_v4(
    region: &mut Region,
    target: &Target<'_>,
    named: &Named<'_>,
) -> ApiResult<(Vec<Ipv4Addr>, Vec<Ipv4Net>)> {
    let Target { id, subnet, request } = *target;
    let reassigns = request.flag("AllowReassignment") == Some(true);
    let mut new = Vec::new();
    for text in &named.addresses {
        let ip = ipv4(text)?;
        let own = &get(&region.interfaces, id)?.private_ip_addresses;
        if own.iter().any(|of| of.private_ip_address == ip) {
            continue;
        }
        if reassigns && free::user_v4(region, &subnet.subnet_id, ip.into()).is_some() {
            take(region, &subnet.subnet_id, ip)?;
        }
        new.push(*text);
    }
    let addresses = add_all(region, target, &ADDRESSES_V4, &new)?;
    Ok((addresses, add_all(region, target, &PREFIXES_V4, &named.prefixes)?))
}

/// Adds IPv6 addresses and prefixes to an interface, and returns them.
pub(super) fn add_all_v6(
    region: &mut Region,
    target: &Target<'_>,
    named: &Named<'_>,
) -> ApiResult<(Vec<Ipv6Addr>, Vec<Ipv6Net>)> {
    let addresses = add_all(region, target, &ADDRESSES_V6, &named.addresses)?;
    Ok((addresses, add_all(region, target, &PREFIXES_V6, &named.prefixes)?))
}

fn assign(region: &mut Region, request: &Request) -> ApiResult<Value> {
    both(request, ["PrivateIpAddresses", "SecondaryPrivateIpAddressCount"])?;
    both(request, ["Ipv4Prefixes", "Ipv4PrefixCount"])?;
    let id = request.need("NetworkInterfaceId")?;
    let subnet = get(&region.subnets, &get(&region.interfaces, id)?.subnet_id)?.clone();
    let named = Named {
        addresses: request.texts("PrivateIpAddresses"),
        prefixes: request.texts("Ipv4Prefixes"),
    };
    let target = Target { id, subnet: &subnet, request };
    let (addresses, prefixes) = add_all_v4(region, &target, &named)?;
    Ok(json!({
        "NetworkInterfaceId": id,
        "AssignedPrivateIpAddresses":
            addresses.iter().map(|ip| json!({"PrivateIpAddress": ip})).collect::<Vec<_>>(),
        "AssignedIpv4Prefixes":
            prefixes.iter().map(|p| json!({"Ipv4Prefix": p})).collect::<Vec<_>>(),
    }))
}

/// Adds a secondary IPv4 address to an interface.
fn add_v4(region: &mut Region, id: &str, ip: Ipv4Addr) -> ApiResult<()> {
    let added = entry(region, &get(&region.interfaces, id)?.vpc_id, ip, false);
    let interface = get_mut(&mut region.interfaces, id)?;
    interface.private_ip_addresses.push(added);
    check_number(interface)
}

/// Adds an IPv4 prefix to an interface.
fn add_prefix_v4(region: &mut Region, id: &str, prefix: Ipv4Net) -> ApiResult<()> {
    let interface = get_mut(&mut region.interfaces, id)?;
    interface.ipv4_prefixes.push(Ipv4Prefix { ipv4_prefix: prefix });
    check_number(interface)
}

/// Takes a secondary address from the interface that has it.
fn take(region: &mut Region, subnet: &str, ip: Ipv4Addr) -> ApiResult<()> {
    let has = |interface: &&NetworkInterface| {
        let mut addresses = interface.private_ip_addresses.iter();
        addresses.any(|of| of.private_ip_address == ip && !of.primary)
    };
    let owner = free::user_v4(region, subnet, ip.into()).filter(has);
    let Some(owner) = owner.map(|interface| interface.network_interface_id.clone()) else {
        let message = format!("The address {ip} is a primary address");
        return Err(ApiError::new("InvalidIPAddress.InUse", message));
    };
    release(region, &owner, &[ip])
}

/// Removes addresses from an interface, with the public addresses that are mapped to them.
fn release(region: &mut Region, interface: &str, addresses: &[Ipv4Addr]) -> ApiResult<()> {
    get_mut(&mut region.interfaces, interface)?
        .private_ip_addresses
        .retain(|of| !addresses.contains(&of.private_ip_address));
    let is_of = |address: &&crate::state::Address| {
        address.private_ip_address.is_some_and(|ip| addresses.contains(&ip))
    };
    let mapped = region.addresses.linked(interface).filter(is_of);
    let mapped: Vec<String> = mapped.map(|address| address.allocation_id.clone()).collect();
    for id in mapped {
        address::clear(get_mut(&mut region.addresses, &id)?);
    }
    Ok(())
}

fn unassign(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("NetworkInterfaceId")?;
    let interface = get(&region.interfaces, id)?;
    let mut addresses = Vec::new();
    for text in request.texts("PrivateIpAddresses") {
        let ip = ipv4(text)?;
        match interface.private_ip_addresses.iter().find(|of| of.private_ip_address == ip) {
            Some(of) if !of.primary => addresses.push(ip),
            _ => {
                let message = format!("{ip} is no secondary address of {id}");
                return Err(ApiError::invalid(message));
            }
        }
    }
    let mut prefixes = Vec::new();
    for text in request.texts("Ipv4Prefixes") {
        let prefix = ipv4_block(text, "ipv4Prefix")?;
        if !interface.ipv4_prefixes.iter().any(|of| of.ipv4_prefix == prefix) {
            return Err(ApiError::invalid(format!("{prefix} is no prefix of {id}")));
        }
        prefixes.push(prefix);
    }
    release(region, id, &addresses)?;
    let interface = get_mut(&mut region.interfaces, id)?;
    interface.ipv4_prefixes.retain(|of| !prefixes.contains(&of.ipv4_prefix));
    success()
}

fn assign_v6(region: &mut Region, request: &Request) -> ApiResult<Value> {
    both(request, ["Ipv6Addresses", "Ipv6AddressCount"])?;
    both(request, ["Ipv6Prefixes", "Ipv6PrefixCount"])?;
    let id = request.need("NetworkInterfaceId")?;
    let subnet = get(&region.subnets, &get(&region.interfaces, id)?.subnet_id)?.clone();
    block_v6(&subnet)?;
    let named = Named {
        addresses: request.texts("Ipv6Addresses"),
        prefixes: request.texts("Ipv6Prefixes"),
    };
    let target = Target { id, subnet: &subnet, request };
    let (addresses, prefixes) = add_all_v6(region, &target, &named)?;
    Ok(json!({"NetworkInterfaceId": id, "AssignedIpv6Addresses": addresses,
              "AssignedIpv6Prefixes": prefixes}))
}

/// Adds an IPv6 address to an interface.
pub(super) fn add_v6(region: &mut Region, id: &str, ip: Ipv6Addr) -> ApiResult<()> {
    let added = Ipv6Address { ipv6_address: ip, is_primary_ipv6: false };
    let interface = get_mut(&mut region.interfaces, id)?;
    interface.ipv6_addresses.push(added);
    check_number(interface)
}

/// Adds an IPv6 prefix to an interface.
fn add_prefix_v6(region: &mut Region, id: &str, prefix: Ipv6Net) -> ApiResult<()> {
    let interface = get_mut(&mut region.interfaces, id)?;
    interface.ipv6_prefixes.push(Ipv6Prefix { ipv6_prefix: prefix });
    check_number(interface)
}

fn unassign_v6(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("NetworkInterfaceId")?;
    let interface = get_mut(&mut region.interfaces, id)?;
    let mut addresses = Vec::new();
    for text in request.texts("Ipv6Addresses") {
        let ip = ipv6(text)?;
        let before = interface.ipv6_addresses.len();
        interface.ipv6_addresses.retain(|of| of.ipv6_address != ip);
        if interface.ipv6_addresses.len() == before {
            return Err(ApiError::invalid(format!("{ip} is no address of {id}")));
        }
        addresses.push(ip);
    }
    let mut prefixes = Vec::new();
    for text in request.texts("Ipv6Prefixes") {
        let prefix = ipv6_block(text, "ipv6Prefix")?;
        let before = interface.ipv6_prefixes.len();
        interface.ipv6_prefixes.retain(|of| of.ipv6_prefix != prefix);
        if interface.ipv6_prefixes.len() == before {
            return Err(ApiError::invalid(format!("{prefix} is no prefix of {id}")));
        }
        prefixes.push(prefix);
    }
    Ok(json!({"NetworkInterfaceId": id, "UnassignedIpv6Addresses": addresses,
              "UnassignedIpv6Prefixes": prefixes}))
}
