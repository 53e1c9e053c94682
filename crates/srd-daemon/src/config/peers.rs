//! The tables `[[peer]]`: checks the peers of a file, each also against the others.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use ipnet::IpNet;
use srd_config::{ConfigError, Source};
use srd_net::xdp::IoChoice;
use srd_trust::privileges;
use toml::Spanned;

use super::address::{is_many, prefix};
use super::cloud::Cloud;
use super::endpoint::Endpoint;
use super::file::PeerTable;
use super::key_files::{Keys, key_file, unused_key};
use super::routes;
use super::several;
use super::{
    ALL_PEERS, ALLOWED_MAX, HOSTS_MAX, Interface, Mode, PEERS_MAX, PeerSettings, Protection,
};
use crate::keys::{PublicKey, SecretKey};

/// Largest number of characters of a peer's name.
const PEER_NAME_CHARS_MAX: usize = 64;

type Result<T> = std::result::Result<T, ConfigError>;

/// Checks new peers, each also against the peers in `before`. Returns `before` and the new peers.
pub(super) fn peers(
    source: &Source<'_>,
    tables: &[Spanned<PeerTable>],
    (interface, cloud): (&Interface, Option<&Cloud>),
    before: &[PeerSettings],
    keys: Keys,
) -> Result<Vec<PeerSettings>> {
    let most = if interface.mode == Mode::Cloud { HOSTS_MAX } else { PEERS_MAX };
    if let Some(first) = tables.get(most.saturating_sub(before.len())) {
        let what = format!("there are more than {most} peers");
        return Err(source.error(Some(first.span()), what, "take some out"));
    }
    let mut found: Vec<PeerSettings> = before.to_vec();
    let behind = |(at, peer): (usize, &PeerSettings)| {
        peer.allowed.iter().map(|net| (*net, at)).collect::<Vec<_>>()
    };
    let mut prefixes: Vec<(IpNet, usize)> = before.iter().enumerate().flat_map(behind).collect();
    for spanned in tables {
        let peer = peer(source, spanned, (interface, cloud), keys)?;
        distinct(source, spanned, &peer, &found)?;
        for (net, text) in peer.allowed.iter().zip(&spanned.as_ref().allowed) {
            // A prefix may contain a longer prefix of another peer: the longest match decides, as
            // in every routing table. Only equal prefixes are refused.
            if let Some((_, owner)) = prefixes.iter().find(|(other, _)| other == net) {
                let owner = found.get(*owner).map_or(&peer.name, |p| &p.name);
                let what = format!("{net} is behind `{owner}` already");
                let remedy = "write each prefix once, at the peer that it lies behind";
                return Err(source.error(Some(text.span()), what, remedy));
            }
            prefixes.push((*net, found.len()));
        }
        found.push(peer);
    }
    routes::check_guarded(source, tables, interface, &prefixes)?;
    Ok(found)
}

fn peer(
    source: &Source<'_>,
    spanned: &Spanned<PeerTable>,
    (interface, cloud): (&Interface, Option<&Cloud>),
    keys: Keys,
) -> Result<PeerSettings> {
    let table = spanned.as_ref();
    let cloud_host = cloud_host(source, spanned, (interface, cloud))?;
    let public_key = public_key(source, spanned, interface)?;
    let preshared = table.preshared_key_file.as_ref();
    let place = match &table.endpoint {
        Some(value) => {
            let texts = several::texts(source, "endpoint", value)?;
            let one = |text| endpoint(source, text, interface);
            let found = texts.iter().map(one).collect::<Result<Vec<_>>>()?;
            several::place(source, &texts, found, interface)?
        }
        None if public_key.is_none() || interface.protection == Protection::Plain => {
            let what = "without a key only its address tells a peer: `endpoint` is missing";
            let remedy = "add endpoint = \"192.0.2.2:7471\"";
            return Err(source.error(Some(spanned.span()), what, remedy));
        }
        None => several::PeerEndpoint::default(),
    };
    let several::PeerEndpoint { endpoint, further: endpoints_further, host } = place;
    if interface.mode == Mode::Cloud && endpoint.is_none() {
        let span = table.endpoint.as_ref().map_or(spanned.span(), Spanned::span);
        let remedy = "write endpoint = \"192.0.2.2:7471\", as in `listen` of that host";
        return Err(source.error(Some(span), "a host of a cloud needs a fixed address", remedy));
    }
    let by_key = || public_key.as_ref().map(PublicKey::short);
    let name = match (&table.name, &table.host) {
        (Some(name), _) | (None, Some(name)) => peer_name(source, name)?,
        (None, None) => by_key().or(endpoint.map(|e| e.to_string())).unwrap_or_default(),
    };
    let allowed = allowed(source, spanned, interface, cloud_host.is_some())?;
    Ok(PeerSettings {
        name,
        public_key,
        preshared_key: preshared
            .map(|file| {
                key_file(source, file, keys, |path| {
                    SecretKey::load_shared(path, privileges::own_user())
                })
            })
            .transpose()?,
        endpoint,
        host,
        endpoints_further,
        cloud_host,
        allowed,
        express: table.express.unwrap_or(true),
        express_udp: table.express_udp.unwrap_or(true),
    })
}

