//! Whether a `Host` header names this machine.
//!
//! A browser shows a page from `evil.example` our answers if that name leads to our address,
//! unless we look at the name. An address cannot be bent, nor can `localhost`; of other names
//! only the machine's own counts, and only where others than this machine may ask at all.

use std::net::IpAddr;

/// Most characters of a host name in DNS.
const NAME_CHARS_MAX: usize = 255;

/// Whether the header's value is one of our names. `own`: the machine's, if it counts.
pub(super) fn is_ours(header: &str, own: Option<&str>) -> bool {
    let Some(name) = without_port(header) else { return false };
    if name.is_empty() || name.len() > NAME_CHARS_MAX {
        return false;
    }
    let address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    if address.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    // Prometheus may know us by a longer name than we do.
    let first = name.split('.').next().unwrap_or(name);
    let is_own = |own: &str| is(own) || first.eq_ignore_ascii_case(own);
    is("localhost") || own.is_some_and(is_own)
}

fn without_port(header: &str) -> Option<&str> {
    let header = header.trim();
    let (name, port) = match header.rfind(':') {
        Some(colon) if !header.ends_with(']') => (&header[..colon], &header[colon + 1..]),
        _ => (header, ""),
    };
    let is_port = port.chars().all(|c| c.is_ascii_digit());
    // More than one colon is an IPv6 address, which stands in brackets here.
    let is_bracketed = name.starts_with('[') && name.ends_with(']');
    (is_port && (is_bracketed || !name.contains(':'))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_our_own_name_are_ours() {
        for host in ["127.0.0.1", "127.0.0.1:9471", "[::1]", "[::1]:9471", "localhost:9471"] {
            assert!(is_ours(host, None), "{host}");
        }
        for host in ["node7", "NODE7:9471", "node7.rack.example:9471", "node7."] {
            assert!(is_ours(host, Some("node7")), "{host}");
            assert!(!is_ours(host, None), "{host}");
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
            assert!(!is_ours(host, Some("node7")), "{host}");
        }
    }
}
