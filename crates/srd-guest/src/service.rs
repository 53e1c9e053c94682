//! The loop that moves packets and applies requests.
//!
//! Each worker has such a loop on a thread of its own, with a card for some of the instances. The
//! loop reads the devices of these instances, each for its share of the time ([`crate::turns`]),
//! and hands frames to the card. Requests are applied between such reads, so that a change of rules
//! is complete before its answer is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::SendError;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use srd_card::vpc::Card;
use srd_card::vpc::workers::Redirect;
use srd_daemon::control::ServeInstances;
use srd_daemon::metrics::InstanceFigures;
use srd_net::{PollMode, clock};
use srd_proto::time::{Duration, Instant};

use crate::cloud::guests;
use crate::cloud::pending::Changes;
use crate::cloud::plane::Plane;
use crate::cloud::reload::Reloader;
use crate::cloud::workers::Workers;
use crate::cloud::world::Vpc;
use crate::control::flows::PartRequest;
use crate::control::orders::{Command, CommandQueue, Orders};
use crate::control::protocol::{Answer, NamespaceName, Request};
use crate::control::server;
use crate::figures::logging::unix_ns_at_zero;
use crate::figures::logs::FlowLogs;
use crate::figures::logs::files::Files;
use crate::figures::metrics;
use crate::figures::pages::publisher::Publisher;
use crate::helper::{Ending, Starting, spec};
use crate::interfaces::gone::LostDevices;
use crate::interfaces::port::Port;
use crate::interfaces::processors::Processors;
use crate::link_local::Services;
use crate::machine::earlier;
use crate::machine::edge::Edge;
use crate::machine::maker::{DeviceAsked, JobResult, Maker};
use crate::machine::resolv_conf::Resolvers;
use crate::state::{Guests, Options, Service};
use crate::traffic::beside::{Exchange, Neighbours};
use crate::traffic::gateways::Gateways;
use crate::traffic::late::Late;
use crate::traffic::outside::Shares;
use crate::traffic::received::Received;
use crate::traffic::transport::Transport;
use crate::traffic::turns::{Turns, raise_descriptors};

/// Longest pause of the loop: expired flows are freed at this interval.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Maximum number of steps of the search for expired flows, of all instances together, before the
/// loop does other work. They take about 100 us.
const EXPIRE_WORK: u32 = 1000;

/// A card whose helper runs, while this process has its privileges and no threads.
pub(crate) struct Opening {
    options: Options,
    vpc: Vpc,
    starting: Starting,
    /// The ends of the queue of commands of each worker. Those of the first one lead to the others.
    queues: Vec<CommandQueue>,
}

impl Opening {
    /// Reads the VPC's file, and starts the helper.
    ///
    /// # Errors
    /// The file is wrong, or a privilege is missing.
    pub(crate) fn begin(options: Options) -> Result<Self> {
        raise_descriptors();
        let vpc = options.vpc()?;
        check(&options, &vpc)?;
        earlier::clean();
        let queues = Orders::of_workers(options.workers, vpc.file())?;
        let starting = Starting::start(&spec(&options, &vpc))?;
        Ok(Self { options, vpc, starting, queues })
    }

    /// Prepares a card that takes over from the card of a node, whose helper continues.
    ///
    /// # Errors
    /// A file is wrong, or the helper does not answer. The node goes on as before.
    pub(crate) fn adopt(options: Options, starting: Starting) -> Result<Self> {
        raise_descriptors();
        if let Err(error) = starting.offer_output() {
            tracing::warn!(
                "messages of the helper stay in the log of the process before: {error:#}"
            );
        }
        // Only the helper may be permitted to read the file.
        let file = match (&options.config, &options.file) {
            (Some(_), _) => starting.reload()?,
            (None, Some(path)) => Some(starting.vpc(path)?.for_card(path)?),
            (None, None) => None,
        };
        let file = file.map_or_else(|| Vpc::file_of(None), Ok)?;
        let vpc = Vpc::of(file, &options.host, options.internet_private);
        check(&options, &vpc)?;
        let queues = Orders::of_workers(options.workers, vpc.file())?;
        Ok(Self { options, vpc, starting, queues })
    }

