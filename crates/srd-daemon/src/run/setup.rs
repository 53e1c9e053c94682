//! Sets up the environment of `srd up`: sockets, the interface, and reduced privileges.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::process::{getppid, parent_process_death_signal, set_parent_process_death_signal};
use srd_net::xdp::{AnyIo, XdpOptions};
use srd_net::{Link, LocalEndpoint, NoIo, PacketIo, PollMode, Tun, UdpIo};
use srd_proto::Epoch;

use super::queues::{self, Queues};
use super::tapped::Tapped;
use super::{duration, preflight, transport};
use crate::config::{Config, ConfigError, Mode, TRY_INTERFACE, UdpOrdering, in_words};
use crate::pages::About;
use crate::routing;
use srd_trust::privileges;

/// The transport of one worker. Its outer packets can be captured.
pub(super) type Endpoint = LocalEndpoint<Tapped<AnyIo>>;

/// Bytes of the offload header that precedes each frame in a datagram.
const OFFLOAD_BYTES: usize = srd_card::offload::OFFLOAD_BYTES;
/// Largest MTU of the interface if the configuration sets none: that of ENA Express.
const MTU_MAX: u16 = 8900;
/// Smallest MTU of the interface with which IPv6 works.
const MTU_MIN: u16 = 1280;
/// Smallest MTU of an interface with IPv4 only: the size that every IPv4 host accepts (RFC 791).
const MTU_MIN_V4: u16 = 576;
/// UDP payload bytes of an outer packet that are enough for [`MTU_MIN`] bytes of an inner packet,
/// whatever the kind of the datagram.
const PACKET_BYTES_MIN: u16 = 1360;
/// UDP payload bytes of a packet of a node without other hosts, which sends none.
const ALONE_PACKET_BYTES: u16 = 8972;
/// Directory in which each run of the daemon stores its epoch, if systemd names no other.
const STATE_DIRECTORY: &str = "/var/lib/srd";

/// Creates the transport that a configuration describes: one endpoint for each worker.
/// `packet_bytes`: the result of [`packet_bytes`].
pub(super) fn bind(config: &Config, packet_bytes: u16) -> Result<Vec<Endpoint>> {
    let (interface, options) = (&config.interface, sockets(config));
    if interface.is_alone() {
        return over(config, packet_bytes, alone(config)?);
    }
    let ios = AnyIo::open_shards(interface.io, &options, interface.workers)
        .with_context(|| format!("cannot listen at {}", in_words(interface.listens())))?;
    over(config, packet_bytes, ios)
}

/// Creates the transport over the sockets of another process: those of each worker.
pub(super) fn adopt(
    config: &Config,
    packet_bytes: u16,
    all: Vec<Vec<OwnedFd>>,
) -> Result<Vec<Endpoint>> {
    if config.interface.is_alone() {
        return over(config, packet_bytes, alone(config)?);
    }
    let options = sockets(config).udp;
    let ios = all.into_iter().map(|of| UdpIo::adopt(&options, of).map(AnyIo::Udp));
    let ios: Vec<AnyIo> = ios.collect::<io::Result<_>>().context("the sockets to peers")?;
    let listens: Vec<SocketAddr> = config.interface.listens().collect();
    for io in &ios {
        let own = (0..io.local_addresses()).map(|place| io.local_address_at(place));
        if !are_at(own, &listens) {
            bail!("the daemon that runs does not listen at {}", in_words(listens));
        }
    }
    over(config, packet_bytes, ios)
}

/// Returns the back end of each worker of a node without other hosts, which opens no socket.
fn alone(config: &Config) -> Result<Vec<AnyIo>> {
    let open = |_| NoIo::new().map(AnyIo::None).context("cannot make a descriptor to wait on");
    (0..config.interface.workers.max(1)).map(open).collect()
}

/// Whether sockets have these addresses. A port of zero stands for any port, because the kernel has
/// selected it.
fn are_at(own: impl Iterator<Item = SocketAddr>, wanted: &[SocketAddr]) -> bool {
    let named = own.enumerate().map(|(place, mut address)| {
        if wanted.get(place).is_some_and(|wanted| wanted.port() == 0) {
            address.set_port(0);
        }
        address
    });
    named.eq(wanted.iter().copied())
}

