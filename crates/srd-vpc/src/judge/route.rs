//! Route tables: the longest prefix that contains the destination wins.
//!
//! Among routes with prefixes of equal length, a static route beats a propagated one, and a static
//! route for a block beats a route for a prefix list. The local routes of a cloud's blocks always
//! exist. A static route for exactly a block of the cloud replaces the local route of this block. A
//! propagated route never leads to an address inside a block of the cloud. Source: *Route priority*
//! in Amazon's VPC guide.

use crate::id::{RouteTableId, SubnetId};
use crate::object::{Destination, Route, Target, World};
use core::net::IpAddr;
use ipnet::IpNet;

/// The route that is used for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) table: RouteTableId,
    /// The block that matched and its target; `None` if no route matches.
    pub(super) route: Option<(IpNet, Target)>,
}

/// Returns the route from a subnet to an address; `None` if the subnet, its cloud or its route
/// table does not exist.
pub(super) fn choose(world: &World, subnet: SubnetId, to: IpAddr) -> Option<Chosen> {
    let subnet = world.subnets.get(&subnet)?;
    let vpc = world.vpcs.get(&subnet.vpc)?;
    let table = subnet.route_table.unwrap_or(vpc.main_route_table);
    let routes = &world.route_tables.get(&table)?.routes;
    let local = vpc.ipv4.iter().map(|block| IpNet::V4(*block));
    let local = local.chain(vpc.ipv6.iter().map(|block| IpNet::V6(*block)));
    let is_local = local.clone().any(|block| block.contains(&to));
    let usable = routes.iter().filter(|route| !(route.propagated && is_local));
    let named = usable.flat_map(|route| {
        blocks(world, route).map(move |block| (block, rank(route), route.target))
    });
    let local = local.map(|block| (block, 0, Target::Local));
    let matching = named.chain(local).filter(|(block, ..)| block.contains(&to));
    let matching = matching.filter(|_| !is_reserved(to));
    let best = matching.max_by_key(|(block, rank, target)| (block.prefix_len(), *rank, *target));
    Some(Chosen { table, route: best.map(|(block, _, target)| (block, target)) })
}

/// Whether an address belongs to the network's own services: 169.254.168.0/22 and fd00:ec2::/32.
/// Routes do not apply to these addresses, even if a route covers them.
pub(crate) fn is_reserved(to: IpAddr) -> bool {
    match to {
        IpAddr::V4(to) => u32::from(to) >> 10 == 0xa9fe_a800 >> 10,
        IpAddr::V6(to) => to.segments()[..2] == [0xfd00, 0xec2],
    }
}

/// Returns the rank of a route. Among routes with prefixes of equal length, the highest rank wins.
pub(crate) fn rank(route: &Route) -> u8 {
    match (route.propagated, route.destination) {
        (false, Destination::Block(_)) => 3,
        (false, Destination::List(_)) => 2,
        (true, _) => 1,
    }
}

pub(crate) fn blocks<'a>(world: &'a World, route: &'a Route) -> impl Iterator<Item = IpNet> + 'a {
    let (one, list) = match route.destination {
        Destination::Block(block) => (Some(block), None),
        Destination::List(id) => (None, world.prefix_lists.get(&id)),
    };
    one.into_iter().chain(list.into_iter().flat_map(|list| list.entries.iter().copied()))
}
