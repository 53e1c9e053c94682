//! The transport to the other hosts of the cloud: frames of instances over SRD. They are sealed,
//! and each host is identified by its key.
//!
//! ```text
//!   card --to_host--> stage: queues, tenants in turns --> endpoint --> sockets
//!   card <-from_host- stage: order by flow           <-- endpoint <-- sockets
//! ```
//!
//! A flow whose two interfaces have ENA Express uses SRD over all paths. Any other flow is sent
//! plainly, on the path that its hash selects. Packets of both kinds are sealed in the session with
//! the host's key, so that no other program of a machine can pose as a host, whatever its address
//! and port.
//!
//! Bounds: those of the stage ([`srd_card::Express`], which queues and orders frames) and of the
//! endpoint. The frames of one read are handed to the card before the next read.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::{Envelope, FrameRoute};
use srd_card::{
    Arrivals, Arrived, Config as StageConfig, Express, Guest, Parcel, Partner, PeerSettings,
    PeerSlot, Trailer,
};
use srd_net::keys::{PublicKey, SecretKey};
use srd_net::{Application, Context, Link, LocalEndpoint, UdpIo, UdpOptions, clock};
use srd_proto::time::{Duration, Instant};
use srd_proto::{
    Config as CoreConfig, Delivery, Epoch, Event, PeerConfig, Protection as CoreProtection,
};

use crate::traffic::hosts::Contact;

/// The name under which this machine's card receives packets from the internet (the edge of its
/// gateways). These packets are trusted. No host has this name.
pub(crate) const EDGE: &str = "(edge)";
/// Default of the first UDP port of a card: the port after that of `srd up`.
pub const PORT_DEFAULT: u16 = 7535;
/// Default number of paths to each host.
pub const PATHS_DEFAULT: u16 = 64;
/// Time without packets of a host after which the host is probed.
const KEEPALIVE: Duration = Duration::from_millis(300);
/// Time without an answer after which a host is down. In this time it gets about fifteen probes on
/// different paths.
const PEER_TIMEOUT: Duration = Duration::from_millis(600);
/// Maximum rate of handshakes with unknown peers, per second. Peers that have returned a cookie
/// have a separate budget of this size.
const HANDSHAKES_PER_SECOND_MAX: u32 = 200;
/// Size of the receive buffers of the sockets. They hold packets that arrive while the loop reads
/// packets of instances, or has no processor.
const RECEIVE_BUFFER_BYTES: u32 = 32 << 20;
/// Bytes of the greeting in the first packets of a plain session.
#[allow(clippy::cast_possible_truncation)] // sixteen
const GREETING_BYTES: u16 = srd_proto::wire::greeting::GREETING_BYTES as u16;
/// The minimum MTU of IPv6 networks (RFC 8200), as UDP payload bytes.
const PACKET_BYTES_MIN: u16 = 1232;
/// Directory of the stored epoch, if systemd names no other.
const STATE_DIRECTORY: &str = "/var/lib/srd-card";
/// Lower bound of the number of datagrams that one call of [`Transport::receive`] may read, if
/// fewer frames were requested.
const DATAGRAMS_AT_ONCE_MIN: usize = 64;
/// Upper bound of the number of datagrams that one call of [`Transport::receive`] may read.
const DATAGRAMS_AT_ONCE_MAX: usize = 1024;

/// Protection of packets between hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Packets are encrypted and authenticated in sessions between the keys of hosts. The value is
    /// the private key of this host.
    Encrypted(SecretKey),
    /// Packets are neither encrypted nor authenticated, for a trusted network.
    Plain,
}

/// Options of the transport to the other hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransportOptions {
    /// The name of this host.
    pub host: String,
    /// The address at which this host receives packets, and the first of its consecutive UDP ports.
    /// There is one port for each path.
    pub listen: SocketAddr,
    /// The protection of packets.
    pub protection: Protection,
    /// Number of paths to each host, 1 to 256.
    pub paths: u16,
    /// The rate of this machine's link in bits per second; `None`: the rate that the kernel
    /// reports.
    pub link_rate_bps: Option<u64>,
    /// The DSCP of packets between hosts, 0 to 63.
    pub dscp: u8,
    /// The other hosts by name.
    pub hosts: BTreeMap<String, HostOptions>,
}

