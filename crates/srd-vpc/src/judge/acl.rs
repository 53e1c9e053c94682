//! Access control lists: numbered, the first match decides, evaluated at the border of a subnet
//! only.

use super::groups::Direction;
use super::traffic;
use crate::id::SubnetId;
use crate::object::{Acl, World};
use crate::packet::Packet;

/// Decision of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) acl: crate::id::AclId,
    /// The entry that decided; `None` is the last, implicit one, which denies.
    pub(super) number: Option<u16>,
    pub(super) allow: bool,
}

/// Decision of a subnet's list about a packet that enters or leaves the subnet.
pub(super) fn decide(
    world: &World,
    subnet: SubnetId,
    direction: Direction,
    packet: &Packet,
) -> Option<Decision> {
    let id = world.subnets.get(&subnet)?.acl;
    let (number, allow) = first_match(world.acls.get(&id)?, direction, packet);
    Some(Decision { acl: id, number, allow })
}

pub(super) fn first_match(acl: &Acl, direction: Direction, packet: &Packet) -> (Option<u16>, bool) {
    let (other, egress) = match direction {
        Direction::Ingress => (packet.source, false),
        Direction::Egress => (packet.destination, true),
    };
    let entries = acl.entries.iter().filter(|entry| {
        entry.egress == egress
            && entry.block.contains(&other)
            && traffic::is_of(entry.traffic, packet)
    });
    let first = entries.min_by_key(|entry| entry.number);
    first.map_or((None, false), |entry| (Some(entry.number), entry.allow))
}
