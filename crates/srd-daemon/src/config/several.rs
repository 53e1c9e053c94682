//! Values that are one string or a list of strings: `listen` and `endpoint`, each with one address
//! for every network card.
//!
//! ```text
//!   listen   = "10.0.0.1:7471"        listen   = ["10.0.0.1:7471", "10.0.1.1:7471"]
//!   endpoint = "10.0.0.2:7471"        endpoint = ["10.0.0.2:7471", "10.0.1.2:7471"]
//! ```
//!
//! Bound: at most [`ADDRESSES_MAX`] addresses in each list.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use srd_proto::{ADDRESSES_MAX, PeerConfig};
use toml::Spanned;

use super::endpoint::Endpoint;
use super::{HostPort, Interface, Mode, PeerSettings};
use crate::keys::SecretKey;
use srd_config::{ConfigError, Source};

/// One string, or a list of strings.
#[derive(Debug)]
pub(super) enum Several {
    One(String),
    List(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Several {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrList)
    }
}

struct OneOrList;

impl<'de> Visitor<'de> for OneOrList {
    type Value = Several;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address in quotes, or a list of them")
    }

    fn visit_str<E>(self, text: &str) -> Result<Several, E> {
        Ok(Several::One(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Several, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(Several::List(texts))
    }
}

/// Returns the strings of a value, each with its position in the file.
///
/// # Errors
/// If the list is empty or too long.
pub(super) fn texts(
    source: &Source<'_>,
    key: &str,
    value: &Spanned<Several>,
) -> Result<Vec<Spanned<String>>, ConfigError> {
    let texts = match value.as_ref() {
        Several::One(text) => return Ok(vec![Spanned::new(value.span(), text.clone())]),
        Several::List(texts) => texts,
    };
    if let Some(first) = texts.get(ADDRESSES_MAX) {
        let what = format!("`{key}` has more than {ADDRESSES_MAX} addresses");
        return Err(source.error(Some(first.span()), what, "write one for each network card"));
    }
    if texts.is_empty() {
        let what = format!("`{key}` is an empty list");
        return Err(source.error(Some(value.span()), what, "write one address at least"));
    }
    Ok(texts.clone())
}

/// Checks that several addresses to listen at can be used together: different, with equal ports,
/// and not more than there are paths.
pub(super) fn check_listen(
    source: &Source<'_>,
    texts: &[Spanned<String>],
    listen: &[SocketAddr],
    paths: i64,
) -> Result<(), ConfigError> {
    let refused = |at: usize, what: String, remedy: &str| {
        Err(source.error(texts.get(at).map(Spanned::span), what, remedy))
    };
    if listen.len() < 2 {
        return Ok(());
    }
    for (at, address) in listen.iter().enumerate() {
        if address.ip().is_unspecified() {
            let what = format!("`{}` means every address of the machine", texts[at].as_ref());
            let remedy = "write the address of one network card instead, or leave the others out";
            return refused(at, what, remedy);
        }
        if address.port() != listen[0].port() {
            let what = format!("{address} has another port than {}", listen[0]);
            return refused(at, what, "write the same port behind each address");
        }
        if listen[..at].contains(address) {
            return refused(at, format!("{address} is given twice"), "keep one of the two");
        }
    }
    if listen.len() as i64 > paths {
        let what = format!("{} addresses share {paths} paths", listen.len());
        return refused(listen.len() - 1, what, "raise `paths` to one for each address at least");
    }
    Ok(())
}

/// The checked endpoint of a peer: fixed addresses, or a host name.
#[derive(Debug, Default)]
pub(super) struct PeerEndpoint {
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) further: Vec<SocketAddr>,
    pub(super) host: Option<HostPort>,
}

