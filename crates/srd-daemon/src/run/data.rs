//! The data plane: one thread that moves frames between the interface, the card and the
//! transport.
//!
//! ```text
//!   interface --read--> Express --pump--> LocalEndpoint --transmit--> sockets
//!   interface <-write-- Express <-delivered-- LocalEndpoint <-receive-- sockets
//! ```

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;

use anyhow::{Context as _, Result};
use srd_card::packet::Packet;
use srd_card::{Express, Guest, PeerSlot};
use srd_net::{Application, Context, Notice, Tun};
use srd_proto::{Delivery, Duration, Event, Instant, PeerConfig, PeerId};

use super::moderation::Moderation;
use super::tapped::SharedTaps;
use super::{Endpoint, own_address};
use crate::capture::Direction;
use crate::config::diff::is_same;
use crate::config::{Config, Mode, PeerSettings, ReloadReport, UdpOrdering};
use crate::plane::{Change, Command};
use crate::routing::Routing;
use crate::snapshot::PeerState;

/// Frames read between two looks at what has arrived.
const FRAMES_PER_TURN_MAX: usize = 64;
/// Time between two looks at rates and routes.
const TICK: Duration = Duration::from_secs(1);

/// A peer of the daemon.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) settings: PeerSettings,
    pub(super) id: PeerId,
    pub(super) slot: PeerSlot,
    pub(super) state: PeerState,
    pub(super) met_at: Option<Instant>,
    pub(super) handshakes: u64,
    /// Whether packets are routed to it now.
    routed: bool,
    /// Its traffic at the last tick, and the rates since the one before.
    pub(super) before: srd_card::Traffic,
    pub(super) tx_bps: u64,
    pub(super) rx_bps: u64,
}

impl Peer {
    /// Whether its key begins like this; fewer than eight characters name nobody.
    pub(super) fn has_key_like(&self, wanted: &str) -> bool {
        let key = self.settings.public_key.map(|key| key.to_string());
        wanted.len() >= 8 && key.is_some_and(|key| key.starts_with(wanted))
    }
}

/// What stands between the card and the kernel: counts what the interface refuses.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) tun: Tun,
    pub(super) refused: u64,
    /// Captures that run.
    taps: SharedTaps,
    /// The time of the present call, for captures.
    now: Instant,
    /// The peer whose frames these are, for captures; empty: unknown.
    peer: String,
}

impl Port {
    /// Shows a frame to whoever captures.
    fn show(&mut self, direction: Direction, frame: &[u8]) {
        let mut taps = self.taps.borrow_mut();
        if !taps.is_empty()
            && let Some(packet) = frame.get(srd_card::offload::OFFLOAD_BYTES..)
        {
            taps.inner(self.now, direction, &self.peer, packet);
        }
    }
}

impl Guest for Port {
    fn deliver(&mut self, frame: &[u8]) {
        self.show(Direction::In, frame);
        if self.tun.write(frame).is_err() {
            self.refused += 1;
        }
    }
}

/// The part that events and arrivals change, apart from the endpoint that tells of them.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) express: Express,
    pub(super) port: Port,
    /// Peers that came up or went down since the last look.
    news: Vec<(PeerId, PeerState)>,
    pub(super) peer_downs: u64,
    /// Names of peers, for captures.
    names: BTreeMap<PeerId, String>,
}

impl Application for Card {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        if !self.port.taps.borrow().is_empty() {
            self.port.now = context.now();
            self.port.peer = self.names.get(&delivery.peer).cloned().unwrap_or_default();
        }
        self.express.delivered(context.now(), &delivery, &mut self.port);
    }

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::PeerUp { peer } => self.news.push((peer, PeerState::Up)),
            Event::PeerDown { peer, .. } => {
                self.peer_downs += 1;
                self.news.push((peer, PeerState::Down));
            }
            Event::PathMtu { works_bytes, configured_bytes, .. } => {
                tracing::warn!(
                    works_bytes,
                    configured_bytes,
                    "the network passes less than its MTU"
                );
            }
            _ => {}
        }
        self.express.event(context.now(), &event);
    }

    fn notice(&mut self, notice: Notice) {
        tracing::warn!("{notice}");
    }
}

