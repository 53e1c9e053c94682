//! Free addresses and prefixes of a subnet. Each function walks over the used addresses and
//! prefixes once.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::subnet::KEPT;
use crate::error::{ApiError, ApiResult};
use crate::state::{Region, Subnet};

/// Length of an IPv4 prefix of an interface.
pub(super) const PREFIX_V4: u8 = 28;
/// Length of an IPv6 prefix of an interface.
pub(super) const PREFIX_V6: u8 = 80;

/// Number of attempts to draw IPv6 addresses and prefixes.
const ATTEMPTS: usize = 100;
/// Number of addresses of an IPv4 prefix of an interface.
const PREFIX_SIZE: u64 = 1 << (32 - PREFIX_V4);

fn exhausted(subnet: &Subnet) -> ApiError {
    let message = format!("There are not enough free addresses in subnet '{}'", subnet.subnet_id);
    ApiError::limit("InsufficientFreeAddressesInSubnet", message)
}

fn range(block: Ipv4Net) -> (u64, u64) {
    (u32::from(block.network()).into(), u32::from(block.broadcast()).into())
}

/// Returns the first and last addresses of all ranges of the subnet that are in use, sorted. Of the
/// reservations, those of the kind `explicit` or of any kind are in use.
fn used_v4(region: &Region, subnet: &Subnet, block: Ipv4Net, explicit: bool) -> Vec<(u64, u64)> {
    let (first, last) = range(block);
    let mut used = vec![(first, first + u64::from(KEPT) - 2), (last, last)];
    let reserved = region.reservations.iter().filter(|of| {
        of.subnet_id == subnet.subnet_id && (!explicit || of.reservation_type == "explicit")
    });
    used.extend(reserved.filter_map(|of| match of.cidr.parse().ok()? {
        IpNet::V4(block) => Some(range(block)),
        IpNet::V6(_) => None,
    }));
    for interface in region.interfaces.iter().filter(|i| i.subnet_id == subnet.subnet_id) {
        let addresses = interface.private_ip_addresses.iter();
        used.extend(addresses.map(|of| range(of.private_ip_address.into())));
        used.extend(interface.ipv4_prefixes.iter().map(|of| range(of.ipv4_prefix)));
    }
    used.sort_unstable();
    used
}

/// Returns the first addresses of free ranges of this size, at most `count` of them.
fn gaps(used: &[(u64, u64)], block: Ipv4Net, size: u64, count: usize) -> Vec<u32> {
    let (mut at, last) = range(block);
    let mut used = used.iter().peekable();
    let mut free = Vec::new();
    while free.len() < count && at + size - 1 <= last {
        match used.next_if(|(start, _)| *start < at + size) {
            Some((_, end)) if *end >= at => at = (end + 1).next_multiple_of(size),
            Some(_) => {}
            None => {
                free.extend(u32::try_from(at));
                at += size;
            }
        }
    }
    free
}

/// Returns free addresses of the subnet.
pub(super) fn v4(region: &Region, subnet: &Subnet, count: usize) -> ApiResult<Vec<Ipv4Addr>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let block = block(subnet)?;
    let free = gaps(&used_v4(region, subnet, block, false), block, 1, count);
    if free.len() < count {
        return Err(exhausted(subnet));
    }
    Ok(free.into_iter().map(Ipv4Addr::from).collect())
}

/// Returns free IPv4 prefixes of the subnet.
pub(super) fn prefixes_v4(
    region: &Region,
    subnet: &Subnet,
    count: usize,
) -> ApiResult<Vec<Ipv4Net>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let block = block(subnet)?;
    let free = gaps(&used_v4(region, subnet, block, true), block, PREFIX_SIZE, count);
    if free.len() < count {
        let message = "The specified subnet does not have enough free cidr blocks to satisfy the \
                       request.";
        return Err(ApiError::limit("InsufficientCidrBlocks", message));
    }
    Ok(free.into_iter().map(|at| Ipv4Net::new_assert(at.into(), PREFIX_V4)).collect())
}

/// Removes the drawn addresses that are in use. A drawn address stands for a range of this size.
fn remove_used_v6(region: &Region, drawn: &mut BTreeSet<u128>, size: u128) {
    let mut remove = |first: u128, last: u128| {
        let from = first.saturating_sub(size - 1);
        while let Some(at) = drawn.range(from..=last).next().copied() {
            drawn.remove(&at);
        }
    };
    for interface in region.interfaces.iter() {
        for of in &interface.ipv6_addresses {
            remove(of.ipv6_address.into(), of.ipv6_address.into());
        }
        for of in &interface.ipv6_prefixes {
            remove(of.ipv6_prefix.network().into(), of.ipv6_prefix.broadcast().into());
        }
    }
}

/// Draws free ranges of the subnet with these properties.
fn draw_v6(
    region: &mut Region,
    subnet: &Subnet,
    count: usize,
    size: u128,
    make: impl Fn(u64) -> Option<u128>,
) -> ApiResult<Vec<u128>> {
    let mut drawn = BTreeSet::new();
    if count == 0 {
        return Ok(Vec::new());
    }
    let network = u128::from(block_v6(subnet)?.network());
    for _ in 0..ATTEMPTS {
        for _ in drawn.len()..count {
            drawn.extend(make(region.ids.next_u64()).map(|offset| network | offset));
        }
        remove_used_v6(region, &mut drawn, size);
        if drawn.len() >= count {
            return Ok(drawn.into_iter().collect());
        }
    }
    Err(exhausted(subnet))
}

/// Returns free IPv6 addresses of the subnet.
pub(super) fn v6(region: &mut Region, subnet: &Subnet, count: usize) -> ApiResult<Vec<Ipv6Addr>> {
    // The numbers below 256 are left for addresses that people choose.
    let make = |number: u64| (number & 0xffff > 0xff).then_some(u128::from(number));
    let drawn = draw_v6(region, subnet, count, 1, make)?;
    Ok(drawn.into_iter().map(Ipv6Addr::from).collect())
}

/// Returns free IPv6 prefixes of the subnet.
pub(super) fn prefixes_v6(
    region: &mut Region,
    subnet: &Subnet,
    count: usize,
) -> ApiResult<Vec<Ipv6Net>> {
    let make = |number: u64| Some(u128::from(number & 0xffff) << 48);
    let drawn = draw_v6(region, subnet, count, 1 << (128 - PREFIX_V6), make)?;
    Ok(drawn.into_iter().map(|at| Ipv6Net::new_assert(at.into(), PREFIX_V6)).collect())
}

/// Returns the IPv4 block of a subnet.
pub(super) fn block(subnet: &Subnet) -> ApiResult<Ipv4Net> {
    subnet.cidr_block.ok_or_else(|| {
        ApiError::invalid(format!("Subnet '{}' has no IPv4 CIDR block", subnet.subnet_id))
    })
}

/// Returns the first IPv6 block of a subnet.
pub(super) fn block_v6(subnet: &Subnet) -> ApiResult<Ipv6Net> {
    let block = subnet.ipv6_cidr_block_association_set.first().map(|of| of.ipv6_cidr_block);
    block.ok_or_else(|| {
        let message =
            format!("The subnet '{}' has no associated IPv6 CIDR block", subnet.subnet_id);
        ApiError::invalid(message)
    })
}