/// Combines the endpoints of one peer, which were checked one by one.
///
/// # Errors
/// If a host name is combined with other endpoints, an address occurs twice, or there are more
/// addresses than paths.
pub(super) fn place(
    source: &Source<'_>,
    texts: &[Spanned<String>],
    found: Vec<Endpoint>,
    interface: &Interface,
) -> Result<PeerEndpoint, ConfigError> {
    let refused = |at: usize, what: String, remedy: &str| {
        Err(source.error(texts.get(at).map(Spanned::span), what, remedy))
    };
    let count = found.len();
    let mut place = PeerEndpoint::default();
    for (at, endpoint) in found.into_iter().enumerate() {
        match endpoint {
            Endpoint::Name(host) if count == 1 => place.host = Some(host),
            Endpoint::Name(host) => {
                let what = format!("`{host}` is a name, and stands beside others");
                return refused(at, what, "write addresses in a list, or the name alone");
            }
            Endpoint::Address(address) => {
                if place.endpoint.iter().chain(&place.further).any(|known| *known == address) {
                    return refused(at, format!("{address} is given twice"), "keep one of the two");
                }
                match place.endpoint {
                    None => place.endpoint = Some(address),
                    Some(_) => place.further.push(address),
                }
            }
        }
    }
    if count > usize::from(interface.paths) {
        let what = format!("{} paths do not reach {count} addresses", interface.paths);
        return refused(count - 1, what, "raise `paths` to one for each at least");
    }
    Ok(place)
}

/// Returns a text with addresses, separated by commas.
pub(crate) fn in_words(addresses: impl IntoIterator<Item = SocketAddr>) -> String {
    let words: Vec<String> = addresses.into_iter().map(|address| address.to_string()).collect();
    words.join(", ")
}

impl Interface {
    /// Returns every address, with the first port, at which packets are received and from which
    /// they are sent.
    pub fn listens(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let further = |ip: &IpAddr| SocketAddr::new(*ip, self.listen.port());
        std::iter::once(self.listen).chain(self.listen_further.iter().map(further))
    }

    /// Returns a text with the interface's addresses, for people: `10.0.0.1:7471, 10.0.1.1:7471
    /// (UDP ports up to 7502)`.
    pub fn listens_in_words(&self) -> String {
        let last = self.last_port();
        format!("{} (UDP ports up to {last})", in_words(self.listens()))
    }

    /// Whether there are only instances, and no other hosts: then nothing listens for packets of
    /// other hosts, and `listen` and `protection` have no effect.
    pub fn is_alone(&self) -> bool {
        // A file cannot contain the port 0.
        self.mode == Mode::Cloud && self.listen.port() == 0
    }

    /// The highest port that packets are sent from, at each address.
    pub fn last_port(&self) -> u16 {
        let ports = self.paths.saturating_mul(self.workers.into());
        self.listen.port().saturating_add(ports.saturating_sub(1))
    }

    /// Whether the interface's addresses can reach IPv4 addresses only.
    pub fn is_ipv4_only(&self) -> bool {
        !self.reaches(Ipv6Addr::UNSPECIFIED.into())
    }

    /// Whether packets to an address can be sent from one of ours: one of the two families must
    /// match.
    pub fn reaches(&self, to: IpAddr) -> bool {
        let everywhere = |ours: IpAddr| ours.is_ipv6() && ours.is_unspecified();
        self.listens().any(|ours| ours.is_ipv4() == to.is_ipv4() || everywhere(ours.ip()))
    }
}

impl PeerSettings {
    /// Returns the settings of the peer in the form that the transport needs.
    pub fn transport(&self) -> PeerConfig {
        PeerConfig {
            address: self.endpoint,
            further: std::array::from_fn(|at| self.endpoints_further.get(at).copied()),
            public_key: self.public_key.map(|key| key.0),
            preshared_key: self.preshared_key.as_ref().map(SecretKey::bytes),
        }
    }

    /// Returns a text with every known address of the peer, for people.
    pub fn endpoints_in_words(&self) -> String {
        in_words(self.endpoints())
    }

    /// Returns every known address of the peer.
    pub fn endpoints(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.endpoint.into_iter().chain(self.endpoints_further.iter().copied())
    }
}
