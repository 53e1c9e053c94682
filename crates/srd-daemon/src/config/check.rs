//! Converts the parsed file into a [`Config`]: fills in defaults, and checks the bounds and the
//! consistency of values.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use srd_net::PollMode;
use srd_net::xdp::IoChoice;
use toml::Spanned;

use super::address::{addresses, is_many, prefix, socket_address};
use super::back_end;
use super::endpoint::Endpoint;
use super::file::{ControlTable, Document, ExpertTable, InterfaceTable, PeerTable};
use super::metrics::metrics;
use super::number::whole;
use super::routes;
use super::several;
use super::wireguard;
use super::workers;
use super::{
    ALL_PEERS, ALLOWED_MAX, Config, Control, Group, Interface, Mode, PEERS_MAX, PeerSettings,
    Protection, UdpOrdering, socket_default,
};
use crate::hooks::{HOOK_BYTES_MAX, HOOKS_MAX, Hooks};
use crate::keys::{PublicKey, SecretKey};
use crate::units::parse_rate;
use srd_config::{ConfigError, Source};
use srd_trust::privileges;

/// Largest number of bytes of an interface's name in Linux.
const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Largest number of characters of a peer's name.
const PEER_NAME_CHARS_MAX: usize = 64;
/// Allowed MTU in bytes: from the smallest that IPv6 permits to the largest that a TUN device
/// accepts.
const MTU: RangeInclusive<i64> = 1280..=65_535;
/// Allowed numbers of paths: the entropy has one byte.
const PATHS: RangeInclusive<i64> = 1..=256;
/// Allowed values of `order_wait_ms`: how long later packets of a flow wait for a missing packet.
const ORDER_WAIT_MS: RangeInclusive<f64> = 0.1..=10_000.0;
/// Bounds of the default of `order_wait_ms`: at least the first number and at most the second.
/// Between them, the default is the time that the link needs for `ORDER_WAIT_BYTES`, because on a
/// slow link a retransmission takes that long through full queues.
const ORDER_WAIT_DEFAULT_MS: (f64, f64) = (100.0, 1000.0);
const ORDER_WAIT_BYTES: u64 = 2 << 20;
/// Allowed values of the DSCP, which has six bits.
const DSCP: RangeInclusive<i64> = 0..=63;
/// Allowed values of `queue_delay_ms`, the target delay of the queue of packets to a peer.
const QUEUE_DELAY_MS: RangeInclusive<f64> = 0.05..=1000.0;

/// Largest number of bytes of the path of a Unix socket (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

type Result<T> = std::result::Result<T, ConfigError>;

/// Whether the key files of a configuration are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keys {
    /// Key files are read and checked.
    Read,
    /// Key files are not read; each key is replaced by a random key.
    Left,
}

/// Converts a parsed file into a checked configuration, or returns its first error.
pub(super) fn check(source: &Source<'_>, document: Document, keys: Keys) -> Result<Config> {
    let Some(table) = &document.interface else {
        let remedy = "begin with [interface] and the address, private_key_file and listen of it";
        return Err(source.error(None, "there is no table [interface]", remedy));
    };
    let interface = interface(source, table, &document.expert, keys)?;
    let control = control(source, &document.control.unwrap_or_default(), &interface.name)?;
    let metrics = document.metrics.as_ref().map(|table| metrics(source, table)).transpose()?;
    let peers = peers(source, &document.peer, &interface, &[], keys)?;
    Ok(Config { file: source.path.to_path_buf(), interface, control, metrics, peers })
}