fn sockets(config: &Config) -> XdpOptions {
    let mut options = transport::sockets(&config.interface);
    // The worker polls both its interface and its sockets if it has to spin, so the sockets alone
    // must not spin.
    options.poll = PollMode::Block;
    options.mark = Some(routing::spec(&config.interface).mark);
    XdpOptions::new(options)
}

fn over(config: &Config, packet_bytes: u16, ios: Vec<AnyIo>) -> Result<Vec<Endpoint>> {
    let interface = &config.interface;
    let mut core = transport::core(interface, packet_bytes);
    // The transport of a peer may have more shards than ours. Each of its shards has a context with
    // one of ours.
    let contexts_max = crate::config::PEERS_MAX * usize::from(srd_proto::SHARDS_MAX);
    core.peers_max = u32::try_from(contexts_max).unwrap_or(u32::MAX);
    // Without other hosts, the epoch has no reader.
    let epoch = match interface.is_alone() {
        true => srd_net::clock::epoch(),
        false => epoch_of(&interface.name),
    };
    let ios = ios.into_iter().map(Tapped::new).collect();
    let mut endpoints = Endpoint::over_shards(ios, core, epoch)?;
    // A step of the system's clock may end sessions. Packets in flight are lost, and their senders
    // send them again.
    endpoints.iter_mut().for_each(|endpoint| endpoint.reseed_at_clock_steps(true));
    Ok(endpoints)
}

/// Returns the epoch of this run. If the epoch of the previous run was stored, the new epoch is
/// larger, even if the clock was set back. `srd up --try` leaves no traces on the machine, so it
/// stores no epoch.
fn epoch_of(interface: &str) -> Epoch {
    if interface == TRY_INTERFACE {
        return srd_net::clock::epoch();
    }
    let given = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    let directory = given.unwrap_or_else(|| PathBuf::from(STATE_DIRECTORY));
    // Usually the package has created the directory. If it does not exist and cannot be created,
    // storing the epoch fails below. The next daemon may run as a user other than root, so that
    // user gets the directory.
    let mut make = std::fs::DirBuilder::new();
    if std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700).create(&directory).is_ok() {
        let _ = std::os::unix::fs::lchown(&directory, privileges::own_user(), None);
    }
    let file = directory.join(format!("{interface}.epoch"));
    srd_net::clock::lasting_epoch(&file).unwrap_or_else(|error| {
        tracing::warn!(
            "cannot keep the time of this start in {}: {error}; if the clock is set back before \
             the next start, peers refuse this node until they have taken it for dead, which takes \
             a second. A directory that this user may write to mends it",
            file.display()
        );
        srd_net::clock::epoch()
    })
}

/// Number of bytes by which an IPv6 header is larger than an IPv4 header.
const IPV6_MORE_BYTES: u16 = 20;
/// Returns the number of UDP payload bytes that fit into one packet: on the route to every known
/// address of a peer, and on each network card if there are several.
///
/// A route with space for less than [`MTU_MIN`] bytes does not limit other peers. They use the
/// sizes of their own routes, and the transport detects the size that passes on this route.
pub(super) fn packet_bytes(config: &Config) -> Result<u16> {
    if config.interface.is_alone() {
        return Ok(ALONE_PACKET_BYTES);
    }
    outer_packet_bytes(config).context("asking for the MTU")
}

fn outer_packet_bytes(config: &Config) -> io::Result<u16> {
    let peers = config.peers.iter();
    let ways = peers.flat_map(|peer| peer.endpoints().map(move |to| (&peer.name, to)));
    let ways = ways.filter_map(|(peer, to)| {
        let link = Link::towards(to).ok()?;
        if link.packet_bytes_max >= PACKET_BYTES_MIN {
            return Some(link.packet_bytes_max);
        }
        let card = srd_net::link::local_packet_bytes(link.local).unwrap_or(0);
        if card > link.packet_bytes_max {
            tracing::warn!(
                "the route to {peer} ({to}) carries packets of {} bytes and its interface larger \
                 ones: `ip route get {}` shows it. The interface here is made for larger ones, and \
                 what passes to {peer} is found out on the way",
                link.mtu_bytes,
                to.ip()
            );
        }
        Some(card.min(PACKET_BYTES_MIN))
    });
    // A host name may resolve to an IPv6 address, whose header is larger than that of IPv4.
    let is_open = |at: SocketAddr| at.is_ipv6() && at.ip().is_unspecified();
    let by_name = config.peers.iter().any(|peer| peer.host.is_some());
    let spare = if is_open(config.interface.listen) && by_name { IPV6_MORE_BYTES } else { 0 };
    let ways = ways.min().map(|bytes| bytes.saturating_sub(spare));
    match ways {
        Some(bytes) if config.interface.listen_further.is_empty() => Ok(bytes),
        _ => {
            let cards = config.interface.listens();
            let cards = cards.map(|at| srd_net::link::local_packet_bytes(at.ip()));
            let least = |least: u16, card: io::Result<u16>| Ok(least.min(card?));
            cards.into_iter().try_fold(ways.unwrap_or(u16::MAX), least)
        }
    }
}

