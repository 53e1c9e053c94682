//! `srd up`: sets up the interface, drops its privileges, and processes packets until it is
//! stopped.
//!
//! ```text
//!   control thread (main) --- orders ----> worker 0 (srd-worker-0): only packets
//!                         <-- reports ---  worker 1 ...
//!   control socket, metrics ---> pages, which the workers write
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `worker` | processes packets, on a thread of its own |
//! | `control` | everything else, on the main thread |
//! | `orders` | messages between workers and the control thread |
//! | `crew` | starts, commands and ends all workers |
//! | `setup` | sockets, interface, privileges |
//! | `transport` | the settings of endpoint and sockets |
//! | `queues` | the queues of the interface that one worker serves |
//! | `preflight` | checks of this machine before the set-up |
//! | `evidence`, `problems` | the reason why a peer does not answer |
//! | `resolve`, `peer_log` | host names of peers; log lines about peers that come up and go down |
//! | `moderation`, `waker` | pauses of a worker, and the end of a pause of the control thread |
//! | `take_over` | the last steps of a take-over from another process |
//! | `tapped`, `signals` | copies of packets for captures; SIGTERM, SIGINT and SIGHUP |
//! | `lone` | a worker without a daemon, for tests |

pub(crate) mod control;
pub(crate) mod crew;
pub(crate) mod evidence;
#[doc(hidden)]
pub mod lone;
mod moderation;
pub(crate) mod orders;
mod peer_log;
mod preflight;
pub(crate) mod problems;
mod queues;
pub(crate) mod resolve;
mod setup;
mod signals;
mod take_over;
mod tapped;
#[cfg(test)]
mod tests;
mod transport;
mod waker;
pub(crate) mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::config::{Config, Mode};
use crate::control_plane::follow;
use crate::control_plane::pods::SharedSession;
use crate::handover::state::{Belongings, State, WorkerState};
use crate::handover::take::{self, Offer, Taken};
use crate::netconf::{self, Network, Request};
use crate::notify::Notify;
use crate::pages::Pages;
use crate::pages::page::Page;
use crate::plane::{Command, PlaneHandle};
use crate::routing;
use crate::{control as control_socket, hooks, metrics};
use control::{Control, Parts};
use crew::Crew;
use orders::WorkerWaker;
use queues::Queues;
use resolve::Resolver;
use srd_trust::privileges;
use take_over::Heritage;
use waker::Waker;
use worker::Worker;
use worker::hosts::NoHosts;
use worker::publish::Publisher;

pub use control::Ended;
pub use worker::carrier::{BeginCards, CardWorker, Carrier, Hosted, HostedCards, Instances};
pub use worker::hosts::Hosts;

/// Error if the process lacks a privilege; it has an exit code of its own.
#[derive(Debug)]
pub struct NotPermitted;

impl std::fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("setting up a network takes CAP_NET_ADMIN: run as root, or by the systemd unit")
    }
}

impl std::error::Error for NotPermitted {}

/// A daemon that is set up: interface, sockets and routes exist, privileges are dropped.
#[derive(Debug)]
pub struct Daemon {
    control: Control,
    handle: PlaneHandle,
    commands: std::sync::mpsc::Receiver<Command>,
    /// Servers of the control socket and of the metrics, which run as long as the daemon.
    socket: control_socket::Server,
    metrics: Option<srd_http::Server>,
    notify: Notify,
    hooks: hooks::Running,
    /// Time for which no packet moved while this process took over; `None` if it took over from no
    /// process.
    silence: Option<Duration>,
}

impl Daemon {
    /// Creates the interface, sockets and routes, drops privileges, and starts the workers.
    ///
    /// # Errors
    /// [`NotPermitted`], or an error of the operating system with a text that describes the failed
    /// step.
    pub fn new(config: Config) -> Result<Self> {
        Prepared::new(config)?.start(None)
    }

    /// Returns a handle with which other threads send requests to the daemon.
    pub fn handle(&self) -> PlaneHandle {
        self.handle.clone()
    }

