//! The instances of this host: creation, addition and removal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use srd_card::l2::Link;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Guest, PortId};
use srd_daemon::config::ConfigError;
use srd_net::Tun;
use srd_proto::time::{Duration, Instant};
use srd_vpc::id::{EniId, InstanceId};
use srd_vpc::object::{Eni, Instance, World};

use crate::cloud::world::{Vpc, type_remedy};
use crate::control::protocol::{DeviceSettings, is_name};
use crate::failure::WrongSettings;
use crate::helper::Meet;
use crate::interfaces::adapter::{Adapter, steering_of};
use crate::interfaces::port::{Bound, Port};
use crate::machine::maker::Needs;
use crate::machine::namespace::{Device, Namespace};
use crate::machine::place::{InstanceNetwork, NetworkRequest, Places};
use crate::machine::resolv_conf::{Resolvers, resolver_of};
use crate::state::{Options, Running, Service};

/// Number at the end of the first device's name, as on EC2.
const DEVICE_FIRST: usize = 5;

impl Service {
    /// Starts the instances of this host that do not run yet and whose networks were created
    /// before.
    pub(crate) fn make_guests(&mut self, now: Instant, mut places: Places) -> Result<()> {
        self.publisher.names_have_changed();
        let missing = missing(&self.world, &self.options.host, &self.guests.by_name);
        self.guests.left_out.retain(|left| missing.iter().any(|(_, name)| name == left));
        for (id, name) in missing {
            let place = match places.remove(&name) {
                Some(place) => place,
                // The front ends of this instance listen already.
                None if self.options.joins(&name) => InstanceNetwork::default(),
                // The instance is left out, or is started later, when its network exists.
                None => continue,
            };
            self.guests.left_out.remove(&name);
            self.make(now, id, &name, place).with_context(|| format!("instance `{name}`"))?;
        }
        places.into_values().for_each(|place| self.maker.remove(place));
        for running in self.guests.by_name.values_mut() {
            running.namespace.iter_mut().for_each(Namespace::settle);
        }
        Ok(())
    }

    fn make(
        &mut self,
        now: Instant,
        id: InstanceId,
        name: &str,
        place: InstanceNetwork,
    ) -> Result<()> {
        let (kind, enis) = kind_of(&self.world, id)?;
        let profile = burst_of(Profile::of(kind), &self.options);
        let socket = self.options.vhost_user.get(name).cloned();
        let InstanceNetwork { devices: queues, mut namespace, sockets, pod } = place;
        let (mut queues, mut sockets) = (queues.into_iter(), sockets.into_iter());
        if let Some(namespace) = &mut namespace {
            namespace.set_ends_programs(self.options.end_programs);
        }
        let mut guests = Vec::new();
        let mut devices = Vec::new();
        let (settings, steering) = (DeviceSettings::of(&kind), Arc::new(steering_of(&kind)));
        for (place, eni) in enis.iter().enumerate() {
            let interface = &self.world.enis[eni];
            guests.push(Guest { eni: *eni, timeouts: timeouts_of(Some(interface), &kind)? });
            let mut device = device(&self.world, interface, place);
            if let Some(pod) = pod.as_ref().filter(|_| place == 0) {
                device.set_pod(pod);
            }
            let port = match &socket {
                None => {
                    let (settings, steering) = (settings.clone(), Arc::clone(&steering));
                    let queues = queues.next().context("a device was not made")?;
                    let eni = u16::try_from(place).unwrap_or(u16::MAX);
                    Port::tun(queues, Adapter::new(now, settings, steering, eni)?)
                }
                Some(path) => {
                    let link = link(&self.world, interface);
                    match self.options.joins(name) {
                        true => Port::joining(&socket_of(path, &device), link)?,
                        false => {
                            Port::vhost(sockets.next().context("a socket was not made")?, link)?
                        }
                    }
                }
            };
            devices.push((*eni, device, port));
        }
        let ports = self.card.add_instance(now, &profile, &guests);
        match self.take_part(&ports, &kind, devices) {
            Ok(interfaces) => {
                let running = Running { id, namespace, profile, interfaces, steering };
                self.guests.by_name.insert(name.to_owned(), running);
                Ok(())
            }
            // Without this removal, the card would keep an instance that cannot be removed later.
            Err(error) => {
                drop(self.end(now, &ports));
                Err(error)
            }
        }
    }

