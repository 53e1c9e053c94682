//! `[transport]` and `[[peer]]` of `card.toml`: addresses, keys and paths to the other hosts of the
//! cloud.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;
use srd_config::{ConfigError, Source};
use srd_net::keys::{PublicKey, SecretKey};
use toml::Spanned;

use super::{Maybe, address};
use crate::traffic::transport::{HostOptions, PATHS_DEFAULT, Protection, TransportOptions};

/// Maximum number of other hosts.
pub(crate) const HOSTS_MAX: usize = 4096;
/// Maximum number of paths to each host.
const PATHS_MAX: u16 = 256;
/// Largest DSCP.
const DSCP_MAX: u8 = 63;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportTable {
    listen: Spanned<String>,
    private_key_file: Maybe<String>,
    protection: Maybe<String>,
    link_rate_mbps: Maybe<u64>,
    dscp: Maybe<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerTable {
    name: Spanned<String>,
    endpoint: Spanned<String>,
    public_key: Maybe<String>,
}

/// Reads the tables `[transport]` and `[[peer]]`, and `paths` of `[expert]`. Returns `None` if the
/// file has no `[transport]`.
pub(super) fn read(
    source: &Source<'_>,
    table: Option<&TransportTable>,
    paths: Option<&Spanned<u16>>,
    peers: &[PeerTable],
    host: &str,
) -> Result<Option<TransportOptions>, ConfigError> {
    let paths = read_paths(source, paths)?;
    let Some(table) = table else {
        return match peers.first() {
            None => Ok(None),
            Some(peer) => {
                let what = "another host, and no way to it";
                let remedy = "add [transport] with listen and private_key_file";
                Err(source.error(Some(peer.name.span()), what, remedy))
            }
        };
    };
    let protection = protection(source, table)?;
    let mut hosts = BTreeMap::new();
    let mut endpoints: BTreeMap<SocketAddr, &str> = BTreeMap::new();
    for peer in peers {
        let name = peer.name.get_ref();
        let wrong =
            |what: String, remedy: &str| Err(source.error(Some(peer.name.span()), what, remedy));
        if name == host {
            return wrong(format!("`{name}` is this host"), "name the others only");
        }
        if name.is_empty() || hosts.contains_key(name) {
            return wrong(format!("`{name}` is named twice, or nothing"), "name each host once");
        }
        if hosts.len() == HOSTS_MAX {
            return wrong(format!("more than {HOSTS_MAX} hosts"), "take some out");
        }
        let endpoint: SocketAddr = address(source, &peer.endpoint, "192.0.2.2:7535")?;
        if endpoint.port() == 0 || endpoint.ip().is_unspecified() {
            let what = format!("{endpoint} is no address of a host");
            let remedy = "write the address and the port where it listens";
            return Err(source.error(Some(peer.endpoint.span()), what, remedy));
        }
        if let Some(other) = endpoints.insert(endpoint, name) {
            let what = format!("{endpoint} is the address of {other}");
            return Err(source.error(Some(peer.endpoint.span()), what, "give each host its own"));
        }
        let public_key = key_of(source, peer, &protection)?;
        hosts.insert(name.clone(), HostOptions { endpoint, public_key });
    }
    let dscp = table.dscp.as_ref().map_or(0, |dscp| *dscp.get_ref());
    if let Some(written) = table.dscp.as_ref().filter(|_| dscp > DSCP_MAX) {
        let remedy = format!("write 0 to {DSCP_MAX}");
        return Err(source.error(Some(written.span()), format!("{dscp} is no DSCP"), remedy));
    }
    let rate = table.link_rate_mbps.as_ref();
    if let Some(written) = rate.filter(|rate| !(1..=10_000_000).contains(rate.get_ref())) {
        let what = format!("{} Mb/s is no rate of a link", written.get_ref());
        return Err(source.error(Some(written.span()), what, "write megabits per second"));
    }
    Ok(Some(TransportOptions {
        host: host.to_owned(),
        listen: listen(source, &table.listen)?,
        protection,
        paths,
        link_rate_bps: rate.map(|rate| *rate.get_ref() * 1_000_000),
        dscp,
        hosts,
    }))
}

fn read_paths(source: &Source<'_>, paths: Option<&Spanned<u16>>) -> Result<u16, ConfigError> {
    match paths.map(|paths| (*paths.get_ref(), paths.span())) {
        None => Ok(PATHS_DEFAULT),
        Some((paths @ 1..=PATHS_MAX, _)) => Ok(paths),
        Some((other, span)) => {
            let remedy = format!("write 1 to {PATHS_MAX}");
            Err(source.error(Some(span), format!("{other} paths"), remedy))
        }
    }
}

fn listen(source: &Source<'_>, text: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
    let listen: SocketAddr = address(source, text, "0.0.0.0:7535")?;
    if listen.port() == 0 {
        let remedy = "the other hosts need to know it: write one, as in 0.0.0.0:7535";
        return Err(source.error(Some(text.span()), "port 0", remedy));
    }
    Ok(listen)
}

fn protection(source: &Source<'_>, table: &TransportTable) -> Result<Protection, ConfigError> {
    let plain = match table.protection.as_ref().map(|text| (text.get_ref().as_str(), text.span())) {
        None | Some(("encrypted", _)) => false,
        Some(("plain", _)) => true,
        Some((other, span)) => {
            let remedy = "write \"encrypted\", or \"plain\" on a network that is trusted";
            let what = format!("`{other}` is no protection");
            return Err(source.error(Some(span), what, remedy));
        }
    };
    match (&table.private_key_file, plain) {
        (None, true) => Ok(Protection::Plain),
        (Some(file), true) => {
            let remedy = "take it out, or take protection = \"plain\" out";
            Err(source.error(Some(file.span()), "a key that nothing uses", remedy))
        }
        (None, false) => {
            let remedy = "add private_key_file: `srd genkey` makes a key; protection = \"plain\" \
                          does without, on a network that is trusted";
            Err(source.error(Some(table.listen.span()), "a host without a key", remedy))
        }
        (Some(file), false) => {
            let path = source.path.parent().unwrap_or(Path::new("")).join(file.get_ref());
            let key = SecretKey::load(&path, None);
            let refused = |error: srd_net::KeyFileError| {
                source.error(Some(file.span()), error.what, error.remedy)
            };
            key.map(Protection::Encrypted).map_err(refused)
        }
    }
}

fn key_of(
    source: &Source<'_>,
    peer: &PeerTable,
    protection: &Protection,
) -> Result<Option<PublicKey>, ConfigError> {
    match (&peer.public_key, protection) {
        (None, Protection::Plain) => Ok(None),
        (Some(key), Protection::Plain) => {
            let remedy = "take it out, or take protection = \"plain\" out";
            Err(source.error(Some(key.span()), "a key that nothing uses", remedy))
        }
        (None, Protection::Encrypted(_)) => {
            let what = format!("`{}` has no public key", peer.name.get_ref());
            let remedy = "add public_key: `srd pubkey` prints it there";
            Err(source.error(Some(peer.name.span()), what, remedy))
        }
        (Some(text), Protection::Encrypted(own)) => {
            let key = PublicKey::parse(text.get_ref()).map_err(|error| {
                source.error(Some(text.span()), error.to_string(), "`srd pubkey` prints it there")
            })?;
            if key.0 == own.bytes() {
                let what = "the private key of this host, where the public one of another belongs";
                let remedy = "write the key of the other one: `srd pubkey` prints it there. Make \
                              a new pair if others can read this file";
                return Err(source.error(Some(text.span()), what, remedy));
            }
            if key == own.public() {
                let what = "the key of this host";
                let remedy = "write the key of the other one: `srd pubkey` prints it there";
                return Err(source.error(Some(text.span()), what, remedy));
            }
            Ok(Some(key))
        }
    }
}