    /// Returns the time for which no packet moved while this process took over; `None` if it took
    /// over from no process.
    pub fn silence(&self) -> Option<Duration> {
        self.silence
    }

    /// Processes packets until [`Command::Stop`], SIGTERM or SIGINT, or until another process has
    /// taken over. In this last case, the caller has to end this process at once.
    ///
    /// # Errors
    /// The error that makes the interface or the sockets unusable.
    pub fn run(mut self) -> Result<Ended> {
        self.notify.ready(&self.control.readiness());
        tracing::info!("{}", self.control.introduction());
        let done = match self.control.run(&self.commands) {
            Ok(ended @ Ended::HandedOver(process)) => {
                tracing::info!("ends, because process {process} has taken over");
                match self.control.connection().transpose() {
                    Ok(Some(line)) => self.handle.hand_over(line, &self.commands),
                    Ok(None) => {}
                    Err(error) => tracing::warn!("signals do not reach that process: {error}"),
                }
                self.notify.main_process(process);
                self.socket.answer_successor();
                self.control.leave();
                // Everything belongs to the other process, and the end of this process closes the
                // rest.
                std::mem::forget(self);
                return Ok(ended);
            }
            done => done,
        };
        self.notify.stopping();
        drop((self.socket, self.metrics));
        self.hooks.pre_down();
        // The order of the end: the network process deletes interface and routes; the queues are
        // closed; `post_down` runs.
        let stays_guarded = self.control.is_guarding();
        drop(self.control);
        drop(self.hooks);
        if stays_guarded {
            tracing::info!(
                "kill_switch: addresses of peers stay unreachable until the next start, or \
                 `srd down`"
            );
        }
        done
    }
}

/// Result of [`Prepared::take_over`].
#[derive(Debug)]
pub enum Succession {
    /// This process takes over when it is started.
    Here(Box<Prepared>),
    /// The process with this number has taken over: a child of the daemon that ran, in the unit of
    /// that daemon.
    InUnit(u32),
}

/// A daemon with its interface and sockets, which has the privileges of its start and no threads.
#[derive(Debug)]
pub struct Prepared {
    config: Config,
    notify: Notify,
    socket: control_socket::Socket,
    listener: Option<srd_http::Listener>,
    mtu: u16,
    packet_bytes: u16,
    // The order of the following fields is the order in which they are dropped: the network process
    // deletes the interface after its queues are closed.
    queues: Vec<Queues>,
    endpoints: Vec<setup::Endpoint>,
    network: Option<Network>,
    hooks: hooks::Running,
    /// Descriptors of the instances of the daemon that runs.
    instances: Vec<OwnedFd>,
    /// The daemon that runs, if this one takes over from it.
    taken: Option<Taken>,
}

impl Prepared {
    /// Creates the interface, sockets and routes.
    ///
    /// # Errors
    /// [`NotPermitted`], or an error of the operating system with a text that describes the failed
    /// step.
    pub fn new(config: Config) -> Result<Self> {
        if !privileges::may_administer() {
            return Err(NotPermitted.into());
        }
        signals::hold();
        let notify = Notify::from_environment().context("NOTIFY_SOCKET")?;
        let bound = control_socket::Socket::bind(&config.control)?;
        let listener = config.metrics.as_ref().map(metrics::bind).transpose()?;
        preflight::check(&config)?;
        // The helper of instances removes the file of the socket.
        let file = config.cloud.is_none().then(|| bound.path());
        let (name, commands) = (&config.interface.name, &config.interface.hooks);
        let hooks = hooks::Running::start(name, commands, file)?;
        // If a later step fails, the socket is dropped before the hooks: their process would wait
        // for its end.
        let socket = bound;
        hooks.pre_up(&commands.pre_up)?;
        // If a later step fails, this is dropped after the interface's queues, and removes the
        // rest.
        let has_interface = config.interface.mode != Mode::Cloud;
        let spec = || routing::spec(&config.interface);
        let mut network = has_interface.then(|| Network::start(&spec())).transpose()?;
        let packet_bytes = setup::packet_bytes(&config)?;
        let endpoints = setup::bind(&config, packet_bytes)?;
        let queues = setup::open_tun(&config)?;
        let mtu = setup::inner_mtu(&config, &endpoints)?;
        if let Some(network) = &mut network {
            network.ask(&Request::Up { mtu })?;
        }
        hooks.post_up()?;
        Ok(Self {
            config,
            notify,
            socket,
            listener,
            mtu,
            packet_bytes,
            queues,
            endpoints,
            network,
            hooks,
            instances: Vec::new(),
            taken: None,
        })
    }