/// The data plane.
#[derive(Debug)]
pub struct Data {
    pub(super) config: Config,
    pub(super) endpoint: Endpoint,
    pub(super) card: Card,
    pub(super) routing: Routing,
    pub(super) peers: Vec<Peer>,
    pub(super) mtu: u16,
    pub(super) started_at: Instant,
    tick_at: Instant,
    moderation: Moderation,
}

impl Data {
    pub(super) fn new(
        config: Config,
        mut endpoint: Endpoint,
        (tun, taps): (Tun, SharedTaps),
        routing: Routing,
        mtu: u16,
    ) -> Result<Self> {
        let seed = srd_net::clock::seed().context("cannot draw a random seed")?;
        let interface = &config.interface;
        let card_config = srd_card::Config {
            mtu,
            express: interface.express,
            express_udp: interface.express_udp,
            udp_bypass: interface.udp_ordering == UdpOrdering::Bypass,
            order_wait: duration(interface.order_wait),
            queue_target: duration(interface.queue_delay),
            seed: u64::from_ne_bytes(seed[..8].try_into().unwrap_or_default()),
            ..srd_card::Config::default()
        };
        let (core, now) = endpoint.core_mut();
        let express = Express::new(card_config, core);
        let port = Port { tun, refused: 0, taps, now, peer: String::new() };
        let names = BTreeMap::new();
        let card = Card { express, port, news: Vec::new(), peer_downs: 0, names };
        let peers = config.peers.clone();
        let mut data = Self {
            config,
            endpoint,
            card,
            routing,
            peers: Vec::new(),
            mtu,
            started_at: now,
            tick_at: now + TICK,
            moderation: Moderation::new(now),
        };
        for settings in peers {
            data.add_peer(settings)?;
        }
        Ok(data)
    }

    pub(super) fn add_peer(&mut self, settings: PeerSettings) -> Result<()> {
        let (core, now) = self.endpoint.core_mut();
        let transport = PeerConfig {
            address: settings.endpoint,
            public_key: settings.public_key.map(|key| key.0),
            preshared_key: settings.preshared_key.as_ref().map(crate::keys::SecretKey::bytes),
        };
        let id = core
            .add_peer(now, transport)
            .with_context(|| format!("cannot add the peer {}", settings.name))?;
        let slot = self.card.express.add_peer(now, card_settings(&settings, id));
        self.card.names.insert(id, settings.name.clone());
        let mut peer = Peer {
            settings,
            id,
            slot,
            state: PeerState::Connecting,
            met_at: None,
            handshakes: 0,
            routed: false,
            before: srd_card::Traffic::default(),
            tx_bps: 0,
            rx_bps: 0,
        };
        if self.config.interface.mode == Mode::Overlay {
            route(&mut self.routing, Mode::Overlay, &mut peer, true);
        }
        self.peers.push(peer);
        Ok(())
    }

    fn remove_peer(&mut self, index: usize) {
        let mut peer = self.peers.remove(index);
        route(&mut self.routing, self.config.interface.mode, &mut peer, false);
        self.card.express.remove_peer(peer.slot);
        self.card.names.remove(&peer.id);
        let (core, now) = self.endpoint.core_mut();
        core.remove_peer(now, peer.id);
    }

    /// Moves packets until it is told to stop.
    pub(super) fn run(&mut self, commands: &Receiver<Command>) -> Result<()> {
        loop {
            while let Ok(command) = commands.try_recv() {
                match command {
                    Command::Stop => return Ok(()),
                    command => self.obey(command),
                }
            }
            self.turn().context("the data plane")?;
        }
    }

    /// One turn: what the guest sends, what may leave, what has arrived.
    fn turn(&mut self) -> Result<()> {
        let mut again = self.read_guest().context("reading from the interface")?;
        let (core, now) = self.endpoint.core_mut();
        self.card.express.pump(now, core);
        again |= self.endpoint.transmit(&mut self.card).context("sending")?;
        if self.card.express.has_waiting() {
            let (core, now) = self.endpoint.core_mut();
            again |= self.card.express.pump(now, core) > 0;
        }
        let mut until = self.tick_at;
        if let Some(at) = self.card.express.poll_timeout() {
            until = until.min(at);
        }
        let until = if again { Instant::ZERO } else { until };
        if !again {
            self.moderation.before_sleep(&self.endpoint);
        }
        self.endpoint.receive(until, &mut self.card).context("receiving")?;
        let now = self.endpoint.now();
        self.card.express.handle_timeout(now, &mut self.card.port);
        if !self.card.news.is_empty() {
            self.hear_news(now);
        }
        if now >= self.tick_at {
            self.tick(now);
        }
        Ok(())
    }

