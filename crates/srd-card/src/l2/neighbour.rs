//! Neighbour discovery (RFC 4861): every address of the subnet resolves to the gateway, which is a
//! router.

use core::net::Ipv6Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::time::Duration;
use smoltcp::wire::{
    EthernetAddress, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr, NdiscRouterFlags,
};

use super::{FrameOutcome, Framed, GATEWAY, IPV6, Link, MTU};
use crate::meta::packet::{IPV6_BYTES, protocol};
use crate::rules::prefix::Prefix;

/// Hop limit of neighbour discovery: it proves that no router has forwarded the packet.
const HOPS: u8 = 255;
/// Time for which a guest may use the gateway as a router after a router advertisement.
const ROUTER_LIFETIME: Duration = Duration::from_secs(1800);
const ROUTER_SOLICIT: u8 = 133;
const REDIRECT: u8 = 137;

impl Link {
    /// Handles an IPv6 packet if it belongs to neighbour discovery. Returns `None` for any other
    /// packet.
    pub(super) fn neighbour(&self, bytes: &[u8]) -> Option<FrameOutcome> {
        let kind = *bytes.get(IPV6_BYTES)?;
        let is_neighbour = bytes[6] == protocol::ICMP_V6
            && (ROUTER_SOLICIT..=REDIRECT).contains(&kind)
            && bytes[7] == HOPS;
        is_neighbour.then(|| self.asked(bytes).map_or(FrameOutcome::Nothing, FrameOutcome::Answer))
    }

    fn asked(&self, bytes: &[u8]) -> Option<Framed> {
        let ip = Ipv6Packet::new_checked(bytes).ok()?;
        let (from, to) = (ip.src_addr(), ip.dst_addr());
        let message = Icmpv6Packet::new_checked(ip.payload()).ok()?;
        // The checksum may be left to hardware.
        let unchecked = ChecksumCapabilities::ignored();
        let Icmpv6Repr::Ndisc(asked) = Icmpv6Repr::parse(&from, &to, &message, &unchecked).ok()?
        else {
            return None;
        };
        let lladdr = Some(EthernetAddress(GATEWAY).into());
        match asked {
            // A guest without an address probes whether its future address is in use by another
            // host. There is no other host, so the probe gets no answer. // E3
            NdiscRepr::NeighborSolicit { target_addr, .. }
                if !from.is_unspecified() && target_addr != from && self.is_here(target_addr) =>
            {
                let flags = NdiscNeighborFlags::ROUTER
                    | NdiscNeighborFlags::SOLICITED
                    | NdiscNeighborFlags::OVERRIDE;
                let said = NdiscRepr::NeighborAdvert { flags, target_addr, lladdr };
                Some(self.say(target_addr, from, said))
            }
            NdiscRepr::RouterSolicit { .. } if self.ipv6.is_some() => {
                // E5: Router advertisements
                let said = NdiscRepr::RouterAdvert {
                    hop_limit: 64,
                    flags: NdiscRouterFlags::empty(),
                    router_lifetime: ROUTER_LIFETIME,
                    reachable_time: Duration::ZERO,
                    retrans_time: Duration::ZERO,
                    lladdr,
                    mtu: Some(MTU.into()),
                    prefix_info: None,
                };
                let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                let to = if from.is_unspecified() { all_nodes } else { from };
                Some(self.say(gateway(), to, said))
            }
            _ => None,
        }
    }

    /// Whether an address is in the interface's subnet, or is link-local.
    fn is_here(&self, address: Ipv6Addr) -> bool {
        let subnet = self.ipv6.and_then(|(network, n)| Prefix::new(network.into(), n));
        let of_subnet = subnet.is_some_and(|subnet| subnet.contains(address.into()));
        of_subnet || address.is_unicast_link_local()
    }

    fn say(&self, from: Ipv6Addr, to: Ipv6Addr, said: NdiscRepr<'_>) -> Framed {
        let said = Icmpv6Repr::Ndisc(said);
        let bytes = said.buffer_len();
        let ip = Ipv6Repr {
            src_addr: from,
            dst_addr: to,
            next_header: IpProtocol::Icmpv6,
            payload_len: bytes,
            hop_limit: HOPS,
        };
        self.answer(IPV6, IPV6_BYTES + bytes, |packet| {
            ip.emit(&mut Ipv6Packet::new_unchecked(&mut packet[..]));
            let mut message = Icmpv6Packet::new_unchecked(&mut packet[IPV6_BYTES..]);
            said.emit(&from, &to, &mut message, &ChecksumCapabilities::default());
        })
    }
}

/// Link-local address of the gateway, derived from its hardware address (RFC 4291, appendix A).
fn gateway() -> Ipv6Addr {
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    let [a, b, c, d, e, f] = GATEWAY;
    Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
}
