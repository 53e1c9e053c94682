//! Addresses of the overlay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Smallest number of bits for hosts in the block of an overlay.
const HOST_BITS_MIN: u8 = 2;

/// Checks the block of an overlay.
///
/// # Errors
/// A text for the operator.
pub(super) fn check(block: IpNet) -> Result<(), String> {
    let ip = block.addr();
    if block.trunc() != block {
        return Err(format!("{block} has bits set beyond its prefix: write {}", block.trunc()));
    }
    if block.max_prefix_len() - block.prefix_len() < HOST_BITS_MIN {
        return Err(format!("{block} has too few addresses for an overlay"));
    }
    if ip.is_multicast() || ip.is_loopback() || block.prefix_len() == 0 {
        return Err(format!("{block} can be no overlay: choose a private block, as 10.77.0.0/16"));
    }
    Ok(())
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

/// Returns the next free address of the block, after the address that was assigned last: an address
/// that was released is not assigned again at once. `None` if all addresses are taken.
/// `taken_count` is the number of taken addresses.
pub(super) fn next(
    block: IpNet,
    last: Option<IpAddr>,
    taken_count: usize,
    is_taken: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    // The first address is that of the network, and the last one of IPv4 is for broadcasts.
    let first = number(block.network()) + 1;
    let end = number(block.broadcast()) - u128::from(block.addr().is_ipv4());
    let last = last.filter(|last| block.contains(last)).map_or(first - 1, number);
    let mut candidate = last.clamp(first - 1, end);
    for _ in 0..=taken_count {
        candidate = if candidate >= end { first } else { candidate + 1 };
        let ip = match block {
            IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(candidate).ok()?)),
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(candidate)),
        };
        if !is_taken(ip) {
            return Some(ip);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Assigns addresses until the block is full.
    fn fill(block: &str) -> Vec<IpAddr> {
        let block: IpNet = block.parse().unwrap();
        let (mut all, mut last) = (Vec::new(), None);
        while let Some(ip) = next(block, last, all.len(), |ip| all.contains(&ip)) {
            last = Some(ip);
            all.push(ip);
        }
        all
    }

    #[test]
    fn every_address_of_hosts_is_assigned_once() {
        let all = fill("10.0.0.0/29");
        assert_eq!((all.len(), all[0]), (6, "10.0.0.1".parse().unwrap()));
        assert_eq!(all[5], "10.0.0.6".parse::<IpAddr>().unwrap());
        let all = fill("fd00::/124");
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 15);
        assert_eq!(fill("255.255.255.252/30").len(), 2);
    }

    #[test]
    fn an_address_that_was_released_is_not_assigned_at_once() {
        let block = "10.0.0.0/29".parse().unwrap();
        let [second, fourth] = ["10.0.0.2", "10.0.0.4"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let third = "10.0.0.3".parse().unwrap();
        assert_eq!(next(block, Some(third), 1, |ip| ip == third), Some(fourth));
        let end = Some("10.0.0.6".parse().unwrap());
        assert_eq!(
            next(block, end, 1, |ip| ip == "10.0.0.1".parse::<IpAddr>().unwrap()),
            Some(second)
        );
        let elsewhere = Some("192.0.2.1".parse().unwrap());
        assert_eq!(next(block, elsewhere, 0, |_| false), "10.0.0.1".parse().ok());
    }

    #[test]
    fn blocks_that_can_be_no_overlay_are_refused() {
        for good in ["10.77.0.0/16", "10.0.0.0/30", "fd00::/64"] {
            check(good.parse().unwrap()).unwrap();
        }
        for bad in ["10.77.0.1/16", "10.0.0.0/31", "0.0.0.0/0", "127.0.0.0/8", "224.0.0.0/8"] {
            check(bad.parse().unwrap()).unwrap_err();
        }
    }
}
