//! Inner flows: the fields that identify them, and the hash of these fields, which names an entry
//! of the flow table, and the path of a flow that goes plainly.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::IpAddr;

use crate::hash::Keyed;
use crate::meta::packet::Packet;
use crate::store::stored_values;

/// Which way a packet goes, seen from the guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Direction {
    /// From the guest to the network.
    Egress,
    /// From the network to the guest.
    Ingress,
}

/// The fields that a flow's packets have in common: the 5-tuple of TCP and UDP; of everything else
/// (GRE, ESP, ICMP, fragments) the three fields that each packet has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Transport protocol.
    pub protocol: u8,
    /// Source and destination port; zeros where there are none.
    pub ports: (u16, u16),
}

stored_values!(Direction: [Direction::Egress], [Direction::Ingress]);

impl FlowKey {
    /// The flow that a packet belongs to.
    pub fn of(packet: &Packet) -> Self {
        Self {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            ports: packet.ports.unwrap_or_default(),
        }
    }

    /// The key of packets that go the other way.
    pub fn reversed(&self) -> Self {
        let (source, destination) = self.ports;
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            ports: (destination, source),
        }
    }

    /// A hash that packets of one flow share, under a secret. Flows of two number spaces have two.
    #[inline]
    pub(crate) fn hash_under(&self, secret: &Keyed, space: u64) -> u64 {
        let mut hasher = secret.build_hasher();
        self.hash(&mut hasher);
        if space != 0 {
            hasher.write_u64(space);
        }
        hasher.finish()
    }
}

impl Hash for FlowKey {
    /// As few words as hold the key: the table is asked for every packet.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (from, to) = self.ports;
        let rest = u64::from(from) << 32 | u64::from(to) << 16 | u64::from(self.protocol) << 8;
        match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                state.write_u64(u64::from(from.to_bits()) << 32 | u64::from(to.to_bits()));
                state.write_u64(rest);
            }
            (from, to) => {
                for address in [from, to] {
                    let bits = match address {
                        IpAddr::V4(address) => u128::from(address.to_bits()),
                        IpAddr::V6(address) => address.to_bits(),
                    };
                    state.write_u128(bits);
                }
                state.write_u64(rest | 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::v4;
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

    #[test]
    fn flows_spread_over_paths() {
        let paths: BTreeSet<u64> = (0..512)
            .map(|port| {
                key(protocol::TCP, (port, 80)).hash_under(&Keyed::new(Secret::known(7)), 0) % 64
            })
            .collect();
        assert_eq!(paths.len(), 64);
    }
}
