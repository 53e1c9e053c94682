//! The header fields of a packet that routes, access control lists and security groups evaluate.

use core::net::IpAddr;

/// Protocol numbers of the IP header.
pub mod protocol {
    /// Protocol number of ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// Protocol number of TCP.
    pub const TCP: u8 = 6;
    /// Protocol number of UDP.
    pub const UDP: u8 = 17;
    /// Protocol number of ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}

/// The fields of a packet that rules evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address. A packet whose two addresses are of different families is dropped.
    pub destination: IpAddr,
    /// Content after the IP header.
    pub inner: Inner,
}

/// Content after the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inner {
    /// TCP from a source port to a destination port.
    Tcp(u16, u16),
    /// UDP from a source port to a destination port.
    Udp(u16, u16),
    /// ICMP for IPv4 or IPv6, according to the packet's addresses: type and code.
    Icmp(u8, u8),
    /// Another protocol, by its number, or a fragment that carries no ports.
    Other(u8),
}

impl Packet {
    /// Returns the protocol number.
    pub fn protocol(&self) -> u8 {
        match self.inner {
            Inner::Tcp(..) => protocol::TCP,
            Inner::Udp(..) => protocol::UDP,
            Inner::Icmp(..) if self.source.is_ipv4() => protocol::ICMP,
            Inner::Icmp(..) => protocol::ICMPV6,
            Inner::Other(number) => number,
        }
    }

    /// Returns a copy of the packet with another destination port. A packet without ports is
    /// returned unchanged.
    #[must_use]
    pub fn to_port(self, port: u16) -> Self {
        let inner = match self.inner {
            Inner::Tcp(from, _) => Inner::Tcp(from, port),
            Inner::Udp(from, _) => Inner::Udp(from, port),
            other => other,
        };
        Self { inner, ..self }
    }

    /// Returns the source port; `None` if the packet has no ports.
    pub fn source_port(&self) -> Option<u16> {
        match self.inner {
            Inner::Tcp(from, _) | Inner::Udp(from, _) => Some(from),
            Inner::Icmp(..) | Inner::Other(_) => None,
        }
    }

    /// Returns the answer to the packet: addresses and ports are exchanged, and an echo request
    /// becomes an echo reply.
    #[must_use]
    pub fn answer(&self) -> Self {
        let inner = match self.inner {
            Inner::Tcp(from, to) => Inner::Tcp(to, from),
            Inner::Udp(from, to) => Inner::Udp(to, from),
            Inner::Icmp(8, code) if self.source.is_ipv4() => Inner::Icmp(0, code),
            Inner::Icmp(128, code) if self.source.is_ipv6() => Inner::Icmp(129, code),
            other => other,
        };
        Self { source: self.destination, destination: self.source, inner }
    }
}
