//! Classification of an address as inside or outside of the cloud, from the address alone.

use std::net::IpAddr;

/// Whether packets to or from an address pass an internet gateway: true for IPv4 addresses that are
/// not private, shared, local or reserved. If a cloud uses public IPv4 addresses internally, they
/// wrongly count as outside.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let shared = a == 100 && b & 0xc0 == 64;
            let benchmark = a == 198 && b & 0xfe == 18;
            let local = v4.is_private() || v4.is_link_local() || v4.is_loopback();
            let odd = v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified();
            !(local || shared || benchmark || odd || v4.is_documentation())
        }
        // Clouds use public IPv6 addresses internally, so an address does not show whether its
        // packets pass a gateway.
        IpAddr::V6(_) => false,
    }
}

/// Whether an address belongs to a service that EC2 instances reach at a link-local address.
pub(crate) fn is_link_local_service(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[..2] == [0xfd00, 0x0ec2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_reserved_addresses_are_not_public() {
        for (address, public) in [
            ("10.1.2.3", false),
            ("172.31.0.1", false),
            ("100.64.0.1", false),
            ("198.18.0.1", false),
            ("192.0.2.1", false),
            ("169.254.169.253", false),
            ("224.0.0.1", false),
            ("8.8.8.8", true),
            ("100.128.0.1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
        assert!(is_link_local_service("169.254.169.254".parse().unwrap()));
        assert!(is_link_local_service("fd00:ec2::254".parse().unwrap()));
        assert!(!is_link_local_service("10.0.0.2".parse().unwrap()));
    }
}
