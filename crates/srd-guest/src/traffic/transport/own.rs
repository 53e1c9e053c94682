//! An endpoint of the card's own, for a card that belongs to no node.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use srd_card::{Config as StageConfig, Express, Guest, Partner, PeerSettings};
use srd_daemon::config::PeerSettings as HostSettings;
use srd_daemon::run::{Hosts as _, context_of, duration, transport};
use srd_net::{Application, Context, Link, LocalEndpoint, UdpIo, clock};
use srd_proto::time::Instant;
use srd_proto::{Delivery, Epoch, Event};

use super::TransportOptions;
use crate::traffic::hosts::HostTable;

/// The minimum MTU of IPv6 networks (RFC 8200), as UDP payload bytes.
const PACKET_BYTES_MIN: u16 = 1232;
/// Directory of the stored epoch, if systemd names no other.
const STATE_DIRECTORY: &str = "/var/lib/srd-card";

/// The stage and the hosts of a card that has an endpoint of its own.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) express: Express,
    pub(super) table: HostTable,
}

/// An endpoint of the card's own, with its sockets, and the stage before it.
#[derive(Debug)]
pub(super) struct OwnEndpoint {
    pub(super) endpoint: LocalEndpoint<UdpIo>,
    pub(super) stage: Stage,
    pub(super) arrivals: Arc<OwnedFd>,
    /// Whether the endpoint has more packets to send than the last call could send.
    pub(super) has_more: bool,
    /// Whether sending or receiving has failed, and the failure was logged.
    is_broken: bool,
}

/// Checked settings, before the sockets are opened.
#[derive(Debug)]
pub(crate) struct Plan {
    options: TransportOptions,
    /// Number of UDP payload bytes that fit into one packet to every host.
    packet_bytes: u16,
    /// The epoch of this run, if it was stored already.
    epoch: Option<Epoch>,
}

impl Plan {
    /// Stores the epoch of this run in a file, so that the next run can choose a larger one. Call
    /// this before privileges are dropped.
    pub(crate) fn keep_epoch(mut self) -> Self {
        self.epoch = Some(epoch_of(&self.options.host));
        self
    }

    /// Checks the settings, and the routes to the hosts.
    pub(crate) fn new(options: &TransportOptions) -> Result<Self> {
        let addresses = options.hosts.values().flat_map(HostSettings::endpoints);
        let ways = addresses.filter_map(|address| Link::towards(address).ok());
        let least = ways.map(|link| link.packet_bytes_max.max(PACKET_BYTES_MIN)).min();
        let own = options.interface.listen.ip();
        let bytes = match least {
            Some(bytes) => bytes,
            None => srd_net::link::local_packet_bytes(own)
                .with_context(|| format!("the MTU of {own}"))?,
        };
        Ok(Self { options: options.clone(), packet_bytes: bytes, epoch: None })
    }
}

/// Returns the epoch of this run: larger than that of the previous run, even if the clock was set
/// back.
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

impl OwnEndpoint {
    /// Opens the sockets.
    pub(super) fn open(plan: Plan) -> Result<Self> {
        let listen = plan.options.interface.listen;
        let io = UdpIo::open(&transport::sockets(&plan.options.interface))
            .with_context(|| format!("the card cannot receive at {listen} ([interface] listen)"))?;
        Self::over(plan, io)
    }

    /// Continues with the sockets of another process.
    pub(super) fn adopt(plan: Plan, sockets: Vec<OwnedFd>) -> Result<Self> {
        let io = UdpIo::adopt(&transport::sockets(&plan.options.interface), sockets)
            .context("sockets to other hosts")?;
        let at = srd_net::PacketIo::local_address(&io);
        let listen = plan.options.interface.listen;
        if at != listen {
            bail!("the card that runs receives at {at}, and this one at {listen}: end that first");
        }
        Self::over(plan, io)
    }

    /// Starts an endpoint over opened sockets.
    fn over(plan: Plan, io: UdpIo) -> Result<Self> {
        let core = transport::core(&plan.options.interface, plan.packet_bytes);
        let epoch = plan.epoch.unwrap_or_else(|| epoch_of(&plan.options.host));
        let mut endpoint = LocalEndpoint::over_with(io, core, epoch).map_err(io::Error::from)?;
        endpoint.reseed_at_clock_steps(true);
        let interface = &plan.options.interface;
        let config = StageConfig {
            cloud: true,
            secret: clock::secret()?,
            order_wait: duration(interface.order_wait),
            queue_target: duration(interface.queue_delay),
            ..StageConfig::default()
        };
        let (core, now) = endpoint.core_mut();
        let mut express = Express::new(config, core);
        let mut table = HostTable::default();
        for (name, host) in &plan.options.hosts {
            let id = core
                .add_peer(now, host.transport())
                .map_err(|error| anyhow::anyhow!("host {name}: {error}"))?;
            let settings =
                PeerSettings { id, allowed: Vec::new(), express: true, express_udp: true };
            table.add(express.add_peer(now, settings), &name.as_str().into(), host.endpoint);
        }
        let arrivals = Arc::new(endpoint.arrivals().context("sockets to other hosts")?);
        let stage = Stage { express, table };
        let (has_more, is_broken) = (true, false);
        Ok(Self { endpoint, stage, arrivals, has_more, is_broken })
    }

    pub(super) fn due(&self) -> Instant {
        if self.has_more {
            return Instant::ZERO;
        }
        let stage = self.stage.express.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.endpoint.due().min(stage)
    }

    pub(super) fn flush(&mut self) {
        let sent = self.transmit();
        self.note(sent);
    }

    fn transmit(&mut self) -> io::Result<()> {
        let Self { endpoint, stage, .. } = self;
        let (core, now) = endpoint.core_mut();
        stage.table.at(now);
        stage.express.handle_cloud_timeout(now, &mut stage.table);
        stage.express.pump(now, core);
        let mut more = endpoint.transmit(stage)?;
        if stage.express.has_waiting() {
            let (core, now) = endpoint.core_mut();
            more |= stage.express.pump(now, core) > 0;
        }
        self.has_more = more;
        Ok(())
    }

    pub(super) fn receive(&mut self) -> usize {
        match self.endpoint.receive(Instant::ZERO, &mut self.stage) {
            Ok(datagrams) => {
                self.has_more |= datagrams > 0;
                datagrams
            }
            Err(error) => {
                self.note(Err(error));
                0
            }
        }
    }

    /// Records whether the sockets work. Logs the first of successive failures.
    pub(super) fn note(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.is_broken = false,
            Err(error) if !self.is_broken => {
                self.is_broken = true;
                tracing::error!("packets to and from other hosts: {error}; trying again");
            }
            Err(_) => {}
        }
    }
}

/// A guest that ignores its packets, for packets of an ENA Express overlay, which a card with an
/// endpoint of its own does not have.
struct Nobody;

impl Guest for Nobody {
    fn deliver(&mut self, _: &[u8]) {}
}

impl Application for Stage {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        let now = context.now();
        let shard = context.core().partner_of(delivery.peer);
        let by = Partner { context: delivery.peer, shard };
        let delivery = Delivery { peer: context.core().node_of(delivery.peer), ..delivery };
        let Self { express, table } = self;
        table.at(now);
        if !express.delivered_of_cloud(now, by, &delivery, table) {
            express.delivered_by(now, by, &delivery, &mut Nobody);
        }
    }

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        let now = context.now();
        self.express.event(now, &event);
        if let Some(peer) = context_of(&event)
            && let Some(slot) = self.express.slot(context.core().node_of(peer))
        {
            self.table.event(now, slot, &event);
        }
    }
}
