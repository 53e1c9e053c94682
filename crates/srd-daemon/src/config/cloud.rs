//! The table `[cloud]`: the instances of virtual private clouds on this host, and the keys of
//! `[expert]` that belong to instances.
//!
//! A file without a table `[interface]` describes instances of one host, which communicate with no
//! other host ([`Mode::Cloud`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use srd_config::{ConfigError, Source};
use srd_net::xdp::IoChoice;
use toml::Spanned;

use super::Mode;
use super::file::{CloudTable, ExpertTable, InterfaceTable};
use super::number::whole;

/// Largest number by which the rates of instance types can be divided.
pub const SCALE_MAX: u32 = 1_000_000;
/// Largest configurable time for which a full stock of credits lasts at the peak rate, in seconds.
pub const CREDITS_S_MAX: u32 = 3600;
/// Default of the time for which a full stock of credits lasts at the peak rate, in seconds.
pub const CREDITS_S_DEFAULT: u32 = 300;
/// Largest number of threads that give packets to instances.
pub const PROCESSORS_MAX: u8 = 16;
/// Name of this host in the VPC's file if the configuration contains no name.
pub const HOST_DEFAULT: &str = "here";

/// Allowed times for which a full stock of credits lasts at the peak rate, in seconds.
const CREDITS_S: RangeInclusive<i64> = 1..=CREDITS_S_MAX as i64;

type Result<T> = std::result::Result<T, ConfigError>;

/// Settings of the instances of virtual private clouds on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cloud {
    /// The VPC's file; `None`: EC2's default VPC, without instances.
    pub vpc: Option<PathBuf>,
    /// Whether the controller of `[enrol]` sends the content of the VPC's file.
    pub is_of_controller: bool,
    /// Whether the content that a controller sends may use pods of this host.
    pub pods: bool,
    /// Name of this host in the VPC's file.
    pub host: String,
    /// Whether the network of this machine plays the role of the internet.
    pub internet: bool,
    /// Whether the network that plays the role of the internet carries private addresses.
    pub internet_private: bool,
    /// Whether the programs in an instance's namespace are terminated when the instance is removed.
    pub end_programs: bool,
    /// Number of threads that give packets to instances; 0: the thread that moves packets does.
    pub processors: u8,
    /// The number by which all rates of instance types are divided.
    pub scale: u32,
    /// Time that a full stock of credits lasts at the peak rate, in seconds.
    pub credits_s: u32,
    /// Instances whose interfaces are vhost-user sockets, with the path of the primary interface's
    /// socket.
    pub vhost_user: BTreeMap<String, PathBuf>,
    /// Names of instances in `vhost_user` whose front ends listen at the sockets.
    pub vhost_user_client: BTreeSet<String>,
}

/// Reads `[cloud]`, and the keys of `[expert]` that need this table.
pub(super) fn cloud(
    source: &Source<'_>,
    spanned: Option<&Spanned<CloudTable>>,
    expert: &ExpertTable,
) -> Result<Option<Cloud>> {
    let Some(table) = spanned.map(Spanned::as_ref) else {
        let first = expert.scale.as_ref().map(|of| ("scale", of.span()));
        let first = first.or_else(|| expert.credits.as_ref().map(|of| ("credits", of.span())));
        return match first {
            None => Ok(None),
            Some((key, span)) => {
                let what = format!("`{key}` is a setting of instances, and there is no [cloud]");
                Err(source.error(Some(span), what, "add [cloud], or take it out"))
            }
        };
    };
    let directory = source.path.parent().unwrap_or(Path::new(""));
    let beside = |text: &Spanned<String>| directory.join(text.as_ref());
    let host = match &table.host {
        Some(name) if name.as_ref().is_empty() => {
            return Err(source.error(Some(name.span()), "a host without a name", "name it"));
        }
        name => name.as_ref().map_or(HOST_DEFAULT, |name| name.as_ref()).to_owned(),
    };
    let internet_private = match &table.internet_private {
        Some(private) if *private.as_ref() && !table.internet => {
            let what = "an internet that carries private addresses, and no internet";
            return Err(source.error(Some(private.span()), what, "add internet = true"));
        }
        private => private.as_ref().is_some_and(|private| *private.as_ref()),
    };
    let credits = whole(source, expert.credits.as_ref(), "credits", &CREDITS_S)?;
    let credits = credits.and_then(|seconds| u32::try_from(seconds).ok());
    let bounds = 0..=PROCESSORS_MAX.into();
    let processors = whole(source, table.processors.as_ref(), "processors", &bounds)?;
    let client = table.vhost_user_client.keys();
    Ok(Some(Cloud {
        vpc: table.vpc.as_ref().map(beside),
        is_of_controller: false,
        pods: false,
        host,
        internet: table.internet,
        internet_private,
        end_programs: table.end_programs,
        processors: processors.and_then(|count| u8::try_from(count).ok()).unwrap_or(0),
        scale: expert.scale.as_ref().map_or(Ok(1), |text| scale_of(source, text))?,
        credits_s: credits.unwrap_or(CREDITS_S_DEFAULT),
        vhost_user: sockets(source, table, beside)?,
        vhost_user_client: client.map(|name| name.as_ref().clone()).collect(),
    }))
}

