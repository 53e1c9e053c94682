//! Free addresses and prefixes of a subnet. For IPv4, the walk over the used addresses ends at the
//! first gap that is wide enough.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::subnet::KEPT;
use crate::error::{ApiError, ApiResult};
use crate::state::interface::{RANGES_V6, numbers_v4, numbers_v6};
use crate::state::{NetworkInterface, Region, Subnet};

/// Length of an IPv4 prefix of an interface.
pub(super) const PREFIX_V4: u8 = 28;
/// Length of an IPv6 prefix of an interface.
pub(super) const PREFIX_V6: u8 = 80;

/// Number of attempts to draw IPv6 addresses and prefixes.
const ATTEMPTS: usize = 100;
/// Number of addresses of an IPv4 prefix of an interface.
const PREFIX_SIZE: u64 = 1 << (32 - PREFIX_V4);
/// Number of addresses of an IPv6 prefix of an interface.
const PREFIX_V6_SIZE: u128 = 1 << (128 - PREFIX_V6);

fn exhausted(subnet: &Subnet) -> ApiError {
    let message = format!("There are not enough free addresses in subnet '{}'", subnet.subnet_id);
    ApiError::limit("InsufficientFreeAddressesInSubnet", message)
}

fn range(block: Ipv4Net) -> (u64, u64) {
    (u32::from(block.network()).into(), u32::from(block.broadcast()).into())
}

/// Returns the first and last addresses of the ranges of the subnet that are in use beside those of
/// its interfaces, sorted. Of the reservations, those of the kind `explicit` or of any kind are in
/// use.
fn reserved_v4(
    region: &Region,
    subnet: &Subnet,
    block: Ipv4Net,
    explicit: bool,
) -> Vec<(u64, u64)> {
    let (first, last) = range(block);
    let mut used = vec![(first, first + u64::from(KEPT) - 2), (last, last)];
    let reserved = region.reservations.iter().filter(|of| {
        of.subnet_id == subnet.subnet_id && (!explicit || of.reservation_type == "explicit")
    });
    used.extend(reserved.filter_map(|of| match of.cidr.parse().ok()? {
        IpNet::V4(block) => Some(range(block)),
        IpNet::V6(_) => None,
    }));
    used.sort_unstable();
    used
}

/// Returns the first addresses of free ranges of this size, at most `count` of them.
fn gaps(
    region: &Region,
    subnet: &Subnet,
    block: Ipv4Net,
    (size, explicit): (u64, bool),
    count: usize,
) -> Vec<u32> {
    let (mut at, last) = range(block);
    let reserved = reserved_v4(region, subnet, block, explicit);
    let mut reserved = reserved.into_iter().peekable();
    let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let used = region.interfaces.used(&subnet.subnet_id);
    let mut used = used.map(|(first, last)| (narrow(first), narrow(last))).peekable();
    let mut free = Vec::new();
    while free.len() < count && at + size - 1 <= last {
        let is_near = |(start, _): &(u64, u64)| *start < at + size;
        match reserved.next_if(is_near).or_else(|| used.next_if(is_near)) {
            Some((_, end)) if end >= at => at = (end + 1).next_multiple_of(size),
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
    let free = gaps(region, subnet, block, (1, false), count);
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
    let free = gaps(region, subnet, block, (PREFIX_SIZE, true), count);
    if free.len() < count {
        let message = "The specified subnet does not have enough free cidr blocks to satisfy the \
                       request.";
        return Err(ApiError::limit("InsufficientCidrBlocks", message));
    }
    Ok(free.into_iter().map(|at| Ipv4Net::new_assert(at.into(), PREFIX_V4)).collect())
}

/// Returns the interface that uses one of these IPv4 addresses of a subnet.
pub(super) fn user_v4<'a>(
    region: &'a Region,
    subnet: &str,
    block: Ipv4Net,
) -> Option<&'a NetworkInterface> {
    let (first, last) = numbers_v4(block);
    region.interfaces.user(subnet, first, last, PREFIX_SIZE.into())
}

/// Whether an interface uses one of these IPv6 addresses.
pub(super) fn is_used_v6(region: &Region, block: Ipv6Net) -> bool {
    let (first, last) = numbers_v6(block);
    region.interfaces.user(RANGES_V6, first, last, PREFIX_V6_SIZE).is_some()
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
        drawn.retain(|first| {
            let last = first + (size - 1);
            region.interfaces.user(RANGES_V6, *first, last, PREFIX_V6_SIZE).is_none()
        });
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
    let drawn = draw_v6(region, subnet, count, PREFIX_V6_SIZE, make)?;
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