    /// Returns, for each worker, the event descriptor that ends a wait of its loop.
    pub(crate) fn wakes(&self) -> Vec<Arc<OwnedFd>> {
        self.queues.iter().map(|(.., wake)| Arc::clone(wake)).collect()
    }

    /// Returns a handle with which another thread applies a changed configuration.
    pub(crate) fn reloader(&self) -> Reloader {
        Reloader::new(self.orders(), self.options.is_of_controller)
    }

    /// Returns the function that serves requests to the card at the socket of a node. `owner`: the
    /// user that has started the node. `controller`: the controller that sends its instances, if
    /// one does.
    pub(crate) fn serve(&self, owner: u32, controller: Option<String>) -> ServeInstances {
        server::of_node(self.orders(), owner, controller)
    }

    /// Returns a handle with which other threads send commands to the cards of all workers.
    pub(crate) fn orders(&self) -> Orders {
        let (orders, ..) = &self.queues[0];
        orders.clone()
    }

    /// Returns the figures of the card for the server of a node. `is_alone`: whether the node has
    /// neither an interface nor other hosts.
    pub(crate) fn figures(&self, is_alone: bool) -> InstanceFigures {
        metrics::of_node(self.orders(), is_alone)
    }

    /// Ends the helper, which removes everything that was created.
    pub(crate) fn give_up(self) {
        drop(self.starting.listen().map(Ending::new));
    }

    /// Creates the card of each worker, which has neither instances nor other hosts yet. This
    /// process has dropped its privileges.
    ///
    /// # Errors
    /// An error of the operating system, or of the rules.
    pub(crate) fn prepare(self) -> Result<Vec<Service>> {
        let wakes = self.wakes();
        let Self { options, vpc, starting, queues } = self;
        let helper = Arc::new(Ending::new(starting.listen()?));
        let processors = options.processors()?;
        let shared = (&helper, processors.as_ref());
        let mut queues = queues.into_iter();
        if wakes.len() == 1 {
            let only = queues.next().map(|queue| worker(options, vpc, queue, shared, None));
            return only.into_iter().collect();
        }
        let workers = Workers::new(&options.host, options.workers);
        let vpc = vpc.among(workers.clone());
        let world = vpc.world();
        let exchanges = Exchange::among(&wakes);
        let all = workers.names().into_iter().zip(queues).zip(exchanges);
        all.zip(0..)
            .map(|(((name, queue), exchange), number)| {
                let options = Options { host: name.to_string(), ..options.clone() };
                let redirect = Redirect::new(workers.view(number, &world));
                let neighbours = Neighbours { redirect, exchange };
                worker(options, vpc.clone(), queue, shared, Some(neighbours))
            })
            .collect()
    }
}

/// Creates the card of one worker. `neighbours`: the other workers, if there are any.
fn worker(
    options: Options,
    vpc: Vpc,
    (orders, commands, wake): CommandQueue,
    (helper, processors): (&Arc<Ending>, Option<&Arc<Processors>>),
    neighbours: Option<Neighbours>,
) -> Result<Service> {
    orders.set_helper(helper.connection());
    let world = vpc.world();
    let (plane, rules) = Plane::start(world.clone(), &options.host, orders.clone())?;
    let mut card = Card::new(&options.host, Arc::new(rules), clock::secret()?);
    if let Some(neighbours) = &neighbours {
        card.set_beside(&neighbours.redirect.beside);
    }
    let services = Services::new(options.internet)?;
    let pages = Arc::clone(&orders.pages);
    let now = clock::now();
    Ok(Service {
        options,
        vpc,
        world,
        card,
        plane,
        guests: Guests::default(),
        devices: BTreeMap::new(),
        processors: processors.map(Arc::clone),
        held: BTreeSet::new(),
        gone: LostDevices::default(),
        late: Late::default(),
        shares: <[Shares; 2]>::default(),
        maker: Maker::start(helper.connection(), orders)?,
        changes: Changes::default(),
        sockets: Vec::new(),
        turns: Turns::new()?,
        gateways: Gateways::new(neighbours),
        waiting: Received::default(),
        received: Received::default(),
        logs: FlowLogs::new(unix_ns_at_zero, Files::of(helper.connection())),
        services,
        resolvers: Resolvers::default(),
        commands,
        wake,
        taken: None,
        is_handed_over: false,
        expire_at: now,
        moved_at: now,
        began: now,
        began_unix_ns: unix_ns_at_zero().saturating_add(now.as_nanos()),
        publisher: Publisher::new(pages),
        helper: Arc::clone(helper),
    })
}