    /// Adds an instance to the schedule by which packets are read, and watches its devices.
    fn take_part(
        &mut self,
        ports: &[PortId],
        kind: &InstanceType,
        devices: Vec<(EniId, Device, Port)>,
    ) -> Result<Vec<(PortId, EniId, Device)>> {
        self.share(ports, kind)?;
        let mut interfaces = Vec::new();
        for (port, (eni, device, at)) in ports.iter().zip(devices) {
            self.watch(*port, at)?;
            interfaces.push((*port, eni, device));
        }
        Ok(interfaces)
    }

    /// Removes an instance from the card. Returns the queues of its devices, which the caller has
    /// to close.
    fn end(&mut self, now: Instant, ports: &[PortId]) -> Vec<Vec<Tun>> {
        let mut devices = Vec::new();
        for port in ports {
            let device = self.devices.remove(port);
            devices.extend(device.map(Port::into_queues));
            self.gone.forget(*port);
            self.sockets.retain(|socket| socket != port);
            self.services.forget(*port);
        }
        if let Some(port) = ports.first() {
            if let Some(tenant) = self.card.tenant_of(*port) {
                self.turns.remove(tenant);
            }
            self.card.remove_instance(now, *port);
        }
        devices
    }

    /// Gives an instance its share of the loop's time, in proportion to its vCPUs.
    pub(crate) fn share(&mut self, ports: &[PortId], kind: &InstanceType) -> Result<()> {
        let tenant = ports.first().and_then(|port| self.card.tenant_of(*port));
        tenant.map_or(Ok(()), |tenant| self.turns.add(tenant, kind.vcpus))
    }

    /// Adds the device of an interface, and watches it for packets.
    pub(crate) fn watch(&mut self, port: PortId, device: Port) -> Result<()> {
        self.watch_or_return(port, device).map_err(|(error, _)| error)
    }

    /// Adds the device of an interface, and watches it for packets. Returns the device if that
    /// fails.
    pub(crate) fn watch_or_return(
        &mut self,
        port: PortId,
        mut device: Port,
    ) -> std::result::Result<(), (anyhow::Error, Port)> {
        let tenant = self.card.tenant_of(port).context("an interface of no instance");
        let watched = tenant.and_then(|tenant| self.turns.watch(port, tenant, &device));
        if let Err(error) = watched {
            return Err((error, device));
        }
        match (device.kernel_mut(), &self.processors) {
            (Some(kernel), Some(processors)) => kernel.deliver_by(processors),
            (Some(_), None) => {}
            (None, _) => self.sockets.push(port),
        }
        self.devices.insert(port, device);
        Ok(())
    }

    /// After a take-over, creates the vhost-user sockets of interfaces that belonged to the
    /// previous process.
    pub(crate) fn begin_sockets(&mut self) -> Result<()> {
        let Self { guests, options, world, helper, .. } = self;
        let mut made = Vec::new();
        for (name, running) in &guests.by_name {
            let Some(path) = options.vhost_user.get(name) else { continue };
            for (port, eni, device) in &running.interfaces {
                let path = socket_of(path, device);
                let Some(interface) = world.enis.get(eni) else { continue };
                let link = link(world, interface);
                let at = match options.joins(name) {
                    true => Port::joining(&path, link)?,
                    false => Port::vhost(Bound::listen(&path, Meet::Replaces, helper)?, link)?,
                };
                made.push((*port, at));
            }
        }
        made.into_iter().try_for_each(|(port, device)| self.watch(port, device))
    }

