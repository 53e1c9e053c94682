//! Network address usage: how much of a cloud's size is used up.
//!
//! Each address of an interface counts one, a delegated prefix one, each interface after the first
//! of its instance one, a NAT gateway six. Source: *Network Address Usage* in Amazon's VPC guide.

use crate::id::VpcId;
use crate::object::{Eni, World};

/// The most of one cloud, unless the quota was raised; 256,000 is the most that it can be.
pub const UNITS_MAX: u64 = 64_000;
/// The most of a cloud and those in its Region that it is peered with.
pub const PEERED_UNITS_MAX: u64 = 128_000;
/// Units of a NAT gateway, of a load balancer, an interface endpoint or a transit gateway
/// attachment per zone, of a function's interface, and of a file system on an instance.
pub const SERVICE_UNITS: u64 = 6;

/// Units of one cloud.
pub fn of(world: &World, vpc: VpcId) -> u64 {
    let here = |eni: &&Eni| world.subnets.get(&eni.subnet).is_some_and(|s| s.vpc == vpc);
    let units = |eni: &Eni| {
        let addresses = eni.ipv4.len() + eni.ipv6.len();
        let prefixes = eni.ipv4_prefixes.len() + eni.ipv6_prefixes.len();
        let further = eni.attachment.as_ref().is_some_and(|at| at.device_index > 0);
        (addresses + prefixes) as u64 + u64::from(further)
    };
    let enis: u64 = world.enis.values().filter(here).map(units).sum();
    let gateways = world.nat_gateways.values();
    let gateways = gateways.filter(|g| world.subnets.get(&g.subnet).is_some_and(|s| s.vpc == vpc));
    enis + SERVICE_UNITS * gateways.count() as u64
}

/// Units of a cloud together with those that it is actively peered with.
pub fn peered(world: &World, vpc: VpcId) -> u64 {
    let peerings = world.peerings.values().filter(|peering| peering.active);
    let others = peerings.filter_map(|peering| match [peering.requester, peering.accepter] {
        [own, other] | [other, own] if own == vpc => Some(other),
        _ => None,
    });
    let others: alloc::collections::BTreeSet<VpcId> = others.collect();
    of(world, vpc) + others.into_iter().map(|other| of(world, other)).sum::<u64>()
}
