//! Network address usage (NAU): units by which EC2 limits the size of a cloud.
//!
//! An address of an interface counts one unit, a delegated prefix one, each interface after the
//! first of its instance one, and a NAT gateway six. Source: *Network Address Usage* in Amazon's
//! VPC guide.

use crate::id::VpcId;
use crate::object::{Eni, World};

/// Default quota of network address usage for one cloud, in units. The quota can be raised to at
/// most 256,000 units.
pub const UNITS_MAX: u64 = 64_000;
/// Default quota of network address usage, in units, for a cloud together with its peered clouds of
/// the same Region.
pub const PEERED_UNITS_MAX: u64 = 128_000;
/// Units of network address usage that each of the following resources counts: a NAT gateway; a
/// load balancer, an interface endpoint or a transit gateway attachment, per zone; the interface of
/// a Lambda function; and a file system on an instance.
pub const SERVICE_UNITS: u64 = 6;

/// Returns the network address usage of one cloud in units.
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

/// Returns the network address usage, in units, of a cloud together with all clouds to which an
/// active peering connection joins it.
pub fn peered(world: &World, vpc: VpcId) -> u64 {
    let peerings = world.peerings.values().filter(|peering| peering.active);
    let others = peerings.filter_map(|peering| match [peering.requester, peering.accepter] {
        [own, other] | [other, own] if own == vpc => Some(other),
        _ => None,
    });
    let others: alloc::collections::BTreeSet<VpcId> = others.collect();
    of(world, vpc) + others.into_iter().map(|other| of(world, other)).sum::<u64>()
}
