//! n-tuple rules, which select the queue of a flow by the fields of its packets instead of by the
//! hash.
//!
//! Source: the ENA Linux driver (`ethtool -N`, from Nitro v5 on). The user has to give each rule a
//! location in the table; rules are tried in the order of their locations.

use alloc::collections::BTreeMap;
use core::fmt;
use core::net::IpAddr;

use crate::device::rss::NoQueue;
use crate::meta::key::FlowKey;
use crate::meta::packet::protocol;
use crate::rules::prefix::Prefix;

/// Type of the packets that a rule applies to: `flow-type` of `ethtool -N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowType {
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv4.
    Udp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv6.
    Udp6,
    /// Any protocol over IPv4.
    Ip4,
    /// Any protocol over IPv6.
    Ip6,
}

/// An n-tuple rule. A field that is `None` matches all packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// IP version and protocol of the packets that match.
    pub flow_type: FlowType,
    /// Source addresses of the packets that match.
    pub source: Option<Prefix>,
    /// Destination addresses of the packets that match.
    pub destination: Option<Prefix>,
    /// Source port of the packets that match; only for TCP and UDP.
    pub source_port: Option<u16>,
    /// Destination port of the packets that match; only for TCP and UDP.
    pub destination_port: Option<u16>,
    /// Receive queue of the packets that match (`action` of `ethtool -N`).
    pub queue: u16,
}

impl Rule {
    fn has_ports(&self) -> bool {
        !matches!(self.flow_type, FlowType::Ip4 | FlowType::Ip6)
    }

    fn is_v4(&self) -> bool {
        matches!(self.flow_type, FlowType::Tcp4 | FlowType::Udp4 | FlowType::Ip4)
    }

    fn matches(&self, flow: &FlowKey) -> bool {
        let number = match self.flow_type {
            FlowType::Tcp4 | FlowType::Tcp6 => Some(protocol::TCP),
            FlowType::Udp4 | FlowType::Udp6 => Some(protocol::UDP),
            FlowType::Ip4 | FlowType::Ip6 => None,
        };
        let in_prefix = |prefix: Option<Prefix>, address: IpAddr| {
            prefix.is_none_or(|prefix| prefix.contains(address))
        };
        let is_port = |rule: Option<u16>, port: u16| rule.is_none_or(|rule| rule == port);
        number.is_none_or(|number| number == flow.protocol)
            && flow.source.is_ipv4() == self.is_v4()
            && in_prefix(self.source, flow.source)
            && in_prefix(self.destination, flow.destination)
            && is_port(self.source_port, flow.ports.0)
            && is_port(self.destination_port, flow.ports.1)
    }
}

/// Reason why a rule was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule has no location.
    NoLocation,
    /// The location is beyond the end of the table.
    Location {
        /// Location that the rule requests: its index in the table.
        location: u32,
        /// Number of locations in the table.
        size: u32,
    },
    /// The queue of the rule does not exist.
    Queue(NoQueue),
    /// The rule has ports, but its flow type is neither TCP nor UDP.
    Ports,
    /// An address of the rule is not of the flow type's IP version.
    Family,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLocation => f.write_str("the rule has no place in the table; add `loc N`"),
            Self::Location { location, size } => write!(
                f,
                "loc {location} is beyond the table; give a place from 0 to {}",
                size.saturating_sub(1)
            ),
            Self::Queue(queue) => queue.fmt(f),
            Self::Ports => f.write_str("ports need flow-type tcp4, udp4, tcp6 or udp6"),
            Self::Family => f.write_str("the addresses are not of the flow type's family"),
        }
    }
}

impl core::error::Error for RuleError {}

/// Table of the n-tuple rules of all ENIs of an instance. Bound: the size of the table.
#[derive(Clone, Debug)]
pub struct Steering {
    rules: BTreeMap<u32, (u16, Rule)>,
    size: u32,
}

impl Steering {
    /// Creates a table with `size` locations, which all ENIs share (D3).
    pub fn new(size: u32) -> Self {
        Self { rules: BTreeMap::new(), size }
    }

    /// Sets the rule at a location, for an ENI with `queues` queues. An earlier rule at this
    /// location is replaced (D3).
    ///
    /// # Errors
    /// [`RuleError`] states why the rule is refused; the table is unchanged.
    pub fn set(
        &mut self,
        location: Option<u32>,
        eni: u16,
        queues: u16,
        rule: Rule,
    ) -> Result<(), RuleError> {
        let location = location.ok_or(RuleError::NoLocation)?;
        if location >= self.size {
            return Err(RuleError::Location { location, size: self.size });
        }
        if rule.queue >= queues {
            return Err(RuleError::Queue(NoQueue { queue: rule.queue, queues }));
        }
        if !rule.has_ports() && (rule.source_port.is_some() || rule.destination_port.is_some()) {
            return Err(RuleError::Ports);
        }
        let other = |prefix: &Prefix| prefix.address().is_ipv4() != rule.is_v4();
        if [rule.source, rule.destination].iter().flatten().any(other) {
            return Err(RuleError::Family);
        }
        self.rules.insert(location, (eni, rule));
        Ok(())
    }

