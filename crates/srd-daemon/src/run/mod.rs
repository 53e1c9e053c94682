//! `srd up`: sets up the interface, gives up its privileges, and moves packets until it is told
//! to stop.
//!
//! One thread moves all packets ([`Data`]); whatever else runs talks to it through
//! [`crate::plane`].

mod apply;
mod data;
mod evidence;
mod moderation;
mod peer_log;
mod preflight;
mod report;
mod resolve;
mod signals;
mod tapped;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use srd_net::{Link, LocalEndpoint, PollMode, Tun, UdpIo, UdpOptions};
use srd_proto::{Config as CoreConfig, Duration, Epoch, Protection as CoreProtection};

use crate::config::{Config, PeerSettings, Protection, in_words};
use crate::netconf::{self, Network, Request};
use crate::notify::Notify;
use crate::plane::{Command, PlaneHandle};
use crate::privileges;
use crate::routing;
use crate::{control, hooks, metrics};

pub use data::Data;
use resolve::Resolver;
use tapped::{SharedTaps, Tapped};

/// The transport over sockets that captures may look at.
type Endpoint = LocalEndpoint<Tapped>;

/// Bytes that a frame's offload header takes of a datagram.
const OFFLOAD_BYTES: usize = srd_card::offload::OFFLOAD_BYTES;
/// The largest inner MTU by default, ENA Express's.
const MTU_MAX: u16 = 8900;
/// The least inner MTU that IPv6 works with.
const MTU_MIN: u16 = 1280;
/// A context that is quiet for so long is asked whether the peer is there; one that is spoken to
/// after a quarter of it. Together with the time below that is less than a second, in which a
/// host that died is found out and transparent mode is back at plain packets.
const KEEPALIVE: Duration = Duration::from_millis(300);
/// A peer that does not answer for so long, to some fifteen questions on different paths, is down.
/// Pauses of this daemon's own do not count.
const PEER_TIMEOUT: Duration = Duration::from_millis(600);
/// Where a run leaves its epoch for the next one, if systemd names no other directory.
const STATE_DIRECTORY: &str = "/var/lib/srd";
/// Handshakes with strangers per second, and as many again with those who have returned a cookie.
/// Each costs 0.1 to 0.3 ms of the one thread that carries everybody's packets; a cluster of a
/// thousand nodes that starts at once is served in five seconds.
const HANDSHAKES_PER_SECOND_MAX: u32 = 200;
/// Receive buffer of the base port: what arrives while the thread is kept from running.
const RECEIVE_BUFFER_BYTES: u32 = 32 << 20;

/// A privilege that is missing, for the exit code.
#[derive(Debug)]
pub struct NotPermitted;

impl std::fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("setting up a network takes CAP_NET_ADMIN: run as root, or by the systemd unit")
    }
}

impl std::error::Error for NotPermitted {}

/// A daemon that is set up: interface, sockets and routes exist, privileges are gone.
#[derive(Debug)]
pub struct Daemon {
    data: Data,
    handle: PlaneHandle,
    commands: std::sync::mpsc::Receiver<Command>,
    /// What serves people and machines, for as long as the daemon lives.
    control: control::Server,
    metrics: Option<metrics::Server>,
    notify: Notify,
    hooks: hooks::Running,
}

impl Daemon {
    /// Sets everything up.
    ///
    /// # Errors
    /// [`NotPermitted`], or whatever the operating system says, with what was tried.
    pub fn new(config: Config) -> Result<Self> {
        if !privileges::may_administer() {
            return Err(NotPermitted.into());
        }
        signals::hold();
        let notify = Notify::from_environment().context("NOTIFY_SOCKET")?;
        let socket = control::Socket::bind(&config.control)?;
        let listener = config.metrics.as_ref().map(metrics::Listener::bind).transpose()?;
        preflight::check(&config)?;
        let hooks = hooks::Running::start(&config.interface.name, &config.interface.hooks)?;
        // Dropped after the interface, which it waits for, wherever an error ends this.
        let mut network = Network::start(&routing::spec(&config.interface))?;
        let taps = SharedTaps::default();
        let mut endpoint = bind(&config, &taps)?;
        let tun = open_tun(&config)?;
        endpoint.io().udp().watch(tun.fd());
        let mtu = inner_mtu(&config, &endpoint)?;
        network.ask(&Request::Up { mtu })?;
        let waker = endpoint.waker().context("cannot make a descriptor to be woken by")?;
        hooks.post_up()?;
        give_up_privileges(&config)?;
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || waker.wake());
        let (handle, commands) = PlaneHandle::new(Arc::clone(&wake));
        let ipv4_only = config.interface.is_ipv4_only();
        let resolver = Resolver::start(Arc::new(move |host| host.resolve(ipv4_only)), wake)?;
        let file = config.file.clone();
        let data = Data::new(config, network, endpoint, (tun, taps), (resolver, mtu))?;
        let loader: control::Loader = Arc::new(move || Config::load(&file));
        let control = control::Server::start(socket, handle.clone(), Arc::clone(&loader))?;
        let metrics = listener.map(|l| metrics::Server::start(l, handle.clone())).transpose()?;
        signals::obey(handle.clone(), loader)?;
        Ok(Self { data, handle, commands, control, metrics, notify, hooks })
    }

    /// For whoever wants to ask or tell the daemon something.
    pub fn handle(&self) -> PlaneHandle {
        self.handle.clone()
    }

    /// Moves packets until [`Command::Stop`], or SIGTERM or SIGINT.
    ///
    /// # Errors
    /// What makes the interface or the sockets unusable.
    pub fn run(mut self) -> Result<()> {
        let peers = self.data.config.peers.len();
        self.notify.ready(&format!("{} is up, {peers} peers", self.data.config.interface.name));
        tracing::info!("{}", self.data.introduction());
        let done = self.data.run(&self.commands);
        self.notify.stopping();
        drop((self.control, self.metrics));
        self.hooks.pre_down();
        // The interface goes with it, and only then what comes after.
        drop(self.data);
        drop(self.hooks);
        done
    }
}