    /// Prepares to take over from the daemon that serves the socket of the configuration, or that
    /// has started this process, with a connection to it as standard input (`by_input`). That
    /// daemon goes on until [`Prepared::start`], and dropping the result changes nothing. Takes no
    /// privileges. The file of `config` is read once more when that daemon has begun to hand over:
    /// see [`Prepared::config`].
    ///
    /// # Errors
    /// If no daemon runs, if it refuses, if a setting differs that no take-over changes, or an
    /// error of the operating system.
    pub fn take_over(config: Config, by_input: bool) -> Result<Succession> {
        signals::hold();
        let notify = Notify::from_environment().context("NOTIFY_SOCKET")?;
        let mut taken = match take::request(&config, by_input)? {
            Offer::Taken(taken) => *taken,
            Offer::Succeeded(process) => return Ok(Succession::InUnit(process)),
        };
        // That daemon has applied all changes that it has confirmed, and applies no further ones.
        let config = if config.has_file() { config.load_again()? } else { config };
        taken.check(&config)?;
        let socket = control_socket::Socket::adopt(taken.next()?, &taken.socket, &config.control);
        let State { mtu, packet_bytes, udp_segmentation, metrics: at, .. } = taken.state;
        let State { has_network, has_hooks, .. } = taken.state;
        let network = taken.pipes(has_network)?.map(Network::adopt);
        let hooks = hooks::Running::adopt(&config.interface.name, taken.pipes(has_hooks)?);
        if taken.state.hooks != config.interface.hooks {
            tracing::warn!("the commands for the end stay those of the daemon before");
        }
        let instances = taken.several(taken.state.instances)?;
        let listener = at.map(|_| taken.next()).transpose()?;
        let listener = match (&config.metrics, listener) {
            (Some(of), Some(listener)) if Some(of.listen) == at => {
                Some(metrics::adopt(listener, of))
            }
            (of, _) => of.as_ref().map(metrics::bind).transpose()?,
        };
        let (mut sockets, mut queues) = (Vec::new(), Vec::new());
        for at in 0..taken.state.workers.len() {
            let WorkerState { sockets: some, queues: more } = taken.state.workers[at];
            sockets.push(taken.several(some)?);
            queues.push(taken.several(more)?);
        }
        let endpoints = setup::adopt(&config, packet_bytes, sockets)?;
        let queues = setup::adopt_tun(queues, udp_segmentation)?;
        let fits = setup::inner_mtu(&config, &endpoints)?;
        if fits < mtu {
            anyhow::bail!(
                "the network carries inner packets of {fits} bytes only, and the MTU of {} is \
                 {mtu}: restart the daemon",
                config.interface.name
            );
        }
        Ok(Succession::Here(Box::new(Self {
            config,
            notify,
            socket,
            listener,
            mtu,
            packet_bytes,
            queues,
            endpoints,
            network,
            hooks,
            instances,
            taken: Some(taken),
        })))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes the descriptors that the instances of the daemon that runs have handed over.
    pub fn take_instances(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.instances)
    }

    /// Returns the user that has started the daemon: the one that has created its control socket.
    pub fn owner(&self) -> u32 {
        self.socket.owner()
    }