/// Returns the MTU of the interface: the configured MTU, or otherwise the largest MTU that fits
/// into an outer packet.
pub(super) fn inner_mtu(config: &Config, endpoints: &[Endpoint]) -> Result<u16> {
    let room = endpoints.iter().map(Endpoint::payload_bytes_max).min().unwrap_or(0);
    let room = room.saturating_sub(OFFLOAD_BYTES);
    let fits = u16::try_from(room).unwrap_or(u16::MAX);
    let (mode, addresses) = (config.interface.mode, &config.interface.address);
    let is_v4 = mode == Mode::Overlay && addresses.iter().all(|net| net.addr().is_ipv4());
    let (least, protocol) = if is_v4 { (MTU_MIN_V4, "IPv4") } else { (MTU_MIN, "IPv6") };
    match config.interface.mtu {
        Some(mtu) => Ok(mtu),
        None if fits < least => bail!(
            "the network card of {} leaves {fits} bytes for inner packets, and {protocol} needs \
             {least}: raise its MTU (`ip link set dev CARD mtu 1500`){}",
            in_words(config.interface.listens()),
            // Without an interface, its MTU is no setting.
            if mode == Mode::Cloud { "" } else { ", or set interface.mtu" }
        ),
        None => Ok(fits.min(MTU_MAX)),
    }
}

/// Creates the interface, with queues for each worker. Refuses an interface that exists: it belongs
/// to another program, and its addresses and routes could not be restored.
pub(super) fn open_tun(config: &Config) -> Result<Vec<Queues>> {
    let failed = "cannot make a descriptor to wait on the interface with";
    if config.interface.mode == Mode::Cloud {
        // There is no interface, and no worker has a queue of it.
        let none = (0..config.interface.workers.max(1)).map(|_| Queues::new(Vec::new()));
        return none.collect::<io::Result<_>>().context(failed);
    }
    let name = &config.interface.name;
    // The check must not open the interface: a queue that joins another program's interface would
    // take packets from that program.
    if preflight::has_interface(name) {
        // The text must not advise the user to delete an interface that is not a TUN device.
        let remedy = match preflight::is_tun(name) {
            true => format!("kept by another program: remove it with `ip link delete {name}`, or"),
            false => "and is no TUN device:".to_owned(),
        };
        bail!(
            "an interface {name} is there already, {remedy} choose another `name` in [interface]"
        );
    }
    let count = config.interface.workers * queues::QUEUES;
    let mut all = Tun::open_queues(name, count).map_err(|e| tun_error(config, &e))?;
    let mut workers = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(all.len().min(usize::from(queues::QUEUES)));
        let queues = Queues::new(std::mem::replace(&mut all, rest));
        workers.push(queues.context(failed)?);
    }
    Ok(workers)
}

/// Combines the queues of another process: those of each worker.
pub(super) fn adopt_tun(all: Vec<Vec<OwnedFd>>, udp_segmentation: bool) -> Result<Vec<Queues>> {
    let adopt = |of: Vec<OwnedFd>| {
        if of.len() > usize::from(queues::QUEUES) {
            bail!("the daemon that runs has too many queues for each worker: restart it");
        }
        let queues = of.into_iter().map(|queue| Tun::adopt(queue, udp_segmentation)).collect();
        Queues::new(queues).context("cannot make a descriptor to wait on the interface with")
    };
    all.into_iter().map(adopt).collect()
}