/// Reads `[cloud]`, which may be absent, for a host whose instances come from its controller.
/// `file`: the VPC's file, whose content the controller sends. `host`: the name of this host.
/// `pods`: whether this content may use pods of this host.
pub(super) fn of_controller(
    source: &Source<'_>,
    spanned: Option<&Spanned<CloudTable>>,
    expert: &ExpertTable,
    (file, host, pods): (PathBuf, &str, bool),
) -> Result<Cloud> {
    let absent = Spanned::new(0..0, CloudTable::default());
    let spanned = spanned.unwrap_or(&absent);
    let table = spanned.as_ref();
    let sockets = table.vhost_user.keys().chain(table.vhost_user_client.keys());
    for (key, at) in [
        ("vpc", table.vpc.as_ref().map(Spanned::span)),
        ("host", table.host.as_ref().map(Spanned::span)),
        ("vhost_user", sockets.map(Spanned::span).next()),
    ] {
        if at.is_some() {
            let what = format!("`{key}` of a host whose instances come from its controller");
            let remedy = format!("take `{key}` out, or take [enrol.instances] out");
            return Err(source.error(at, what, remedy));
        }
    }
    let read = cloud(source, Some(spanned), expert)?;
    let Some(read) = read else {
        return Err(source.error(Some(spanned.span()), "there is no [cloud]", "add [cloud]"));
    };
    // Without its instance, a program that the instance has started has no use.
    let (vpc, host) = (Some(file), host.to_owned());
    Ok(Cloud { vpc, is_of_controller: true, pods, host, end_programs: true, ..read })
}

/// Returns the vhost-user sockets of instances, by the instance's name.
fn sockets(
    source: &Source<'_>,
    table: &CloudTable,
    beside: impl Fn(&Spanned<String>) -> PathBuf,
) -> Result<BTreeMap<String, PathBuf>> {
    let mut all = BTreeMap::new();
    for (name, path) in table.vhost_user.iter().chain(&table.vhost_user_client) {
        match add_socket(&mut all, name.as_ref(), beside(path)) {
            Ok(()) => {}
            Err(SocketTaken::By(other)) => {
                let what = format!("`{other}` has this socket already");
                return Err(source.error(Some(path.span()), what, "give each instance its own"));
            }
            Err(SocketTaken::Second) => {
                let what = format!("`{}` has a socket already", name.as_ref());
                return Err(source.error(Some(name.span()), what, "one end listens: name it once"));
            }
        }
    }
    Ok(all)
}

/// Reason why an instance cannot have a vhost-user socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketTaken {
    /// The socket already belongs to the instance with this name.
    By(String),
    /// The instance already has another socket.
    Second,
}

/// Gives an instance a vhost-user socket. An instance has at most one socket, and a socket belongs
/// to one instance only.
///
/// # Errors
/// The socket belongs to another instance, or the instance has another socket.
pub fn add_socket(
    all: &mut BTreeMap<String, PathBuf>,
    name: &str,
    path: PathBuf,
) -> std::result::Result<(), SocketTaken> {
    if let Some((other, _)) = all.iter().find(|(_, of)| **of == path) {
        return Err(SocketTaken::By(other.clone()));
    }
    all.insert(name.to_owned(), path).map_or(Ok(()), |_| Err(SocketTaken::Second))
}