    /// Drops privileges, and starts the workers. `hosted`: the instances of this host, if
    /// the configuration has any.
    ///
    /// # Errors
    /// An error of the operating system with a text that describes the failed step, or that of the
    /// instances.
    pub fn start(self, hosted: Option<Hosted>) -> Result<Daemon> {
        // If a step fails, these are dropped in the opposite order.
        let Self { mut hooks, network, endpoints, queues, mtu, listener, socket, .. } = self;
        let Self { notify, config, mut taken, packet_bytes, .. } = self;
        let mut belongings = belongings(network.as_ref(), &hooks, listener.as_ref(), packet_bytes)?;
        if taken.is_some() && privileges::has_none() {
            // A daemon without privileges has started this process.
            privileges::drop_all()?;
        } else {
            setup::give_up_privileges(&config)?;
        }
        let mut socket = socket;
        if hosted.is_some() || hooks.has_process() {
            socket.has_remover();
        }
        let (card, changes, figures, serve) = match hosted {
            Some(Hosted { card, changes, figures, serve, hand_over }) => {
                belongings.instances = Some(hand_over);
                (Some(card), Some(changes), Some(figures), Some(serve))
            }
            None => (None, None, None, None),
        };
        let card = card.map(|HostedCards { wakes, prepare }| anyhow::Ok((wakes, prepare()?)));
        let card = card.transpose()?;
        let known = taken.iter().flat_map(Taken::addresses).collect();
        let state = taken.as_mut().map(Taken::ready).transpose()?;
        let began = srd_net::clock::now();
        let waker = Waker::default();
        let (crew, pages) =
            start_workers(&config, (endpoints, queues), (mtu, &waker), (card, state))?;
        let woken = waker.clone();
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || woken.wake());
        let (statistics, controller) = (Arc::clone(&pages), pages.controller());
        let (handle, commands) = PlaneHandle::new(Arc::clone(&wake), statistics);
        let handle = handle.with_instances(changes);
        let ipv4_only = config.interface.is_ipv4_only();
        let resolver = Resolver::start(Arc::new(move |host| host.resolve(ipv4_only)), wake)?;
        let (of_file, mode) = (config.clone(), config.interface.mode);
        let enrolled = config.enrol.is_some().then(|| config.clone());
        let parts = Parts { config, crew, pages, waker, resolver, mtu, belongings, known };
        let (network, theirs) = if taken.is_some() { (None, network) } else { (network, None) };
        let mut control = Control::new(parts, network)?;
        let has_file = of_file.has_file();
        let loader: control_socket::Loader = Arc::new(move || of_file.load_again());
        let session = SharedSession::default();
        let pods = enrolled.as_ref().map(|of| follow::pods(of, &session)).transpose()?.flatten();
        let services = control_socket::Services { instances: serve, pods: pods.map(Arc::new) };
        let of_socket = Arc::clone(&loader);
        let socket = control_socket::Server::prepare(socket, handle.clone(), of_socket, services)?;
        let signals = signals::prepare(handle.clone(), loader, has_file)?;
        let follow = |of: &Config| follow::prepare(of, handle.clone(), session, controller);
        let follower = enrolled.as_ref().map(follow).transpose()?.flatten();
        let heritage =
            taken.map(|taken| Heritage { taken, network: theirs, mode, enrolled, began });
        let completed =
            heritage.map(|of| take_over::complete(of, &mut control, &mut hooks)).transpose()?;
        socket.begin();
        let metrics = listener.map(|l| metrics::start(l, handle.clone(), figures)).transpose();
        let metrics = match (metrics, &completed) {
            (Err(error), Some(_)) => {
                // No other process goes on, and the next one gets the socket as well.
                tracing::error!("metrics are not served before the next take-over: {error}");
                None
            }
            (metrics, _) => metrics?,
        };
        if completed.as_ref().is_some_and(|of| of.has_to_stop) {
            tracing::info!("ends, because the process before was requested to stop");
            handle.stop().unwrap_or_else(|error| tracing::error!("SIGTERM is needed: {error}"));
        }
        signals.begin(());
        let silence = completed.as_ref().map(|of| of.silence);
        if let Some(follower) = follower {
            follower.begin(completed.and_then(|of| of.newer));
        }
        Ok(Daemon { control, handle, commands, socket, metrics, notify, hooks, silence })
    }
}