    /// Puts another VPC in force. Its rules are applied before instances are added and removed, so
    /// that from then on no old rule admits a packet.
    pub(crate) fn apply(&mut self, now: Instant, vpc: Vpc, places: Places) -> Result<()> {
        let world = vpc.world();
        self.publisher.names_have_changed();
        self.follow(now, &world)?;
        // Packets that wait for an interrupt were admitted by the old rules. They are sent before
        // the change is acknowledged.
        for device in self.devices.values_mut() {
            if let Some(kernel) = device.kernel_mut() {
                kernel.interrupt_all();
            }
        }
        self.world = world;
        self.services.set_world();
        self.vpc = vpc;
        self.see_workers();
        self.set_edges();
        self.end_routes();
        self.remove_guests(now);
        self.make_guests(now, places)?;
        self.settle_guests(now);
        Ok(())
    }

    /// Applies settings that depend on the VPC to all running instances: resolvers, Ethernet links,
    /// flow logs.
    pub(crate) fn settle_guests(&mut self, now: Instant) {
        self.set_resolvers();
        for (port, eni, _) in self.guests.by_name.values().flat_map(|of| &of.interfaces) {
            if let (Some(device), Some(eni)) =
                (self.devices.get_mut(port), self.world.enis.get(eni))
            {
                device.set_link(link(&self.world, eni));
            }
        }
        self.plan_logs(now);
    }

    /// Removes routes of addresses that no instance has any more.
    fn end_routes(&mut self) {
        let Some(edge) = &mut self.gateways.edge else { return };
        let over = edge.take_over(&Vpc::publics(&self.world));
        if !over.is_empty()
            && let Err(error) = self.maker.route(BTreeSet::new(), over)
        {
            tracing::warn!("routes of public addresses stay: {error:#}");
        }
    }

    /// Gives each namespace the resolver of its cloud.
    pub(crate) fn set_resolvers(&mut self) {
        let resolver = |running: &Running| {
            let namespace = running.namespace.as_ref()?.name().clone();
            Some((namespace, resolver_of(&self.world, running.interfaces.first()?.1)?))
        };
        let wanted = self.guests.by_name.values().filter_map(resolver).collect();
        let changes = self.resolvers.set(wanted);
        if !changes.is_empty()
            && let Err(error) = self.maker.set_resolvers(changes)
        {
            tracing::warn!("resolvers of instances: {error:#}");
            self.resolvers = Resolvers::default();
        }
    }

    /// Removes instances that are not on this host any more, or whose interfaces have changed.
    pub(crate) fn remove_guests(&mut self, now: Instant) {
        let (world, host) = (&self.world, &self.options.host);
        let stays = |running: &Running| {
            let instance = world.instances.get(&running.id);
            let here = instance.is_some_and(|i| i.host.as_ref() == Some(host));
            let own = world.enis.iter().filter(|(_, eni)| {
                eni.attachment.as_ref().is_some_and(|at| at.instance == running.id)
            });
            let as_many = own.clone().count() == running.interfaces.len();
            let same = as_many && { own }.all(|(id, eni)| {
                let mut there = running.interfaces.iter();
                there.any(|(_, of, device)| of == id && has_addresses(device, eni))
            });
            let type_stays =
                instance.is_some_and(|i| i.instance_type == running.profile.instance.name);
            here && same && type_stays
        };
        let gone: Vec<String> = self
            .guests
            .by_name
            .iter()
            .filter(|(_, running)| !stays(running))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some(running) = self.guests.by_name.remove(&name) {
                let ports: Vec<PortId> =
                    running.interfaces.iter().map(|(port, ..)| *port).collect();
                let devices = self.end(now, &ports);
                let mut namespace = running.namespace;
                // Programs of an instance that is made again continue in its namespace.
                let is_made_again = self.world.instances.get(&running.id);
                let host = &self.options.host;
                if is_made_again.is_some_and(|of| of.host.as_ref() == Some(host))
                    && let Some(namespace) = &mut namespace
                {
                    namespace.set_ends_programs(false);
                }
                let removed = InstanceNetwork { devices, namespace, ..Default::default() };
                self.maker.remove(removed);
            }
        }
    }
}