    /// Takes what the guest has sent. Returns whether there may be more.
    fn read_guest(&mut self) -> std::io::Result<bool> {
        let now = self.endpoint.now();
        for _ in 0..FRAMES_PER_TURN_MAX {
            let Some(frame) = self.card.port.tun.read()? else { return Ok(false) };
            self.show_outgoing(now, &frame);
            self.card.express.from_guest(now, frame, &mut self.card.port);
        }
        Ok(true)
    }

    /// Shows what the guest sends to whoever captures.
    fn show_outgoing(&mut self, now: Instant, frame: &[u8]) {
        if self.card.port.taps.borrow().is_empty() {
            return;
        }
        let packet = frame.get(srd_card::offload::OFFLOAD_BYTES..).and_then(Packet::read);
        let slot = packet.and_then(|p| self.card.express.peer_of(p.destination));
        let peer = slot.and_then(|slot| self.peers.iter().find(|p| p.slot == slot));
        self.card.port.now = now;
        self.card.port.peer = peer.map_or(String::new(), |p| p.settings.name.clone());
        self.card.port.show(Direction::Out, frame);
    }

    /// Peers have come or gone.
    fn hear_news(&mut self, now: Instant) {
        let mode = self.config.interface.mode;
        for (id, state) in std::mem::take(&mut self.card.news) {
            let Some(peer) = self.peers.iter_mut().find(|p| p.id == id) else { continue };
            if state == PeerState::Up {
                peer.met_at = Some(now);
                peer.handshakes += 1;
            }
            if peer.state != state {
                let name = &peer.settings.name;
                match state {
                    PeerState::Up => tracing::info!(peer = name, "the peer answers"),
                    _ => tracing::warn!(peer = name, "the peer does not answer"),
                }
                peer.state = state;
            }
            if mode == Mode::Transparent {
                route(&mut self.routing, mode, peer, state == PeerState::Up);
            }
        }
    }

    /// Once a second: rates, and addresses of peers that roam.
    fn tick(&mut self, now: Instant) {
        self.name_addresses();
        self.card.express.take_rates(TICK + now.since(self.tick_at));
        self.tick_at = now + TICK;
        for peer in &mut self.peers {
            let Some(report) = self.card.express.report(peer.slot) else { continue };
            let (t, b) = (report.traffic, peer.before);
            let tx = t.srd_tx_bytes + t.plain_tx_bytes - b.srd_tx_bytes - b.plain_tx_bytes;
            let rx = t.srd_rx_bytes + t.plain_rx_bytes - b.srd_rx_bytes - b.plain_rx_bytes;
            (peer.tx_bps, peer.rx_bps) = (tx * 8, rx * 8);
            peer.before = t;
        }
    }

    /// Tells captures who is where.
    fn name_addresses(&self) {
        let mut taps = self.card.port.taps.borrow_mut();
        if !taps.is_empty() {
            taps.set_names(self.names_by_address());
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Snapshot { detail, reply } => reply.send(self.snapshot(&detail)),
            Command::Set { change, reply } => reply.send(self.set(&change)),
            Command::Reload { config, reply } => reply.send(self.reload(*config)),
            Command::Capture { tap, reply } => {
                reply.send(self.card.port.taps.borrow_mut().add(tap));
                self.name_addresses();
            }
            Command::Stop => {}
        }
    }

    fn find(&self, wanted: &str) -> Option<usize> {
        let by_name = self.peers.iter().position(|p| p.settings.name == wanted);
        by_name.or_else(|| self.peers.iter().position(|p| p.has_key_like(wanted)))
    }