    /// Number of locations in the table.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the rules of an ENI with their locations.
    pub fn rules(&self, eni: u16) -> impl Iterator<Item = (u32, &Rule)> {
        let own = self.rules.iter().filter(move |(_, (owner, _))| *owner == eni);
        own.map(|(location, (_, rule))| (*location, rule))
    }

    /// Removes the rule at a location; returns whether there was a rule.
    pub fn remove(&mut self, location: u32) -> bool {
        self.rules.remove(&location).is_some()
    }

    /// Removes all rules of an ENI, for example when it is detached.
    pub fn remove_eni(&mut self, eni: u16) {
        self.rules.retain(|_, (owner, _)| *owner != eni);
    }

    /// Returns the queue of the first rule that matches a flow of an ENI. Returns `None` if no rule
    /// matches: then the hash selects the queue (D3).
    pub fn queue(&self, eni: u16, flow: &FlowKey) -> Option<u16> {
        let of_eni = self.rules.values().filter(|(owner, _)| *owner == eni);
        of_eni.map(|(_, rule)| rule).find(|rule| rule.matches(flow)).map(|rule| rule.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn rule(flow_type: FlowType, destination_port: Option<u16>, queue: u16) -> Rule {
        Rule {
            flow_type,
            source: None,
            destination: None,
            source_port: None,
            destination_port,
            queue,
        }
    }

    fn flow(number: u8, port: u16) -> FlowKey {
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        FlowKey { source, destination, protocol: number, ports: (4000, port) }
    }

    /// The rules of this test send SSH to queue 1, all other TCP to queue 2 and UDP to queue 3. The
    /// hash selects the queue of all other packets.
    #[test]
    fn rules_are_tried_in_the_order_of_their_places() {
        let mut steering = Steering::new(8);
        steering.set(Some(2), 0, 8, rule(FlowType::Udp4, None, 3)).unwrap();
        steering.set(Some(1), 0, 8, rule(FlowType::Tcp4, None, 2)).unwrap();
        steering.set(Some(0), 0, 8, rule(FlowType::Tcp4, Some(22), 1)).unwrap();
        let queue = |flow| steering.queue(0, &flow);
        assert_eq!(queue(flow(protocol::TCP, 22)), Some(1));
        assert_eq!(queue(flow(protocol::TCP, 80)), Some(2));
        assert_eq!(queue(flow(protocol::UDP, 22)), Some(3));
        assert_eq!(queue(flow(47, 0)), None);
        assert_eq!(steering.queue(1, &flow(protocol::TCP, 22)), None, "another ENI");
        assert!(steering.remove(0) && !steering.remove(0));
        assert_eq!(steering.queue(0, &flow(protocol::TCP, 22)), Some(2));
        steering.remove_eni(0);
        assert_eq!(steering.queue(0, &flow(protocol::TCP, 22)), None);
    }

    #[test]
    fn addresses_and_source_ports_are_looked_at() {
        let mut steering = Steering::new(8);
        let only = Rule {
            source: Some("10.0.0.0/24".parse().unwrap()),
            destination: Some("10.0.0.2/32".parse().unwrap()),
            source_port: Some(4000),
            ..rule(FlowType::Tcp4, None, 5)
        };
        steering.set(Some(0), 0, 8, only).unwrap();
        let good = flow(protocol::TCP, 80);
        assert_eq!(steering.queue(0, &good), Some(5));
        for other in [
            FlowKey { source: [10, 0, 1, 1].into(), ..good },
            FlowKey { destination: [10, 0, 0, 3].into(), ..good },
            FlowKey { ports: (4001, 80), ..good },
            FlowKey { protocol: protocol::UDP, ..good },
        ] {
            assert_eq!(steering.queue(0, &other), None);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut steering = Steering::new(8);
        let good = rule(FlowType::Tcp4, Some(22), 1);
        let mut said = |location, rule| steering.set(location, 0, 4, rule).unwrap_err().to_string();
        assert_eq!(said(None, good), "the rule has no place in the table; add `loc N`");
        let text = "loc 8 is beyond the table; give a place from 0 to 7";
        assert_eq!(said(Some(8), good), text);
        let beyond = Rule { queue: 4, ..good };
        assert_eq!(said(Some(0), beyond), "there is no queue 4; the queues are 0 to 3");
        let no_ports = rule(FlowType::Ip4, Some(1), 0);
        assert_eq!(said(Some(0), no_ports), "ports need flow-type tcp4, udp4, tcp6 or udp6");
        let v6 = Rule { source: Some("fd00::/8".parse().unwrap()), ..good };
        assert_eq!(said(Some(0), v6), "the addresses are not of the flow type's family");
        assert_eq!(steering.queue(0, &flow(protocol::TCP, 22)), None);
    }
}
