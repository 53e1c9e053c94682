//! An inner packet as the card reads it: addresses, protocol, ports and offsets.
//!
//! The code reads only as far as necessary, never trusts a length, and returns `None` unless there
//! is a whole IPv4 or IPv6 header. A GSO super-packet is handled like any other packet: its IP
//! length field may be out of date, so lengths come from the buffer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol numbers that the card uses.
pub mod protocol {
    /// Protocol number of ICMP.
    pub const ICMP: u8 = 1;
    /// Protocol number of TCP.
    pub const TCP: u8 = 6;
    /// Protocol number of UDP.
    pub const UDP: u8 = 17;
    /// Protocol number of IPv4 in IP (RFC 2003).
    pub const IPV4: u8 = 4;
    /// Protocol number of IPv6 in IP (RFC 2473, RFC 4213).
    pub const IPV6: u8 = 41;
    /// Protocol number of GRE.
    pub const GRE: u8 = 47;
    /// Protocol number of ESP (a protocol of IPsec).
    pub const ESP: u8 = 50;
    /// Protocol number of ICMPv6.
    pub const ICMP_V6: u8 = 58;
}

/// Largest number of IPv6 extension headers that are read. If there are more, the transport
/// protocol stays unknown.
const EXTENSIONS_MAX: usize = 8;
/// Bytes of an IPv6 header.
pub(crate) const IPV6_BYTES: usize = 40;

/// The fields of a packet's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Transport protocol; with IPv6, the first protocol that is not an extension header. A later
    /// fragment has the protocol that follows its fragment header.
    pub protocol: u8,
    /// Offset of the transport header.
    pub transport_at: usize,
    /// Source and destination port; `None` for a fragment, for a protocol other than TCP and UDP,
    /// and for a packet that is cut off before its ports.
    pub ports: Option<(u16, u16)>,
    /// Whether the packet is a fragment.
    pub fragment: bool,
    /// Whether the packet contains the first byte of the original packet, as all except later
    /// fragments do.
    pub first: bool,
    /// Whether a router may not fragment the packet (always so with IPv6).
    pub dont_fragment: bool,
}

impl Packet {
    /// Reads the headers of an IP packet. Returns `None` if there is no whole IPv4 or IPv6 header.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::read_v4(bytes),
            6 => Self::read_v6(bytes),
            _ => None,
        }
    }

    /// Reads the headers of an IPv4 packet. Returns `None` if the IPv4 header is not whole.
    #[inline]
    pub(crate) fn read_v4(bytes: &[u8]) -> Option<Self> {
        // An array of fixed length, so that no field needs a check of its own.
        let header: &[u8; 20] = bytes.first_chunk()?;
        let header_bytes = usize::from(header[0] & 15) * 4;
        if header_bytes < 20 || bytes.len() < header_bytes {
            return None;
        }
        let flags = u16::from_be_bytes([header[6], header[7]]);
        let (fragment, protocol) = (flags & 0x3fff != 0, header[9]);
        // Each field is written once: reading a whole value after writing its parts is slow on a
        // processor.
        let has_ports = has_transport_ports(protocol) && !fragment;
        Some(Self {
            source: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
            destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
            protocol,
            transport_at: header_bytes,
            ports: if has_ports { ports_at(bytes, header_bytes) } else { None },
            fragment,
            first: flags & 0x1fff == 0,
            dont_fragment: flags & 0x4000 != 0,
        })
    }

    /// Reads the headers of an IPv6 packet. Returns `None` if the IPv6 header is not whole.
    #[inline(never)]
    pub(crate) fn read_v6(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < IPV6_BYTES {
            return None;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let (mut next, mut at) = (bytes[6], IPV6_BYTES);
        let (mut fragment, mut first) = (false, true);
        for _ in 0..EXTENSIONS_MAX {
            let length = match next {
                // Hop-by-hop options, routing, destination options.
                0 | 43 | 60 if first && bytes.len() >= at + 8 => {
                    (usize::from(bytes[at + 1]) + 1) * 8
                }
                44 if first && bytes.len() >= at + 8 => {
                    fragment = true;
                    first = u16_at(bytes, at + 2) >> 3 == 0;
                    8
                }
                _ => break,
            };
            next = bytes[at];
            at += length;
        }
        let mut packet = Self {
            source: address(8),
            destination: address(24),
            protocol: next,
            transport_at: at.min(bytes.len()),
            ports: None,
            fragment,
            first,
            dont_fragment: true,
        };
        packet.ports = packet.find_ports(bytes);
        Some(packet)
    }

    fn find_ports(&self, bytes: &[u8]) -> Option<(u16, u16)> {
        if self.fragment { None } else { self.ports_in_sight(bytes) }
    }

    /// Returns source and destination port of a TCP or UDP packet, or of the first fragment of such
    /// a packet.
    pub(crate) fn ports_in_sight(&self, bytes: &[u8]) -> Option<(u16, u16)> {
        if !(has_transport_ports(self.protocol) && self.first) {
            return None;
        }
        ports_at(bytes, self.transport_at)
    }

    /// Returns the protocol and the identification that all fragments of a datagram contain, and
    /// that distinguish it from other datagrams between the same two ends; `None` for a whole
    /// packet. The protocol of IPv6 is the next header after the fragment header, which may be an
    /// extension header (RFC 8200, 4.5); then only the first fragment shows the transport protocol.
    pub(crate) fn fragment_id(&self, bytes: &[u8]) -> Option<(u8, u32)> {
        if !self.fragment {
            return None;
        }
        if self.is_v4() {
            return (bytes.len() >= 6).then(|| (self.protocol, u16_at(bytes, 4).into()));
        }
        let (mut next, mut at) = (*bytes.get(6)?, IPV6_BYTES);
        for _ in 0..EXTENSIONS_MAX {
            let header: &[u8; 8] = bytes.get(at..)?.first_chunk()?;
            match next {
                0 | 43 | 60 => at += (usize::from(header[1]) + 1) * 8,
                44 => {
                    let id = [header[4], header[5], header[6], header[7]];
                    return Some((header[0], u32::from_be_bytes(id)));
                }
                _ => return None,
            }
            next = header[0];
        }
        None
    }

    /// Whether the transport protocol is unknown: the packet is a later fragment of IPv6 whose
    /// datagram begins with an extension header.
    pub(crate) fn is_of_unknown_protocol(&self) -> bool {
        !self.first && self.is_extension()
    }

    fn is_extension(&self) -> bool {
        !self.is_v4() && matches!(self.protocol, 0 | 43 | 44 | 60)
    }

    /// Whether the ports, which rules need, cannot be read: the packet ends before them, or has
    /// more IPv6 extension headers than are read. Ordinary hosts send no packets of this kind.
    /// Always false for a fragment that is not the first.
    pub(crate) fn is_hidden(&self, bytes: &[u8]) -> bool {
        if self.ports.is_some() {
            return false;
        }
        let without_ports =
            has_transport_ports(self.protocol) && self.ports_in_sight(bytes).is_none();
        self.first && (self.is_extension() || without_ports)
    }

    /// Whether the packet is IPv4.
    pub fn is_v4(&self) -> bool {
        self.source.is_ipv4()
    }

    /// Returns the bytes of the TCP header, if the packet is TCP and contains the whole header.
    pub fn tcp_header_bytes(&self, bytes: &[u8]) -> Option<usize> {
        if self.protocol != protocol::TCP || self.fragment {
            return None;
        }
        let length = usize::from(*bytes.get(self.transport_at + 12)? >> 4) * 4;
        (length >= 20 && bytes.len() >= self.transport_at + length).then_some(length)
    }
}