/// Changes from root to another user if that user can read the configuration for a reload. Gives up
/// every capability. A process that reads packets of instances never stays root.
pub(super) fn give_up_privileges(config: &Config) -> Result<()> {
    if config.cloud.is_some() {
        leave_root_for_good()?;
        if config.has_file()
            && let Err(error) = config.load_again()
        {
            let ConfigError { file, what, remedy, .. } = error;
            tracing::warn!(
                "a reload of {} will apply only the files of the instances: {what}; {remedy}",
                file.display()
            );
        }
        return Ok(());
    }
    let stays = privileges::leave_root(|| config.load_again().is_ok())?;
    privileges::drop_all()?;
    let Some(user) = stays else { return Ok(()) };
    if user == privileges::OWN_ACCOUNT {
        tracing::warn!(
            "the daemon stays user root, without capabilities: the user {user} could not read {} \
             and its key files for a reload. The systemd unit runs as a user of its own",
            config.file.display()
        );
    } else {
        tracing::info!(
            "the daemon stays user root, without capabilities: there is no user {0}, and no other \
             user could read {1} and its key files for a reload. For a daemon without root: \
             adduser --system --group --no-create-home {0}, and make this user the owner of the \
             files",
            privileges::OWN_ACCOUNT,
            config.file.display()
        );
    }
    Ok(())
}

/// Changes from root to another user, and gives up every capability. A signal at the end of the
/// parent, which a change of the user clears (prctl(2)), is set again.
fn leave_root_for_good() -> Result<()> {
    let (parent, signal) = (getppid(), parent_process_death_signal()?);
    privileges::leave_root(|| true)?;
    privileges::drop_all()?;
    if signal.is_some() {
        set_parent_process_death_signal(signal)?;
        if getppid() != parent {
            bail!("the process that has started this one has ended");
        }
    }
    Ok(())
}

fn tun_error(config: &Config, error: &io::Error) -> anyhow::Error {
    let name = &config.interface.name;
    let advice = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::BUSY) => "another program (another `srd up`?) holds it",
        Some(rustix::io::Errno::NOENT) => "/dev/net/tun does not exist: load the module `tun`",
        Some(rustix::io::Errno::PERM) => "this takes CAP_NET_ADMIN",
        Some(rustix::io::Errno::INVAL) => "an interface of this name and another kind exists",
        _ => "the kernel refused it",
    };
    anyhow::anyhow!("cannot make the interface {name}: {error}: {advice}")
}

/// Returns the settings of the card, which processes inner packets, at the start.
pub(super) fn card_config(config: &Config, mtu: u16) -> Result<srd_card::Config> {
    let secret = srd_net::clock::secret().context("cannot draw a secret")?;
    let interface = &config.interface;
    Ok(srd_card::Config {
        mtu,
        express: interface.express,
        express_udp: interface.express_udp,
        express_tunnels: interface.express_tunnels,
        udp_bypass: interface.udp_ordering == UdpOrdering::Bypass,
        order_wait: duration(interface.order_wait),
        queue_target: duration(interface.queue_delay),
        cloud: config.cloud.is_some(),
        secret,
        ..srd_card::Config::default()
    })
}

/// Returns the properties that do not change while the daemon runs, for readers of statistics.
pub(super) fn about(config: &Config, endpoints: &[Endpoint], mtu: u16) -> About {
    let interface = &config.interface;
    let core = endpoints.first().map(|endpoint| endpoint.core().config());
    About {
        interface: interface.name.clone(),
        file: absolute(&config.file),
        mode: interface.mode,
        encrypted: core.is_some_and(|core| core.protection.is_on()),
        listen: match interface.is_alone() {
            true => String::new(),
            false => in_words(interface.listens()),
        },
        mtu,
        paths: core.map_or(0, |core| core.paths),
        link_rate_bps: core.map_or(0, |core| core.link_rate_bps),
        started_at: srd_net::Clock::new().now(),
    }
}

/// Returns an absolute path, which programs with another working directory can use.
fn absolute(file: &Path) -> String {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    absolute.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node without `listen` had sockets at ports that the kernel had selected, and could not be
    /// taken over.
    #[test]
    fn regression_any_port_is_as_good_as_the_one_that_the_kernel_has_selected() {
        let all = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let own = all(&["127.0.0.1:40001", "192.0.2.1:7471"]);
        let is_same = |wanted: &[&str]| are_at(own.iter().copied(), &all(wanted));
        assert!(is_same(&["127.0.0.1:0", "192.0.2.1:7471"]));
        assert!(!is_same(&["127.0.0.2:0", "192.0.2.1:7471"]));
        assert!(!is_same(&["127.0.0.1:0", "192.0.2.1:7472"]));
        assert!(!is_same(&["127.0.0.1:0"]) && !is_same(&["127.0.0.1:0"; 3]));
    }
}