/// Removes the routes and rules that a daemon with this configuration has left behind. Returns
/// how many there were.
///
/// # Errors
/// [`NotPermitted`]; the daemon still runs; the kernel refuses.
pub fn release(config: &Config) -> Result<usize> {
    if !privileges::may_administer() {
        return Err(NotPermitted.into());
    }
    netconf::release(&routing::spec(&config.interface))
}

/// The transport of a configuration.
fn bind(config: &Config, taps: &SharedTaps) -> Result<Endpoint> {
    let interface = &config.interface;
    let mut core = CoreConfig::sockets();
    core.protection = match &interface.protection {
        Protection::Encrypted(key) => CoreProtection::Static(key.bytes()),
        Protection::Plain => CoreProtection::Plain,
    };
    core.paths = interface.paths;
    core.keepalive = KEEPALIVE;
    core.peer_timeout = PEER_TIMEOUT;
    core.handshakes_per_second_max = HANDSHAKES_PER_SECOND_MAX;
    core.idle_reclaim = Duration::MAX;
    core.peers_max = u32::try_from(crate::config::PEERS_MAX).unwrap_or(u32::MAX);
    let listen = interface.listen;
    let greeting = if core.protection.is_on() { 0 } else { GREETING_BYTES };
    let bytes = outer_packet_bytes(config).context("asking for the MTU")?;
    core.packet_bytes_max = bytes.saturating_sub(greeting);
    let known = || interface.listens().map(|at| srd_net::link::local_rate(at.ip())).sum();
    core.link_rate_bps = interface.link_rate_bps.or_else(known).unwrap_or(0);
    let mut options = UdpOptions::new(listen);
    options.further.clone_from(&interface.listen_further);
    options.paths = core.paths;
    options.receive_buffer_bytes = RECEIVE_BUFFER_BYTES;
    options.poll = PollMode::Block;
    options.mark = Some(routing::spec(interface).mark);
    let io = UdpIo::open(&options).with_context(|| {
        format!("cannot listen at {} with {} paths", in_words(interface.listens()), interface.paths)
    })?;
    let epoch = epoch_of(&interface.name);
    Ok(Endpoint::over_with(Tapped::new(io, taps.clone()), core, epoch)?)
}

/// The epoch of this run: larger than that of the run before even if the clock was set back, as far
/// as there is a directory to remember it in.
fn epoch_of(interface: &str) -> Epoch {
    let given = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    let directory = given.unwrap_or_else(|| PathBuf::from(STATE_DIRECTORY));
    let file = directory.join(format!("{interface}.epoch"));
    srd_net::clock::lasting_epoch(&file).unwrap_or_else(|error| {
        let words = format!(
            "cannot keep the time of this start in {}: {error}; if the clock is set back before \
             the next start, peers refuse this node until they have taken it for dead",
            file.display()
        );
        // The package makes the directory. Without it the cost is a second, once in a while.
        if error.kind() == io::ErrorKind::NotFound {
            tracing::info!("{words}");
        } else {
            tracing::warn!("{words}");
        }
        srd_net::clock::epoch()
    })
}

/// Bytes of the greeting that a plain context's first packets carry.
#[allow(clippy::cast_possible_truncation)] // sixteen
const GREETING_BYTES: u16 = srd_proto::wire::greeting::GREETING_BYTES as u16;

/// UDP payload bytes that fit into one packet on the way to every address of a peer that we know,
/// and on each network card where there are several.
fn outer_packet_bytes(config: &Config) -> io::Result<u16> {
    let endpoints = config.peers.iter().flat_map(PeerSettings::endpoints);
    let ways = endpoints.filter_map(|to| Some(Link::towards(to).ok()?.packet_bytes_max)).min();
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

/// The inner MTU: as configured, if it fits, or the largest that does.
fn inner_mtu(config: &Config, endpoint: &Endpoint) -> Result<u16> {
    let room = endpoint.payload_bytes_max().saturating_sub(OFFLOAD_BYTES);
    let fits = u16::try_from(room).unwrap_or(u16::MAX);
    match config.interface.mtu {
        Some(mtu) => Ok(mtu),
        None if fits < MTU_MIN => bail!(
            "the outer MTU leaves {fits} bytes for inner packets, and IPv6 needs {MTU_MIN}: raise \
             the outer MTU, or set interface.mtu yourself"
        ),
        None => Ok(fits.min(MTU_MAX)),
    }
}

/// Makes the interface. One that is there already is somebody else's, with addresses and routes
/// that we could not give back.
fn open_tun(config: &Config) -> Result<Tun> {
    let name = &config.interface.name;
    let was_there = preflight::has_interface(name);
    let tun = Tun::open(name).map_err(|e| tun_error(config, &e))?;
    if was_there {
        bail!(
            "an interface {name} is there already, kept by another program: remove it with \
             `ip link delete {name}`, or choose another `name` in [interface]"
        );
    }
    Ok(tun)
}

/// Leaves the user root where a reload works without it, and gives up every capability.
fn give_up_privileges(config: &Config) -> Result<()> {
    let stays = privileges::leave_root(|| Config::load(&config.file).is_ok())?;
    privileges::drop_all()?;
    if let Some(user) = stays {
        tracing::warn!(
            "the daemon stays user root, without capabilities: the user {user} could not read {} \
             and its key files for a reload. The systemd unit runs as a user of its own",
            config.file.display()
        );
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
