//! DHCP (RFC 2131, RFC 2132): the guest gets its own address, and no other address is assigned.

use alloc::format;
use core::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress, IpProtocol, Ipv4Packet,
    Ipv4Repr, UdpPacket, UdpRepr,
};

use super::{FrameOutcome, Framed, IPV4, Link, MTU};
use crate::meta::packet::{Packet, protocol};

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// Lease time of an address in seconds, as on EC2.
const LEASE_S: u32 = 3600;
/// Domain of private DNS names: that of EC2's region us-east-1.
const DOMAIN: &str = "ec2.internal";
const UDP_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const HOPS: u8 = 64;

/// Number of the DHCP option for DNS resolvers.
const RESOLVER: u8 = 6;
const HOST_NAME: u8 = 12;
const DOMAIN_NAME: u8 = 15;
const INTERFACE_MTU: u8 = 26;

impl Link {
    /// Handles an IPv4 packet if it is for the DHCP server. Returns `None` for any other packet.
    pub(super) fn dhcp(&self, bytes: &[u8]) -> Option<FrameOutcome> {
        // Two fields are sufficient to recognize most packets as other traffic.
        let header_bytes = usize::from(*bytes.first()? & 15) * 4;
        let port = bytes.get(header_bytes + 2..)?.first_chunk::<2>()?;
        if bytes.get(9) != Some(&protocol::UDP) || u16::from_be_bytes(*port) != SERVER_PORT {
            return None;
        }
        let packet = Packet::read(bytes)?;
        let is_dhcp = packet.protocol == protocol::UDP
            && packet.ports == Some((CLIENT_PORT, SERVER_PORT))
            && (packet.destination == Ipv4Addr::BROADCAST
                || self.router().is_some_and(|router| packet.destination == router));
        if !is_dhcp {
            return None;
        }
        let asked = &bytes[(packet.transport_at + UDP_BYTES).min(bytes.len())..];
        Some(self.lease(asked).map_or(FrameOutcome::Nothing, FrameOutcome::Answer))
    }

    /// Returns the address of the subnet's router, which is the first host address of the subnet.
    fn router(&self) -> Option<Ipv4Addr> {
        let (own, length) = self.ipv4?;
        let mask = mask(length);
        Some(Ipv4Addr::from((u32::from(own) & mask).wrapping_add(1)))
    }

    /// Returns the answer to a DHCP message of the guest; `None` if the message is invalid, or gets
    /// no answer.
    fn lease(&self, asked: &[u8]) -> Option<Framed> {
        use DhcpMessageType as Kind;
        let asked = DhcpPacket::new_checked(asked).ok()?;
        let asked = DhcpRepr::parse(&asked).ok()?;
        let ((own, _), router) = (self.ipv4?, self.router()?);
        // E4: DHCP
        if asked.client_hardware_address.as_bytes() != self.mac
            || asked.server_identifier.is_some_and(|server| server != router)
        {
            return None;
        }
        let wanted = asked.requested_ip.unwrap_or(asked.client_ip);
        let kind = match asked.message_type {
            Kind::Discover => Kind::Offer,
            Kind::Request if wanted == own => Kind::Ack,
            Kind::Request => Kind::Nak,
            Kind::Inform => Kind::Ack,
            _ => return None,
        };
        Some(self.tell(&asked, kind, own, router))
    }

    fn tell(
        &self,
        asked: &DhcpRepr<'_>,
        kind: DhcpMessageType,
        own: Ipv4Addr,
        router: Ipv4Addr,
    ) -> Framed {
        let is_nak = kind == DhcpMessageType::Nak;
        // A client that sends an INFORM message has its address by other means.
        let leased = !is_nak && asked.message_type != DhcpMessageType::Inform;
        let host = format!("ip-{own}").replace('.', "-");
        let (resolver, mtu) = (self.resolver.octets(), MTU.to_be_bytes());
        let more = [
            DhcpOption { kind: RESOLVER, data: &resolver },
            DhcpOption { kind: HOST_NAME, data: host.as_bytes() },
            DhcpOption { kind: DOMAIN_NAME, data: DOMAIN.as_bytes() },
            DhcpOption { kind: INTERFACE_MTU, data: &mtu },
        ];
        let length = self.ipv4.map_or(32, |(_, length)| length);
        let said = DhcpRepr {
            message_type: kind,
            transaction_id: asked.transaction_id,
            secs: 0,
            client_hardware_address: EthernetAddress(self.mac),
            client_ip: if is_nak { Ipv4Addr::UNSPECIFIED } else { asked.client_ip },
            your_ip: if leased { own } else { Ipv4Addr::UNSPECIFIED },
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: (!is_nak).then_some(router),
            subnet_mask: (!is_nak).then(|| Ipv4Addr::from(mask(length))),
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            broadcast: asked.broadcast,
            requested_ip: None,
            client_identifier: None,
            server_identifier: Some(router),
            parameter_request_list: None,
            dns_servers: None,
            max_size: None,
            lease_duration: leased.then_some(LEASE_S),
            renew_duration: None,
            rebind_duration: None,
            additional_options: if is_nak { &[] } else { &more },
        };
        let to = match asked.client_ip {
            Ipv4Addr::UNSPECIFIED if is_nak || asked.broadcast => Ipv4Addr::BROADCAST,
            Ipv4Addr::UNSPECIFIED => own,
            client if !is_nak => client,
            _ => Ipv4Addr::BROADCAST,
        };
        self.send(router, to, &said)
    }

    fn send(&self, from: Ipv4Addr, to: Ipv4Addr, said: &DhcpRepr<'_>) -> Framed {
        let bytes = said.buffer_len();
        let ip = Ipv4Repr {
            src_addr: from,
            dst_addr: to,
            next_header: IpProtocol::Udp,
            payload_len: UDP_BYTES + bytes,
            hop_limit: HOPS,
        };
        let udp = UdpRepr { src_port: SERVER_PORT, dst_port: CLIENT_PORT };
        let all = ChecksumCapabilities::default();
        self.answer(IPV4, IPV4_BYTES + UDP_BYTES + bytes, |packet| {
            ip.emit(&mut Ipv4Packet::new_unchecked(&mut packet[..]), &all);
            let mut datagram = UdpPacket::new_unchecked(&mut packet[IPV4_BYTES..]);
            let write = |payload: &mut [u8]| {
                // The buffer has the length that `buffer_len` returned.
                let _ = said.emit(&mut DhcpPacket::new_unchecked(payload));
            };
            udp.emit(&mut datagram, &from.into(), &to.into(), bytes, write, &all);
        })
    }
}

pub(super) fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0)
}