fn interface(
    source: &Source<'_>,
    spanned: &Spanned<InterfaceTable>,
    expert: &ExpertTable,
    keys: Keys,
) -> Result<Interface> {
    let table = spanned.as_ref();
    let name = match &table.name {
        Some(name) => interface_name(source, name)?,
        None => "srd0".to_owned(),
    };
    let mode = choice(source, table.mode.as_ref(), "mode", &Mode::ALL)?;
    let address = addresses(source, spanned, mode)?;
    let protection = protection(source, spanned, keys)?;
    let paths =
        whole(source, expert.paths.as_ref(), "paths", &PATHS)?.unwrap_or(super::PATHS_DEFAULT);
    let (listen, listen_further) = listens(source, spanned, paths, &address)?;
    let io = back_end::io(source, table, &listen, &listen_further)?;
    let workers = workers::workers(source, table, (listen.port(), paths), io)?;
    let mtu = whole(source, table.mtu.as_ref(), "mtu", &MTU)?;
    let dscp = whole(source, table.dscp.as_ref(), "dscp", &DSCP)?;
    let orderings = [(UdpOrdering::Ordered, "ordered"), (UdpOrdering::Bypass, "bypass")];
    let order_wait = expert.order_wait_ms.as_ref();
    let link_rate_bps = link_rate(source, table.link_rate.as_ref())?;
    let order_wait_ms = order_wait_default_ms(link_rate_bps);
    let queue_delay = expert.queue_delay_ms.as_ref();
    Ok(Interface {
        name,
        mode,
        address,
        protection,
        listen,
        listen_further,
        mtu: mtu.and_then(|mtu| u16::try_from(mtu).ok()),
        paths: u16::try_from(paths).unwrap_or(u16::MAX),
        workers,
        io,
        poll: choice(source, table.poll.as_ref(), "poll", &PollMode::NAMED)?,
        link_rate_bps,
        express: table.express.unwrap_or(true),
        express_udp: table.express_udp.unwrap_or(true),
        express_tunnels: table.express_tunnels.unwrap_or(false),
        udp_ordering: choice(source, expert.udp_ordering.as_ref(), "udp_ordering", &orderings)?,
        order_wait: millis(source, order_wait, "order_wait_ms", &ORDER_WAIT_MS, order_wait_ms)?,
        dscp: dscp.and_then(|dscp| u8::try_from(dscp).ok()).unwrap_or(0),
        queue_delay: millis(source, queue_delay, "queue_delay_ms", &QUEUE_DELAY_MS, 5.0)?,
        table: routes::table(source, expert.table.as_ref())?,
        kill_switch: routes::kill_switch(source, table, expert, mode)?,
        hooks: Hooks {
            pre_up: commands(source, &table.pre_up)?,
            post_up: commands(source, &table.post_up)?,
            pre_down: commands(source, &table.pre_down)?,
            post_down: commands(source, &table.post_down)?,
        },
    })
}

/// Checks the list of commands for one of the four points: `pre_up`, `post_up`, `pre_down` or
/// `post_down`.
fn commands(source: &Source<'_>, list: &[Spanned<String>]) -> Result<Vec<String>> {
    if let Some(first) = list.get(HOOKS_MAX) {
        let what = format!("there are more than {HOOKS_MAX} commands");
        return Err(source.error(Some(first.span()), what, "put them into a script"));
    }
    let good = |text: &str| {
        !text.trim().is_empty() && text.len() <= HOOK_BYTES_MAX && !text.contains('\0')
    };
    if let Some(bad) = list.iter().find(|text| !good(text.as_ref())) {
        let remedy = format!("write one of at most {HOOK_BYTES_MAX} bytes, as a shell takes it");
        return Err(source.error(Some(bad.span()), "this is no command", remedy));
    }
    Ok(list.iter().map(|text| text.as_ref().clone()).collect())
}

/// Checks a name of an interface: the kernel must accept it, and it becomes part of the socket's
/// path.
fn interface_name(source: &Source<'_>, name: &Spanned<String>) -> Result<String> {
    let text = name.as_ref();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_good = !text.is_empty()
        && text.len() <= INTERFACE_NAME_BYTES_MAX
        && text.chars().all(good)
        && text != "."
        && text != ".."
        && !["all", "default", "lo"].contains(&text.as_str());
    if is_good {
        return Ok(text.clone());
    }
    let remedy = "at most 15 letters, digits, '-', '_' and '.', as in srd0";
    Err(source.error(Some(name.span()), format!("`{text}` can be no interface's name"), remedy))
}

fn protection(
    source: &Source<'_>,
    spanned: &Spanned<InterfaceTable>,
    keys: Keys,
) -> Result<Protection> {
    let table = spanned.as_ref();
    let kinds = [(true, "encrypted"), (false, "plain")];
    let encrypted = match &table.protection {
        Some(_) => choice(source, table.protection.as_ref(), "protection", &kinds)?,
        None => true,
    };
    if !encrypted {
        return Ok(Protection::Plain);
    }
    let Some(file) = &table.private_key_file else {
        let remedy = "umask 077; srd genkey > /etc/srd/private.key, and name that file; \
                      or, on a network that you trust, protection = \"plain\"";
        let what = "encryption needs a `private_key_file`";
        return Err(source.error(Some(spanned.span()), what, remedy));
    };
    key_file(source, file, keys, |path| SecretKey::load(path, privileges::own_user()))
        .map(Protection::Encrypted)
}