/// Reads the key `host` of a peer: the name that the VPC's file gives to the peer's machine.
fn cloud_host(
    source: &Source<'_>,
    spanned: &Spanned<PeerTable>,
    (interface, cloud): (&Interface, Option<&Cloud>),
) -> Result<Option<String>> {
    match (&spanned.as_ref().host, cloud) {
        (None, _) if interface.mode == Mode::Cloud => {
            let remedy = "add host = with its name in the VPC's file";
            let what = "without an interface, a peer is a host of the cloud: `host` is missing";
            Err(source.error(Some(spanned.span()), what, remedy))
        }
        (None, _) => Ok(None),
        (Some(name), None) => {
            let what = format!("`{}` is a host of a cloud, and there is no [cloud]", name.as_ref());
            Err(source.error(Some(name.span()), what, "add [cloud], or take `host` out"))
        }
        (Some(name), Some(cloud)) if *name.as_ref() == cloud.host => {
            let what = format!("`{}` is this host", name.as_ref());
            Err(source.error(Some(name.span()), what, "name the others only"))
        }
        (Some(name), Some(_)) => peer_name(source, name).map(Some),
    }
}

fn public_key(
    source: &Source<'_>,
    spanned: &Spanned<PeerTable>,
    interface: &Interface,
) -> Result<Option<PublicKey>> {
    let Some(text) = &spanned.as_ref().public_key else {
        if interface.protection == Protection::Plain {
            return Ok(None);
        }
        let remedy = "add what `srd pubkey < private.key` prints on the peer's machine";
        let what = "this peer has no `public_key`";
        return Err(source.error(Some(spanned.span()), what, remedy));
    };
    if interface.mode == Mode::Cloud && interface.protection == Protection::Plain {
        return Err(unused_key(source, text));
    }
    let remedy = "write what `srd pubkey < private.key` prints on the peer's machine";
    let error = |what: String| source.error(Some(text.span()), what, remedy);
    let key = PublicKey::parse(text.as_ref())
        .map_err(|e| error(format!("this is no public key: {e}")))?;
    if interface.protection.private_key().is_some_and(|ours| ours.bytes() == key.0) {
        let what = "the private key of this host, where the public key of another belongs";
        let remedy = "write the key of the other one: `srd pubkey` prints it there. Make a new \
                      pair if others can read this file";
        return Err(source.error(Some(text.span()), what, remedy));
    }
    if interface.protection.private_key().is_some_and(|ours| ours.public() == key) {
        return Err(error("this is our own public key, not a peer's".into()));
    }
    Ok(Some(key))
}

