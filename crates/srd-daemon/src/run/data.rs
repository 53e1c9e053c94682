//! The data plane: one thread that moves frames between the interface, the card and the
//! transport.
//!
//! ```text
//!   interface --read--> Express --pump--> LocalEndpoint --transmit--> sockets
//!   interface <-write-- Express <-delivered-- LocalEndpoint <-receive-- sockets
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::{Context as _, Result, bail};
use ipnet::IpNet;
use rustix::io::Errno;
use srd_card::packet::Packet;
use srd_card::{Express, Guest, PeerSlot};
use srd_net::{Application, Context, Notice, Tun};
use srd_proto::{Delivery, Diagnosis, DownReason, Duration, Event, Instant, PeerConfig, PeerId};

use super::Endpoint;
use super::evidence::{Evidence, Problem};
use super::moderation::Moderation;
use super::peer_log::{PeerLog, Shown};
use super::resolve::{Lookup, Resolver};
use super::tapped::SharedTaps;
use crate::capture::Direction;
use crate::config::{Config, Mode, PeerSettings, Protection, UdpOrdering};
use crate::netconf::Network;
use crate::plane::Command;
use crate::routing::{Behind, Routing};
use crate::snapshot::PeerState;
use crate::units::rate_bps;

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
    /// What is known of why it does not answer, if it does not.
    pub(super) evidence: Evidence,
    pub(super) handshakes: u64,
    /// How far its name has led, if it has one.
    pub(super) lookup: Option<Lookup>,
    /// What is routed to it while packets are, as of the last look.
    behind: Arc<Behind>,
    /// How many of its paths pass packets, for so many ticks, and what was said of that.
    pub(super) passing: u16,
    pub(super) passing_for: u8,
    pub(super) passing_said: Option<u16>,
    /// Its traffic at the last tick, and the rates since the one before.
    pub(super) before: srd_card::Traffic,
    pub(super) tx_bps: u64,
    pub(super) rx_bps: u64,
}

impl Peer {
    /// What lies behind it by its settings of now.
    fn refreshed(&mut self) -> Arc<Behind> {
        let PeerSettings { allowed, endpoint, .. } = &self.settings;
        if self.behind.prefixes != *allowed || self.behind.endpoint != *endpoint {
            self.behind = Arc::new(Behind { prefixes: allowed.clone(), endpoint: *endpoint });
        }
        Arc::clone(&self.behind)
    }

    /// Says how many of its paths pass packets, once that is another number for a while.
    fn tell_passing(&mut self, passing: Option<(u16, u16)>) {
        let Some((passing, all)) = passing.filter(|(passing, all)| *passing > 0 && *all > 0) else {
            return;
        };
        self.passing_for =
            if self.passing == passing { self.passing_for.saturating_add(1) } else { 0 };
        self.passing = passing;
        let before = self.passing_said.unwrap_or(all);
        if self.passing_for != PASSING_TICKS || before == passing {
            return;
        }
        self.passing_said = Some(passing);
        let name = &self.settings.name;
        if passing == all {
            tracing::info!("all {all} paths to {name} pass packets again");
        } else {
            tracing::warn!(
                "{passing} of {all} paths to {name} pass packets: a firewall on the way lets only \
                 some source ports through, or a link is down (`srd paths {name}` lists them)"
            );
        }
    }

    /// Whether its key begins like this; fewer than eight characters name nobody.
    pub(super) fn has_key_like(&self, wanted: &str) -> bool {
        let key = self.settings.public_key.map(|key| key.to_string());
        wanted.len() >= 8 && key.is_some_and(|key| key.starts_with(wanted))
    }
}

/// Looks at a peer's paths that must agree before a line says how many pass packets.
const PASSING_TICKS: u8 = 3;

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

/// What an event says of why a peer does not answer.
#[derive(Clone, Copy, Debug)]
enum Clue {
    Seen(Diagnosis),
    Closed,
}

