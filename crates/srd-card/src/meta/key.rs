//! Flows of inner packets (the packets that the card encapsulates): the fields that identify a
//! flow, and the hash of these fields. The hash selects an entry of the flow table, and the path of
//! a flow that is sent without SRD.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::IpAddr;

use crate::hash::{Keyed, Product};
use crate::meta::packet::Packet;
use crate::store::stored_values;

/// Direction of a packet, seen from the guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Direction {
    /// From the guest to the network.
    Egress,
    /// From the network to the guest.
    Ingress,
}

/// Fields that are equal in all packets of a flow: the 5-tuple for TCP and UDP; for all other
/// packets (GRE, ESP, ICMP, fragments) addresses and protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowKey {
    /// Source address of the packets.
    pub source: IpAddr,
    /// Destination address of the packets.
    pub destination: IpAddr,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// Source and destination port; zeros for a protocol without ports.
    pub ports: (u16, u16),
}

stored_values!(Direction: [Direction::Egress], [Direction::Ingress]);

impl FlowKey {
    /// Returns the flow of a packet.
    pub fn of(packet: &Packet) -> Self {
        Self {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            ports: packet.ports.unwrap_or_default(),
        }
    }

    /// Returns the key of packets in the other direction.
    pub fn reversed(&self) -> Self {
        let (source, destination) = self.ports;
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            ports: (destination, source),
        }
    }

    /// Hash of a flow under a secret. `space` is the network to which the addresses belong, because
    /// flows of two clouds may have equal keys; zero is the guest's network.
    #[inline]
    pub(crate) fn hash_under(&self, secret: &Keyed, space: u64) -> u64 {
        let mut hasher = secret.build_hasher();
        self.hash(&mut hasher);
        if space != 0 {
            hasher.write_u64(space);
        }
        hasher.finish()
    }

    /// Pseudo-random number that is equal for all packets of a flow, and selects one of a few
    /// paths.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // each cast keeps its half
    pub(crate) fn product_under(&self, secret: &Product) -> u64 {
        if let Some(addresses) = self.addresses_v4() {
            return secret.of(addresses, self.rest());
        }
        let [from, to] = [self.source, self.destination].map(|address| {
            let bits = bits(address);
            secret.of(bits as u64, (bits >> 64) as u64)
        });
        secret.of(from ^ to.rotate_left(32), self.rest() | 1)
    }

    /// Returns both addresses in one 64-bit word, if they are IPv4.
    #[inline]
    fn addresses_v4(&self) -> Option<u64> {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (self.source, self.destination) else {
            return None;
        };
        Some(u64::from(from.to_bits()) << 32 | u64::from(to.to_bits()))
    }

    /// Returns protocol and ports in one 64-bit word, whose lowest byte is zero.
    #[inline]
    fn rest(&self) -> u64 {
        let (from, to) = self.ports;
        u64::from(from) << 32 | u64::from(to) << 16 | u64::from(self.protocol) << 8
    }
}

/// The bits of an address as a number.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Hash for FlowKey {
    /// Hashes the key in as few words as possible, because a lookup in the table hashes it for
    /// almost every packet.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(addresses) = self.addresses_v4() {
            state.write_u64(addresses);
            return state.write_u64(self.rest());
        }
        for address in [self.source, self.destination] {
            state.write_u128(bits(address));
        }
        state.write_u64(self.rest() | 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::v4;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use srd_proto::Secret;
    use std::collections::BTreeSet;

    fn key(protocol: u8, ports: (u16, u16)) -> FlowKey {
        FlowKey::of(&Packet::read(&v4(protocol, ports, b"xxxxxxxx")).unwrap())
    }

    #[test]
    fn gre_packets_between_two_hosts_are_one_flow_whatever_their_bytes() {
        assert_eq!(key(47, (1, 2)), key(47, (3, 4)));
        assert_ne!(key(protocol::UDP, (1, 2)), key(protocol::UDP, (1, 3)));
    }

    /// A tunnel in UDP (VXLAN, Geneve, GTP-U) is as many flows as it has source ports, whatever its
    /// inner packets are.
    #[test]
    fn a_tunnel_in_udp_has_a_flow_for_each_source_port() {
        for tunnel in [4789, 6081, 2152] {
            let of = |from: u16, inner: u8| {
                let packet = v4(protocol::UDP, (from, tunnel), &[inner; 60]);
                FlowKey::of(&Packet::read(&packet).unwrap())
            };
            assert_eq!(of(50_000, 1), of(50_000, 2), "{tunnel}");
            let flows: BTreeSet<u64> = (0..100)
                .map(|n| of(50_000 + n, 1).hash_under(&Keyed::new(Secret::known(7)), 0))
                .collect();
            assert_eq!(flows.len(), 100, "{tunnel}");
        }
    }

    #[test]
    fn flows_spread_over_paths() {
        let paths: BTreeSet<u64> = (0..512)
            .map(|port| {
                key(protocol::TCP, (port, 80)).hash_under(&Keyed::new(Secret::known(7)), 0) % 64
            })
            .collect();
        assert_eq!(paths.len(), 64);
    }

    /// C5: flows that differ only by a port or by an address are spread evenly over the eight
    /// paths.
    #[test]
    fn products_spread_flows_over_eight_paths_whatever_the_secret() {
        for number in 0..200 {
            let secret = Product::new(Secret::known(number));
            let path = |key: FlowKey| usize::try_from(key.product_under(&secret) >> 61).unwrap();
            let mut counts = [[0; 8]; 4];
            for n in 0..512_u16 {
                let key = key(protocol::UDP, (1024 + n, 53));
                counts[0][path(key)] += 1;
                counts[1][path(FlowKey { ports: (53, n), ..key })] += 1;
                let address = |n: u16| {
                    let [high, low] = n.to_be_bytes();
                    Ipv4Addr::new(10, 1, high, low).into()
                };
                counts[2][path(FlowKey { source: address(n), ..key })] += 1;
                let address = |n: u16| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
                let [source, destination] = [address(1), address(n)];
                counts[3][path(FlowKey { source, destination, ..key })] += 1;
            }
            // The average is 64; the standard deviation of a random choice would be 7.5.
            let all = counts.iter().flatten();
            assert!(all.clone().all(|n| (24..=112).contains(n)), "{number}: {counts:?}");
        }
    }
}
