//! Finds IPv6 addresses that sockets of programs still use. Unlike with IPv4, Linux lets an IPv6
//! socket send from an address that was removed from its interface.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};

/// Files in `/proc/self/net` in which the kernel lists IPv6 sockets.
const LISTS: [&str; 3] = ["tcp6", "udp6", "raw6"];
/// TIME_WAIT in the kernel's lists: both sides have closed the TCP connection.
const TIME_WAIT: &str = "06";

/// Returns the given addresses that sockets use. If one of the kernel's lists cannot be read, all
/// IPv6 addresses count as used.
pub(super) fn held(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let lists = LISTS.map(|name| fs::read_to_string(format!("/proc/self/net/{name}")).ok());
    let is_held = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => {
            lists.iter().any(|list| list.as_deref().is_none_or(|list| lists_it(list, *v6)))
        }
    };
    addresses.filter(is_held).collect()
}

/// Whether a list of the kernel contains a socket with this local address.
fn lists_it(list: &str, address: Ipv6Addr) -> bool {
    list.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().and_then(|word| word.split(':').next()).and_then(read);
        let state = words.nth(1);
        local == Some(address) && state != Some(TIME_WAIT)
    })
}

/// Parses an IPv6 address in the kernel's notation: four words of hexadecimal digits, each in the
/// byte order of the machine.
fn read(digits: &str) -> Option<Ipv6Addr> {
    let mut bytes = [0; 16];
    for (i, part) in bytes.chunks_exact_mut(4).enumerate() {
        let word = u32::from_str_radix(digits.get(8 * i..8 * i + 8)?, 16).ok()?;
        part.copy_from_slice(&word.to_ne_bytes());
    }
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_socket_s_address_is_held_until_it_is_closed() {
        let loopback = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let socket = UdpSocket::bind((loopback, 0)).unwrap();
        assert!(held([loopback].into_iter()).contains(&loopback));
        let unused: IpAddr = "fd78:1:2:3::99".parse().unwrap();
        assert!(held([unused, "127.0.0.1".parse().unwrap()].into_iter()).is_empty());
        drop(socket);
    }

    #[test]
    fn connections_that_are_over_do_not_count() {
        let word = u32::from_ne_bytes([0, 0, 0, 1]);
        let line = |state: &str| {
            format!("head\n   0: 000000000000000000000000{word:08X}:1F90 {:032X}:0000 {state} 0", 0)
        };
        assert!(lists_it(&line("01"), Ipv6Addr::LOCALHOST));
        assert!(!lists_it(&line("06"), Ipv6Addr::LOCALHOST));
        assert!(!lists_it("head\nshort\n", Ipv6Addr::LOCALHOST));
    }
}
