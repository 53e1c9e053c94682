//! The cloud to which an address belongs, as an interface of the host sees it. Clouds with the same
//! addresses may be peered with one cloud; routes decide which of them a packet reaches.

use super::*;
use core::net::IpAddr;

/// Largest number of subnets whose routes are followed: an interface's subnet, and the subnet of a
/// NAT gateway.
const ROUTES_MAX: usize = 2;

impl Rules {
    /// Whether packets that an interface of this host sends to an address go to another cloud than
    /// `vpc`. A packet from `vpc` with this source address is then no part of the interface's
    /// connections with the address, because these belong to the other cloud. Always false for the
    /// interface's own cloud, whose middleboxes may forward packets of other clouds. // V1
    pub fn lead_elsewhere(&self, eni: EniId, address: IpAddr, vpc: VpcId) -> bool {
        let Some(port) = self.ports.get(&eni) else { return false };
        if self.subnets.get(&port.subnet).is_none_or(|subnet| subnet.vpc == vpc) {
            return false;
        }
        self.cloud_towards(port.subnet, address).is_some_and(|cloud| cloud != vpc)
    }

    /// Returns the cloud to which packets from a subnet to an address go; `None` if they leave all
    /// clouds, go to a middlebox, or have no route.
    pub(super) fn cloud_towards(&self, from: SubnetId, address: IpAddr) -> Option<VpcId> {
        let mut from = from;
        for _ in 0..ROUTES_MAX {
            let subnet = self.subnets.get(&from)?;
            if self.clouds.get(&subnet.vpc).is_some_and(|blocks| blocks.contains(address)) {
                return Some(subnet.vpc);
            }
            match subnet.route(address)? {
                Target::Peering(id) => match (*self.gateways.peerings.get(&id)?)? {
                    [own, other] | [other, own] if own == subnet.vpc => return Some(other),
                    _ => return None,
                },
                Target::NatGateway(id) => from = self.gateways.nat.get(&id)?.subnet,
                _ => return None,
            }
        }
        None
    }
}
