//! Properties of the route to a destination, as configured on this machine: interface, MTU, link
//! rate.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::back_ends::io::Segments as _;
use crate::back_ends::xdp::netlink::Netlink;
use crate::sys::interface::{self, Address};
use crate::sys::udp::send::Sender;
use crate::sys::udp::socket::Socket;
use srd_proto::ids::Entropy;
use srd_proto::transmit::{Ecn, Transmit};

/// Bytes of the IPv4 and UDP headers.
const HEADERS_V4_BYTES: u32 = 28;
/// Bytes of the IPv6 and UDP headers.
const HEADERS_V6_BYTES: u32 = 48;
/// Largest number of UDP payload bytes that the protocol puts into one packet.
const PACKET_BYTES_MAX: u32 = 65_000;

/// Largest MTU that is used by default. Loopback has a larger MTU.
const JUMBO_BYTES: u32 = 9000;

/// Properties of the route to a destination, from the configuration of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The local address that packets leave from.
    pub local: IpAddr,
    /// Name of the interface that has the local address.
    pub interface: Option<String>,
    /// MTU of the interface (or of the route, if smaller), including the IP header, as configured.
    /// A smaller MTU that the kernel has learned from ICMP, and forgets after ten minutes, does not
    /// count: the transport itself detects the size that passes, in both directions.
    pub mtu_bytes: u32,
    /// UDP payload bytes that fit into the MTU.
    pub packet_bytes_max: u16,
    /// Speed in bits per second, if the interface is hardware and reports its speed.
    pub rate_bps: Option<u64>,
}

impl Link {
    /// Queries the kernel for the route to `destination`. Sends nothing.
    ///
    /// # Errors
    /// An error of the operating system, for example if there is no route.
    pub fn towards(destination: SocketAddr) -> io::Result<Self> {
        let mut destination = destination;
        if destination.port() == 0 {
            destination.set_port(9);
        }
        let socket = Socket::new(&destination)?;
        socket.connect(&destination)?;
        let mtu_bytes = match configured_mtu(&destination) {
            Some(bytes) => bytes,
            // If netlink fails, the kernel's current path MTU is used.
            None => socket.path_mtu()?,
        };
        let local = socket.local_address()?.ip();
        let interface = interface::name_of(local)?;
        let rate_bps = interface.as_deref().and_then(rate_of);
        let headers = if destination.is_ipv6() { HEADERS_V6_BYTES } else { HEADERS_V4_BYTES };
        let payload = mtu_bytes.saturating_sub(headers).min(PACKET_BYTES_MAX);
        let packet_bytes_max = u16::try_from(payload).unwrap_or(0);
        Ok(Self { local, interface, mtu_bytes, packet_bytes_max, rate_bps })
    }
}

/// Returns the configured MTU of interface and route towards a destination.
fn configured_mtu(destination: &SocketAddr) -> Option<u32> {
    let scope = match destination {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id()),
        _ => None,
    };
    Netlink::open().ok()?.configured_mtu(destination.ip(), scope).ok()?
}

/// Returns the UDP payload bytes that fit into one packet to `destination`.
pub(crate) fn packet_bytes_max(destination: SocketAddr) -> io::Result<u16> {
    Link::towards(destination).map(|link| link.packet_bytes_max)
}

/// An IP address of an interface that is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    /// Name of the interface.
    pub interface: String,
    /// IP address of the interface.
    pub ip: IpAddr,
    /// Whether this is a loopback interface, whose packets never leave the machine.
    pub loopback: bool,
}

/// Returns every IP address of every interface that is up, in the kernel's order.
///
/// # Errors
/// An error of the operating system, if the addresses cannot be listed.
pub fn local_addresses() -> io::Result<Vec<LocalAddress>> {
    let up = interface::addresses()?.into_iter().filter(|address| address.up);
    let known =
        |a: Address| LocalAddress { interface: a.interface, ip: a.ip, loopback: a.loopback };
    Ok(up.map(known).collect())
}

/// Whether an interface is up.
///
/// # Errors
/// An error of the operating system, for example if there is no interface of this name.
pub fn is_up(interface: &str) -> io::Result<bool> {
    interface::is_up(interface)
}

