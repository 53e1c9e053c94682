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
    // A fragment without ports may have any port, so a rule that rejects some applies to it (M2).
    let may_have = !rule.accept && matches!(packet.inner, Inner::Other(_));
    let within =
        |(first, last)| from_port.map_or(may_have, |port: u16| (first..=last).contains(&port));
    traffic::applies(rule.traffic, rule.accept, packet)
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

    /// A later fragment whose first fragment is not known has no ports, so it may belong to traffic
    /// that a rule excludes.
    #[test]
    fn regression_a_fragment_without_ports_is_not_copied_past_a_rule_that_rejects_some() {
        let rule = |number, accept, traffic, source_ports| MirrorRule {
            number,
            egress: false,
            accept,
            traffic,
            source_ports,
            source: "0.0.0.0/0".parse().unwrap(),
            destination: "0.0.0.0/0".parse().unwrap(),
        };
        let copies = |rejected: Traffic, source_ports, protocol| {
            let rules =
                vec![rule(1, false, rejected, source_ports), rule(2, true, Traffic::All, None)];
            let filter = MirrorFilter { name: String::new(), rules };
            let [source, destination] = [1, 2].map(|last| [10, 0, 0, last].into());
            mirrors(&filter, false, &Packet { source, destination, inner: Inner::Other(protocol) })
        };
        assert!(!copies(Traffic::Udp(5000, 5000), None, 17));
        assert!(copies(Traffic::Udp(5000, 5000), None, 6), "another protocol");
        assert!(!copies(Traffic::Udp(0, u16::MAX), Some((5000, 5000)), 17));
    }
}