/// Reads a private or preshared key from the file that the configuration names. With [`Keys::Left`]
/// the file is not read, and the key is random.
fn key_file(
    source: &Source<'_>,
    file: &Spanned<String>,
    keys: Keys,
    load: impl FnOnce(&Path) -> std::result::Result<SecretKey, srd_net::KeyFileError>,
) -> Result<SecretKey> {
    if keys == Keys::Left {
        let failed = |e| source.error(None, format!("random numbers: {e}"), "try again");
        return SecretKey::draw().map_err(failed);
    }
    let path = beside(source.path, file.as_ref());
    load(&path).map_err(|e| {
        // A file converted from WireGuard needs WireGuard's key: a new key from `srd genkey` would
        // not match the public key that the peers have.
        let is_to_come = wireguard::is_made(source.text) && !path.exists();
        let remedy = if is_to_come {
            "do what the comment above it says: the key of WireGuard's file goes there".to_owned()
        } else {
            e.remedy
        };
        source.error(Some(file.span()), e.what, remedy)
    })
}

/// Resolves a path relative to the directory of the file that contains it.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// Reads `listen`: the first address, and the further addresses, which must have the same port.
fn listens(
    source: &Source<'_>,
    spanned: &Spanned<InterfaceTable>,
    paths: i64,
    overlay: &[IpNet],
) -> Result<(SocketAddr, Vec<IpAddr>)> {
    let Some(value) = &spanned.as_ref().listen else {
        let remedy = "add listen = \"[::]:7471\", or \"0.0.0.0:7471\" for IPv4 alone";
        return Err(source.error(Some(spanned.span()), "`listen` is missing", remedy));
    };
    let texts = several::texts(source, "listen", value)?;
    let example = "\"0.0.0.0:7471\" or \"[::]:7471\"";
    let address = |text| socket_address(source, text, example);
    let all = texts.iter().map(address).collect::<Result<Vec<_>>>()?;
    several::check_listen(source, &texts, &all, paths)?;
    for (text, address) in texts.iter().zip(&all) {
        routes::check_listen(source, Some(text), *address, overlay)?;
    }
    let last = i64::from(all[0].port()) + paths - 1;
    if last > i64::from(u16::MAX) {
        let what = format!("{paths} paths from port {} on end at {last}", all[0].port());
        let remedy = format!("take a port of at most {}", i64::from(u16::MAX) + 1 - paths);
        return Err(source.error(Some(texts[0].span()), what, remedy));
    }
    Ok((all[0], all[1..].iter().map(SocketAddr::ip).collect()))
}

fn link_rate(source: &Source<'_>, text: Option<&Spanned<String>>) -> Result<Option<u64>> {
    let Some(text) = text else { return Ok(None) };
    if text.as_ref() == "0" {
        return Ok(Some(0));
    }
    let bps = parse_rate(text.as_ref()).map_err(|expected| {
        let what = format!("`{}` is no rate", text.as_ref());
        source.error(Some(text.span()), what, format!("{expected}; \"0\" means unknown"))
    })?;
    Ok(Some(bps))
}

fn order_wait_default_ms(link_rate_bps: Option<u64>) -> f64 {
    let known = link_rate_bps.filter(|bps| *bps > 0);
    let ms = known.map_or(0.0, |bps| (ORDER_WAIT_BYTES * 8_000) as f64 / bps as f64);
    ms.clamp(ORDER_WAIT_DEFAULT_MS.0, ORDER_WAIT_DEFAULT_MS.1) // O3
}

fn control(source: &Source<'_>, table: &ControlTable, interface: &str) -> Result<Control> {
    let socket = match &table.socket {
        Some(path) if !Path::new(path.as_ref()).is_absolute() => {
            let what = format!("the socket `{}` is no absolute path", path.as_ref());
            return Err(source.error(Some(path.span()), what, "begin it with /run/srd/"));
        }
        Some(path) if path.as_ref().len() > SOCKET_PATH_BYTES_MAX => {
            let what =
                format!("the path of the socket has more than {SOCKET_PATH_BYTES_MAX} bytes");
            return Err(source.error(Some(path.span()), what, "begin it with /run/srd/"));
        }
        Some(path) => PathBuf::from(path.as_ref()),
        None => socket_default(interface),
    };
    let group = table.group.as_ref().map(|name| group(source, name)).transpose()?;
    Ok(Control { socket, group })
}

fn group(source: &Source<'_>, name: &Spanned<String>) -> Result<Group> {
    let text = name.as_ref();
    match nix::unistd::Group::from_name(text) {
        Ok(Some(group)) => Ok(Group { name: text.clone(), id: group.gid.as_raw() }),
        _ => {
            let what = format!("there is no group `{text}` on this machine");
            let remedy = format!("groupadd --system {text}, or take `group` out");
            Err(source.error(Some(name.span()), what, remedy))
        }
    }
}

