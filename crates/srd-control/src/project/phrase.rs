//! Phrases of rules and entries, as `docs/vpc.md` describes them.
//!
//! Two rules that admit the same packets have the same phrase, because a file refuses repetitions.

use crate::state::network::{IcmpTypeCode, PortRange};

/// Returns the words for the traffic of a rule: its protocol, and its ports or its type and code
/// of ICMP. The error describes traffic that cannot be expressed.
pub(super) fn traffic(protocol: &str, from: i64, to: i64) -> Result<String, String> {
    match protocol.to_ascii_lowercase().as_str() {
        "-1" | "all" => Ok("all".to_owned()),
        "tcp" | "6" => ports("tcp", from, to),
        "udp" | "17" => ports("udp", from, to),
        "icmp" | "1" => icmp("icmp", from, to),
        "icmpv6" | "58" => icmp("icmpv6", from, to),
        other => match other.parse::<u8>() {
            Ok(number) => Ok(format!("protocol {number}")),
            Err(_) => Err(format!("the protocol `{protocol}` is unknown")),
        },
    }
}

/// Returns the words for the traffic of an entry of a network ACL.
pub(super) fn entry_traffic(
    protocol: &str,
    ports: Option<&PortRange>,
    icmp: Option<&IcmpTypeCode>,
) -> Result<String, String> {
    let (from, to) = match (protocol, ports, icmp) {
        ("1" | "58" | "icmp" | "icmpv6", _, icmp) => icmp.map_or((-1, -1), |i| (i.r#type, i.code)),
        (_, ports, _) => ports.map_or((-1, -1), |ports| (ports.from, ports.to)),
    };
    traffic(protocol, from, to)
}

fn ports(name: &str, from: i64, to: i64) -> Result<String, String> {
    match (from, to) {
        (-1, -1) | (0, 65_535) => Ok(name.to_owned()),
        (from, to) if from == to && (0..=65_535).contains(&from) => Ok(format!("{name} {from}")),
        (from, to) if 0 <= from && from < to && to <= 65_535 => Ok(format!("{name} {from}-{to}")),
        _ => Err(format!("{from} to {to} is no range of ports")),
    }
}

fn icmp(name: &str, kind: i64, code: i64) -> Result<String, String> {
    match (kind, code) {
        (-1, _) => Ok(name.to_owned()),
        (0..=255, -1) => Ok(format!("{name} {kind}")),
        (0..=255, 0..=255) => Ok(format!("{name} {kind} {code}")),
        _ => Err(format!("{kind} and {code} are no type and code of ICMP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_traffic_has_equal_words() {
        let words = |protocol, from, to| traffic(protocol, from, to).unwrap();
        assert_eq!(words("-1", -1, -1), "all");
        assert_eq!(words("tcp", 0, 65_535), words("6", -1, -1));
        assert_eq!(words("tcp", 22, 22), "tcp 22");
        assert_eq!(words("17", 5000, 5010), "udp 5000-5010");
        assert_eq!(words("icmp", -1, -1), "icmp");
        assert_eq!(words("icmp", 8, -1), "icmp 8");
        assert_eq!(words("58", 128, 0), "icmpv6 128 0");
        assert_eq!(words("50", -1, -1), "protocol 50");
        for (protocol, from, to) in
            [("tcp", 9, 1), ("udp", 0, 70_000), ("tcp", -1, 5), ("icmp", 300, -1), ("x", 0, 0)]
        {
            assert!(traffic(protocol, from, to).is_err(), "{protocol} {from} {to}");
        }
    }

    #[test]
    fn entries_have_ports_or_types() {
        let range = PortRange { from: 1024, to: 65_535 };
        let echo = IcmpTypeCode { r#type: 8, code: -1 };
        let words = |protocol, ports, icmp| entry_traffic(protocol, ports, icmp).unwrap();
        assert_eq!(words("6", Some(&range), None), "tcp 1024-65535");
        assert_eq!(words("1", None, Some(&echo)), "icmp 8");
        assert_eq!(words("-1", None, None), "all");
        assert_eq!(words("17", None, None), "udp");
    }
}