/// The part that events and arrivals change, apart from the endpoint that tells of them.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) express: Express,
    pub(super) port: Port,
    /// Peers that came up or went down since the last look.
    news: Vec<(PeerId, PeerState)>,
    /// What was seen of peers that do not answer, since the last look.
    clues: Vec<(PeerId, Clue)>,
    pub(super) peer_downs: u64,
    /// Names of peers, for captures.
    pub(super) names: BTreeMap<PeerId, String>,
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
            Event::PeerDown { peer, reason } => {
                self.peer_downs += 1;
                self.news.push((peer, PeerState::Down));
                if reason == DownReason::Closed {
                    self.clues.push((peer, Clue::Closed));
                }
            }
            Event::Diagnosis { peer, what } => self.clues.push((peer, Clue::Seen(what))),
            Event::PathMtu { peer, works_bytes, configured_bytes } => {
                self.tell_path_mtu(peer, works_bytes, configured_bytes);
            }
            _ => {}
        }
        self.express.event(context.now(), &event);
    }

    fn notice(&mut self, notice: Notice) {
        tracing::warn!("{notice}");
    }
}

impl Card {
    /// Says what size of packet the network passes to a peer now.
    fn tell_path_mtu(&self, peer: PeerId, works_bytes: u16, configured_bytes: u16) {
        let name = self.names.get(&peer).map_or("a peer", String::as_str);
        if works_bytes < configured_bytes {
            tracing::warn!(
                "on the way to {name} UDP packets of {works_bytes} bytes pass and of \
                 {configured_bytes} bytes do not: the smaller size is used; an MTU that is \
                 the same all the way carries more"
            );
        } else {
            tracing::info!("on the way to {name} UDP packets of {works_bytes} bytes pass again");
        }
    }
}

/// The data plane.
#[derive(Debug)]
pub struct Data {
    pub(super) config: Config,
    pub(super) endpoint: Endpoint,
    pub(super) card: Card,
    /// Dropped after the two above, which hold the interface: routes go when it is gone.
    routing: Routing,
    pub(super) peers: Vec<Peer>,
    pub(super) mtu: u16,
    pub(super) started_at: Instant,
    tick_at: Instant,
    moderation: Moderation,
    pub(super) log: PeerLog,
    pub(super) resolver: Resolver,
}