/// Returns the instances of this host that do not run.
fn missing(
    world: &World,
    host: &str,
    running: &BTreeMap<String, Running>,
) -> Vec<(InstanceId, String)> {
    let of_host = world.instances.iter();
    of_host
        .filter(|(_, instance)| instance.host.as_deref() == Some(host))
        .map(|(id, instance)| (*id, instance.name.clone()))
        .filter(|(_, name)| !running.contains_key(name))
        .collect()
}

impl Service {
    /// Returns the objects that the helper has to create for a world: networks, sockets and routes.
    pub(crate) fn needs(&self, world: &World) -> Result<Needs> {
        let mut needs = Needs::default();
        for (id, name) in missing(world, &self.options.host, &self.guests.by_name) {
            match self.options.vhost_user.get(&name) {
                Some(_) if self.options.joins(&name) => {}
                Some(path) => {
                    let devices = wanted(world, id, &name)?.devices;
                    let paths = devices.iter().map(|device| socket_of(path, device));
                    needs.sockets.push((name, paths.collect()));
                }
                None => {
                    let may_find = self.guests.left_out.contains(&name);
                    needs.wanted.push(NetworkRequest { may_find, ..wanted(world, id, &name)? });
                }
            }
        }
        if let Some(edge) = &self.gateways.edge {
            needs.routes = edge.missing(&Vpc::publics(world));
        }
        Ok(needs)
    }

    /// Returns the objects that have to be created again for the world in force, because the type
    /// or the addresses of an instance have changed. Programs in the namespaces of these instances
    /// continue.
    pub(crate) fn needs_again(&self) -> Result<Needs> {
        let mut needs = self.needs(&self.world)?;
        needs.wanted.retain(|of| !self.guests.left_out.contains(&of.name));
        needs.wanted.iter_mut().for_each(|of| of.may_find = true);
        Ok(needs)
    }
}

fn wanted(world: &World, id: InstanceId, name: &str) -> Result<NetworkRequest> {
    let (kind, enis) = kind_of(world, id)?;
    let pod = world.instances.get(&id).and_then(|instance| instance.pod.clone());
    let settings = DeviceSettings::of(&kind);
    let devices = enis.iter().enumerate();
    let devices = devices.filter_map(|(n, eni)| Some(device(world, world.enis.get(eni)?, n)));
    Ok(NetworkRequest {
        name: name.to_owned(),
        devices: devices.collect(),
        queues: settings.queues,
        tx_ring: settings.tx_ring,
        resolver: enis.first().and_then(|eni| resolver_of(world, *eni)),
        may_find: false,
        pod,
    })
}

/// Returns an error for an instance of this host that cannot be started, before anything is
/// changed. `world`: the objects of `vpc`.
pub(crate) fn check(vpc: &Vpc, world: &World) -> Result<()> {
    for (id, instance) in vpc.instances_here(world) {
        if let Some(error) = unknown_type(vpc, instance) {
            return Err(error.into());
        }
        kind_of(world, *id)
            .map_err(|error| WrongSettings(format!("instance `{}`: {error:#}", instance.name)))?;
    }
    Ok(())
}

/// Returns the error for an instance whose type does not exist and has a position in the file.
fn unknown_type(vpc: &Vpc, instance: &Instance) -> Option<ConfigError> {
    let kind = &instance.instance_type;
    let unknown = InstanceType::find(kind).err()?;
    // The position is that of the first instance with this type.
    let name = vpc.types().instance(kind).unwrap_or(&instance.name);
    let what = format!("instance `{name}`: there is no instance type `{kind}`");
    vpc.types().error(kind, what, type_remedy(&unknown))
}

/// Returns a profile with the credits and the scale of these options.
pub(crate) fn burst_of(profile: Profile, options: &Options) -> Profile {
    let burst = Duration::from_secs(options.credits_s.into());
    profile.with_burst(burst).scaled(options.scale)
}

/// Returns the idle timeouts of tracked connections of an interface. For an interface that does not
/// exist any more (`None`), these are the defaults of the instance type.
pub(crate) fn timeouts_of(eni: Option<&Eni>, kind: &InstanceType) -> Result<Timeouts> {
    let (tcp, stream, udp) = kind.timeouts.seconds();
    let own = eni.map(|eni| eni.tracking).unwrap_or_default();
    let or = |own: Option<u32>, of_type| own.unwrap_or(of_type);
    let times =
        Timeouts::new(or(own.tcp_established, tcp), or(own.udp_stream, stream), or(own.udp, udp));
    times.map_err(|e| anyhow::anyhow!("{e}"))
}

