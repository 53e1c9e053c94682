//! The control thread: does everything in `srd up` except the processing of packets.
//!
//! The control thread is the main thread of the process. It holds the running configuration and
//! sends orders to the workers and processes their reports: peers that come up and go down, routes,
//! names and the log. It writes the directory, which contains the names and settings of peers for
//! readers of statistics ([`crate::pages`]). Its work may take time, because no packet waits for
//! it.
//!
//! ```text
//!   commands (control socket, signals) --+                    +--> workers (orders)
//!   reports of workers ------------------+--> Control::run ---+--> routing, log, resolver
//!   names resolved, the clock -----------+                    +--> directory for readers
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `peers` | the peers, and their last known states |
//! | `reload` | settings that change, as a transaction over all workers |
//! | `leave` | hands the daemon over to another process |
//! | `names` | resolves names of peers to addresses |
//! | `tick` | work once a second: rates, log |

mod leave;
mod names;
mod peers;
mod reload;
#[cfg(test)]
mod tests;
mod tick;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::{Result, bail};
use srd_proto::{Duration, Instant};

use self::leave::Handed;
use self::peers::Peer;
use super::crew::Crew;
use super::orders::Report;
use super::peer_log::PeerLog;
use super::resolve::Resolver;
use super::waker::Waker;
use crate::capture::{Captures, Filter, TapReader};
use crate::config::{Config, Interface, Mode};
use crate::handover::state::Belongings;
use crate::netconf::Network;
use crate::pages::{Directory, Pages};
use crate::plane::{Command, PeerNumber};
use crate::routing::Routing;

/// Interval at which rates and the log are updated.
const TICK: Duration = Duration::from_secs(1);
/// Time for the peers to answer after a take-over: longer than the time-out of a peer.
const ANSWERS_WAIT: Duration = Duration::from_millis(1500);

/// State of the control thread.
///
/// Invariant: every worker uses the settings in `peers` and in `config.interface`. A change of the
/// configuration is computed as a difference from these settings.
#[derive(Debug)]
pub(crate) struct Control {
    config: Config,
    peers: Vec<Peer>,
    next_number: u32,
    /// Dropped before `crew`, which holds the workers' queues: the network process deletes the
    /// interface with all its queues at once, which is faster than closing the queues one by one.
    routing: Option<Routing>,
    crew: Crew,
    pages: Arc<Pages>,
    waker: Waker,
    resolver: Resolver,
    log: PeerLog,
    captures: Captures,
    mtu: u16,
    ticked_at: Instant,
    /// Whether peers or settings have changed since the directory for readers was last replaced.
    is_relisted: bool,
    /// Whether the required routes have changed since they were last requested.
    is_rerouted: bool,
    /// Time before which no routes are requested.
    routes_from: Instant,
    /// Descriptors for a process that takes over.
    belongings: Belongings,
    handed: Option<Handed>,
}

/// Reason for the end of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The daemon was stopped.
    Stopped,
    /// The process with this number continues. This process has to end at once: it may drop
    /// nothing, because that would close contexts and remove what now belongs to the other process.
    HandedOver(u32),
}

/// Everything that the control thread needs when it is created.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) crew: Crew,
    pub(crate) pages: Arc<Pages>,
    pub(crate) waker: Waker,
    pub(crate) resolver: Resolver,
    pub(crate) mtu: u16,
    pub(crate) belongings: Belongings,
    /// Addresses at which peers answer, by their identities, if this process takes over from
    /// another one.
    pub(crate) known: BTreeMap<String, SocketAddr>,
}

impl Control {
    /// Creates the state, for workers that have no peers yet, and adds the peers. Maintains routes
    /// only if there is a network process, which must have set the interface up.
    ///
    /// # Errors
    /// If a peer cannot be added, or the first routes cannot be applied.
    pub(crate) fn new(parts: Parts, network: Option<Network>) -> Result<Self> {
        let Parts { mut config, crew, pages, waker, resolver, mtu, belongings, known } = parts;
        let peers = std::mem::take(&mut config.peers);
        let mode = config.interface.mode;
        let routing = network.map(|network| Routing::start(network, mode)).transpose()?;
        let now = now();
        let mut control = Self {
            config,
            peers: Vec::new(),
            next_number: 0,
            crew,
            routing,
            pages,
            waker,
            resolver,
            log: PeerLog::default(),
            captures: Captures::default(),
            mtu,
            ticked_at: now,
            is_relisted: true,
            is_rerouted: true,
            routes_from: Instant::ZERO,
            belongings,
            handed: None,
        };
        control.add_first(peers, &known)?;
        control.look_up(now);
        control.settle();
        if let Some(routing) = &control.routing {
            routing.wait_for_first()?;
        }
        Ok(control)
    }

    /// Works until [`Command::Stop`], or until an error makes further work impossible.
    ///
    /// # Errors
    /// The error that makes the interface or the sockets unusable.
    pub(crate) fn run(&mut self, commands: &Receiver<Command>) -> Result<Ended> {
        self.waker.attach();
        let done = self.work(commands);
        if let Some(handed) = &self.handed {
            return Ok(Ended::HandedOver(handed.process()));
        }
        self.pages.end();
        let ended = self.crew.end().map(|end| end.into_error(&self.config.interface.name));
        match ended {
            Some(error) => Err(error),
            None => done.map(|()| Ended::Stopped),
        }
    }

    /// Maintains routes by a network process that was taken over from another process. In
    /// transparent mode, the routes stay as they are until the peers have had time to answer.
    pub(crate) fn keep_routes(&mut self, routing: Routing) {
        self.routing = Some(routing);
        self.is_rerouted = true;
        if self.config.interface.mode == Mode::Transparent {
            self.routes_from = now() + ANSWERS_WAIT;
        }
        self.settle();
    }

