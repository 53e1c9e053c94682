//! Checks of this machine before the set-up. The overlay must not cover another network of the
//! machine, and the machine's reverse path filters must accept the peers' packets.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use rustix::net::{AddressFamily, SocketType};
use srd_net::Link;

use crate::config::{Config, Table};

/// Refuses a configuration that would cut off a network of the machine, or that could not work on
/// it.
pub(super) fn check(config: &Config) -> Result<()> {
    if config.interface.table == Table::Off {
        return Ok(());
    }
    check_overlay(config)?;
    check_reverse_paths(config)
}

/// Whether the machine has an interface with this name.
pub(super) fn has_interface(name: &str) -> bool {
    // The socket is not bound, because `lo` may be down, as in a new network namespace.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    socket.is_ok_and(|socket| rustix::net::netdevice::name_to_index(&socket, name).is_ok())
}

/// Whether a TUN device with this name exists, as far as `/sys` shows the present network
/// namespace.
pub(super) fn is_tun(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("tun_flags").exists()
}

/// Refuses a subnet of the interface that contains an address of another interface. All packets to
/// the subnet would be routed into the overlay.
fn check_overlay(config: &Config) -> Result<()> {
    let interface = &config.interface;
    for other in srd_net::local_addresses()? {
        let covers = |net: &&ipnet::IpNet| net.prefix_len() < net.max_prefix_len();
        let overlay = interface.address.iter().filter(covers).find(|net| net.contains(&other.ip));
        if let Some(net) = overlay
            && other.interface != interface.name
        {
            bail!(
                "the overlay {} contains {}, an address of {}: that network would be cut off. \
                 Choose another `address` in [interface]",
                net.trunc(),
                other.ip,
                other.interface
            );
        }
    }
    Ok(())
}

/// Refuses a strict reverse path filter if a peer's endpoint lies in `allowed`. The route to the
/// endpoint leads into the overlay for packets without our mark, but packets from the endpoint
/// arrive at another interface, so a strict filter would drop them.
fn check_reverse_paths(config: &Config) -> Result<()> {
    let known = config.peers.iter().flat_map(|p| p.endpoints().map(move |endpoint| (p, endpoint)));
    for (peer, endpoint) in known.filter(|(_, endpoint)| endpoint.is_ipv4()) {
        let is_covered =
            config.peers.iter().flat_map(|p| &p.allowed).any(|n| n.contains(&endpoint.ip()));
        let Some(interface) = Link::towards(endpoint).ok().and_then(|link| link.interface) else {
            continue;
        };
        if is_covered && is_strict(&interface) {
            bail!(
                "the endpoint {} of {} lies in `allowed`, and the reverse path filter of \
                 {interface} is strict: it would drop the peer's packets. Set it to loose: \
                 sysctl -w net.ipv4.conf.{}.rp_filter=2",
                endpoint.ip(),
                peer.name,
                // `sysctl` writes a dot within a name as a slash.
                interface.replace('.', "/")
            );
        }
    }
    Ok(())
}

/// Whether an interface drops packets if the route to their source uses another interface
/// (`rp_filter`). The kernel uses the larger of two settings: 1 is strict, 2 is loose.
fn is_strict(interface: &str) -> bool {
    let value = |name: &str| {
        let path = Path::new("/proc/sys/net/ipv4/conf").join(name).join("rp_filter");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().parse::<u8>().unwrap_or(0)
    };
    value("all").max(value(interface)) == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netconf::namespace::{in_new_namespace, ip};

    /// In an earlier version a daemon in a namespace whose `lo` is down took every name for free.
    #[test]
    fn regression_an_interface_is_found_although_lo_is_down() {
        in_new_namespace(|| {
            ip("tuntap add dev srd-other mode tun");
            ip("address add 192.0.2.1/32 dev srd-other");
            ip("link set srd-other up");
            assert!(has_interface("srd-other"));
            assert!(!has_interface("srd-none"));
        });
    }
}
