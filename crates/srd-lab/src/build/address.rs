//! Address plan: IPv4, IPv6 and MAC addresses as functions of the position.
//!
//! | what | IPv4 (RFC 2544 benchmark range) | IPv6 |
//! |---|---|---|
//! | host `h` of leaf `l` | `198.18.l.(8h+1)/29`, extra MPTCP addresses `+2 ..= +5` | `fd00:18:l:h::1/64` |
//! | gateway of this host on the leaf | `198.18.l.(8h+6)/29` | `fd00:18:l:h::f/64` |
//! | host `h` of leaf `l` behind `srd up` | `10.99.l.(h+1)/16` | |
//! | leaf `l`, link to spine `s` | `198.19.l.(2s)/31` | `fd00:19:l:s::1/64` |
//! | spine `s`, link to leaf `l` | `198.19.l.(2s+1)/31` | `fd00:19:l:s::2/64` |
//!
//! MAC addresses are computed, not random, so that permanent neighbour entries can be written
//! before the links exist. All functions expect positions that [`crate::FabricConfig`] permits.

use crate::build::id::{Family, HostId, LinkId};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Largest number of extra IPv4 addresses a host can have for MPTCP subflows.
pub const EXTRA_ADDRESSES_MAX: u16 = 4;

/// One of the two ends of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end closer to the hosts.
    Lower,
    /// The end closer to the spines.
    Upper,
}

/// Returns a host's address.
#[must_use]
pub fn host(id: HostId, family: Family) -> IpAddr {
    match family {
        Family::V4 => host_v4(id, 0).into(),
        Family::V6 => host_v6(id, 0x1).into(),
    }
}

/// Returns a host's `extra`-th additional IPv4 address; zero means the main address.
#[must_use]
pub fn host_v4(id: HostId, extra: u16) -> Ipv4Addr {
    debug_assert!(extra <= EXTRA_ADDRESSES_MAX);
    Ipv4Addr::new(198, 18, octet(id.leaf), octet(8 * id.host + 1 + extra))
}

/// Returns a host's address in the overlay network that the daemons `srd up` provide.
#[must_use]
pub fn overlay(id: HostId) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, octet(id.leaf), octet(id.host + 1))
}

/// Returns the leaf's address on a host's link.
#[must_use]
pub fn gateway(id: HostId, family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 18, octet(id.leaf), octet(8 * id.host + 6)).into(),
        Family::V6 => host_v6(id, 0xf).into(),
    }
}

/// Returns the prefix of all hosts of a leaf, as a route destination.
#[must_use]
pub fn leaf_prefix(leaf: u16, family: Family) -> String {
    match family {
        Family::V4 => format!("{}/24", Ipv4Addr::new(198, 18, octet(leaf), 0)),
        Family::V6 => format!("{}/48", Ipv6Addr::new(0xfd00, 0x18, leaf, 0, 0, 0, 0, 0)),
    }
}

/// Returns the address of one end of a leaf to spine link; the leaf is the lower end.
#[must_use]
pub fn link(id: LinkId, end: End, family: Family) -> IpAddr {
    let upper = u16::from(end == End::Upper);
    match family {
        Family::V4 => Ipv4Addr::new(198, 19, octet(id.leaf), octet(2 * id.spine + upper)).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0x19, id.leaf, id.spine, 0, 0, 0, 1 + upper).into(),
    }
}

/// Returns the MAC address of one end of a host's cable: the host is the lower end.
#[must_use]
pub fn host_mac(id: HostId, end: End) -> String {
    mac(1, [id.leaf, id.host], end)
}

/// Returns the MAC address of one end of a leaf to spine cable: the leaf is the lower end.
#[must_use]
pub fn link_mac(id: LinkId, end: End) -> String {
    mac(2, [id.leaf, id.spine], end)
}

fn host_v6(id: HostId, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x18, id.leaf, id.host, 0, 0, 0, last)
}

/// Returns a locally administered unicast MAC address: `02:18:<kind>:<position>:<position>:<end>`.
fn mac(kind: u8, at: [u16; 2], end: End) -> String {
    let end = u8::from(end == End::Upper);
    format!("02:18:{kind:02x}:{:02x}:{:02x}:{end:02x}", octet(at[0]), octet(at[1]))
}

fn octet(value: u16) -> u8 {
    u8::try_from(value).expect("the validated config keeps every position below 256")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FabricConfig;
    use std::collections::BTreeSet;

    #[test]
    fn plan_reads_as_documented() {
        let id = HostId { leaf: 1, host: 3 };
        assert_eq!(host(id, Family::V4).to_string(), "198.18.1.25");
        assert_eq!(host_v4(id, 4).to_string(), "198.18.1.29");
        assert_eq!(overlay(id).to_string(), "10.99.1.4");
        assert_eq!(gateway(id, Family::V4).to_string(), "198.18.1.30");
        assert_eq!(host(id, Family::V6).to_string(), "fd00:18:1:3::1");
        assert_eq!(leaf_prefix(10, Family::V6), "fd00:18:a::/48");
        let cable = LinkId { leaf: 1, spine: 2 };
        assert_eq!(link(cable, End::Upper, Family::V4).to_string(), "198.19.1.5");
        assert_eq!(link(cable, End::Lower, Family::V6).to_string(), "fd00:19:1:2::1");
        assert_eq!(host_mac(id, End::Lower), "02:18:01:01:03:00");
    }

    #[test]
    fn no_two_ends_share_an_address_even_in_the_largest_fabric() {
        let config =
            FabricConfig { leaves: 32, hosts_per_leaf: 31, spines: 64, ..FabricConfig::default() };
        let mut seen = BTreeSet::new();
        let mut add = |text: String| assert!(seen.insert(text.clone()), "{text} twice");
        for id in config.hosts() {
            for family in [Family::V4, Family::V6] {
                add(host(id, family).to_string());
                add(gateway(id, family).to_string());
            }
            for extra in 1..=EXTRA_ADDRESSES_MAX {
                add(host_v4(id, extra).to_string());
            }
            add(host_mac(id, End::Lower));
            add(host_mac(id, End::Upper));
        }
        for id in config.links() {
            for end in [End::Lower, End::Upper] {
                add(link(id, end, Family::V4).to_string());
                add(link(id, end, Family::V6).to_string());
                add(link_mac(id, end));
            }
        }
    }
}