    /// Lets all workers move packets, which wait for this after a take-over.
    pub(crate) fn begin(&self) {
        self.crew.begin();
    }

    /// After a hand-over, returns a further descriptor of the connection to the other process.
    pub(crate) fn connection(&self) -> Option<io::Result<UnixStream>> {
        self.handed.as_ref().map(Handed::connection)
    }

    /// After a hand-over, ends the card of the instances. The other process moves packets already.
    pub(crate) fn leave(&mut self) {
        self.handed.iter_mut().for_each(Handed::leave);
    }

    /// Applies a configuration that was stored while this process took over. The log has no line if
    /// nothing has changed.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    pub(crate) fn refresh(&mut self, config: &Config) -> Result<()> {
        let report = self.reload(config).map_err(anyhow::Error::msg)?;
        if !report.is_empty() {
            tracing::info!("{report}");
        }
        self.settle();
        Ok(())
    }

    /// Replaces the peers `old` of the controller by `new`, as far as they differ.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    pub(crate) fn follow(
        &mut self,
        old: &[srd_enrol::Peer],
        new: &[srd_enrol::Peer],
    ) -> Result<()> {
        self.refresh(&self.running().with_roster(old, new))
    }

    fn work(&mut self, commands: &Receiver<Command>) -> Result<()> {
        loop {
            while let Ok(command) = commands.try_recv() {
                if matches!(command, Command::Stop) {
                    return Ok(());
                }
                self.execute(command);
                if self.handed.is_some() {
                    return Ok(());
                }
            }
            let now = now();
            self.take_reports(now);
            self.take_names(now);
            if now >= self.ticked_at + TICK {
                // Without the network process, routes would remain to peers that no longer answer.
                if self.routing.as_ref().is_some_and(Routing::has_ended) {
                    bail!("`srd network`, which keeps routes, was killed: start the daemon again");
                }
                self.tick(now);
            }
            self.settle();
            if self.crew.has_ended() {
                // The reason is returned later, when the worker's thread is joined.
                return Ok(());
            }
            let pause = (self.ticked_at + TICK).since(now);
            self.waker.pause(std::time::Duration::from_nanos(pause.as_nanos()));
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Set { change, reply } => reply.send(self.set(&change)),
            Command::Running { reply } => reply.send(Box::new(self.running())),
            Command::Reload { config, reply } => {
                let done = self.reload(&config);
                // A request after this answer must see the new peers.
                self.settle();
                reply.send(done);
            }
            Command::Rekey { key, reply } => reply.send(self.rekey(key)),
            Command::Capture { filter, reply } => reply.send(self.capture(&filter)),
            Command::Describe { reply } => reply.send(self.describe()),
            Command::HandOver { line, decision, process, reply } => {
                reply.send(self.hand_over(line, (decision, process)));
            }
            Command::Stop => {}
        }
    }

    /// Begins a capture in every worker. Returns the reader of its packets.
    fn capture(&mut self, filter: &Filter) -> Result<TapReader, String> {
        let peer = match &filter.peer {
            Some(wanted) => Some(self.peers[self.find(wanted)?].number),
            None => None,
        };
        let (taps, reader) = self.captures.begin(filter, peer, self.crew.len())?;
        self.crew.capture(taps);
        Ok(reader)
    }

    /// Processes all reports of the workers that have arrived.
    fn take_reports(&mut self, now: Instant) {
        let (mut seen, mut sizes) = (Vec::<PeerNumber>::new(), Vec::new());
        let mut notices = Vec::new();
        let look_again = self.crew.reports(|report| match report {
            Report::Peer(number) => seen.push(number),
            Report::PathMtu { peer, configured_bytes } => sizes.push((peer, configured_bytes)),
            // If several workers send the same notice, it is logged once.
            Report::Notice(notice) if notices.contains(&notice) => {}
            Report::Notice(notice) => notices.push(notice),
        });
        if look_again {
            tracing::debug!("more happened than the workers' queues hold: looking at every peer");
            seen = self.peers.iter().map(|peer| peer.number).collect();
        }
        seen.sort_unstable();
        seen.dedup();
        for number in seen {
            self.look_at(now, number);
        }
        for (peer, configured_bytes) in sizes {
            self.note_path_mtu(peer, configured_bytes);
        }
        for notice in notices {
            tracing::warn!("{notice}");
        }
    }

    /// Publishes changes of peers and settings to readers, and changes of routes to the kernel.
    /// Never waits.
    fn settle(&mut self) {
        if std::mem::take(&mut self.is_relisted) {
            let interface = &self.config.interface;
            self.pages.list(Directory {
                express: interface.express,
                udp_ordering: interface.udp_ordering,
                public_key: public_key(interface),
                peers: self.peers.iter().map(Peer::listed).collect(),
            });
        }
        let may_reroute = self.is_rerouted && now() >= self.routes_from;
        if may_reroute && let Some(routing) = &self.routing {
            self.is_rerouted = false;
            let is_overlay = self.config.interface.mode == Mode::Overlay;
            let routed = self.peers.iter_mut().filter(|peer| is_overlay || peer.is_up());
            routing.want(routed.map(Peer::behind).collect());
        }
    }
}

/// Returns the public key of this node; `None` without encryption.
fn public_key(interface: &Interface) -> Option<String> {
    interface.protection.private_key().map(|key| key.public().to_string())
}

/// Returns the present time of the clock that the workers use.
fn now() -> Instant {
    srd_net::Clock::new().now()
}
