//! Addresses in use in each cloud: ranges that do not overlap, with their owners.
//!
//! The time of a look-up grows with the logarithm of the number of ranges, so the time for a file
//! is about linear in its size.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use srd_vpc::id::VpcId;

/// Ranges by cloud and first address, each with its last address and its owner.
#[derive(Debug)]
pub(crate) struct Taken<T>(BTreeMap<(VpcId, IpAddr), (IpAddr, T)>);

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> Taken<T> {
    /// Returns the owner of a range that shares addresses with this block.
    pub(crate) fn owner(&self, vpc: VpcId, block: IpNet) -> Option<T> {
        let (first, last) = ends(block);
        // Ranges do not overlap, so of the ranges that begin at or before the block's end, the last
        // one also ends last. In the order of `IpAddr`, IPv4 addresses come before IPv6 addresses.
        let before = self.0.range(..=(vpc, last)).next_back();
        let overlaps = |&(&(of, _), &(end, _)): &(&(VpcId, IpAddr), &(IpAddr, T))| {
            of == vpc && end.is_ipv4() == first.is_ipv4() && end >= first
        };
        before.filter(overlaps).map(|(_, (_, owner))| *owner)
    }

    /// Adds a block. None of its addresses may be in use.
    pub(crate) fn take(&mut self, vpc: VpcId, block: IpNet, owner: T) {
        let (first, last) = ends(block);
        self.0.insert((vpc, first), (last, owner));
    }
}

fn ends(block: IpNet) -> (IpAddr, IpAddr) {
    match block {
        IpNet::V4(block) => (block.network().into(), block.broadcast().into()),
        IpNet::V6(block) => (block.network().into(), block.broadcast().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_share_an_address_are_found_in_their_own_cloud_only() {
        let block = |text: &str| text.parse::<IpNet>().unwrap();
        let mut taken = Taken::default();
        taken.take(VpcId(1), block("10.0.1.16/28"), 'a');
        taken.take(VpcId(1), block("10.0.1.40/32"), 'b');
        taken.take(VpcId(2), block("10.0.2.0/24"), 'c');
        taken.take(VpcId(1), block("fd00::/80"), 'd');
        let owner = |vpc, text| taken.owner(VpcId(vpc), block(text));
        assert_eq!(owner(1, "10.0.1.31/32"), Some('a'));
        assert_eq!(owner(1, "10.0.1.32/28"), Some('b'));
        assert_eq!(owner(1, "10.0.0.0/16"), Some('b'));
        assert_eq!(owner(1, "fd00::9/128"), Some('d'));
        assert_eq!(owner(2, "10.0.2.0/28"), Some('c'));
        for free in ["10.0.1.15/32", "10.0.1.32/29", "10.0.2.0/24", "fd00:0:0:0:1::/80", "::/128"] {
            assert_eq!(owner(1, free), None, "{free}");
        }
        assert_eq!(owner(2, "10.0.1.16/28"), None);
        assert_eq!(owner(3, "10.0.1.16/28"), None);
    }
}