/// Address and key of another host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostOptions {
    /// The address of the host, and the first of its consecutive UDP ports.
    pub endpoint: SocketAddr,
    /// The public key of the host; `None` if packets are not encrypted.
    pub public_key: Option<PublicKey>,
}

/// Frames that were received from other hosts, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The envelope of each frame, with its source and destination, and the frame.
    pub(crate) frames: Vec<(Envelope, Vec<u8>)>,
    /// Runs of successive frames: the host that has sent them, their number, and whether they used
    /// SRD.
    pub(crate) hosts: Vec<(Arc<str>, usize, bool)>,
    /// Frames with an unknown kind of trailer.
    pub(crate) unknown: u64,
}

/// Another host: its address, and counters of its traffic.
#[derive(Debug)]
struct Host {
    name: Arc<str>,
    at: SocketAddr,
    slot: PeerSlot,
    contact: Contact,
}

/// The part of the transport that changes when the endpoint delivers packets and events: the queues
/// for hosts, the state of hosts, and received frames.
#[derive(Debug)]
struct Stage {
    express: Express,
    /// Hosts, sorted by name.
    hosts: Vec<Host>,
    /// For each slot of the stage, the index of its host in `hosts`.
    by_slot: Vec<usize>,
    received: Received,
    /// Whether the MTU of the network has changed.
    mtu_changed: bool,
}

/// The transport to other hosts: the SRD endpoint with its sockets, and the stage before it.
#[derive(Debug)]
pub(crate) struct Transport {
    endpoint: LocalEndpoint<UdpIo>,
    stage: Stage,
    arrivals: Arc<OwnedFd>,
    /// Index of the host of the last sent packet, which is usually the host of the next packet as
    /// well.
    last_to: usize,
    /// Whether the endpoint has more packets to send than the last call could send.
    has_more: bool,
    /// Whether sending or receiving has failed, and the failure was logged.
    is_broken: bool,
}

/// Checked settings, before the sockets are opened.
#[derive(Debug)]
pub(crate) struct Plan {
    options: TransportOptions,
    packet_bytes_max: u16,
    /// The epoch of this run, if it was stored already.
    epoch: Option<Epoch>,
}

impl Plan {
    /// Stores the epoch of this run in a file, so that the next run can choose a larger epoch. Call
    /// this before privileges are dropped.
    pub(crate) fn keep_epoch(mut self) -> Self {
        self.epoch = Some(epoch_of(&self.options.host));
        self
    }

    /// Checks the settings, and the routes to the hosts.
    pub(crate) fn new(options: &TransportOptions) -> Result<Self> {
        let mut places = BTreeMap::new();
        for (name, host) in &options.hosts {
            if name == EDGE {
                bail!("{EDGE} is no name of a host: give the peer another one");
            }
            if let Some(other) = places.insert(host.endpoint, name) {
                bail!("{other} and {name} are both at {}", host.endpoint);
            }
        }
        let ways = options.hosts.values().filter_map(|host| Link::towards(host.endpoint).ok());
        let least = ways.map(|link| link.packet_bytes_max.max(PACKET_BYTES_MIN)).min();
        let bytes = match least {
            Some(bytes) => bytes,
            None => srd_net::link::local_packet_bytes(options.listen.ip())
                .with_context(|| format!("the MTU of {}", options.listen.ip()))?,
        };
        let greeting = if options.protection == Protection::Plain { GREETING_BYTES } else { 0 };
        Ok(Self {
            options: options.clone(),
            packet_bytes_max: bytes.saturating_sub(greeting),
            epoch: None,
        })
    }

    fn core(&self) -> CoreConfig {
        let options = &self.options;
        let mut core = CoreConfig::sockets();
        core.protection = match &options.protection {
            Protection::Encrypted(key) => CoreProtection::Static(key.bytes()),
            Protection::Plain => CoreProtection::Plain,
        };
        core.paths = options.paths;
        core.keepalive = KEEPALIVE;
        core.peer_timeout = PEER_TIMEOUT;
        core.handshakes_per_second_max = HANDSHAKES_PER_SECOND_MAX;
        core.idle_reclaim = Duration::MAX;
        core.packet_bytes_max = self.packet_bytes_max;
        let known = || srd_net::link::local_rate(options.listen.ip());
        core.link_rate_bps = options.link_rate_bps.or_else(known).unwrap_or(0);
        core
    }