impl Data {
    /// Over a network process that has set the interface up. (It comes first so that it is
    /// dropped last, after the interface.)
    pub(super) fn new(
        config: Config,
        network: Network,
        mut endpoint: Endpoint,
        (tun, taps): (Tun, SharedTaps),
        (resolver, mtu): (Resolver, u16),
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
        let card =
            Card { express, port, news: Vec::new(), clues: Vec::new(), peer_downs: 0, names };
        let peers = config.peers.clone();
        let routing = Routing::start(network, config.interface.mode)?;
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
            log: PeerLog::default(),
            resolver,
        };
        for settings in peers {
            data.add_peer(settings)?;
        }
        data.look_up(now);
        data.want_routes();
        data.routing.wait_for_first()?;
        Ok(data)
    }

    /// Adds a peer as the last one.
    pub(super) fn add_peer(&mut self, settings: PeerSettings) -> Result<()> {
        let (id, slot) = self.hook(&settings)?;
        self.peers.push(Peer {
            lookup: settings.host.clone().map(Lookup::new),
            behind: Arc::default(),
            settings,
            id,
            slot,
            state: PeerState::Connecting,
            met_at: None,
            evidence: Evidence::default(),
            handshakes: 0,
            before: srd_card::Traffic::default(),
            tx_bps: 0,
            rx_bps: 0,
            passing: 0,
            passing_for: 0,
            passing_said: None,
        });
        Ok(())
    }

    /// Asks for the routes that go with the peers as they are. Never waits.
    pub(super) fn want_routes(&mut self) {
        let is_overlay = self.config.interface.mode == Mode::Overlay;
        let routed = self.peers.iter_mut().filter(|p| is_overlay || p.state == PeerState::Up);
        let state = routed.map(|peer| peer.refreshed());
        self.routing.want(state.collect());
    }

    /// Makes a peer known to the transport and to the card.
    pub(super) fn hook(&mut self, settings: &PeerSettings) -> Result<(PeerId, PeerSlot)> {
        let (core, now) = self.endpoint.core_mut();
        let transport = PeerConfig {
            address: settings.endpoint,
            further: std::array::from_fn(|at| settings.endpoints_further.get(at).copied()),
            public_key: settings.public_key.map(|key| key.0),
            preshared_key: settings.preshared_key.as_ref().map(crate::keys::SecretKey::bytes),
        };
        let id = core
            .add_peer(now, transport)
            .with_context(|| format!("cannot add the peer {}", settings.name))?;
        let slot = self.card.express.add_peer(now, card_settings(settings, id));
        self.card.names.insert(id, settings.name.clone());
        Ok((id, slot))
    }

    /// Undoes [`Self::hook`].
    pub(super) fn unhook(&mut self, (id, slot): (PeerId, PeerSlot)) {
        self.card.express.remove_peer(slot);
        self.card.names.remove(&id);
        let (core, now) = self.endpoint.core_mut();
        core.remove_peer(now, id);
    }

    pub(super) fn remove_peer(&mut self, index: usize) {
        let peer = self.peers.remove(index);
        self.unhook((peer.id, peer.slot));
        self.log.forget(&peer.settings.name);
    }

    /// Moves packets until it is told to stop.
    pub(super) fn run(&mut self, commands: &Receiver<Command>) -> Result<()> {
        loop {
            while let Ok(command) = commands.try_recv() {
                match command {
                    Command::Stop => {
                        return self.endpoint.close(&mut self.card).context("saying goodbye");
                    }
                    command => self.obey(command),
                }
            }
            if let Err(error) = self.turn() {
                // The peers need not find out by themselves.
                let _ = self.endpoint.close(&mut self.card);
                return Err(error.context("the data plane"));
            }
        }
    }

    /// One turn: what the guest sends, what may leave, what has arrived.
    fn turn(&mut self) -> Result<()> {
        let mut again = match self.read_guest() {
            Err(e) if e.raw_os_error() == Some(Errno::BADFD.raw_os_error()) => {
                let name = &self.config.interface.name;
                bail!("the interface {name} was deleted by another program: start the daemon again")
            }
            read => read.context("reading from the interface")?,
        };
        let (core, now) = self.endpoint.core_mut();
        self.card.express.pump(now, core);
        again |= self.endpoint.transmit(&mut self.card).context("sending")?;
        if self.card.express.has_waiting() {
            let (core, now) = self.endpoint.core_mut();
            again |= self.card.express.pump(now, core) > 0;
        }
        // Who has come or gone must not wait for whatever ends the sleep below.
        if !self.card.news.is_empty() {
            self.hear_news(now);
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
        if !self.card.clues.is_empty() {
            self.take_clues();
        }
        self.take_names(now);
        if now >= self.tick_at {
            // Without it routes to peers that fall silent would stay.
            if self.routing.has_ended() {
                bail!("`srd network`, which keeps routes, was killed: start the daemon again");
            }
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
        for (id, state) in std::mem::take(&mut self.card.news) {
            let Some(peer) = self.peers.iter_mut().find(|p| p.id == id) else { continue };
            if state == PeerState::Up {
                peer.met_at = Some(now);
                peer.evidence = Evidence::default();
                peer.handshakes += 1;
            }
            if peer.state != state {
                tracing::debug!("{}: {state}", peer.settings.name);
                self.log.changed(now, &peer.settings.name, state);
                peer.state = state;
            }
        }
        if self.config.interface.mode == Mode::Transparent {
            self.want_routes();
        }
    }

    /// Something was seen of peers that do not answer.
    fn take_clues(&mut self) {
        for (id, clue) in std::mem::take(&mut self.card.clues) {
            let Some(peer) = self.peers.iter_mut().find(|p| p.id == id) else { continue };
            let before = peer.evidence;
            match clue {
                Clue::Seen(what) => peer.evidence.saw(what),
                Clue::Closed => peer.evidence.closed(),
            }
            if peer.evidence != before {
                self.log.stir();
            }
        }
    }

    /// Why a peer does not answer, as far as that is known.
    pub(super) fn problem(&self, peer: &Peer) -> Option<Problem> {
        if peer.state == PeerState::Up {
            return None;
        }
        let core = self.endpoint.core();
        let refusal = core.address_of(peer.id).and_then(|to| self.endpoint.refusal(to));
        peer.evidence.problem(refusal, core.last_unreachable(peer.id))
    }

    /// Once a second: rates, and addresses of peers that roam.
    fn tick(&mut self, now: Instant) {
        self.name_addresses();
        self.log_peers(now);
        self.look_up(now);
        // The thread may come late.
        let elapsed = TICK + now.since(self.tick_at);
        self.card.express.take_rates(elapsed);
        self.tick_at = now + TICK;
        let core = self.endpoint.core();
        for peer in &mut self.peers {
            let stats = core.peer_stats(peer.id).filter(|_| peer.state == PeerState::Up);
            peer.tell_passing(stats.map(|s| (s.paths_passing, s.paths.iter().sum())));
            let Some(report) = self.card.express.report(peer.slot) else { continue };
            let (t, b) = (report.traffic, peer.before);
            let tx = t.srd_tx_bytes + t.plain_tx_bytes - b.srd_tx_bytes - b.plain_tx_bytes;
            let rx = t.srd_rx_bytes + t.plain_rx_bytes - b.srd_rx_bytes - b.plain_rx_bytes;
            let rate = |bytes| rate_bps(bytes, elapsed.as_nanos());
            (peer.tx_bps, peer.rx_bps) = (rate(tx), rate(rx));
            peer.before = t;
        }
    }

    /// Says which peers came and went.
    fn log_peers(&mut self, now: Instant) {
        let mut log = std::mem::take(&mut self.log);
        let show = |name: &str| {
            let peer = self.peers.iter().find(|p| p.settings.name == name);
            let address = peer.and_then(|peer| self.endpoint.core().address_of(peer.id));
            Shown {
                name: match address.filter(|a| a.port() != 0) {
                    Some(address) => format!("{name} ({address})"),
                    _ => format!("{name} (no address known yet)"),
                },
                problem: peer.and_then(|peer| self.problem(peer)),
            }
        };
        let lines = log.lines(now, show);
        self.log = log;
        for line in lines {
            if line.is_warning {
                tracing::warn!("{}", line.text);
            } else {
                tracing::info!("{}", line.text);
            }
        }
    }

    /// What runs, in one line.
    pub(super) fn introduction(&self) -> String {
        let interface = &self.config.interface;
        let address = match interface.mode {
            Mode::Transparent => "transparent".to_owned(),
            Mode::Overlay => {
                let list: Vec<String> = interface.address.iter().map(IpNet::to_string).collect();
                list.join(", ")
            }
        };
        let protection = match interface.protection {
            Protection::Encrypted(_) => "encrypted",
            Protection::Plain => "NOT ENCRYPTED",
        };
        let (listen, peers) = (interface.listens_in_words(), self.peers.len());
        let some = if peers == 1 { "1 peer".to_owned() } else { format!("{peers} peers") };
        format!(
            "{} is up: {address}, {protection}, MTU {}, listening on {listen}, {some}",
            interface.name, self.mtu
        )
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
            Command::Running { reply } => reply.send(Box::new(self.running())),
            Command::Reload { config, reply } => reply.send(self.reload(&config)),
            Command::Capture { tap, reply } => {
                reply.send(self.card.port.taps.borrow_mut().add(tap));
                self.name_addresses();
            }
            Command::Stop => {}
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

pub(super) fn prefixes(allowed: &[IpNet]) -> Vec<srd_card::Prefix> {
    let prefix = |net: &IpNet| srd_card::Prefix::new(net.network(), net.prefix_len());
    allowed.iter().filter_map(prefix).collect()
}

pub(super) fn duration(from: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(from.as_nanos()).unwrap_or(u64::MAX))
}
