//! The endpoint of a peer: an address with a port, or a name that resolves to addresses.
//!
//! ```text
//!   192.0.2.2:7471   [2001:db8::2]:7471   [fe80::2%eth0]:7471   b.example:7471
//! ```
//!
//! A name is resolved while the daemon runs, so a file is valid even if its names do not resolve
//! yet.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs as _};

/// Largest number of characters of a host name (253) and of each of its labels (63), as in DNS.
const NAME_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;
/// Largest number of addresses that are tried if a host name resolves to many.
pub const ADDRESSES_MAX: usize = 16;

/// A host name with a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPort {
    /// The name, as the file writes it.
    pub host: String,
    /// The UDP port.
    pub port: u16,
}

/// Value of the key `endpoint`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Endpoint {
    Address(SocketAddr),
    Name(HostPort),
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl HostPort {
    /// Resolves the name. Returns the addresses of the families that our socket reaches: IPv4 alone
    /// if `ipv4_only` is true. Waits for the system's resolver.
    ///
    /// # Errors
    /// The reason why the name has no usable address, as a text for people.
    pub fn resolve(&self, ipv4_only: bool) -> Result<Vec<SocketAddr>, String> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(|e| reason(&e))?.collect();
        let mut usable: Vec<SocketAddr> = Vec::new();
        let count = found.len();
        for address in found.into_iter().map(canonical) {
            let is_reached = address.is_ipv4() || !ipv4_only;
            if is_reached && is_unicast(address.ip()) && !usable.contains(&address) {
                usable.push(address);
            }
        }
        usable.truncate(ADDRESSES_MAX);
        if usable.is_empty() && ipv4_only && count > 0 {
            let why = "it has no IPv4 address, and `listen` names IPv4 alone: \
                       listen = \"[::]:PORT\" reaches both families";
            return Err(why.to_owned());
        }
        if usable.is_empty() {
            return Err("it has no address that a peer can have".to_owned());
        }
        Ok(usable)
    }
}

/// Text of a resolver error, without the prefix that the standard library adds.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    text.to_owned()
}

/// Converts an IPv4-mapped IPv6 address to the IPv4 address.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

fn is_unicast(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast()
}

impl Endpoint {
    /// Parses the value of `endpoint`: an address or a host name, with a port.
    ///
    /// # Errors
    /// A description of the error, and how to correct it.
    pub(super) fn parse(text: &str) -> Result<Self, (String, String)> {
        let example = || {
            "write an address and a port, or a name and a port, as in \
                          \"192.0.2.2:7471\" or \"b.example:7471\""
                .to_owned()
        };
        let no_endpoint = || (format!("`{text}` is no address with a port"), example());
        if let Some(address) = with_zone(text)?.or_else(|| text.parse().ok()).map(canonical) {
            if address.port() == 0 {
                return Err(no_endpoint());
            }
            if !is_unicast(address.ip()) {
                let remedy = "write the address that the peer listens on".to_owned();
                return Err((format!("no peer is at {}", address.ip()), remedy));
            }
            return Ok(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(no_endpoint)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(no_endpoint)?;
        if !is_name(host) {
            return Err(no_endpoint());
        }
        Ok(Self::Name(HostPort { host: host.to_owned(), port }))
    }
}

/// Parses an IPv6 link-local address with its interface, such as `[fe80::2%eth0]:7471`. Returns
/// `None` if the text has another form.
fn with_zone(text: &str) -> Result<Option<SocketAddr>, (String, String)> {
    let Some((ip, zone, port)) = text.strip_prefix('[').and_then(|rest| {
        let (inside, port) = rest.split_once("]:")?;
        let (ip, zone) = inside.split_once('%').unwrap_or((inside, ""));
        Some((ip.parse().ok()?, zone, port.parse().ok()?))
    }) else {
        return Ok(None);
    };
    let ip: std::net::Ipv6Addr = ip;
    let is_link_local = ip.segments()[0] & 0xffc0 == 0xfe80;
    if !is_link_local && !zone.is_empty() {
        let what = format!("{ip} is not link-local and has no zone");
        return Err((what, "take the `%` and what follows it out".to_owned()));
    }
    if !is_link_local {
        return Ok(None);
    }
    let remedy = format!("name the interface that it is behind, as in \"[{ip}%eth0]:{port}\"");
    if zone.is_empty() {
        return Err((format!("{ip} is on every link"), remedy));
    }
    let plain = zone.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let named = || {
        let file = format!("/sys/class/net/{zone}/ifindex");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    let index: Option<u32> = zone.parse().ok().or_else(|| if plain { named() } else { None });
    let Some(index) = index.filter(|index| *index != 0) else {
        return Err((format!("there is no interface `{zone}` here"), remedy));
    };
    Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, index))))
}

