//! Counts, for each tunnel, the flows inside, and the outer flows that the network sees.
//!
//! Limit: [`TUNNELS_MAX`] tunnels, each identified by its outer addresses and its kind. Packets of
//! further tunnels are only counted.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use srd_card::packet::protocol;
use srd_watch::{Arrival, Tunnel};

use crate::analysis::distinct::LinearCounter;

/// Largest number of tunnels that are counted separately.
pub const TUNNELS_MAX: usize = 256;
const ESP: u8 = 50;
const GRE: u8 = 47;
/// Names and UDP destination ports of tunnels whose content cannot be read.
const OPAQUE_PORTS: [(&str, u16); 3] =
    [("GTP-U", 2152), ("ESP in UDP", 4500), ("WireGuard", 51820)];

/// Identity of a tunnel: its outer addresses, and its kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct TunnelKey {
    kind: &'static str,
    source: IpAddr,
    destination: IpAddr,
}

#[derive(Clone, Debug)]
struct Inside {
    bytes: u64,
    outer: LinearCounter,
    inner: Option<LinearCounter>,
}

/// Figures about a tunnel.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct TunnelSeen {
    /// Name of the tunnel's kind, such as `VXLAN`.
    pub kind: &'static str,
    /// Outer source address of the tunnel.
    pub source: IpAddr,
    /// Outer destination address of the tunnel.
    pub destination: IpAddr,
    /// Bytes of the tunnel, from the outer IP header on.
    pub bytes: u64,
    /// Approximate number of outer flows, which the network sees.
    pub outer_flows: u64,
    /// Approximate number of inner flows; `None` if the content cannot be read.
    pub inner_flows: Option<u64>,
}

/// All tunnels of an interface.
#[derive(Debug)]
pub(crate) struct Tunnels {
    known: BTreeMap<TunnelKey, Inside>,
    others: u64,
    hash: RandomState,
}

impl Tunnels {
    pub(crate) fn new() -> Self {
        Self { known: BTreeMap::new(), others: 0, hash: RandomState::new() }
    }

    pub(crate) fn add(&mut self, arrival: &Arrival) {
        let outer = &arrival.flow.outer;
        let inner = arrival.flow.inner;
        let kind = match inner {
            Some((Tunnel::Vxlan, _)) => "VXLAN",
            Some((Tunnel::Geneve, _)) => "Geneve",
            Some((Tunnel::Gre, _)) => "GRE",
            Some((Tunnel::IpInIp, _)) => "IP-in-IP",
            None => match opaque(outer.protocol, outer.ports.1) {
                Some(kind) => kind,
                None => return,
            },
        };
        let ends = TunnelKey { kind, source: outer.source, destination: outer.destination };
        if self.known.len() >= TUNNELS_MAX && !self.known.contains_key(&ends) {
            self.others += u64::from(arrival.packets);
            return;
        }
        let fresh = || Inside {
            bytes: 0,
            outer: LinearCounter::new(),
            inner: inner.map(|_| LinearCounter::new()),
        };
        let inside = self.known.entry(ends).or_insert_with(fresh);
        inside.bytes += u64::from(arrival.bytes);
        inside.outer.add(self.hash.hash_one(outer));
        if let (Some(few), Some((_, key))) = (&mut inside.inner, inner) {
            few.add(self.hash.hash_one(key));
        }
    }

    /// Returns the number of packets of tunnels that are not counted separately, because the table
    /// was full.
    pub(crate) fn others(&self) -> u64 {
        self.others
    }

    /// Returns the tunnels; the tunnel with the most bytes comes first.
    pub(crate) fn list(&self) -> Vec<TunnelSeen> {
        let seen = |(ends, inside): (&TunnelKey, &Inside)| TunnelSeen {
            kind: ends.kind,
            source: ends.source,
            destination: ends.destination,
            bytes: inside.bytes,
            outer_flows: inside.outer.count(),
            inner_flows: inside.inner.as_ref().map(LinearCounter::count),
        };
        let mut list: Vec<TunnelSeen> = self.known.iter().map(seen).collect();
        list.sort_by_key(|tunnel| std::cmp::Reverse(tunnel.bytes));
        list
    }
}

/// Returns the name of a tunnel whose content cannot be read, from the IP protocol number and the
/// UDP destination port; `None` if the packet is no such tunnel.
fn opaque(number: u8, port: u16) -> Option<&'static str> {
    match number {
        ESP => Some("ESP"),
        GRE => Some("GRE"),
        protocol::UDP => {
            OPAQUE_PORTS.iter().find(|(_, known)| *known == port).map(|(kind, _)| *kind)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_card::FlowKey;
    use srd_proto::time::Instant;
    use srd_watch::{Flow, PacketDirection};

    fn arrival(host: u16, number: u8, ports: (u16, u16), inner: Option<u16>) -> Arrival {
        let [a, b] = host.to_be_bytes();
        let (source, destination) = ([10, 1, a, b].into(), [10, 0, 0, 2].into());
        let outer = FlowKey { source, destination, protocol: number, ports };
        let inner = inner.map(|port| {
            let ports = (port, 80);
            (Tunnel::Vxlan, FlowKey { protocol: protocol::TCP, ports, ..outer })
        });
        let (time, way) = (Instant::ZERO, PacketDirection::Out);
        let flow = Flow { outer, inner };
        let (bytes, packets, packet_bytes) = (1000, 1, 1000);
        Arrival { time, way, flow, bytes, packets, packet_bytes, fragment: false }
    }

    #[test]
    fn flows_inside_and_outside_are_counted_apart() {
        let mut tunnels = Tunnels::new();
        for n in 0..100 {
            tunnels.add(&arrival(1, protocol::UDP, (5000, 4789), Some(n)));
            tunnels.add(&arrival(2, protocol::UDP, (5000 + n, 4789), Some(n)));
            tunnels.add(&arrival(3, protocol::TCP, (5000 + n, 443), None));
        }
        tunnels.add(&arrival(4, ESP, (0, 0), None));
        tunnels.add(&arrival(5, protocol::UDP, (51820, 51820), None));
        let list = tunnels.list();
        assert_eq!(list.len(), 4, "{list:?}");
        let of = |host| list.iter().find(|t| t.source == IpAddr::from([10, 1, 0, host])).unwrap();
        assert_eq!(of(1).outer_flows, 1);
        assert!((90..=110).contains(&of(1).inner_flows.unwrap()), "{list:?}");
        assert!((90..=110).contains(&of(2).outer_flows), "{list:?}");
        assert_eq!((of(4).kind, of(4).inner_flows), ("ESP", None));
        assert_eq!(of(5).kind, "WireGuard");
    }

    #[test]
    fn tunnels_beyond_the_bound_are_counted() {
        let mut tunnels = Tunnels::new();
        for n in 0..300 {
            tunnels.add(&arrival(n, ESP, (0, 0), None));
        }
        assert_eq!(tunnels.list().len(), TUNNELS_MAX);
        assert_eq!(tunnels.others(), 300 - TUNNELS_MAX as u64);
    }
}
