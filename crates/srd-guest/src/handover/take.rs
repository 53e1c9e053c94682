//! The side of the card that takes over in a hand-over: it reads its configuration, requests the
//! whole state of the card that runs, and continues with that state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use srd_card::device::steering::Steering;
use srd_card::profile::{InstanceType, Profile};
use srd_card::vpc::nat::Nat;
use srd_card::vpc::{Guest, PortId};
use srd_daemon::handover::wire::{DESCRIPTORS_MAX, LineConnection, parts_of};
use srd_net::{Tun, clock};
use srd_proto::time::Instant;
use srd_vpc::id::{EniId, FlowLogId, InstanceId};

use super::state::{Instance, State};
use super::{GO, READY, VERSION, asker};
use crate::cloud::guests::{burst_of, check, timeouts_of};
use crate::control::client::is_default;
use crate::control::orders::Orders;
use crate::control::protocol::{DeviceSettings, NamespaceName, Request};
use crate::control::server::Server;
use crate::failure::WrongSettings;
use crate::figures::logs::{Active, Counts};
use crate::figures::metrics;
use crate::helper::{Starting, spec};
use crate::interfaces::adapter::{Adapter, steering_of};
use crate::interfaces::gone::Which;
use crate::interfaces::port::Port;
use crate::machine::earlier;
use crate::machine::edge::Edge;
use crate::machine::namespace::{Device, Namespace};
use crate::machine::privileges;
use crate::service::Opening;
use crate::state::{Options, Running, Service};
use crate::traffic::gateways::Gateways;
use crate::traffic::transport::Transport;
use crate::traffic::transport::own::Plan;
use crate::traffic::turns::raise_descriptors;

/// Longest wait for a line of the card that runs.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Text for the end of the card that runs before it has handed over.
const GONE: &str = "the card that ran has ended before it handed over: start this one without \
                    --take-over";

/// First line that the card that runs sends in a hand-over.
#[derive(Debug, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
enum HandoverReply {
    State { descriptors: usize },
    Failed { what: String },
}

/// The complete data of a hand-over after parsing. Dropping it removes and restores nothing.
pub(super) struct Handed {
    pub(super) state: State,
    card: Vec<u8>,
    nat: Nat,
    /// The connection of an heir to the helper of the card that runs; `None` for a node.
    heir: Option<OwnedFd>,
    edge: Option<Tun>,
    transport: Vec<OwnedFd>,
    /// For each instance, the queues of each of its devices.
    places: Vec<Vec<Vec<Tun>>>,
}

impl Service {
    /// Continues with the whole state of the card that listens at the socket of the options. If
    /// this fails, that card continues as before. Also returns the time for which no packet was
    /// moved.
    ///
    /// # Errors
    /// An error if there is no card at the socket, if it does not hand over, if it differs in a
    /// setting that cannot be changed while it runs, or if the file is wrong.
    pub fn take_over(options: Options) -> Result<(Self, Duration)> {
        let vpc = options.vpc()?;
        for name in options.vhost_user.keys() {
            vpc.instance_here(name)?;
        }
        let world = vpc.world();
        check(&vpc, &world)?;
        let transport = options.transport.as_ref().map(Plan::new).transpose()?;
        let transport = transport.map(Plan::keep_epoch);
        raise_descriptors();
        let stream = connect(&options)?;
        let server = Server::listen_beside(&options.socket)?;
        let (orders, commands, wake) = Orders::new()?;
        let starting = match Starting::start(&spec(&options, &vpc, Some(server.path()), true)) {
            Ok(starting) => starting,
            Err(error) => {
                server.give_up();
                return Err(error);
            }
        };
        // From here on this process may have threads.
        privileges::leave()?;
        let server = Some(server);
        let opening = Opening { options, vpc, world, server, starting, orders, commands, wake };
        let mut service = opening.prepare()?;

        // From here on the card that runs moves no packets.
        let asked = clock::now();
        let mut line = ask(stream)?;
        let mut handed = Handed::receive(&mut line)?;
        handed.check(&service.options).map_err(WrongSettings::of)?;
        let sockets = std::mem::take(&mut handed.transport);
        let transport = transport.map(|plan| Transport::adopt(plan, sockets)).transpose()?;
        service.adopt(clock::now(), &mut handed, transport)?;
        let said = line.exchange(READY).context("the card that runs goes on as before")?;
        let said = said.context(GONE)?;
        if said != GO {
            bail!("the card that runs goes on as before: {said}");
        }
        service.begin(clock::now(), handed)?;
        let silence = Duration::from_nanos(clock::now().since(asked).as_nanos());
        Ok((service, silence))
    }
}