    fn sockets(&self) -> UdpOptions {
        let mut sockets = UdpOptions::new(self.options.listen);
        sockets.paths = self.options.paths;
        sockets.receive_buffer_bytes = RECEIVE_BUFFER_BYTES;
        sockets.dscp = self.options.dscp;
        sockets
    }
}

/// Returns the epoch of this run: larger than the epoch of the previous run, even if the clock was
/// set back.
fn epoch_of(host: &str) -> Epoch {
    let given = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    let directory = given.unwrap_or_else(|| PathBuf::from(STATE_DIRECTORY));
    let mut make = std::fs::DirBuilder::new();
    let _ = std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700).create(&directory);
    let file = directory.join(format!("{host}.epoch"));
    clock::lasting_epoch(&file).unwrap_or_else(|error| {
        tracing::warn!(
            "cannot keep the time of this start in {}: {error}; if the clock is set back before \
             the next start, other hosts refuse this one until they have taken it for dead, which \
             takes a second",
            file.display()
        );
        clock::epoch()
    })
}

impl Transport {
    /// Opens the sockets.
    pub(crate) fn open(plan: Plan) -> Result<Self> {
        let listen = plan.options.listen;
        let io = UdpIo::open(&plan.sockets())
            .with_context(|| format!("the card cannot receive at {listen} ([transport] listen)"))?;
        Self::over(plan, io)
    }

    /// Continues with the sockets of another process.
    pub(crate) fn adopt(plan: Plan, sockets: Vec<OwnedFd>) -> Result<Self> {
        let io = UdpIo::adopt(&plan.sockets(), sockets).context("sockets to other hosts")?;
        let at = srd_net::PacketIo::local_address(&io);
        if at != plan.options.listen {
            bail!(
                "the card that runs receives at {at}, and this one at {}: end that first",
                plan.options.listen
            );
        }
        Self::over(plan, io)
    }

    fn over(plan: Plan, io: UdpIo) -> Result<Self> {
        let core = plan.core();
        let epoch = plan.epoch.unwrap_or_else(|| epoch_of(&plan.options.host));
        let mut endpoint = LocalEndpoint::over_with(io, core, epoch).map_err(io::Error::from)?;
        endpoint.reseed_at_clock_steps(true);
        let config =
            StageConfig { cloud: true, secret: clock::secret()?, ..StageConfig::default() };
        let (core, now) = endpoint.core_mut();
        let mut express = Express::new(config, core);
        let mut hosts = Vec::new();
        let mut by_slot = Vec::new();
        for (name, host) in &plan.options.hosts {
            let key = host.public_key.map(|key| key.0);
            let id = core
                .add_peer(now, PeerConfig::at(host.endpoint).with_key(key))
                .map_err(|error| anyhow::anyhow!("host {name}: {error}"))?;
            let settings =
                PeerSettings { id, allowed: Vec::new(), express: true, express_udp: true };
            let slot = express.add_peer(now, settings);
            by_slot.push(hosts.len());
            hosts.push(Host {
                name: name.as_str().into(),
                at: host.endpoint,
                slot,
                contact: Contact::default(),
            });
        }
        let arrivals = Arc::new(endpoint.arrivals().context("sockets to other hosts")?);
        let received = Received::default();
        let stage = Stage { express, hosts, by_slot, received, mtu_changed: false };
        let (last_to, has_more, is_broken) = (0, true, false);
        Ok(Self { endpoint, stage, arrivals, last_to, has_more, is_broken })
    }

    /// Returns the maximum size in bytes of a packet that does not use SRD.
    pub(crate) fn bytes_max(&self) -> usize {
        let hosts = self.stage.hosts.iter();
        let least = hosts.map(|host| self.stage.express.cloud_bytes_max(host.slot)).min();
        least.unwrap_or(usize::MAX)
    }

    /// Whether [`Transport::bytes_max`] has changed since the last call.
    pub(crate) fn take_mtu_change(&mut self) -> bool {
        std::mem::take(&mut self.stage.mtu_changed)
    }