    fn set(&mut self, change: &Change) -> Result<(), String> {
        let now = self.endpoint.now();
        if let Some(wanted) = &change.peer {
            let index = self.find(wanted).ok_or_else(|| format!("there is no peer `{wanted}`"))?;
            if change.udp_ordering.is_some() {
                return Err("the order of UDP is a setting of the whole interface".into());
            }
            let peer = &mut self.peers[index];
            let settings = &mut peer.settings;
            settings.express = change.express.unwrap_or(settings.express);
            settings.express_udp = change.udp.unwrap_or(settings.express_udp);
            let (express, udp) = (settings.express, settings.express_udp);
            self.card.express.set_express(now, peer.slot, express, udp);
            return Ok(());
        }
        let interface = &mut self.config.interface;
        interface.express = change.express.unwrap_or(interface.express);
        interface.express_udp = change.udp.unwrap_or(interface.express_udp);
        interface.udp_ordering = change.udp_ordering.unwrap_or(interface.udp_ordering);
        self.apply_interface(now);
        Ok(())
    }

    fn apply_interface(&mut self, now: Instant) {
        let interface = &self.config.interface;
        self.card.express.set_enabled(now, interface.express, interface.express_udp);
        let bypass = interface.udp_ordering == UdpOrdering::Bypass;
        self.card.express.set_order(bypass, duration(interface.order_wait));
        self.card.express.set_queue_target(duration(interface.queue_delay));
    }

    /// Takes over a new configuration, as far as that is possible while running.
    fn reload(&mut self, config: Config) -> Result<ReloadReport, String> {
        let difference = Config::diff(&self.config, &config);
        let now = self.endpoint.now();
        for gone in &difference.removed {
            if let Some(index) = self.peers.iter().position(|p| is_same(&p.settings, gone)) {
                self.remove_peer(index);
            }
        }
        for change in &difference.changed {
            self.change_peer(now, &change.old, &change.new)?;
        }
        for settings in &difference.added {
            self.add_peer(settings.clone()).map_err(|e| format!("{e:#}"))?;
        }
        let (fixed, wanted) = (&mut self.config.interface, &config.interface);
        fixed.express = wanted.express;
        fixed.express_udp = wanted.express_udp;
        fixed.udp_ordering = wanted.udp_ordering;
        fixed.order_wait = wanted.order_wait;
        fixed.queue_delay = wanted.queue_delay;
        self.config.peers.clone_from(&config.peers);
        self.apply_interface(now);
        Ok(difference.report())
    }

    fn change_peer(
        &mut self,
        now: Instant,
        old: &PeerSettings,
        new: &PeerSettings,
    ) -> Result<(), String> {
        let Some(index) = self.peers.iter().position(|p| is_same(&p.settings, old)) else {
            return self.add_peer(new.clone()).map_err(|e| format!("{e:#}"));
        };
        if old.preshared_key != new.preshared_key || old.endpoint != new.endpoint {
            // Another way to it is another context.
            self.remove_peer(index);
            return self.add_peer(new.clone()).map_err(|e| format!("{e:#}"));
        }
        let mode = self.config.interface.mode;
        let peer = &mut self.peers[index];
        if old.allowed != new.allowed {
            let routed = peer.routed;
            route(&mut self.routing, mode, peer, false);
            peer.settings = new.clone();
            route(&mut self.routing, mode, peer, routed);
            self.card.express.set_allowed(peer.slot, prefixes(&new.allowed));
        }
        peer.settings = new.clone();
        self.card.express.set_express(now, peer.slot, new.express, new.express_udp);
        Ok(())
    }
}

/// Routes packets to a peer through the interface, or past it.
fn route(routing: &mut Routing, mode: Mode, peer: &mut Peer, on: bool) {
    if peer.routed == on {
        return;
    }
    peer.routed = on;
    let source = own_address(mode, peer.settings.endpoint);
    for prefix in &peer.settings.allowed {
        let source = source.filter(|s| s.is_ipv4() == prefix.addr().is_ipv4());
        let done = if on { routing.add(*prefix, source) } else { routing.remove(*prefix) };
        if let Err(error) = done {
            tracing::warn!("{error:#}");
        }
    }
}

fn card_settings(settings: &PeerSettings, id: PeerId) -> srd_card::PeerSettings {
    srd_card::PeerSettings {
        id,
        allowed: prefixes(&settings.allowed),
        express: settings.express,
        express_udp: settings.express_udp,
    }
}

fn prefixes(allowed: &[ipnet::IpNet]) -> Vec<srd_card::Prefix> {
    let prefix = |net: &ipnet::IpNet| srd_card::Prefix::new(net.network(), net.prefix_len());
    allowed.iter().filter_map(prefix).collect()
}

fn duration(from: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(from.as_nanos()).unwrap_or(u64::MAX))
}
