//! The cloud to which an address belongs, as an interface sees it. Clouds with the same addresses
//! may be peered with one cloud; routes decide which of them a packet reaches.

use super::route;
use crate::id::{SubnetId, VpcId};
use crate::object::{Eni, Target, Vpc, World};
use core::net::IpAddr;

/// Largest number of subnets whose routes are followed: an interface's subnet, and the subnet of a
/// NAT gateway.
const ROUTES_MAX: usize = 2;

/// Whether packets that an interface sends to an address go to another cloud than `vpc`. A packet
/// from `vpc` with this source address is then no part of the interface's connections with the
/// address. Always false for the interface's own cloud, whose middleboxes may forward packets of
/// other clouds.
pub fn lead_elsewhere(world: &World, eni: &Eni, address: IpAddr, vpc: VpcId) -> bool {
    let own = world.subnets.get(&eni.subnet).map(|subnet| subnet.vpc);
    let cloud = cloud_towards(world, eni.subnet, address);
    own.is_some_and(|own| own != vpc) && cloud.is_some_and(|cloud| cloud != vpc)
}

/// Returns the cloud to which packets from a subnet to an address go; `None` if they leave all
/// clouds, go to a middlebox, or have no route.
pub(super) fn cloud_towards(world: &World, from: SubnetId, address: IpAddr) -> Option<VpcId> {
    let mut from = from;
    for _ in 0..ROUTES_MAX {
        let vpc = world.subnets.get(&from)?.vpc;
        if has_block(world, vpc, address) {
            return Some(vpc);
        }
        match route::choose(world, from, address)?.route?.1 {
            Target::Peering(id) => {
                let peering = world.peerings.get(&id).filter(|peering| peering.active)?;
                return match [peering.requester, peering.accepter] {
                    [own, other] | [other, own] if own == vpc => Some(other),
                    _ => None,
                };
            }
            Target::NatGateway(id) => from = world.nat_gateways.get(&id)?.subnet,
            _ => return None,
        }
    }
    None
}

/// Whether an address is in the blocks of the cloud with this identifier.
pub(super) fn has_block(world: &World, vpc: VpcId, address: IpAddr) -> bool {
    world.vpcs.get(&vpc).is_some_and(|vpc| has_address(vpc, address))
}

/// Whether an address is in the blocks of this cloud.
pub(super) fn has_address(vpc: &Vpc, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => vpc.ipv4.iter().any(|block| block.contains(&address)),
        IpAddr::V6(address) => vpc.ipv6.iter().any(|block| block.contains(&address)),
    }
}