/// Whether a text is a valid host name, and not a mistyped address.
fn is_name(host: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label = |l: &str| !l.is_empty() && l.len() <= LABEL_CHARS_MAX && l.chars().all(good);
    let whole = host.strip_suffix('.').unwrap_or(host);
    let last = whole.rsplit('.').next().unwrap_or_default();
    whole.len() <= NAME_CHARS_MAX
        && whole.split('.').all(label)
        && !last.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_names_and_zones_are_told_apart() {
        let address = |text: &str| Ok(Endpoint::Address(text.parse().unwrap()));
        assert_eq!(Endpoint::parse("192.0.2.2:7471"), address("192.0.2.2:7471"));
        assert_eq!(Endpoint::parse("[2001:db8::2]:1"), address("[2001:db8::2]:1"));
        assert_eq!(Endpoint::parse("[::ffff:192.0.2.2]:1"), address("192.0.2.2:1"));
        for name in ["b.example:7471", "b:1", "a-1.b_2.example.:65535"] {
            let (host, port) = name.rsplit_once(':').unwrap();
            let wanted = HostPort { host: host.into(), port: port.parse().unwrap() };
            assert_eq!(wanted.to_string(), name);
            assert_eq!(Endpoint::parse(name), Ok(Endpoint::Name(wanted)), "{name}");
        }
        let Ok(Endpoint::Address(SocketAddr::V6(local))) = Endpoint::parse("[fe80::2%lo]:9") else {
            panic!("`lo` is everywhere");
        };
        assert_eq!((local.port(), local.scope_id() > 0), (9, true));
        assert!(Endpoint::parse("[fe80::2%7]:9").is_ok(), "a number is a zone, too");
    }

    #[test]
    fn what_is_neither_is_refused_with_what_is_good() {
        let bad = [
            ("192.0.2.300:7471", "no address with a port"),
            ("192.0.2.2", "no address with a port"),
            ("b.example", "no address with a port"),
            ("b.example:0", "no address with a port"),
            ("b.example:70000", "no address with a port"),
            ("b..example:1", "no address with a port"),
            ("b example:1", "no address with a port"),
            ("1.2.3:7471", "no address with a port"),
            ("2001:db8::1:7471", "no address with a port"),
            ("0.0.0.0:7471", "no peer is at"),
            ("224.0.0.1:7471", "no peer is at"),
            ("[fe80::1]:7471", "on every link"),
            ("[fe80::1%none-such]:7471", "no interface"),
            ("[2001:db8::1%lo]:7471", "not link-local"),
        ];
        for (text, says) in bad {
            let (what, remedy) = Endpoint::parse(text).unwrap_err();
            assert!(what.contains(says) && !remedy.is_empty(), "{text}: {what}");
        }
        let long = format!("{}:1", "a".repeat(LABEL_CHARS_MAX + 1));
        assert!(Endpoint::parse(&long).is_err());
    }

    #[test]
    fn names_resolve_to_what_the_socket_reaches() {
        let here = HostPort { host: "localhost".into(), port: 9 };
        let found = here.resolve(true).unwrap();
        assert!(found.iter().all(|a| a.is_ipv4() && a.port() == 9), "{found:?}");
        let six = HostPort { host: "::1".into(), port: 9 };
        assert_eq!(six.resolve(false), Ok(vec!["[::1]:9".parse().unwrap()]));
        let why = six.resolve(true).unwrap_err();
        assert!(why.contains("no IPv4 address") && why.contains("[::]:PORT"), "{why}");
        let none = HostPort { host: "no-such-name.invalid".into(), port: 9 };
        assert!(!none.resolve(false).unwrap_err().contains("failed to lookup"));
    }
}