#[inline]
fn has_transport_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP)
}

/// Source and destination port of a transport header, if at least the length of a UDP header is
/// present.
#[inline]
fn ports_at(bytes: &[u8], transport_at: usize) -> Option<(u16, u16)> {
    let header: &[u8; 8] = bytes.get(transport_at..)?.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some((port(0), port(2)))
}

/// Reads the big-endian `u16` at `at`; the caller has checked the length.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{v4, v6};

    #[test]
    fn both_families_are_read() {
        for p in [v4(protocol::TCP, (1, 2), b"x"), v6(protocol::UDP, (1, 2), b"x")] {
            let read = Packet::read(&p).unwrap();
            assert_eq!(read.ports, Some((1, 2)));
            assert!(!read.fragment);
        }
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let mut p = v6(0, (0, 0), b"");
        p.truncate(IPV6_BYTES);
        p.extend_from_slice(&[60, 0, 0, 0, 0, 0, 0, 0]);
        p.extend_from_slice(&[protocol::UDP, 0, 0, 0, 0, 0, 0, 0]);
        p.extend_from_slice(&[0, 9, 0, 10, 0, 8, 0, 0]);
        assert_eq!(Packet::read(&p).unwrap().ports, Some((9, 10)));
    }

    #[test]
    fn a_fragment_has_no_ports() {
        let mut p = v4(protocol::UDP, (1, 2), b"payload");
        p[6] = 0x20;
        let read = Packet::read(&p).unwrap();
        assert!(read.fragment && read.first && read.ports.is_none() && !read.dont_fragment);
    }

    #[test]
    fn fragments_of_both_families_have_the_identification_of_their_datagram() {
        let mut p = v4(protocol::UDP, (1, 2), b"payload");
        assert_eq!(Packet::read(&p).unwrap().fragment_id(&p), None, "it is whole");
        (p[4], p[5], p[6]) = (0x12, 0x34, 0x20);
        assert_eq!(Packet::read(&p).unwrap().fragment_id(&p), Some((protocol::UDP, 0x1234)));
        let mut p = v6(60, (0, 0), b"");
        p.truncate(IPV6_BYTES);
        p.extend_from_slice(&[44, 0, 0, 0, 0, 0, 0, 0]);
        p.extend_from_slice(&[protocol::UDP, 0, 0, 72, 1, 2, 3, 4]);
        let read = Packet::read(&p).unwrap();
        assert!(read.fragment && !read.first);
        assert_eq!(read.fragment_id(&p), Some((protocol::UDP, 0x0102_0304)));
        assert!((0..54).all(|end| read.fragment_id(&p[..end]).is_none()));
    }

    #[test]
    fn no_cut_or_changed_byte_makes_it_panic() {
        for p in [v4(protocol::TCP, (1, 2), b"abc"), v6(protocol::TCP, (1, 2), b"abc")] {
            for end in 0..p.len() {
                let _ = Packet::read(&p[..end]).map(|q| q.tcp_header_bytes(&p[..end]));
                for value in [0, 0x4f, 0xff] {
                    let mut changed = p.clone();
                    changed[end] = value;
                    let _ = Packet::read(&changed).map(|q| q.tcp_header_bytes(&changed));
                }
            }
        }
    }
}
