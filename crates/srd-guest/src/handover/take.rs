//! The card that takes over in a hand-over.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use srd_card::device::steering::Steering;
use srd_card::profile::{InstanceType, Profile};
use srd_card::vpc::nat::Nat;
use srd_card::vpc::{Guest, PortId};
use srd_daemon::handover::wire::parts_of;
use srd_net::{Tun, clock};
use srd_proto::time::Instant;
use srd_vpc::id::{EniId, FlowLogId, InstanceId};

use super::state::{Instance, State};
use crate::cloud::guests::{burst_of, timeouts_of};
use crate::control::protocol::{DeviceSettings, NamespaceName};
use crate::figures::logs::{Active, Counts};
use crate::interfaces::adapter::{Adapter, steering_of};
use crate::interfaces::gone::Which;
use crate::interfaces::port::Port;
use crate::machine::edge::Edge;
use crate::machine::namespace::{Device, Namespace};
use crate::state::{Running, Service, TakenOver};
use crate::traffic::transport::Transport;

/// The complete data of a hand-over after parsing. Dropping it removes and restores nothing.
pub(crate) struct Handed {
    state: State,
    card: Vec<u8>,
    nat: Nat,
    edge: Option<Tun>,
    /// For each instance, the queues of each of its devices.
    places: Vec<Vec<Vec<Tun>>>,
}

impl Handed {
    /// Reads the state of one worker, and takes its descriptors.
    pub(crate) fn read(all: &mut impl Iterator<Item = OwnedFd>) -> Result<Self> {
        let mut next = || all.next().context("a descriptor is missing");
        let [state, card, nat] = parts_of(&next()?.into())?;
        let state: State =
            serde_json::from_slice(&state).context("what the card that runs says")?;
        let nat = Nat::import(&nat).map_err(anyhow::Error::msg).context("NAT gateways")?;
        let edge = state.edge.as_ref();
        let edge = edge.map(|edge| Ok(Tun::adopt(next()?, edge.udp_segmentation))).transpose();
        let edge: Option<Tun> = edge.map_err(|error: anyhow::Error| error)?;
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
        Ok(Self { state, card, nat, edge, places })
    }

    /// Returns the instances of the worker.
    pub(crate) fn instances(&self) -> BTreeSet<InstanceId> {
        self.state.instances.iter().map(|of| InstanceId(of.id)).collect()
    }
}

impl Service {
    /// Takes the state of the card of the node that runs, which has stopped. That card may go on
    /// until [`Service::begin_taken`], so this process must be able to end without a change.
    pub(crate) fn take_state(&mut self, transport: Transport, mut handed: Handed) -> Result<()> {
        if self.vpc.workers().is_some() {
            // The process before may have divided the instances in another way.
            let world = self.vpc.world();
            self.follow(clock::now(), &world)?;
            self.world = world;
            self.see_workers();
        }
        self.adopt(clock::now(), &mut handed, transport)?;
        let State { hosts, instances, .. } = handed.state;
        self.taken = Some(TakenOver { hosts, namespaces: namespaces(instances) });
        Ok(())
    }

    /// Continues after the card of the other process, which does not go on any more. All objects
    /// belong to this process from now on.
    pub(crate) fn begin_taken(&mut self, now: Instant, taken: TakenOver) {
        if self.gateways.are_first() {
            self.helper.renew();
        }
        if let Some(transport) = &mut self.gateways.transport {
            transport.adopt_contacts(&taken.hosts);
        }
        self.own_namespaces(taken.namespaces);
        self.begin_objects(now);
    }

    /// Takes over everything that can be taken over without a change to the system. Until the other
    /// card has released its objects, this process must be able to end without a change to them.
    fn adopt(&mut self, now: Instant, handed: &mut Handed, mut transport: Transport) -> Result<()> {
        let state = &handed.state;
        let began = Instant::from_nanos(state.began_ns);
        let earlier_ns = self.began.since(began).as_nanos();
        self.began_unix_ns = self.began_unix_ns.saturating_sub(earlier_ns);
        self.began = began;
        self.services.set_token_key(state.tokens);
        let routed = state.edge.iter().flat_map(|edge| edge.routed.iter().copied()).collect();
        let private = self.options.internet_private;
        let edge = handed.edge.take().map(|tun| Edge::new(tun, routed, private)).transpose()?;
        transport.adopt_contacts(&state.hosts);
        self.card.set_host_bytes_max(transport.bytes_max());
        (self.gateways.edge, self.gateways.transport) = (edge, Some(transport));
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

    /// Takes the namespaces of instances, which the helper has.
    fn own_namespaces(&mut self, namespaces: BTreeMap<String, NamespaceName>) {
        for (instance, name) in namespaces {
            let Some(running) = self.guests.by_name.get_mut(&instance) else { continue };
            let mut namespace = Namespace::new(name, false, self.helper.connection());
            namespace.set_ends_programs(self.options.end_programs);
            running.namespace = Some(namespace);
        }
    }

    /// Creates sockets of vhost-user again, and the instances of the file that are missing.
    fn begin_objects(&mut self, now: Instant) {
        if let Err(error) = self.begin_sockets() {
            tracing::error!("sockets of vhost-user: {error:#}; all else goes on");
        }
        self.begin_guests(now);
    }
}

/// Returns the namespaces of instances, by the names of the instances.
fn namespaces(instances: Vec<Instance>) -> BTreeMap<String, NamespaceName> {
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