/// Parses the divisor of rates, written as `1/N` or as `N`, with N from 1 to [`SCALE_MAX`].
///
/// # Errors
/// The text has another format, or N is outside of its range; the error describes the format.
pub fn scale(text: &str) -> std::result::Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text);
    match number.parse() {
        Ok(scale @ 1..=SCALE_MAX) => Ok(scale),
        _ => Err(format!("write 1/N with N from 1 to {SCALE_MAX}, as in 1/100")),
    }
}

fn scale_of(source: &Source<'_>, text: &Spanned<String>) -> Result<u32> {
    let what = || format!("`{}` is no scale", text.as_ref());
    scale(text.as_ref()).map_err(|remedy| source.error(Some(text.span()), what(), remedy))
}

/// Refuses AF_XDP, because the loops of the instances' cards wait for packets at UDP sockets.
/// Returns the number of workers: one, if the file names no number. `workers`: the number for an
/// interface without instances.
pub(super) fn check_workers(
    source: &Source<'_>,
    table: &InterfaceTable,
    (io, workers): (IoChoice, u8),
) -> Result<u8> {
    if io != IoChoice::Udp {
        let span = table.io.as_ref().map(Spanned::span);
        let what = "instances use UDP sockets, and `io` asks for AF_XDP";
        return Err(source.error(span, what, "write io = \"udp\", or take it out"));
    }
    // Each worker of instances has its own tables, so there is only one unless more are requested.
    Ok(table.workers.as_ref().map_or(1, |_| workers))
}

/// Refuses keys without an effect in [`Mode::Cloud`], which has no interface on this machine. Keys
/// of packets between hosts have an effect only if there is a transport (`has_transport`).
pub(super) fn check_keys(
    source: &Source<'_>,
    (table, expert): (&InterfaceTable, &ExpertTable),
    mode: Mode,
    has_transport: bool,
) -> Result<()> {
    if mode != Mode::Cloud {
        return Ok(());
    }
    let hook = |list: &[Spanned<String>]| list.first().map(Spanned::span);
    let keys = [
        ("io", table.io.as_ref().map(Spanned::span)),
        ("mtu", table.mtu.as_ref().map(Spanned::span)),
        ("kill_switch", table.kill_switch.as_ref().map(Spanned::span)),
        ("express", table.express.as_ref().map(Spanned::span)),
        ("express_udp", table.express_udp.as_ref().map(Spanned::span)),
        ("express_tunnels", table.express_tunnels.as_ref().map(Spanned::span)),
        ("pre_up", hook(&table.pre_up)),
        ("post_up", hook(&table.post_up)),
        ("pre_down", hook(&table.pre_down)),
        ("post_down", hook(&table.post_down)),
        ("udp_ordering", expert.udp_ordering.as_ref().map(Spanned::span)),
        ("table", expert.table.as_ref().map(Spanned::span)),
    ];
    if let Some((key, span)) = keys.into_iter().find_map(|(key, span)| Some((key, span?))) {
        let what = format!("`{key}` is a setting of an interface, and mode = \"cloud\" has none");
        return Err(source.error(Some(span), what, "take it out, or write mode = \"overlay\""));
    }
    if has_transport { Ok(()) } else { check_alone(source, table, expert) }
}

/// Refuses keys of packets between hosts, for a host that communicates with no other host.
fn check_alone(source: &Source<'_>, table: &InterfaceTable, expert: &ExpertTable) -> Result<()> {
    let keys = [
        ("protection", table.protection.as_ref().map(Spanned::span)),
        ("dscp", table.dscp.as_ref().map(Spanned::span)),
        ("link_rate", table.link_rate.as_ref().map(Spanned::span)),
        ("paths", expert.paths.as_ref().map(Spanned::span)),
        ("order_wait_ms", expert.order_wait_ms.as_ref().map(Spanned::span)),
        ("queue_delay_ms", expert.queue_delay_ms.as_ref().map(Spanned::span)),
    ];
    let Some((key, span)) = keys.into_iter().find_map(|(key, span)| Some((key, span?))) else {
        return Ok(());
    };
    let what = format!(
        "`{key}` is a setting of packets between hosts, and without `listen` there are none"
    );
    let remedy = "take it out, or add `listen` and `private_key_file` to [interface], and a \
                  [[peer]] for each other host";
    Err(source.error(Some(span), what, remedy))
}

#[cfg(test)]
mod tests;