/// Connects to the card that listens at the socket. That card checks the user of this process.
fn connect(options: &Options) -> Result<UnixStream> {
    let socket = &options.socket;
    let earlier = || if is_default(socket) { earlier::card() } else { None };
    let stream =
        UnixStream::connect(socket).or_else(|error| earlier().ok_or(error)).with_context(|| {
            format!(
                "no card runs at {} that could be taken over: start this one without --take-over",
                socket.display()
            )
        })?;
    asker::check_giver(&stream)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    Ok(stream)
}

/// Requests a hand-over of the whole state from a card.
fn ask(mut stream: UnixStream) -> Result<LineConnection> {
    let mut request = serde_json::to_string(&Request::TakeOver { version: VERSION })?;
    request.push('\n');
    stream.write_all(request.as_bytes()).context(GONE)?;
    Ok(LineConnection::new(stream))
}

impl Handed {
    /// Receives the whole state, and parses it.
    fn receive(line: &mut LineConnection) -> Result<Self> {
        let said = line.next_line()?;
        let said: HandoverReply = serde_json::from_str(&said)
            .context("the card that runs is of a version that cannot hand over: end it first")?;
        let count = match said {
            HandoverReply::State { descriptors } if descriptors <= DESCRIPTORS_MAX => descriptors,
            HandoverReply::State { .. } => bail!("the card that runs has too many descriptors"),
            HandoverReply::Failed { what } => bail!("the card that runs goes on as before: {what}"),
        };
        Self::read(line.descriptors(count)?, true)
    }

    /// Reads the state. `has_heir`: whether the second descriptor is a connection of an heir.
    pub(super) fn read(all: Vec<OwnedFd>, has_heir: bool) -> Result<Self> {
        let count = all.len();
        let mut all = all.into_iter();
        let mut next = || all.next().context("a descriptor is missing");
        let [state, card, nat] = parts_of(&next()?.into())?;
        let state: State =
            serde_json::from_slice(&state).context("what the card that runs says")?;
        let nat = Nat::import(&nat).map_err(anyhow::Error::msg).context("NAT gateways")?;
        let heir = has_heir.then(&mut next).transpose()?;
        let edge = state.edge.as_ref();
        let edge = edge.map(|edge| Ok(Tun::adopt(next()?, edge.udp_segmentation))).transpose();
        let edge: Option<Tun> = edge.map_err(|error: anyhow::Error| error)?;
        if state.transport > count {
            bail!("a descriptor is missing");
        }
        let transport = (0..state.transport).map(|_| next()).collect::<Result<Vec<OwnedFd>>>()?;
        let mut places = Vec::new();
        for instance in &state.instances {
            let mut devices = Vec::new();
            for interface in &instance.interfaces {
                let mut queues = Vec::new();
                if let Some(of) = &interface.device_state {
                    for _ in 0..of.settings.queues {
                        queues.push(Tun::adopt(next()?, of.udp_segmentation));
                    }
                }
                devices.push(queues);
            }
            places.push(devices);
        }
        Ok(Self { state, card, nat, heir, edge, transport, places })
    }