/// Returns the UDP payload bytes that fit into one packet from the local address `ip`. For the
/// unspecified address, the result holds for every interface except loopback.
///
/// # Errors
/// An error of the operating system, if the interfaces cannot be listed.
pub fn local_packet_bytes(ip: IpAddr) -> io::Result<u16> {
    let addresses = interface::addresses()?;
    // A socket at `::` serves both address families.
    let both = ip.is_ipv6() && ip.is_unspecified();
    let same_family = |a: &&Address| (both || a.ip.is_ipv4() == ip.is_ipv4()) && a.up;
    let mut interfaces: Vec<&Address> = addresses
        .iter()
        .filter(same_family)
        .filter(|a| if ip.is_unspecified() { !a.loopback } else { a.ip == ip })
        .collect();
    if interfaces.is_empty() {
        // The address is another one of 127/8, or the machine has no network.
        interfaces = addresses.iter().filter(|a| a.loopback).collect();
    }
    let mut least = JUMBO_BYTES;
    for address in interfaces {
        least = least.min(interface::mtu_of(&address.interface)?);
    }
    let headers = if ip.is_ipv6() { HEADERS_V6_BYTES } else { HEADERS_V4_BYTES };
    Ok(u16::try_from(least.saturating_sub(headers)).unwrap_or(u16::MAX))
}

/// Returns the speed in bits per second of the interface with the local address `ip`, if it is a
/// hardware interface that reports its speed.
pub fn local_rate(ip: IpAddr) -> Option<u64> {
    rate_of(&interface::name_of(ip).ok()??)
}

/// Returns the speed of the local link towards `destination` in bits per second, if a hardware
/// interface reports it. The speed of a virtual interface counts as unknown, because such
/// interfaces report an invented speed (veth: 10 Gb/s) or no speed.
///
/// # Errors
/// An error of the operating system, for example if there is no route.
pub fn detect_link_rate(destination: SocketAddr) -> io::Result<Option<u64>> {
    Link::towards(destination).map(|link| link.rate_bps)
}

fn rate_of(interface: &str) -> Option<u64> {
    let directory = Path::new("/sys/class/net").join(interface);
    // Only interfaces of real or para-virtual hardware have a device.
    if !directory.join("device").exists() {
        return None;
    }
    parse_speed(&std::fs::read_to_string(directory.join("speed")).ok()?)
}

/// Parses a speed in megabits per second as sysfs writes it, and returns it in bits per second.
/// Returns `None` for -1 and 4294967295, which mean that the speed is unknown.
fn parse_speed(text: &str) -> Option<u64> {
    let mbps: i64 = text.trim().parse().ok()?;
    let mbps = u64::try_from(mbps).ok()?;
    (mbps > 0 && mbps < u64::from(u32::MAX)).then(|| mbps * 1_000_000)
}

/// Returns the largest number of segments that the kernel accepts in one batch: 128 since Linux
/// 6.9, 64 before. It is determined once, by sending a batch of one-byte segments to a local
/// socket.
pub(crate) fn segments_max() -> usize {
    // Not a `OnceLock`: if a thread is sending these segments while another one forks, the child
    // would wait for the result forever. Threads that do this at the same time get equal results.
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let found = FOUND.load(Ordering::Relaxed);
    if found != 0 {
        return found;
    }
    let found = if takes_segments(128).unwrap_or(false) { 128 } else { 64 };
    FOUND.store(found, Ordering::Relaxed);
    found
}

fn takes_segments(segments: usize) -> io::Result<bool> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let sink = Socket::new(&address)?;
    sink.bind(&address)?;
    let source = Socket::new(&address)?;
    let transmit = Transmit {
        destination: sink.local_address()?,
        entropy: Entropy(0),
        ecn: Ecn::NotEct,
        segment_bytes: 1,
        segments,
        total_bytes: segments,
        control: false,
    };
    let bytes = vec![vec![0u8]; segments];
    debug_assert_eq!(bytes.parts().count(), segments);
    let sent = Sender::default().send_batches(&source, Ecn::NotEct, &[(transmit, bytes)]);
    Ok(sent.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_with_its_mtu_and_without_a_rate() {
        let link = Link::towards(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        assert_eq!(link.interface.as_deref(), Some("lo"));
        assert_eq!(link.rate_bps, None);
        assert_eq!(u32::from(link.packet_bytes_max), (link.mtu_bytes - 28).min(65_000));
        let v6 = Link::towards("[::1]:7".parse().unwrap()).unwrap();
        assert_eq!(u32::from(v6.packet_bytes_max), (v6.mtu_bytes - 48).min(65_000));
    }

    #[test]
    fn speeds_that_mean_unknown_are_unknown() {
        assert_eq!(parse_speed("25000\n"), Some(25_000_000_000));
        for unknown in ["-1\n", "0\n", "4294967295\n", "", "fast"] {
            assert_eq!(parse_speed(unknown), None);
        }
    }

    #[test]
    fn the_kernel_takes_64_segments_at_least() {
        assert!(takes_segments(64).unwrap());
        assert!([64, 128].contains(&segments_max()));
    }
}
