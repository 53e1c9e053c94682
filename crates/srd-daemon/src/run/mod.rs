//! `srd up`: sets up the interface, gives up its privileges, and moves packets until it is told
//! to stop.
//!
//! One thread moves all packets ([`Data`]); whatever else runs talks to it through
//! [`crate::plane`].

mod data;
mod moderation;
mod report;
mod signals;
mod tapped;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use srd_net::{Link, LocalEndpoint, PollMode, Tun, UdpIo, UdpOptions};
use srd_proto::{Config as CoreConfig, Duration, Protection as CoreProtection};

use crate::config::{Config, Mode, Protection};
use crate::netconf::Network;
use crate::notify::Notify;
use crate::plane::{Command, PlaneHandle};
use crate::privileges;
use crate::routing::{self, Routing};
use crate::{control, metrics};

pub use data::Data;
use tapped::{SharedTaps, Tapped};

/// The transport over sockets that captures may look at.
type Endpoint = LocalEndpoint<Tapped>;

/// Bytes that a frame's offload header takes of a datagram.
const OFFLOAD_BYTES: usize = srd_card::offload::OFFLOAD_BYTES;
/// The largest inner MTU by default, ENA Express's.
const MTU_MAX: u16 = 8900;
/// The least inner MTU that IPv6 works with.
const MTU_MIN: u16 = 1280;
/// A context that is quiet for so long is asked whether the peer is there.
const KEEPALIVE: Duration = Duration::from_millis(1000);
/// A peer that does not answer for so long is down.
const PEER_TIMEOUT: Duration = Duration::from_millis(1500);
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
        f.write_str(
            "making a network interface takes CAP_NET_ADMIN: run as root, or by the systemd unit",
        )
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
        let network = Network::start()?;
        let taps = SharedTaps::default();
        let mut endpoint = bind(&config, &taps)?;
        let tun = Tun::open(&config.interface.name).map_err(|e| tun_error(&config, &e))?;
        endpoint.io().udp().watch(tun.fd());
        let mtu = inner_mtu(&config, &endpoint)?;
        let mut routing = Routing::new(network, &config.interface.name, config.interface.mode);
        routing.bring_up(mtu, &config.interface.address)?;
        let waker = endpoint.waker().context("cannot make a descriptor to be woken by")?;
        privileges::drop_all()?;
        let (handle, commands) = PlaneHandle::new(Arc::new(move || waker.wake()));
        let file = config.file.clone();
        let data = Data::new(config, endpoint, (tun, taps), routing, mtu)?;
        let loader: control::Loader = Arc::new(move || Config::load(&file));
        let control = control::Server::start(socket, handle.clone(), Arc::clone(&loader))?;
        let metrics = listener.map(|l| metrics::Server::start(l, handle.clone())).transpose()?;
        signals::obey(handle.clone(), loader)?;
        Ok(Self { data, handle, commands, control, metrics, notify })
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
        tracing::info!(
            interface = self.data.config.interface.name,
            mtu = self.data.mtu,
            peers,
            "up"
        );
        let done = self.data.run(&self.commands);
        self.notify.stopping();
        drop((self.control, self.metrics));
        done
    }
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
    let bytes = match outer_packet_bytes(config) {
        Some(bytes) => bytes,
        None => srd_net::link::local_packet_bytes(listen.ip()).context("asking for the MTU")?,
    };
    core.packet_bytes_max = bytes.saturating_sub(greeting);
    let known = || srd_net::link::local_rate(listen.ip());
    core.link_rate_bps = interface.link_rate_bps.or_else(known).unwrap_or(0);
    let mut options = UdpOptions::new(listen);
    options.paths = core.paths;
    options.receive_buffer_bytes = RECEIVE_BUFFER_BYTES;
    options.poll = PollMode::Block;
    options.mark = Some(routing::table_of(&interface.name));
    let io = UdpIo::open(&options)
        .with_context(|| format!("cannot listen at {listen} with {} paths", interface.paths))?;
    Ok(Endpoint::over(Tapped::new(io, taps.clone()), core)?)
}

/// Bytes of the greeting that a plain context's first packets carry.
#[allow(clippy::cast_possible_truncation)] // sixteen
const GREETING_BYTES: u16 = srd_proto::wire::greeting::GREETING_BYTES as u16;

/// UDP payload bytes that fit into one packet on the way to every peer whose address we know.
fn outer_packet_bytes(config: &Config) -> Option<u16> {
    let endpoints = config.peers.iter().filter_map(|peer| peer.endpoint);
    endpoints.filter_map(|to| Some(Link::towards(to).ok()?.packet_bytes_max)).min()
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

/// The address that our packets to a peer leave from: what inner packets carry in transparent
/// mode.
fn own_address(mode: Mode, peer: Option<SocketAddr>) -> Option<IpAddr> {
    match mode {
        Mode::Overlay => None,
        Mode::Transparent => Link::towards(peer?).ok().map(|link| link.local),
    }
}