    /// Returns a descriptor that is readable while received packets wait.
    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.arrivals)
    }

    /// Returns the sockets, for a process that takes over.
    pub(crate) fn sockets(&mut self) -> io::Result<Vec<OwnedFd>> {
        self.endpoint.io().sockets()
    }

    /// Returns the time at which [`Transport::flush`] has to be called next.
    pub(crate) fn due(&self) -> Instant {
        if self.has_more {
            return Instant::ZERO;
        }
        let stage = self.stage.express.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.endpoint.due().min(stage)
    }

    /// Whether frames or acknowledgements wait to be sent.
    pub(crate) fn has_unsent(&self, now: Instant) -> bool {
        self.stage.express.has_waiting() || self.due() <= now
    }

    /// Queues a frame for another host. Returns `false` if there is no such host.
    pub(crate) fn send(&mut self, now: Instant, way: &FrameRoute<'_>, frame: Vec<u8>) -> bool {
        let hosts = &mut self.stage.hosts;
        if hosts.get(self.last_to).is_none_or(|last| last.name != *way.host) {
            let Ok(place) = hosts.binary_search_by(|of| of.name.cmp(way.host)) else {
                return false;
            };
            self.last_to = place;
        }
        let host = &mut hosts[self.last_to];
        host.contact.sent(frame.len().saturating_sub(OFFLOAD_BYTES), way.express);
        let parcel = Parcel {
            to: host.slot,
            // Number zero is reserved.
            tenant: way.instance.saturating_add(1),
            interface: way.envelope.sender(),
            trailer: way.envelope.trailer(),
            express: way.express,
        };
        self.stage.express.from_cloud(now, parcel, frame);
        true
    }

    /// Sends everything that may be sent, and runs timers that are due.
    pub(crate) fn flush(&mut self) {
        let sent = self.transmit();
        self.note(sent);
    }

    fn transmit(&mut self) -> io::Result<()> {
        let Self { endpoint, stage, .. } = self;
        let (core, now) = endpoint.core_mut();
        stage.handle_timeout(now);
        stage.express.pump(now, core);
        let mut more = endpoint.transmit(stage)?;
        if stage.express.has_waiting() {
            let (core, now) = endpoint.core_mut();
            more |= stage.express.pump(now, core) > 0;
        }
        self.has_more = more;
        Ok(())
    }

    /// Reads packets until there are `most` frames, or until a maximum number of datagrams was
    /// read. A datagram of an unknown peer contains no frame, and such datagrams may arrive faster
    /// than they are discarded. Returns the frames, including frames that timers have released.
    pub(crate) fn receive(&mut self, most: usize) -> &mut Received {
        let mut datagrams_left = most.clamp(DATAGRAMS_AT_ONCE_MIN, DATAGRAMS_AT_ONCE_MAX);
        while self.stage.received.frames.len() < most && datagrams_left > 0 {
            match self.endpoint.receive(Instant::ZERO, &mut self.stage) {
                Ok(0) => break,
                Ok(datagrams) => {
                    self.has_more = true;
                    datagrams_left = datagrams_left.saturating_sub(datagrams);
                }
                Err(error) => {
                    self.note(Err(error));
                    break;
                }
            }
        }
        &mut self.stage.received
    }

    /// Records whether the sockets work. Logs the first of successive failures.
    fn note(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.is_broken = false,
            Err(error) if !self.is_broken => {
                self.is_broken = true;
                tracing::error!("packets to and from other hosts: {error}; trying again");
            }
            Err(_) => {}
        }
    }

    /// Closes the sessions, so that the other hosts need not wait for a timeout.
    pub(crate) fn close(&mut self) {
        let closed = self.endpoint.close(&mut self.stage);
        self.note(closed);
    }

    /// Returns the other hosts in the order of their names, with their addresses.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&Arc<str>, SocketAddr)> {
        self.stage.hosts.iter().map(|of| (&of.name, of.at))
    }

    /// Returns the counters of a host's traffic, by the host's index in [`Transport::hosts`].
    pub(crate) fn contact(&self, place: usize) -> Option<&Contact> {
        self.stage.hosts.get(place).map(|of| &of.contact)
    }

    /// Whether a frame that the card sent to a host at this time has to wait, because there was no
    /// session with the host.
    pub(crate) fn lacked_session(&self, host: &str, at: Instant) -> bool {
        let found = self.stage.hosts.binary_search_by(|of| (*of.name).cmp(host));
        found.is_ok_and(|found| !self.stage.hosts[found].contact.had_session(at))
    }

    /// Returns the numbers of frames that the stage has dropped, by cause, in the order of
    /// [`srd_card::Counters::drops`].
    pub(crate) fn lost(&self) -> impl Iterator<Item = u64> {
        self.stage.express.counters().drops().map(|(_, frames)| frames)
    }

    /// Returns the utilization of the fullest table or buffer for packets over SRD, in percent.
    pub(crate) fn resource_utilization(&self) -> u64 {
        self.stage.express.resource_utilization()
    }

    /// Returns the counters of each host's traffic, for a process that takes over.
    pub(crate) fn contacts(&self) -> BTreeMap<String, Contact> {
        let hosts = self.stage.hosts.iter();
        hosts.map(|of| (of.name.to_string(), of.contact.clone())).collect()
    }

    /// Takes over the counters of the process that hands over the card. Counting continues from
    /// their values. Counters of hosts that are no longer in the settings are dropped.
    pub(crate) fn adopt_contacts(&mut self, contacts: &BTreeMap<String, Contact>) {
        for host in &mut self.stage.hosts {
            if let Some(contact) = contacts.get(&*host.name) {
                host.contact = contact.clone();
            }
        }
    }

    /// Logs hosts that are silent now, and hosts that are not silent any more. // V18
    pub(crate) fn look(&mut self) {
        let now = self.endpoint.last_look();
        for Host { name, at, contact, .. } in &mut self.stage.hosts {
            contact.look(now, name, *at);
        }
    }
}