/// Reads one endpoint of a peer: an address that our socket can reach, or a host name.
fn endpoint(
    source: &Source<'_>,
    text: &Spanned<String>,
    interface: &Interface,
) -> Result<Endpoint> {
    let error = |(what, remedy)| source.error(Some(text.span()), what, remedy);
    let found = Endpoint::parse(text.as_ref()).map_err(error)?;
    if let Endpoint::Address(to) = &found
        && let Some(net) = routes::leads_to_itself(to.ip(), &interface.address)
    {
        return Err(error(routes::circle(to.ip(), net)));
    }
    let listen = interface.listen;
    match &found {
        Endpoint::Address(to) if !interface.reaches(to.ip()) => {
            let (ours, other) = if to.is_ipv6() { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
            let what = format!("{} cannot be reached from {listen}, an {ours} socket", to.ip());
            // AF_XDP and several addresses exclude an address that stands for all.
            let can_be_all = interface.listen_further.is_empty() && interface.io != IoChoice::AfXdp;
            let all = match can_be_all {
                true => format!("listen = \"[::]:{}\" reaches both families; or ", listen.port()),
                false => String::new(),
            };
            let each = format!("listen at an {other} address, or write the peer's {ours} address");
            Err(error((what, all + &each)))
        }
        Endpoint::Address(to) if is_many(to.ip()) => {
            let what = format!("no peer is at {}", to.ip());
            Err(error((what, "write the address that the peer listens on".into())))
        }
        Endpoint::Address(to)
            if to.ip().is_loopback() != listen.ip().is_loopback()
                && !listen.ip().is_unspecified() =>
        {
            let what = format!("{} cannot be reached from {listen}", to.ip());
            let remedy = "packets of 127.0.0.1 and ::1 never leave a machine: write addresses of \
                          its network cards";
            Err(error((what, remedy.into())))
        }
        Endpoint::Address(to) if is_own(*to, interface) => {
            let what = format!("{to} is where we listen ourselves");
            Err(error((what, "write the address that the peer listens on".into())))
        }
        Endpoint::Name(name) if interface.protection == Protection::Plain => {
            let what = format!("without a key only its address tells a peer, not `{name}`");
            let remedy = "write its address, as in \"192.0.2.2:7471\", or use encryption";
            Err(error((what, remedy.into())))
        }
        _ => Ok(found),
    }
}

/// Whether an address and port are among those at which this configuration receives packets.
fn is_own(to: SocketAddr, interface: &Interface) -> bool {
    let ports = interface.listen.port()..=interface.last_port();
    let here = |ours: IpAddr| to.ip() == ours || ours.is_unspecified() && to.ip().is_loopback();
    ports.contains(&to.port()) && interface.listens().any(|listen| here(listen.ip()))
}

fn peer_name(source: &Source<'_>, name: &Spanned<String>) -> Result<String> {
    let text = name.as_ref();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if text == ALL_PEERS {
        let what = format!("`{text}` means every peer in commands, and can be no peer's name");
        return Err(source.error(Some(name.span()), what, "give it another"));
    }
    if !text.is_empty() && text.len() <= PEER_NAME_CHARS_MAX && text.chars().all(good) {
        return Ok(text.clone());
    }
    let remedy = "at most 64 letters, digits, '-', '_', '.' and ':'";
    Err(source.error(Some(name.span()), format!("`{text}` can be no peer's name"), remedy))
}

fn allowed(
    source: &Source<'_>,
    spanned: &Spanned<PeerTable>,
    interface: &Interface,
    is_host: bool,
) -> Result<Vec<IpNet>> {
    let list = &spanned.as_ref().allowed;
    let example = "write an address or a prefix, as in \"10.77.0.2/32\"";
    if let Some(first) = list.first().filter(|_| interface.mode == Mode::Cloud) {
        let what = "without an interface, no packet goes to addresses behind a peer";
        let remedy = "take `allowed` out, or write mode = \"overlay\"";
        return Err(source.error(Some(first.span()), what, remedy));
    }
    if list.is_empty() && is_host {
        return Ok(Vec::new());
    }
    if list.is_empty() {
        let remedy = "add allowed = [\"10.77.0.2/32\"], the inner addresses behind it";
        let what = "no packet would go to this peer: `allowed` is missing";
        return Err(source.error(Some(spanned.span()), what, remedy));
    }
    if let Some(first) = list.get(ALLOWED_MAX) {
        let what = format!("there are more than {ALLOWED_MAX} prefixes behind this peer");
        return Err(source.error(Some(first.span()), what, "join neighbours to shorter prefixes"));
    }
    let mut found = Vec::new();
    for text in list {
        let net = prefix(source, text, example)?;
        if net.trunc() != net {
            let what = format!("{net} has bits set beyond its prefix");
            let remedy = format!("write {} or {}", IpNet::from(net.addr()), net.trunc());
            return Err(source.error(Some(text.span()), what, remedy));
        }
        let ours = |own: &&IpNet| IpNet::from(own.addr()) == net;
        if let Some(own) = interface.address.iter().find(ours) {
            let what = format!("{} is our own address", own.addr());
            return Err(source.error(Some(text.span()), what, "write the peer's"));
        }
        found.push(net);
    }
    Ok(found)
}

/// Refuses a peer with the key, endpoint or name of an earlier peer.
fn distinct(
    source: &Source<'_>,
    spanned: &Spanned<PeerTable>,
    peer: &PeerSettings,
    before: &[PeerSettings],
) -> Result<()> {
    let table = spanned.as_ref();
    let twin = |span: Option<Range<usize>>, what: String, remedy: &str| {
        Err(source.error(Some(span.unwrap_or(spanned.span())), what, remedy))
    };
    for other in before {
        if peer.public_key.is_some() && peer.public_key == other.public_key {
            let span = table.public_key.as_ref().map(Spanned::span);
            let what = format!("`{}` has this public key already", other.name);
            return twin(span, what, "join the two, or write each one's own key");
        }
        let same_name = peer.host.is_some() && peer.host == other.host;
        let shared = |address| other.endpoints().any(|theirs| theirs == address);
        if same_name || peer.endpoints().any(shared) {
            let span = table.endpoint.as_ref().map(Spanned::span);
            let what = format!("`{}` has this endpoint already", other.name);
            return twin(span, what, "join the two, or write each one's own address");
        }
        if peer.cloud_host.is_some() && peer.cloud_host == other.cloud_host {
            let span = table.host.as_ref().map(Spanned::span);
            let what = format!("`{}` is this host of the cloud already", other.name);
            return twin(span, what, "name each host once");
        }
        if peer.name == other.name {
            let span = table.name.as_ref().map(Spanned::span);
            let what = format!("there is a peer `{}` already", other.name);
            return twin(span, what, "give each peer a name of its own");
        }
    }
    Ok(())
}