/// Checks the settings of a card and its VPC.
fn check(options: &Options, vpc: &Vpc) -> Result<()> {
    for name in options.vhost_user.keys() {
        vpc.instance_here(name)?;
    }
    guests::check(vpc, &vpc.undivided())
}

impl Service {
    /// Starts the instances of this host. `transport`: the transport to other hosts.
    ///
    /// # Errors
    /// A privilege or a program is missing, or an object cannot be created because another one with
    /// its name exists. The helper removes objects that were already created.
    pub(crate) fn begin_new(&mut self, transport: Transport) -> Result<()> {
        let is_first = self.gateways.are_first();
        let Self { options, vpc, world, helper, card, .. } = &mut *self;
        if is_first {
            helper.listens()?;
            let here = vpc.instances_here(world).map(|(_, instance)| &instance.name);
            let names = here.filter_map(|name| NamespaceName::of_instance(name));
            helper.sweep(names.collect())?;
        }
        let edge = match options.internet && is_first {
            true => {
                let publics = Vpc::publics(world);
                let tun = helper.edge(&publics)?;
                Some(Edge::new(tun, publics, options.internet_private)?)
            }
            false => None,
        };
        card.set_host_bytes_max(transport.bytes_max());
        (self.gateways.edge, self.gateways.transport) = (edge, Some(transport));
        self.set_edges();
        let now = clock::now();
        let mut needs = self.needs(&self.world)?;
        // All these instances are in the file, because none was added yet.
        needs.wanted.iter_mut().for_each(|of| of.may_find = true);
        let names: Vec<String> = needs.wanted.iter().map(|of| of.name.clone()).collect();
        let (places, _) = needs.make(&self.helper)?;
        let is_left_out = |name: &String| !places.contains_key(name);
        self.guests.left_out = names.into_iter().filter(is_left_out).collect();
        self.make_guests(now, places)?;
        self.settle_guests(now);
        Ok(())
    }

    /// Ends the programs in all namespaces in parallel, if the settings require it.
    fn end_programs(&self) {
        if self.options.end_programs {
            let running = self.guests.by_name.values();
            let names = running.filter_map(|of| Some(of.namespace.as_ref()?.name().clone()));
            if let Err(error) = self.helper.end_programs(names.collect()) {
                tracing::warn!("programs of instances go on: {error:#}");
            }
        }
    }

    /// Moves packets and applies requests until the node stops, or another process has taken it
    /// over.
    ///
    /// # Errors
    /// An error if the wait for packets fails, or the sockets or the interface are unusable.
    pub(crate) fn run(&mut self) -> Result<()> {
        if !self.join_node() {
            // Everything belongs to the other process, which goes on.
            self.publisher.end();
            return Ok(());
        }
        let ended = self.turn();
        self.publisher.end();
        if self.is_handed_over {
            return Ok(());
        }
        self.end_logs();
        self.gateways.transport.iter_mut().for_each(Transport::close);
        self.end_programs();
        ended
    }

