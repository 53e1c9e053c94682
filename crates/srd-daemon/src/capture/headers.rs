//! The IP and UDP headers of captured outer packets. A UDP socket does not return headers, so they
//! are rebuilt from the data that it does return: addresses, ports and ECN bits.
//!
//! ```text
//!  IPv4  0x45 | ECN | total length | 0 | DF | TTL 64 | 17 | checksum | source | destination
//!  IPv6  0x60 | ECN | 0 | payload length | 17 | hop limit 64 | source | destination
//!  UDP   source port | destination port | length | checksum (IPv6; zero in IPv4: none)
//! ```
//!
//! Other fields have fixed values: no fragments, no flow label, TTL 64.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use srd_proto::Ecn;

/// Bytes of the longest headers that `write` creates: those of IPv6 and UDP.
pub(super) const HEADER_BYTES_MAX: usize = IPV6_BYTES + UDP_BYTES;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
const TTL: u8 = 64;

/// Header fields of an outer packet that its socket provides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// The ECN bits.
    pub ecn: Ecn,
}

/// Writes the IP and UDP headers for a UDP payload into `into`. Returns the length of the headers
/// in bytes.
pub(super) fn write(outer: &Outer, payload: &[u8], into: &mut [u8; HEADER_BYTES_MAX]) -> usize {
    let (source, destination) = (outer.source.ip(), outer.destination.ip());
    let udp_bytes = u16::try_from(UDP_BYTES + payload.len()).unwrap_or(u16::MAX);
    let mut udp = [0; UDP_BYTES];
    udp[0..2].copy_from_slice(&outer.source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&outer.destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    // A dual-stack socket returns IPv4 addresses as IPv4-mapped IPv6 addresses.
    let begin = match (source.to_canonical(), destination.to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = ipv4(from, to, udp_bytes, outer.ecn);
            into[..IPV4_BYTES].copy_from_slice(&header);
            IPV4_BYTES
        }
        _ => {
            let (from, to) = (ipv6_of(source), ipv6_of(destination));
            let header = ipv6(from, to, udp_bytes, outer.ecn);
            into[..IPV6_BYTES].copy_from_slice(&header);
            let mut sum = Sum::default();
            sum.add(&from.octets()).add(&to.octets()).add(&udp_bytes.to_be_bytes());
            sum.add(&[0, UDP]).add(&udp).add(payload);
            // In UDP, a checksum of zero means that the packet has no checksum.
            let checksum = if sum.checksum() == 0 { 0xffff } else { sum.checksum() };
            udp[6..8].copy_from_slice(&checksum.to_be_bytes());
            IPV6_BYTES
        }
    };
    into[begin..begin + UDP_BYTES].copy_from_slice(&udp);
    begin + UDP_BYTES
}

fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect => 0b10,
        Ecn::Ce => 0b11,
    }
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, udp_bytes: u16, ecn: Ecn) -> [u8; IPV4_BYTES] {
    let total = udp_bytes.saturating_add(20).to_be_bytes();
    let mut header = [0; IPV4_BYTES];
    header[..4].copy_from_slice(&[0x45, ecn_bits(ecn), total[0], total[1]]);
    header[6] = 0x40;
    header[8..10].copy_from_slice(&[TTL, UDP]);
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let checksum = Sum::default().add(&header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, udp_bytes: u16, ecn: Ecn) -> [u8; IPV6_BYTES] {
    let mut header = [0; IPV6_BYTES];
    header[0] = 0x60;
    header[1] = ecn_bits(ecn) << 4;
    header[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    header[6..8].copy_from_slice(&[UDP, TTL]);
    header[8..24].copy_from_slice(&from.octets());
    header[24..40].copy_from_slice(&to.octets());
    header
}

fn ipv6_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The Internet checksum (RFC 1071). Each part except the last has an even number of bytes.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) -> &mut Self {
        for pair in bytes.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            self.0 += u64::from(u16::from_be_bytes([pair[0], low]));
        }
        self
    }

    fn checksum(&self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
        let outer = Outer {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ecn: Ecn::Ce,
        };
        let mut buffer = [0; HEADER_BYTES_MAX];
        let length = write(&outer, payload, &mut buffer);
        buffer[..length].to_vec()
    }

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&data).checksum(), !0xddf2);
    }

    #[test]
    fn ipv4_headers_say_what_the_socket_knows() {
        let bytes = headers("192.0.2.1:7480", "192.0.2.2:7471", &[1, 2, 3]);
        assert_eq!(bytes.len(), 28);
        assert_eq!(bytes[..4], [0x45, 0b11, 0, 31]);
        assert_eq!(bytes[12..20], [192, 0, 2, 1, 192, 0, 2, 2]);
        assert_eq!(Sum::default().add(&bytes[..20]).checksum(), 0);
        assert_eq!(bytes[20..], [0x1d, 0x38, 0x1d, 0x2f, 0, 11, 0, 0]);
        // The headers of an IPv4 packet are the same if a dual-stack socket has returned its
        // addresses.
        assert_eq!(
            headers("[::ffff:192.0.2.1]:7480", "[::ffff:192.0.2.2]:7471", &[1, 2, 3]),
            bytes
        );
    }

    #[test]
    fn ipv6_headers_have_a_checksum_that_adds_up() {
        let payload = [1, 2, 3];
        let bytes = headers("[2001:db8::1]:7480", "[2001:db8::2]:7471", &payload);
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[..8], [0x60, 0x30, 0, 0, 0, 11, UDP, TTL]);
        let mut sum = Sum::default();
        sum.add(&bytes[8..40]).add(&[0, 11, 0, UDP]).add(&bytes[40..]).add(&payload);
        assert_eq!(sum.checksum(), 0);
    }
}
