//! The loop that moves packets and obeys.
//!
//! One thread reads the devices of all instances, each for its share of the time
//! ([`crate::turns`]), and hands frames to the card. Requests are obeyed between two rounds of
//! turns, so that a change of rules is whole before its answer is given.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SendError;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use srd_card::vpc::Card;
use srd_net::clock;
use srd_proto::time::{Duration, Instant};

use crate::client::is_default;
use crate::earlier;
use crate::edge::Edge;
use crate::flows::Wanted;
use crate::gateways::Gateways;
use crate::gone::Gone;
use crate::guests;
use crate::late::Late;
use crate::link_local::Services;
use crate::logging::unix_ns_at_zero;
use crate::logs::FlowLogs;
use crate::maker::{Made, Maker};
use crate::metrics;
use crate::namespace;
use crate::orders::{Command, Orders, Stopper};
use crate::outside::Shares;
use crate::pages::publisher::Publisher;
use crate::pending::Changes;
use crate::place::make_all;
use crate::plane::Plane;
use crate::port::Port;
use crate::programs;
use crate::protocol::{Answer, NamespaceName, Request};
use crate::resolv_conf::ResolvConfs;
use crate::server::Server;
use crate::state::{Ended, Guests, Options, Service};
use crate::transport::{Plan, Received, Transport};
use crate::turns::{Turns, raise_descriptors};
use crate::undo::Undo;
use crate::world::Vpc;

/// The longest pause: flows that are over are freed so often.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Steps of that work before other work has its turn, of all instances together: some 100 us.
const EXPIRE_WORK: u32 = 1000;

impl Service {
    /// Reads the file, makes the instances of this host, and listens.
    ///
    /// # Errors
    /// The file is wrong, a privilege or a program is missing, or something is in the way; what was
    /// made is given back.
    pub fn open(options: Options) -> Result<Self> {
        raise_descriptors();
        let (orders, commands, wake) = Orders::new()?;
        let vpc = options.vpc()?;
        for name in options.vhost_user.keys() {
            vpc.instance_here(name)?;
        }
        guests::check(&vpc.world(), &options.host)?;
        if is_default(&options.socket) && earlier::card().is_some() {
            bail!(
                "a card of an earlier version serves {}: end it, or go on with it by --take-over",
                earlier::SOCKET
            );
        }
        let server = Server::listen(&options.socket, orders.clone())?;
        let metrics = options.metrics.clone();
        let metrics = metrics.map(|of| metrics::start(of, orders.clone())).transpose()?;
        let undo = Undo::start()?;
        let world = vpc.world();
        let here = world.instances.values().filter(|of| of.host.as_ref() == Some(&options.host));
        let names = here.filter_map(|of| NamespaceName::of_instance(&of.name));
        namespace::sweep(&names.collect());
        let (plane, rules) = Plane::start(world.clone(), &options.host, orders.clone())?;
        let mut card = Card::new(&options.host, Arc::new(rules), clock::secret()?);
        let edge = match options.internet {
            true => {
                let private = options.internet_private;
                Some(Edge::open(&Vpc::publics(&world), private, &undo)?)
            }
            false => None,
        };
        let plan = options.transport.as_ref().map(Plan::new).transpose()?;
        let transport = plan.map(Transport::open).transpose()?;
        if let Some(transport) = &transport {
            card.set_host_bytes_max(transport.bytes_max());
        }
        let services = Services::new(options.internet)?;
        let pages = Arc::clone(&orders.pages);
        let is_ending = Arc::new(AtomicBool::new(false));
        let stopper = Stopper { is_ending, orders: orders.clone() };
        let now = clock::now();
        let mut service = Self {
            options,
            vpc,
            world,
            card,
            plane,
            guests: Guests::default(),
            devices: BTreeMap::new(),
            held: BTreeSet::new(),
            gone: Gone::default(),
            late: Late::default(),
            shares: Shares::default(),
            maker: Maker::start(undo.clone(), orders)?,
            changes: Changes::default(),
            sockets: Vec::new(),
            turns: Turns::new()?,
            gateways: Gateways::new(edge, transport),
            received: Received::default(),
            logs: FlowLogs::new(unix_ns_at_zero),
            services,
            resolv_confs: ResolvConfs::default(),
            commands,
            wake,
            stopper,
            server,
            metrics,
            is_handed_over: false,
            expire_at: now,
            moved_at: now,
            began: now,
            publisher: Publisher::new(pages),
            undo,
        };
        service.set_edges();
        let mut wanted = service.wanted(&service.world)?;
        // All of them are instances of the file: none was added yet.
        wanted.iter_mut().for_each(|of| of.may_find = true);
        let places = make_all(&wanted, &service.undo)?;
        let names = wanted.into_iter().map(|of| of.name);
        service.guests.left_out = names.filter(|name| !places.contains_key(name)).collect();
        service.make_guests(now, places)?;
        service.set_resolvers();
        service.plan_logs(now);
        earlier::clean();
        Ok(service)
    }

