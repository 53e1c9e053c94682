//! Matching of packets with mirror filters.

use super::traffic;
use crate::object::{MirrorFilter, MirrorRule};
use crate::packet::{Inner, Packet};

/// Whether a filter accepts a packet that the mirrored interface sends or receives. The first
/// matching rule of the direction decides; a packet that matches no rule is not copied.
pub fn mirrors(filter: &MirrorFilter, egress: bool, packet: &Packet) -> bool {
    let mut rules = filter.rules.iter().filter(|rule| rule.egress == egress);
    rules.find(|rule| matches(rule, packet)).is_some_and(|rule| rule.accept)
}

fn matches(rule: &MirrorRule, packet: &Packet) -> bool {
    let from_port = match packet.inner {
        Inner::Tcp(from, _) | Inner::Udp(from, _) => Some(from),
        Inner::Icmp(..) | Inner::Other(_) => None,
    };
    let within = |(first, last)| from_port.is_some_and(|port| (first..=last).contains(&port));
    traffic::is_of(rule.traffic, packet)
        && rule.source_ports.is_none_or(within)
        && rule.source.contains(&packet.source)
        && rule.destination.contains(&packet.destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Traffic;
    use alloc::string::String;
    use alloc::vec;

    #[test]
    fn the_first_rule_of_a_direction_that_matches_decides() {
        let rule = |number, egress, accept, traffic, source_ports, source: &str| MirrorRule {
            number,
            egress,
            accept,
            traffic,
            source_ports,
            source: source.parse().unwrap(),
            destination: "0.0.0.0/0".parse().unwrap(),
        };
        let rules = vec![
            rule(1, false, false, Traffic::Tcp(22, 22), None, "0.0.0.0/0"),
            rule(2, false, true, Traffic::Tcp(0, u16::MAX), Some((1024, 2000)), "0.0.0.0/0"),
            rule(3, true, true, Traffic::All, None, "10.0.0.0/24"),
        ];
        let filter = MirrorFilter { name: String::new(), rules };
        let packet = |source: &str, inner| Packet {
            source: source.parse().unwrap(),
            destination: "10.0.0.9".parse().unwrap(),
            inner,
        };
        let tcp = |from, to| packet("10.0.1.1", Inner::Tcp(from, to));
        assert!(mirrors(&filter, false, &tcp(1024, 80)));
        assert!(!mirrors(&filter, false, &tcp(1024, 22)), "rejected before");
        assert!(!mirrors(&filter, false, &tcp(1023, 80)), "another source port");
        assert!(!mirrors(&filter, false, &packet("10.0.1.1", Inner::Other(6))), "no ports");
        assert!(!mirrors(&filter, true, &tcp(1024, 80)), "another source");
        assert!(mirrors(&filter, true, &packet("10.0.0.1", Inner::Icmp(8, 0))));
    }
}