/// Checks new peers, each also against the peers in `before`. Returns `before` and the new peers.
pub(super) fn peers(
    source: &Source<'_>,
    tables: &[Spanned<PeerTable>],
    interface: &Interface,
    before: &[PeerSettings],
    keys: Keys,
) -> Result<Vec<PeerSettings>> {
    if let Some(first) = tables.get(PEERS_MAX.saturating_sub(before.len())) {
        let what = format!("there are more than {PEERS_MAX} peers");
        return Err(source.error(Some(first.span()), what, "take some out"));
    }
    let mut found: Vec<PeerSettings> = before.to_vec();
    let behind = |(at, peer): (usize, &PeerSettings)| {
        peer.allowed.iter().map(|net| (*net, at)).collect::<Vec<_>>()
    };
    let mut prefixes: Vec<(IpNet, usize)> = before.iter().enumerate().flat_map(behind).collect();
    for spanned in tables {
        let peer = peer(source, spanned, interface, keys)?;
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
    interface: &Interface,
    keys: Keys,
) -> Result<PeerSettings> {
    let table = spanned.as_ref();
    let public_key = public_key(source, spanned, interface)?;
    let preshared = table.preshared_key_file.as_ref();
    let place = match &table.endpoint {
        Some(value) => {
            let texts = several::texts(source, "endpoint", value)?;
            let one = |text| endpoint(source, text, interface);
            let found = texts.iter().map(one).collect::<Result<Vec<_>>>()?;
            several::place(source, &texts, found, interface)?
        }
        None if public_key.is_none() => {
            let what = "without a key only its address tells a peer: `endpoint` is missing";
            let remedy = "add endpoint = \"192.0.2.2:7471\"";
            return Err(source.error(Some(spanned.span()), what, remedy));
        }
        None => several::PeerEndpoint::default(),
    };
    let several::PeerEndpoint { endpoint, further: endpoints_further, host } = place;
    let by_key = || public_key.as_ref().map(PublicKey::short);
    let name = match &table.name {
        Some(name) => peer_name(source, name)?,
        None => by_key().or(endpoint.map(|e| e.to_string())).unwrap_or_default(),
    };
    let allowed = allowed(source, spanned, interface)?;
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
        allowed,
        express: table.express.unwrap_or(true),
        express_udp: table.express_udp.unwrap_or(true),
    })
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
    let remedy = "write what `srd pubkey < private.key` prints on the peer's machine";
    let error = |what: String| source.error(Some(text.span()), what, remedy);
    let key = PublicKey::parse(text.as_ref())
        .map_err(|e| error(format!("this is no public key: {e}")))?;
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
) -> Result<Vec<IpNet>> {
    let list = &spanned.as_ref().allowed;
    let example = "write an address or a prefix, as in \"10.77.0.2/32\"";
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
        if peer.name == other.name {
            let span = table.name.as_ref().map(Spanned::span);
            let what = format!("there is a peer `{}` already", other.name);
            return twin(span, what, "give each peer a name of its own");
        }
    }
    Ok(())
}

/// Reads a setting that is one of several words; if it is absent, its value is the first of them.
fn choice<T: Copy>(
    source: &Source<'_>,
    text: Option<&Spanned<String>>,
    key: &str,
    words: &[(T, &str)],
) -> Result<T> {
    let Some(text) = text else { return Ok(words[0].0) };
    let found = words.iter().find(|(_, word)| word == text.as_ref());
    found.map(|(value, _)| *value).ok_or_else(|| {
        let what = format!("`{key}` cannot be `{}`", text.as_ref());
        let known: Vec<String> = words.iter().map(|(_, word)| format!("\"{word}\"")).collect();
        source.error(Some(text.span()), what, format!("write {}", known.join(" or ")))
    })
}

/// Reads a setting in milliseconds and checks its bounds; `default` applies if it is absent.
fn millis(
    source: &Source<'_>,
    value: Option<&Spanned<f64>>,
    key: &str,
    bounds: &RangeInclusive<f64>,
    default: f64,
) -> Result<Duration> {
    let ms = value.map_or(default, |v| *v.as_ref());
    if bounds.contains(&ms) {
        return Ok(Duration::from_secs_f64(ms / 1e3));
    }
    let remedy = format!("write milliseconds from {} to {}", bounds.start(), bounds.end());
    Err(source.error(value.map(Spanned::span), format!("`{key}` cannot be {ms}"), remedy))
}