/// Returns the type of an instance, and its interfaces in the order of their devices. Checks that
/// the type supports the interfaces.
fn kind_of(world: &World, id: InstanceId) -> Result<(InstanceType, Vec<EniId>)> {
    let instance = world.instances.get(&id).context("there is no such instance")?;
    if !is_name(&instance.name) {
        bail!("this name cannot be a namespace's: use up to 40 letters, digits and hyphens");
    }
    let of = &instance.instance_type;
    let kind = InstanceType::find(of).map_err(|e| anyhow::anyhow!("type {of}: {e}"))?;
    let mut enis: Vec<(u8, EniId)> = Vec::new();
    for (eni, interface) in &world.enis {
        let at = interface.attachment.as_ref().filter(|at| at.instance == id);
        enis.extend(at.map(|at| (at.device_index, *eni)));
        if at.is_some() {
            timeouts_of(Some(interface), &kind)?;
        }
    }
    let rides = |eni: &EniId| {
        let attachment = world.enis.get(eni).and_then(|eni| eni.attachment.as_ref());
        attachment.is_some_and(|of| of.express.enabled)
    };
    if !kind.ena_srd && enis.iter().any(|(_, eni)| rides(eni)) {
        bail!("{of} has no ENA Express: take `express` out, or another type");
    }
    enis.sort_unstable();
    if enis.len() > usize::from(kind.enis_max) {
        let (most, has) = (kind.enis_max, enis.len());
        bail!("{of} has at most {most} interfaces, and this instance has {has}");
    }
    Ok((kind, enis.into_iter().map(|(_, eni)| eni).collect()))
}

fn has_addresses(device: &Device, eni: &Eni) -> bool {
    let all = eni.ipv4.iter().map(|a| IpAddr::V4(*a));
    let all: Vec<IpAddr> = all.chain(eni.ipv6.iter().map(|a| IpAddr::V6(*a))).collect();
    device.addresses.iter().map(|(address, _)| *address).eq(all)
}

fn device(world: &World, eni: &Eni, place: usize) -> Device {
    let subnet = world.subnets.get(&eni.subnet);
    let v4 = subnet.map_or(32, |subnet| subnet.ipv4.prefix_len());
    let v6 = subnet.and_then(|subnet| subnet.ipv6).map_or(128, |block| block.prefix_len());
    let of_v4 = eni.ipv4.iter().map(|address| (IpAddr::V4(*address), v4));
    let addresses = of_v4.chain(eni.ipv6.iter().map(|address| (IpAddr::V6(*address), v6)));
    let name = format!("ens{}", DEVICE_FIRST + place);
    Device { name, addresses: addresses.collect(), is_primary: place == 0 }
}

/// Returns the path of the vhost-user socket of an interface. `path`: the path for the primary
/// interface.
fn socket_of(path: &Path, device: &Device) -> PathBuf {
    if device.is_primary {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(&device.name);
    name.into()
}

/// Returns the Ethernet properties of an interface, as a vhost-user guest sees them.
fn link(world: &World, eni: &Eni) -> Link {
    let subnet = world.subnets.get(&eni.subnet);
    let vpc = subnet.and_then(|subnet| world.vpcs.get(&subnet.vpc));
    let base = vpc.and_then(|vpc| vpc.ipv4.first()).map_or(0, |block| block.network().into());
    let length = subnet.map_or(32, |subnet| subnet.ipv4.prefix_len());
    let ipv6 = subnet.and_then(|subnet| subnet.ipv6);
    Link {
        mac: eni.mac,
        ipv4: eni.ipv4.first().map(|address| (*address, length)),
        resolver: Ipv4Addr::from(u32::wrapping_add(base, 2)),
        ipv6: ipv6.map(|block| (block.network(), block.prefix_len())),
    }
}