/// Collects frames that arrive from hosts.
struct Into<'a> {
    hosts: &'a mut [Host],
    by_slot: &'a [usize],
    received: &'a mut Received,
    now: Instant,
}

impl Arrivals for Into<'_> {
    fn arrived(&mut self, how: Arrived, trailer: Trailer, frame: &[u8]) {
        let Arrived { from, packets, by_srd } = how;
        let place = self.by_slot.get(from.0 as usize);
        let Some(host) = place.and_then(|place| self.hosts.get_mut(*place)) else { return };
        let Ok(envelope) = Envelope::of(trailer) else {
            self.received.unknown += packets;
            return;
        };
        host.contact.received(self.now, frame.len().saturating_sub(OFFLOAD_BYTES), by_srd);
        let Received { frames, hosts, .. } = &mut *self.received;
        frames.push((envelope, frame.to_vec()));
        match hosts.last_mut() {
            Some((last, count, rode)) if Arc::ptr_eq(last, &host.name) && *rode == by_srd => {
                *count += 1;
            }
            _ => hosts.push((Arc::clone(&host.name), 1, by_srd)),
        }
    }
}

/// A guest that drops all its packets. The Express stage passes packets of an overlay (`srd up`) to
/// a guest, but this card has no overlay.
struct Nobody;

impl Guest for Nobody {
    fn deliver(&mut self, _: &[u8]) {}
}

impl Stage {
    fn into(&mut self, now: Instant) -> (&mut Express, Into<'_>) {
        let Self { express, hosts, by_slot, received, .. } = self;
        (express, Into { hosts, by_slot, received, now })
    }

    fn handle_timeout(&mut self, now: Instant) {
        let (express, mut into) = self.into(now);
        express.handle_cloud_timeout(now, &mut into);
    }

    fn host_mut(&mut self, slot: Option<PeerSlot>) -> Option<&mut Host> {
        let place = *self.by_slot.get(slot?.0 as usize)?;
        self.hosts.get_mut(place)
    }
}

impl Application for Stage {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        let now = context.now();
        let shard = context.core().partner_of(delivery.peer);
        let by = Partner { context: delivery.peer, shard };
        let delivery = Delivery { peer: context.core().node_of(delivery.peer), ..delivery };
        let (express, mut into) = self.into(now);
        if !express.delivered_of_cloud(now, by, &delivery, &mut into) {
            express.delivered_by(now, by, &delivery, &mut Nobody);
        }
    }

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        let now = context.now();
        self.express.event(now, &event);
        match event {
            Event::PeerUp { peer } => {
                let slot = self.express.slot(context.core().node_of(peer));
                self.host_mut(slot).into_iter().for_each(|host| host.contact.is_up(now));
            }
            Event::PeerDown { peer, .. } => {
                let slot = self.express.slot(context.core().node_of(peer));
                self.host_mut(slot).into_iter().for_each(|host| host.contact.is_down(now));
            }
            Event::Diagnosis { peer, what } => {
                let slot = self.express.slot(context.core().node_of(peer));
                if let Some(Host { name, at, contact, .. }) = self.host_mut(slot) {
                    contact.saw(now, what, name, *at);
                }
            }
            Event::PathMtu { .. } => self.mtu_changed = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
