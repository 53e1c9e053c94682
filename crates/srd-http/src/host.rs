//! Check that a `Host` header names this machine.
//!
//! If a name such as `evil.example` resolves to our address, a browser gives our answers to a page
//! from that name, unless we check the name (DNS rebinding). An attacker cannot make an address or
//! `localhost` lead here in this way. Any other name must match completely. Accepted are the names
//! that the operator has configured and, if other machines may send requests, the machine's own
//! names. A matching prefix is not enough, because anyone can own a domain whose first label is
//! this machine's name.

use std::net::IpAddr;

use crate::names::host_name;

/// Whether the header's value, without its port, is an IP address, `localhost`, or one of `names`.
pub(super) fn is_ours(header: &str, names: &[String]) -> bool {
    let Some(name) = without_port(header) else { return false };
    let address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    if address.parse::<IpAddr>().is_ok() {
        return true;
    }
    host_name(name).is_some_and(|name| name == "localhost" || names.contains(&name))
}

fn without_port(header: &str) -> Option<&str> {
    let header = header.trim();
    let (name, port) = match header.rfind(':') {
        Some(colon) if !header.ends_with(']') => (&header[..colon], &header[colon + 1..]),
        _ => (header, ""),
    };
    let is_port = port.chars().all(|c| c.is_ascii_digit());
    // More than one colon means an IPv6 address, which has to be in brackets here.
    let is_bracketed = name.starts_with('[') && name.ends_with(']');
    (is_port && (is_bracketed || !name.contains(':'))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_our_own_names_are_ours() {
        for host in ["127.0.0.1", "127.0.0.1:9471", "[::1]", "[::1]:9471", "localhost:9471"] {
            assert!(is_ours(host, &[]), "{host}");
        }
        let names = ["node7".to_owned(), "node7.rack.example".to_owned()];
        for host in ["node7", "NODE7:9471", "Node7.rack.example:9471", "node7."] {
            assert!(is_ours(host, &names), "{host}");
            assert!(!is_ours(host, &[]), "{host}");
        }
    }

    /// Regression: only the first label was compared with the host name. Any owner of a domain can
    /// make a name with this first label resolve to this machine.
    #[test]
    fn regression_a_domain_behind_our_name_is_not_ours() {
        let names = ["node7".to_owned()];
        for host in ["node7.evil.example", "node7.evil.example:9471", "node7.rack.example"] {
            assert!(!is_ours(host, &names), "{host}");
        }
    }

    #[test]
    fn other_names_are_not_whatever_they_lead_to() {
        let long = "a".repeat(300);
        let others = [
            "",
            ":",
            ":80",
            "evil.example",
            "evil.example:9471",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost:80:80",
            "::1",
            "[::1",
            "127.0.0.1:http",
            &long,
        ];
        for host in others {
            assert!(!is_ours(host, &["node7".to_owned()]), "{host}");
        }
    }
}