    /// Ends the programs in all namespaces at the same time, if that is wanted.
    fn end_programs(&self) {
        if self.options.end_programs {
            let running = self.guests.by_name.values();
            let paths: Vec<PathBuf> =
                running.filter_map(|of| Some(of.namespace.as_ref()?.path())).collect();
            programs::end(paths.iter().map(PathBuf::as_path));
        }
    }

    /// Ends this service from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Moves packets and obeys until it is stopped.
    ///
    /// # Errors
    /// Waiting fails.
    pub fn run(&mut self) -> Result<Ended> {
        let ended = self.turn();
        self.publisher.end();
        if self.is_handed_over {
            self.let_go();
            return Ok(Ended::HandedOver);
        }
        self.end_logs();
        self.gateways.transport.iter_mut().for_each(Transport::close);
        self.end_programs();
        ended.map(|()| Ended::Stopped)
    }

    fn turn(&mut self) -> Result<()> {
        while !self.stopper.is_ending.load(Ordering::Relaxed) {
            self.wait().context("waiting for packets")?;
            let now = clock::now();
            self.obey(now);
            if self.is_handed_over {
                // Packets, and what waits for a limit, are another process's.
                return Ok(());
            }
            self.take_turns(now);
            let now = clock::now();
            self.serve(now);
            self.with_card(now, |card, around| card.poll(now, around));
            self.ask(now);
            self.interrupt(now);
            self.devices.values_mut().for_each(Port::flush);
            self.write_logs();
            self.publish(now);
            if self.expire_at <= now {
                // The rest of it comes with the next round of turns.
                if self.card.expire(now, EXPIRE_WORK) {
                    self.gateways.transport.iter_mut().for_each(Transport::look);
                    self.follow_mtu();
                    self.make_again(now);
                    self.expire_at = now + PAUSE_MAX;
                }
            }
        }
        Ok(())
    }

    /// Waits for packets, requests, or the next packet that a limit lets go.
    fn wait(&mut self) -> io::Result<()> {
        if !self.turns.is_idle() {
            // Devices are known to have frames: all else is asked without waiting.
            return Ok(());
        }
        self.turns.rest();
        self.late.rest();
        if self.options.poll.spins(clock::now().since(self.moved_at)) {
            // A program that the packets are for may wait for this processor.
            std::thread::yield_now();
            return Ok(());
        }
        // Each device is asked: one that has frames already must not keep the others from kicks.
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
        let ready = ready || self.changes.are_left();
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
        self.late.slept(now, clock::now());
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn obey(&mut self, now: Instant) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        while let Some(made) = self.maker.try_next() {
            match made {
                Made::Places(made) => self.made(clock::now(), made),
                Made::Edge(loss, made) => self.made_edge(now, loss, made),
                Made::Device(loss, made) => self.made_device(now, loss, made),
            }
        }
        self.changes.begin_turn();
        while let Some(command) = self.next_command() {
            match command {
                Command::Detach(name) => self.detach(now, &name),
                Command::Traced(id, back) => {
                    let _ = back.send(self.take_trace(now, id));
                }
                Command::EndTrace(id) => self.end_trace(id),
                Command::HandOver(stream, back) => {
                    let handed = self.hand_over(&stream).map_err(|error| format!("{error:#}"));
                    let _ = back.send(handed);
                    if self.is_handed_over {
                        return;
                    }
                }
                Command::Apply(file, began, back) => self.replace_file(now, *file, began, back),
                Command::Attach(attach, back) => self.attach(now, &attach, back),
                Command::Flows(Wanted { mut part, back }) => {
                    part.fill(&self.card);
                    // Without a reader nothing is lost.
                    let _ = back.try_send(part);
                }
                Command::Ask(request, back) => {
                    let answer = self.answer(now, request);
                    let answer =
                        answer.unwrap_or_else(|e| Answer::Failed { what: format!("{e:#}") });
                    // A trace ends with the connection that has begun it.
                    if let Err(SendError(Answer::Tracing { id })) = back.send(answer) {
                        self.end_trace(id);
                    }
                }
            }
        }
    }

    fn answer(&mut self, now: Instant, request: Request) -> Result<Answer> {
        match request {
            Request::Device { instance, device, change } => {
                let report = self.set_device(now, &instance, device.as_deref(), &change)?;
                Ok(Answer::Device(Box::new(report)))
            }
            Request::Trace { instance, filter, packets, head_bytes } => {
                let id = self.begin_trace(instance.as_deref(), &filter, packets, head_bytes)?;
                Ok(Answer::Tracing { id })
            }
            // The connection's own thread reads the file, the figures, or finds the words; an
            // instance is made on another one.
            Request::Status
            | Request::Flows { .. }
            | Request::Logs
            | Request::Attach(_)
            | Request::Apply { .. }
            | Request::Traced { .. }
            | Request::TakeOver { .. } => {
                bail!("this is no request for here")
            }
        }
    }
}
