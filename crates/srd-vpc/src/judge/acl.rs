//! Network access control lists. Entries are numbered, and the first entry that matches decides. A
//! list is evaluated only when a packet crosses the border of its subnet.

use super::groups::Direction;
use super::traffic;
use crate::id::SubnetId;
use crate::object::{Acl, World};
use crate::packet::Packet;

/// Decision of an access control list on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) acl: crate::id::AclId,
    /// Number of the entry that decided; `None`: the implicit last entry, which denies.
    pub(super) number: Option<u16>,
    pub(super) allow: bool,
}

/// Returns the decision of a subnet's access control list on a packet that enters or leaves the
/// subnet; `None` if the subnet or the list does not exist.
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
            && traffic::applies(entry.traffic, entry.allow, packet)
    });
    let first = entries.min_by_key(|entry| entry.number);
    first.map_or((None, false), |entry| (Some(entry.number), entry.allow))
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::id::VpcId;
    use crate::object::{AclEntry, Traffic};
    use crate::packet::Inner;

    /// A later fragment has no ports if its first fragment is unknown: it passes only if all ports
    /// pass.
    #[test]
    fn regression_a_fragment_without_ports_passes_no_entry_that_denies_some_ports() {
        let entry = |number, allow, traffic| AclEntry {
            number,
            egress: false,
            allow,
            traffic,
            block: "0.0.0.0/0".parse().unwrap(),
        };
        let of = |entries: Vec<AclEntry>, protocol: u8| {
            let acl = Acl { name: String::new(), vpc: VpcId(1), entries };
            let [source, destination] = [1, 2].map(|last| [10, 0, 0, last].into());
            let packet = Packet { source, destination, inner: Inner::Other(protocol) };
            first_match(&acl, Direction::Ingress, &packet)
        };
        let (all, udp) = (Traffic::All, Traffic::Udp(1024, 65_535));
        let denies_some = || vec![entry(1, false, udp), entry(100, true, all)];
        assert_eq!(of(denies_some(), 17), (Some(1), false));
        assert_eq!(of(denies_some(), 6), (Some(100), true), "entries for UDP do not concern TCP");
        assert_eq!(of(denies_some(), 47), (Some(100), true), "nor other protocols");
        let allows_some = vec![entry(1, true, udp), entry(2, false, Traffic::Udp(0, 65_535))];
        assert_eq!(of(allows_some, 17), (Some(2), false));
        let echo = vec![entry(1, false, Traffic::Icmp(Some(8), None)), entry(2, true, all)];
        assert_eq!(of(echo, 1), (Some(1), false));
    }
}