    /// Returns an error if settings differ that cannot be changed while a card runs.
    fn check(&self, options: &Options) -> Result<()> {
        let State { host, instances, .. } = &self.state;
        if *host != options.host {
            bail!("the card that runs is of host `{host}`, and this one of `{}`", options.host);
        }
        if self.edge.is_some() != options.internet {
            let has = if self.edge.is_some() { "has" } else { "lacks" };
            bail!(
                "the card that runs {has} --internet: start this one likewise, or end that first"
            );
        }
        if self.transport.is_empty() == options.transport.is_some() {
            let has = if !self.transport.is_empty() { "has" } else { "lacks" };
            bail!(
                "the card that runs {has} other hosts: give this one the same, or end that first"
            );
        }
        for Instance { name, namespace, .. } in instances {
            let is_socket = options.vhost_user.contains_key(name);
            if is_socket == namespace.is_some() {
                bail!(
                    "the instance `{name}` is {} in the card that runs: give this one the same, \
                     or end that first",
                    if is_socket { "a namespace" } else { "at a socket of vhost-user" }
                );
            }
        }
        Ok(())
    }
}

impl Service {
    /// Takes over everything that can be taken over without a change to the system. Until the other
    /// card has released its objects, this process must be able to end without a change to them.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        handed: &mut Handed,
        mut transport: Option<Transport>,
    ) -> Result<()> {
        let state = &handed.state;
        self.began = Instant::from_nanos(state.began_ns);
        self.services.set_token_key(state.tokens);
        let routed = state.edge.iter().flat_map(|edge| edge.routed.iter().copied()).collect();
        let private = self.options.internet_private;
        let edge = handed.edge.take().map(|tun| Edge::new(tun, routed, private)).transpose()?;
        if let Some(transport) = &mut transport {
            transport.adopt_contacts(&state.hosts);
            self.card.set_host_bytes_max(transport.bytes_max());
        }
        self.gateways = Gateways::new(edge, transport);
        self.gateways.nat = std::mem::take(&mut handed.nat);
        let lost = state.lost.iter();
        self.gateways.lost = lost.map(|(why, packets)| (why.clone().into(), *packets)).collect();
        for (instance, devices) in state.instances.iter().zip(&mut handed.places) {
            self.adopt_instance(now, instance, std::mem::take(devices))
                .with_context(|| format!("instance `{}`", instance.name))?;
        }
        self.set_edges();
        self.card.import(&handed.card).map_err(anyhow::Error::msg)?;
        for log in &state.logs {
            let id = FlowLogId(log.id);
            let Some(of) = self.world.flow_logs.get(&id) else { continue };
            let counts = Counts {
                written: AtomicU64::new(log.written),
                dropped: AtomicU64::new(log.dropped),
                ..Counts::default()
            };
            let active = Active { log: of.clone(), counts: Arc::new(counts) };
            self.logs.adopt(id, active);
        }
        Ok(())
    }

    fn adopt_instance(
        &mut self,
        now: Instant,
        instance: &Instance,
        devices: Vec<Vec<Tun>>,
    ) -> Result<()> {
        let kind = InstanceType::find(&instance.instance_type);
        let kind = kind.map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut guests = Vec::new();
        for interface in &instance.interfaces {
            let eni = EniId(interface.eni);
            let timeouts = timeouts_of(self.world.enis.get(&eni), &kind)?;
            guests.push(Guest { eni, timeouts });
        }
        let profile = burst_of(Profile::of(kind), &self.options);
        let ports: Vec<PortId> = self.card.add_instance(now, &profile, &guests);
        let mut interfaces = Vec::new();
        self.share(&ports, &kind)?;
        let steering = Arc::new(steering(instance, &kind)?);
        let places = ports.into_iter().zip(&instance.interfaces).zip(devices);
        for (eni, ((port, of), queues)) in (0..).zip(places) {
            if let Some(state) = &of.device_state {
                let (settings, steering) = (state.settings.clone(), Arc::clone(&steering));
                let mut adapter = Adapter::new(now, settings, steering, eni)?;
                adapter.set_counts(&state.counts);
                self.watch(port, Port::tun(queues, adapter))?;
            } else if instance.namespace.is_some() {
                // The device was deleted, and is made again when this process owns everything.
                let settings = DeviceSettings::of(&kind);
                let adapter = Adapter::new(now, settings, Arc::clone(&steering), eni)?;
                self.gone.lose(now, Which::Of(port), Some(Port::tun(Vec::new(), adapter)));
            }
            let device = Device {
                name: of.device.clone(),
                addresses: of.addresses.clone(),
                is_primary: of.is_primary,
            };
            interfaces.push((port, EniId(of.eni), device));
        }
        let id = InstanceId(instance.id);
        // The namespace is set when this process owns it.
        let running = Running { id, namespace: None, profile, interfaces, steering };
        self.guests.by_name.insert(instance.name.clone(), running);
        Ok(())
    }

    /// Continues after the other card has released its objects, which now belong to this process. A
    /// failure is logged, and everything else continues, so that connections of guests survive.
    fn begin(&mut self, now: Instant, handed: Handed) -> Result<()> {
        let heir = handed.heir.context("a descriptor is missing")?;
        let held = self.helper.take_on(&heir).unwrap_or_else(|error| {
            tracing::error!("what the card before had is not given back at the end: {error:#}");
            BTreeSet::new()
        });
        let mut namespaces = namespaces(handed.state.instances);
        namespaces.retain(|_, name| {
            let has = held.contains(name);
            if !has {
                tracing::error!("the namespace {name} is not this card's; all else goes on");
            }
            has
        });
        self.own_namespaces(namespaces);
        if let Err(error) = self.begin_metrics() {
            tracing::error!("figures over HTTP: {error:#}; all else goes on");
        }
        self.begin_objects(now);
        Ok(())
    }

    /// Takes the namespaces of instances, which the helper of this process has.
    pub(super) fn own_namespaces(&mut self, namespaces: BTreeMap<String, NamespaceName>) {
        for (instance, name) in namespaces {
            let Some(running) = self.guests.by_name.get_mut(&instance) else { continue };
            let mut namespace = Namespace::new(name, false, self.helper.clone());
            namespace.set_ends_programs(self.options.end_programs);
            running.namespace = Some(namespace);
        }
    }

    /// Creates sockets of vhost-user again, and the instances of the file that are missing.
    pub(super) fn begin_objects(&mut self, now: Instant) {
        if let Err(error) = self.begin_sockets() {
            tracing::error!("sockets of vhost-user: {error:#}; all else goes on");
        }
        self.begin_guests(now);
    }

    pub(super) fn begin_metrics(&mut self) -> Result<()> {
        let Some(of) = &self.options.metrics else { return Ok(()) };
        let listener = srd_daemon::metrics::bind(of)?;
        self.metrics = Some(metrics::start(listener, self.stopper.orders.clone())?);
        Ok(())
    }
}

/// Returns the namespaces of instances, by the names of the instances.
pub(super) fn namespaces(instances: Vec<Instance>) -> BTreeMap<String, NamespaceName> {
    instances.into_iter().filter_map(|of| Some((of.name, of.namespace?))).collect()
}

/// Returns the n-tuple rules of all interfaces of an instance.
fn steering(instance: &Instance, kind: &InstanceType) -> Result<Steering> {
    let mut steering = steering_of(kind);
    let devices = instance.interfaces.iter().map(|interface| interface.device_state.as_ref());
    for (eni, of) in (0..).zip(devices) {
        for rule in of.iter().flat_map(|of| &of.rules) {
            let queues = of.map_or(1, |of| of.settings.queues);
            let set = steering.set(rule.location, eni, queues, rule.to_rule()?);
            set.map_err(|error| anyhow::anyhow!("`{rule}`: {error}"))?;
        }
    }
    Ok(steering)
}