    /// Waits for the hosts of the node. If the node takes over from another process, also waits
    /// until that process does not go on any more. Returns false if that process goes on. A node
    /// that was stopped meanwhile still takes everything over if it is its turn: at its end, it has
    /// to end the programs of instances.
    fn join_node(&mut self) -> bool {
        let goes_on = self.gateways.transport.iter_mut().all(Transport::wait_for_hosts);
        if let Some(taken) = self.taken.take() {
            if !goes_on {
                return false;
            }
            self.begin_taken(clock::now(), taken);
        }
        self.follow_hosts();
        true
    }

    fn turn(&mut self) -> Result<()> {
        while !self.gateways.is_stopped() {
            self.wait().context("waiting for packets")?;
            let now = clock::now();
            self.obey(now);
            if self.is_handed_over {
                // Packets, including those that wait for a limit, now belong to the process that
                // has taken over.
                return Ok(());
            }
            self.take_turns(now);
            let now = clock::now();
            self.serve(now);
            self.with_card(now, |card, around| card.poll(now, around));
            self.ask(now);
            self.interrupt(now);
            self.join_fronts();
            self.devices.values_mut().for_each(Port::flush);
            self.write_logs();
            self.publish(now);
            if self.expire_at <= now {
                // If entries are left to check, the next pass of the loop continues.
                if self.card.expire(now, EXPIRE_WORK) {
                    self.look_at_hosts();
                    self.follow_hosts();
                    self.make_again(now);
                    self.expire_at = now + PAUSE_MAX;
                }
            }
        }
        match self.gateways.transport.as_mut().and_then(Transport::take_failure) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Logs hosts that have become silent, or answer again. The session of the first worker with a
    /// host decides.
    fn look_at_hosts(&mut self) {
        if self.gateways.are_first() {
            self.gateways.transport.iter_mut().for_each(Transport::look);
        }
    }

    /// Waits for packets, requests, or the next packet that a limit releases.
    fn wait(&mut self) -> io::Result<()> {
        if !self.turns.is_idle() {
            // Some devices have frames, so everything else is polled without a wait.
            return Ok(());
        }
        self.turns.rest();
        self.late.rest();
        if self.poll().spins(clock::now().since(self.moved_at)) {
            // A program that receives the packets may wait for this processor.
            std::thread::yield_now();
            return Ok(());
        }
        // Each device has to be prepared, even if another one is ready already. Otherwise its
        // notifications would stay off.
        let mut ready = false;
        for port in &self.sockets {
            ready |= self.devices.get_mut(port).is_some_and(Port::rest);
        }
        let now = clock::now();
        let held = self.held.iter().filter_map(|port| self.devices.get(port)?.poll_timeout());
        let at = self.card.poll_timeout().into_iter().chain(self.services.poll_timeout());
        let hosts = self.gateways.transport.iter().map(Transport::due);
        let figures = self.publisher.due();
        let at = at.chain(held).chain(hosts).chain(figures).chain([self.expire_at]).min();
        let next = at.map_or(PAUSE_MAX, |at| at.since(now).min(PAUSE_MAX));
        if let Some(beside) = &mut self.gateways.beside {
            ready |= beside.exchange.rest();
        }
        let ready = ready || self.changes.are_left();
        if !ready {
            self.gateways.transport.iter_mut().for_each(Transport::before_sleep);
        }
        let next = if ready { Duration::ZERO } else { next };
        let nanoseconds = next.as_nanos();
        let pause = Timespec {
            tv_sec: i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(0),
            tv_nsec: i64::try_from(nanoseconds % 1_000_000_000).unwrap_or(0),
        };
        let around = self.gateways.fds();
        let asked = self.services.fds();
        let fds = around.iter().chain(&asked).map(|fd| fd.as_fd()).chain([self.wake.as_fd()]);
        let sockets = self.sockets.iter().filter_map(|port| self.devices.get(port));
        let sockets = sockets.flat_map(Port::descriptors);
        let fds = sockets.chain([self.turns.fd()]).chain(fds);
        let mut fds: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let waited = poll(&mut fds, Some(&pause));
        if let Some(beside) = &mut self.gateways.beside {
            beside.exchange.woken();
        }
        self.late.slept(now, clock::now());
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the method by which the loop waits for packets.
    pub(crate) fn poll(&self) -> PollMode {
        self.gateways.transport.as_ref().map(Transport::poll).unwrap_or_default()
    }

    /// Begins to connect the vhost-user devices that need a connection to front ends that listen.
    fn join_fronts(&mut self) {
        for port in &self.sockets {
            let Some(device) = self.devices.get_mut(port) else { continue };
            if let Some(path) = device.asks()
                && self.maker.join(*port, path).is_err()
            {
                device.found(None);
            }
        }
    }

    fn obey(&mut self, now: Instant) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        while let Some(made) = self.maker.try_next() {
            match made {
                JobResult::Places(made) => self.made(clock::now(), made),
                JobResult::Edge(loss, made) => self.made_edge(now, loss, made),
                JobResult::Device(loss, made) => self.made_device(now, loss, made),
                JobResult::Queues(asked, Ok(opened)) => {
                    self.change_device(now, asked, Some(opened))
                }
                JobResult::Queues(asked, Err(error)) => {
                    let _ = asked.back.send(Answer::Failed { what: format!("{error:#}") });
                }
                JobResult::Routed(added) => {
                    self.gateways.edge.iter_mut().for_each(|edge| edge.has_routed(added.clone()));
                }
                JobResult::Front(port, front) => {
                    if let Some(device) = self.devices.get_mut(&port) {
                        device.found(front);
                    }
                }
            }
        }
        self.follow_decision(now);
        self.changes.begin_turn();
        while let Some(command) = self.next_command() {
            match command {
                Command::Detach(name) => self.detach(now, &name),
                Command::KeepWorkers => self.keep_workers(),
                Command::Traced(id, back) => {
                    let _ = back.send(self.take_trace(now, id));
                }
                Command::EndTrace(id) => self.end_trace(id),
                Command::Hold(back, end) => {
                    self.hold(&back, &end);
                    if self.is_handed_over {
                        return;
                    }
                }
                Command::Apply(change) => self.replace_file(now, change),
                Command::Answer(back) => {
                    let _ = back.send(());
                }
                Command::Attach(attach, back) => self.attach(now, &attach, back),
                Command::Flows(PartRequest { mut part, back }) => {
                    part.fill(&self.card);
                    // If the reader is gone, the part is dropped.
                    let _ = back.try_send(part);
                }
                Command::Ask(Request::Device { instance, device, change }, back) => {
                    self.change_device(now, DeviceAsked { instance, device, change, back }, None);
                }
                Command::Ask(request, back) => {
                    let answer = self.answer(request);
                    let answer =
                        answer.unwrap_or_else(|e| Answer::Failed { what: format!("{e:#}") });
                    // The trace's connection is gone, so the trace ends.
                    if let Err(SendError(Answer::Tracing { id })) = back.send(answer) {
                        self.end_trace(id);
                    }
                }
            }
        }
    }

    fn answer(&mut self, request: Request) -> Result<Answer> {
        match request {
            Request::Trace { instance, filter, packets, head_bytes } => {
                let id = self.begin_trace(instance.as_deref(), &filter, packets, head_bytes)?;
                Ok(Answer::Tracing { id })
            }
            // The connection's own thread reads files and figures, and formats records. Another
            // thread makes instances.
            Request::Instances
            | Request::Status
            | Request::Flows { .. }
            | Request::Logs
            | Request::Attach(_)
            | Request::Device { .. }
            | Request::Apply { .. }
            | Request::Repaired
            | Request::Traced { .. } => {
                bail!("this is no request for here")
            }
        }
    }
}
