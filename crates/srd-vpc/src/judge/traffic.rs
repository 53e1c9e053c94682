//! Matching of packets with the traffic of a rule.

use crate::object::Traffic;
use crate::packet::{Inner, Packet, protocol};

/// Whether a packet belongs to this traffic. A fragment without ports, or without an ICMP type,
/// belongs to traffic that names ports or a type only if the traffic names all of them.
pub(crate) fn is_of(traffic: Traffic, packet: &Packet) -> bool {
    let within = |(first, last): (u16, u16), port: u16| (first..=last).contains(&port);
    let of_type = |wanted: Option<u8>, is: u8| wanted.is_none_or(|wanted| wanted == is);
    match (traffic, packet.inner) {
        (Traffic::All, _) => true,
        (Traffic::Tcp(first, last), Inner::Tcp(_, port))
        | (Traffic::Udp(first, last), Inner::Udp(_, port)) => within((first, last), port),
        (Traffic::Icmp(kind, code), Inner::Icmp(is, of)) if packet.source.is_ipv4() => {
            of_type(kind, is) && of_type(code, of)
        }
        (Traffic::Icmpv6(kind, code), Inner::Icmp(is, of)) if packet.source.is_ipv6() => {
            of_type(kind, is) && of_type(code, of)
        }
        (Traffic::Tcp(0, u16::MAX), _) => packet.protocol() == protocol::TCP,
        (Traffic::Udp(0, u16::MAX), _) => packet.protocol() == protocol::UDP,
        (Traffic::Icmp(None, None), Inner::Other(number)) => {
            packet.source.is_ipv4() && number == protocol::ICMP
        }
        (Traffic::Icmpv6(None, None), Inner::Other(number)) => {
            packet.source.is_ipv6() && number == protocol::ICMPV6
        }
        (Traffic::Protocol(number), _) => packet.protocol() == number,
        _ => false,
    }
}

/// Whether an entry of an access control list applies to a packet. A fragment without ports may
/// have any ports of its protocol. So an entry that allows applies if it names all ports, and an
/// entry that denies applies if it names any port. As a result, the fragment passes only if all
/// ports pass (T1 of card.md).
pub(crate) fn applies(traffic: Traffic, allow: bool, packet: &Packet) -> bool {
    is_of(traffic, packet) || (!allow && may_be_of(traffic, packet))
}

/// Whether a fragment without ports, or without an ICMP type, may belong to this traffic.
fn may_be_of(traffic: Traffic, packet: &Packet) -> bool {
    let Inner::Other(number) = packet.inner else { return false };
    number
        == match traffic {
            Traffic::Tcp(..) => protocol::TCP,
            Traffic::Udp(..) => protocol::UDP,
            Traffic::Icmp(..) if packet.source.is_ipv4() => protocol::ICMP,
            Traffic::Icmpv6(..) if packet.source.is_ipv6() => protocol::ICMPV6,
            _ => return false,
        }
}

/// Whether this traffic includes every packet of the same protocol as `packet`, on all ports.
pub(crate) fn is_all_of_protocol(traffic: Traffic, packet: &Packet) -> bool {
    match (traffic, packet.inner) {
        (Traffic::All, _)
        | (Traffic::Tcp(0, u16::MAX), Inner::Tcp(..))
        | (Traffic::Udp(0, u16::MAX), Inner::Udp(..)) => true,
        (Traffic::Protocol(number), _) => packet.protocol() == number,
        _ => false,
    }
}
