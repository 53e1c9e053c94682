//! Converts the parsed file into a [`Config`]: fills in defaults, and checks the bounds and the
//! consistency of values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use srd_net::PollMode;
use toml::Spanned;

use super::address::{addresses, socket_address};
use super::back_end;
use super::cloud;
use super::enrol;
use super::file::{ControlTable, Document, ExpertTable, InterfaceTable};
use super::key_files::{Keys, key_file, unused_key};
use super::metrics::metrics;
use super::number::whole;
use super::peers::peers;
use super::routes;
use super::several;
use super::workers;
use super::{Config, Control, Group, Interface, Mode, Protection, UdpOrdering, socket_default};
use crate::hooks::{HOOK_BYTES_MAX, HOOKS_MAX, Hooks};
use crate::keys::SecretKey;
use crate::units::parse_rate;
use srd_config::{ConfigError, Source};
use srd_trust::privileges;

/// Largest number of bytes of an interface's name in Linux.
const INTERFACE_NAME_BYTES_MAX: usize = 15;
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

/// Converts a parsed file into a checked configuration, or returns its first error.
pub(super) fn check(source: &Source<'_>, mut document: Document, keys: Keys) -> Result<Config> {
    let enrolled = enrol::complete(source, &mut document, keys)?;
    let expert = &document.expert;
    let table = document.cloud.as_ref();
    let cloud = match enrolled.as_ref().and_then(enrol::Enrolled::instances) {
        None => cloud::cloud(source, table, expert)?,
        Some(at) => Some(cloud::of_controller(source, table, expert, at)?),
    };
    let has_cloud = cloud.is_some();
    let mut interface = match (&document.interface, &document.cloud, document.peer.first()) {
        (Some(table), _, first) => {
            interface(source, table, expert, (keys, first.is_some(), has_cloud))?
        }
        (None, Some(_), Some(peer)) => {
            let remedy = "add [interface] with mode = \"cloud\", listen and private_key_file";
            return Err(source.error(Some(peer.span()), "another host, and no way to it", remedy));
        }
        (None, Some(cloud), None) => {
            let mode = Some(Spanned::new(cloud.span(), "cloud".to_owned()));
            let table = InterfaceTable { mode, ..InterfaceTable::default() };
            let table = Spanned::new(cloud.span(), table);
            interface(source, &table, expert, (keys, false, has_cloud))?
        }
        (None, None, _) => {
            let remedy = "begin with [interface] and the address, private_key_file and listen of \
                          it, or with [cloud] for instances";
            let what = "there is no table [interface], and no table [cloud]";
            return Err(source.error(None, what, remedy));
        }
    };
    if let Some(mode) = document.interface.as_ref().and_then(|table| table.as_ref().mode.as_ref())
        && interface.mode == Mode::Cloud
        && cloud.is_none()
    {
        let what = "mode = \"cloud\" is for instances, and there is no table [cloud]";
        return Err(source.error(Some(mode.span()), what, "add [cloud]"));
    }
    if let (Some(_), Some(table)) = (&cloud, &document.interface) {
        let at = (interface.io, interface.workers);
        interface.workers = cloud::check_workers(source, table.as_ref(), at)?;
    }
    let control = control(source, &document.control.unwrap_or_default(), &interface.name)?;
    let metrics = document.metrics.as_ref().map(|table| metrics(source, table)).transpose()?;
    let mut peers = peers(source, &document.peer, (&interface, cloud.as_ref()), &[], keys)?;
    let enrol = enrolled.map(|enrolled| {
        peers = enrol::add(&peers, &enrolled.peers, (&interface, cloud.as_ref()));
        enrolled.enrol
    });
    let file = source.path.to_path_buf();
    Ok(Config { file, interface, control, metrics, peers, enrol, cloud })
}

fn interface(
    source: &Source<'_>,
    spanned: &Spanned<InterfaceTable>,
    expert: &ExpertTable,
    (keys, has_peers, has_cloud): (Keys, bool, bool),
) -> Result<Interface> {
    let table = spanned.as_ref();
    let name = match &table.name {
        Some(name) => interface_name(source, name)?,
        None => "srd0".to_owned(),
    };
    let mode = choice(source, table.mode.as_ref(), "mode", &Mode::ALL)?;
    // Instances of one host need no transport. A key without `listen` is not ignored but refused.
    let has_transport = has_peers || table.listen.is_some() || table.private_key_file.is_some();
    cloud::check_keys(source, (table, expert), mode, has_transport)?;
    let address = addresses(source, spanned, (mode, has_cloud))?;
    let paths =
        whole(source, expert.paths.as_ref(), "paths", &PATHS)?.unwrap_or(super::PATHS_DEFAULT);
    let is_alone = mode == Mode::Cloud && !has_transport;
    let (protection, (listen, listen_further)) = if is_alone {
        (Protection::Plain, (SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), Vec::new()))
    } else {
        let protection = protection(source, spanned, mode, keys)?;
        (protection, listens(source, spanned, paths, &address)?)
    };
    let io = back_end::io(source, table, &listen, &listen_further)?;
    let workers = match mode {
        Mode::Cloud if table.workers.is_none() => 1,
        _ => workers::workers(source, table, (listen.port(), paths), io)?,
    };
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
        express: is_on(table.express.as_ref(), true),
        express_udp: is_on(table.express_udp.as_ref(), true),
        express_tunnels: is_on(table.express_tunnels.as_ref(), false),
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

/// Reads a switch; `default` applies if it is absent.
fn is_on(value: Option<&Spanned<bool>>, default: bool) -> bool {
    value.map_or(default, |value| *value.as_ref())
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
    mode: Mode,
    keys: Keys,
) -> Result<Protection> {
    let table = spanned.as_ref();
    let kinds = [(true, "encrypted"), (false, "plain")];
    let encrypted = match &table.protection {
        Some(_) => choice(source, table.protection.as_ref(), "protection", &kinds)?,
        None => true,
    };
    if !encrypted {
        return match table.private_key_file.as_ref().filter(|_| mode == Mode::Cloud) {
            Some(file) => Err(unused_key(source, file)),
            None => Ok(Protection::Plain),
        };
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

/// Reads `listen`: the first address, and the further ones, which must have the same port.
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
    let group_captures = match &table.group_captures {
        Some(captures) if *captures.as_ref() && group.is_none() => {
            let what = "`group_captures` permits captures to a group, and there is no `group`";
            let remedy = "add `group`, or take `group_captures` out";
            return Err(source.error(Some(captures.span()), what, remedy));
        }
        captures => captures.as_ref().is_some_and(|captures| *captures.as_ref()),
    };
    let is_named = table.socket.is_some();
    Ok(Control { socket, is_named, is_chosen: false, group, group_captures })
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