/// Returns the parts that a process which takes over later continues.
fn belongings(
    network: Option<&Network>,
    hooks: &hooks::Running,
    metrics: Option<&srd_http::Listener>,
    packet_bytes: u16,
) -> Result<Belongings> {
    let listener =
        |of: &srd_http::Listener| anyhow::Ok((of.address()?, Arc::new(of.descriptor()?)));
    Ok(Belongings {
        network: network.map(Network::pipes).transpose()?.unwrap_or_default(),
        hooks: hooks.pipes()?,
        metrics: metrics.map(listener).transpose()?,
        instances: None,
        packet_bytes,
    })
}

/// The cards of the instances, which are prepared, with the event descriptors that end a wait of
/// their loops.
type PreparedCards = (Vec<Arc<OwnedFd>>, BeginCards);

/// Starts one worker for each endpoint, with its queues of the interface. If there are instances,
/// cards of the instances drive the workers. `state`: the state of the cards of another process.
fn start_workers(
    config: &Config,
    (endpoints, queues): (Vec<setup::Endpoint>, Vec<Queues>),
    (mtu, waker): (u16, &Waker),
    (cards, mut state): (Option<PreparedCards>, Option<Vec<OwnedFd>>),
) -> Result<(Crew, Arc<Pages>)> {
    let about = setup::about(config, &endpoints, mtu);
    let takes_over = state.is_some();
    let (mut crew, mut totals, mut orders) = (Crew::default(), Vec::new(), Vec::new());
    let (wakes, begin) = cards.unzip();
    if let Some(wakes) = &wakes
        && wakes.len() != endpoints.len()
    {
        // Each worker needs a card, and each card a worker.
        anyhow::bail!("{} workers for {} cards of instances", endpoints.len(), wakes.len());
    }
    let mut of_cards = (Vec::new(), Vec::new());
    for (number, (mut endpoint, queue)) in endpoints.into_iter().zip(queues).enumerate() {
        let wake = wakes.as_ref().and_then(|wakes| wakes.get(number));
        let of_worker = match wake {
            Some(wake) => WorkerWaker::Card(Arc::clone(wake)),
            None => {
                endpoint.io().inner().watch(queue.fd());
                let waker = endpoint.waker().context("cannot make a descriptor to be woken by")?;
                WorkerWaker::Io(waker)
            }
        };
        let (control_ends, worker_ends) = orders::queues(waker.clone(), of_worker);
        let page = Arc::new(Page::default());
        totals.push(Arc::clone(&page));
        orders.push(control_ends.orders.clone());
        let publisher = Publisher::new(page, endpoint.now());
        let card = setup::card_config(config, mtu)?;
        if let Some(wake) = wake {
            let taken = state.as_mut().map(std::mem::take);
            of_cards.0.push(control_ends);
            of_cards.1.push(CardWorker {
                number,
                endpoint,
                queues: queue,
                card,
                ends: worker_ends,
                publisher,
                wake: Arc::clone(wake),
                interface: config.interface.name.clone(),
                taken,
            });
            continue;
        }
        let port = (queue, NoHosts);
        let mut worker = Worker::new(number, endpoint, port, card, worker_ends, publisher);
        worker.set_poll(config.interface.poll);
        if takes_over {
            worker.take_over();
        }
        crew.start(worker, control_ends, waker.clone())?;
    }
    if let Some(begin) = begin {
        let (ends, workers) = of_cards;
        for (instances, ends) in begin(workers)?.into_iter().zip(ends) {
            crew.start_instances(instances, ends, waker.clone())?;
        }
    }
    Ok((crew, Arc::new(Pages::new(about, totals, orders))))
}

/// Removes the routes and rules that a daemon with this configuration has left behind. Returns the
/// number of removed ones.
///
/// # Errors
/// [`NotPermitted`]; an error if the daemon is still running or the kernel refuses.
pub fn release(config: &Config) -> Result<usize> {
    if !privileges::may_administer() {
        return Err(NotPermitted.into());
    }
    netconf::release(&routing::spec(&config.interface))
}

/// Converts a time of the configuration; times that do not fit become the largest one.
pub(crate) fn duration(from: std::time::Duration) -> srd_proto::Duration {
    srd_proto::Duration::from_nanos(u64::try_from(from.as_nanos()).unwrap_or(u64::MAX))
}
