//! Several workers of one host. Each worker has a card of its own, with some of the instances of
//! the host. All interfaces of an instance belong to one worker. So the limits, the tracked
//! connections and the counters of an instance are exact, and no worker waits for another worker.
//!
//! For the rules, each worker is a host of its own: [`Partition::divide`] replaces the name of the
//! host by the name of the worker. The first worker keeps the name of the host. Packets between two
//! workers are evaluated at both ends, as packets between two hosts are (W1, W2 of
//! `docs/spec/card.md`).
//!
//! Bounds: [`WORKERS_MAX`] workers; [`REMEMBERED_MAX`] instances that no longer exist keep their
//! worker, in case that they return.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_vpc::id::{EniId, InstanceId, NatGatewayId};
use srd_vpc::object::{Instance, World};

use super::envelope::Envelope;
use super::tables::fragments::{Datagram, Fragments};
use super::tables::nat;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::Packet;

/// Largest number of workers of one host.
pub const WORKERS_MAX: u8 = 8;
/// Largest number of instances that no longer exist and whose workers are remembered.
pub const REMEMBERED_MAX: usize = 4096;

/// Assignment of the instances of one host to its workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Names of the workers. The first one is the name of the host.
    names: Vec<Arc<str>>,
    workers: BTreeMap<InstanceId, u8>,
}

impl Partition {
    /// Creates the partition of a host without instances. The number of workers is at least one and
    /// at most [`WORKERS_MAX`]; another number is replaced by the nearest one.
    pub fn new(host: &str, workers: u8) -> Self {
        let further = 1..workers.clamp(1, WORKERS_MAX);
        // The names of hosts contain no parentheses.
        let further = further.map(|worker| format!("{host} (worker {worker})").into());
        let names = [host.into()].into_iter().chain(further).collect();
        Self { names, workers: BTreeMap::new() }
    }

    /// Returns the names of the workers, in order.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Whether there is only one worker, which has all instances of the host.
    pub fn is_whole(&self) -> bool {
        self.names.len() == 1
    }

    /// Gives an instance to a worker, which keeps it. Returns false if there is no such worker.
    pub fn assign(&mut self, instance: InstanceId, worker: u8) -> bool {
        let is_there = usize::from(worker) < self.names.len();
        if is_there {
            self.workers.insert(instance, worker);
        }
        is_there
    }

    /// Replaces the host of each instance of this host by the name of the instance's worker. An
    /// instance keeps its worker. A new instance gets the worker whose instances have the smallest
    /// sum of weights. The result follows from the partition and the objects, and the partition
    /// stays as it is until the objects are in force ([`Partition::keep`]): so all workers divide
    /// them in the same way, and a file that is refused changes nothing.
    pub fn divide(&self, world: &mut World, weight: impl Fn(&Instance) -> u32) {
        if self.is_whole() {
            return;
        }
        let own = Arc::clone(&self.names[0]);
        let is_here = |instance: &Instance| instance.host.as_deref() == Some(&*own);
        let mut loads = vec![0_u64; self.names.len()];
        for (id, instance) in world.instances.iter().filter(|(_, of)| is_here(of)) {
            if let Some(worker) = self.workers.get(id) {
                loads[usize::from(*worker)] += u64::from(weight(instance).max(1));
            }
        }
        for (id, instance) in world.instances.iter_mut().filter(|(_, of)| is_here(of)) {
            let worker = self.workers.get(id).copied().unwrap_or_else(|| {
                let least = (0_u8..).zip(&loads).min_by_key(|(_, load)| **load);
                let worker = least.map_or(0, |(worker, _)| worker);
                loads[usize::from(worker)] += u64::from(weight(instance).max(1));
                worker
            });
            instance.host = Some(String::from(&*self.names[usize::from(worker)]));
        }
    }

    /// Remembers the workers of the instances of divided objects, which are in force everywhere.
    pub fn keep(&mut self, world: &World) {
        if self.is_whole() {
            return;
        }
        for (id, instance) in &world.instances {
            if let Some(worker) = self.worker_named(instance.host.as_deref()) {
                self.workers.insert(*id, worker);
            }
        }
        self.forget_some(world);
    }

    fn worker_named(&self, host: Option<&str>) -> Option<u8> {
        let mut all = (0_u8..).zip(&self.names);
        all.find(|(_, name)| host == Some(&***name)).map(|(worker, _)| worker)
    }

    /// Removes the workers of some instances that no longer exist, if there are more than
    /// [`REMEMBERED_MAX`].
    fn forget_some(&mut self, world: &World) {
        let gone = |id: &InstanceId| !world.instances.contains_key(id);
        let surplus = self.workers.keys().filter(|id| gone(id)).count();
        let surplus = surplus.saturating_sub(REMEMBERED_MAX);
        let first = self.workers.keys().filter(|id| gone(id)).take(surplus);
        let first: Vec<InstanceId> = first.copied().collect();
        for id in first {
            self.workers.remove(&id);
        }
    }

    /// Returns the view that a worker has of the other workers. `world`: the divided objects.
    pub fn view(&self, worker: u8, world: &World) -> Beside {
        let mut owners = BTreeMap::new();
        let mut publics = BTreeMap::new();
        let mut nats = BTreeSet::new();
        if !self.is_whole() {
            for (id, eni) in &world.enis {
                let instance = eni.attachment.as_ref().map(|at| at.instance);
                let instance = instance.and_then(|id| world.instances.get(&id));
                let worker = self.worker_named(instance.and_then(|of| of.host.as_deref()));
                owners.extend(worker.map(|worker| (*id, worker)));
            }
            for address in world.addresses.values() {
                let eni = address.association.map(|(eni, _)| eni);
                publics.extend(eni.map(|eni| (address.public, eni)));
            }
            nats.extend(world.nat_gateways.keys().copied());
        }
        Beside { worker, names: self.names.clone(), owners, publics, nats }
    }
}

/// The view that one worker has of the other workers of its host: which worker has which interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beside {
    worker: u8,
    names: Vec<Arc<str>>,
    owners: BTreeMap<EniId, u8>,
    /// The interfaces with a public address, also those of other hosts.
    publics: BTreeMap<core::net::Ipv4Addr, EniId>,
    nats: BTreeSet<NatGatewayId>,
}

impl Beside {
    /// Number of this worker.
    pub fn worker(&self) -> u8 {
        self.worker
    }

    /// Whether this worker has all instances of the host.
    pub fn is_alone(&self) -> bool {
        self.names.len() == 1
    }

    /// Returns the name of this worker, which is the name of its card.
    pub fn name(&self) -> &Arc<str> {
        &self.names[usize::from(self.worker)]
    }

    /// Returns the name of the first worker, which connects the gateways of the host to the network
    /// outside of the cloud.
    pub fn first(&self) -> &Arc<str> {
        &self.names[0]
    }

    /// Returns the names of the other workers.
    pub fn others(&self) -> BTreeSet<Arc<str>> {
        let all = self.names.iter().filter(|name| *name != self.name());
        all.map(Arc::clone).collect()
    }

    /// Returns the number of the other worker with this name; `None` for any other host.
    #[inline]
    pub fn other_named(&self, name: &str) -> Option<u8> {
        if self.is_alone() {
            return None;
        }
        let mut all = (0_u8..).zip(&self.names);
        let (worker, _) = all.find(|(_, of)| ***of == *name)?;
        (worker != self.worker).then_some(worker)
    }

    /// Returns the other worker that has an interface; `None` if this worker has the interface, or
    /// no worker has it.
    #[inline]
    pub fn other_with(&self, eni: EniId) -> Option<u8> {
        let worker = *self.owners.get(&eni)?;
        (worker != self.worker).then_some(worker)
    }

    /// Returns the other worker whose interface has a public address.
    pub fn other_at(&self, public: core::net::Ipv4Addr) -> Option<u8> {
        self.other_with(self.interface_at(public)?)
    }

    /// Returns the interface that has a public address.
    pub fn interface_at(&self, public: core::net::Ipv4Addr) -> Option<EniId> {
        self.publics.get(&public).copied()
    }
}

/// Finds the workers for frames that other hosts have sent. Other hosts have no list of the
/// workers of an interface, so a frame may arrive at any worker.
#[derive(Debug)]
pub struct Redirect {
    /// The view of the worker at which the frames arrive.
    pub beside: Beside,
    /// Workers of datagrams for NAT gateways whose first fragments have arrived, by the host that
    /// has sent them. Their later fragments contain no ports.
    firsts: Fragments<u8, Arc<str>, (Arc<str>, EniId, Datagram)>,
}

impl Redirect {
    /// Creates the redirection of a worker.
    pub fn new(beside: Beside) -> Self {
        Self { beside, firsts: Fragments::default() }
    }

    /// Returns the other worker for which a frame from `host` is; `None` if this worker takes the
    /// frame. An answer for a NAT gateway is for the worker to which the gateway's port belongs. A
    /// host can name interfaces of others, so its fragments count as its own only. // W3
    pub fn other_for(
        &mut self,
        now: Instant,
        host: &Arc<str>,
        envelope: &Envelope,
        frame: &[u8],
    ) -> Option<u8> {
        match *envelope {
            Envelope::Between { to, .. }
            | Envelope::Translated { to, .. }
            | Envelope::FromNat { to, .. } => self.beside.other_with(to),
            Envelope::ToNat { from, nat } if self.beside.nats.contains(&nat) => {
                let worker = self.with_port(now, (host, from), frame);
                worker.filter(|worker| *worker != self.beside.worker)
            }
            // Only the edge of this host sends these, and the card refuses others. It also refuses
            // packets for NAT gateways that do not exist.
            Envelope::ToNat { .. }
            | Envelope::Arriving
            | Envelope::Leaving { .. }
            | Envelope::ByNat { .. } => None,
        }
    }

    /// Returns the worker to which the port of a NAT gateway belongs that a frame is for; `None` if
    /// neither the frame nor the first fragment of its datagram has such a port.
    fn with_port(
        &mut self,
        now: Instant,
        (host, from): (&Arc<str>, EniId),
        frame: &[u8],
    ) -> Option<u8> {
        let parts = u8::try_from(self.beside.names.len()).unwrap_or(WORKERS_MAX);
        let packet = Packet::read(frame.get(OFFLOAD_BYTES..)?)?;
        let datagram = Datagram::of(&packet, &frame[OFFLOAD_BYTES..]);
        let key = datagram.map(|datagram| (Arc::clone(host), from, datagram));
        match (nat::part_of(frame, parts), key) {
            (Some(worker), Some(key)) => {
                self.firsts.put(now, Arc::clone(host), key, worker);
                Some(worker)
            }
            (None, Some(key)) => self.firsts.get(now, &key),
            (worker, None) => worker,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_vpc::id::SubnetId;
    use srd_vpc::object::NatGateway;

    fn world(instances: &[(u64, &str)]) -> World {
        let mut world = World::default();
        for (id, host) in instances {
            let instance = Instance {
                name: String::new(),
                instance_type: "c7i.large".into(),
                zone: "a".into(),
                placement: None,
                host: Some((*host).into()),
                pod: None,
            };
            world.instances.insert(InstanceId(*id), instance);
        }
        world
    }

    fn hosts(world: &World) -> Vec<(u64, &str)> {
        let all = world.instances.iter();
        all.map(|(id, of)| (id.0, of.host.as_deref().unwrap())).collect()
    }

    #[test]
    fn one_worker_has_everything_under_the_name_of_the_host() {
        let partition = Partition::new("here", 1);
        let before = world(&[(1, "here"), (2, "there")]);
        let mut after = before.clone();
        partition.divide(&mut after, |_| 1);
        assert_eq!(hosts(&after), hosts(&before));
        let view = partition.view(0, &after);
        assert!(view.is_alone() && view.other_named("here").is_none());
        assert_eq!((&**view.name(), view.others().len()), ("here", 0));
    }

    #[test]
    fn instances_are_divided_by_weight_and_those_of_other_hosts_stay() {
        let partition = Partition::new("here", 2);
        let mut all = world(&[(1, "here"), (2, "here"), (3, "there"), (4, "here"), (5, "here")]);
        // The first instance weighs as much as the three others together.
        let heavy = all.instances[&InstanceId(1)].clone();
        all.instances.get_mut(&InstanceId(1)).unwrap().instance_type = "heavy".into();
        assert_ne!(all.instances[&InstanceId(1)], heavy);
        partition.divide(&mut all, |of| if of.instance_type == "heavy" { 6 } else { 2 });
        let second = "here (worker 1)";
        let wanted = [(1, "here"), (2, second), (3, "there"), (4, second), (5, second)];
        assert_eq!(hosts(&all), wanted);
        let view = partition.view(1, &all);
        assert_eq!((view.other_named("here"), view.other_named(second)), (Some(0), None));
        assert_eq!(view.other_named("there"), None);
        assert_eq!(view.others().iter().map(|of| &**of).collect::<Vec<_>>(), ["here"]);
    }

    #[test]
    fn an_instance_keeps_its_worker_also_while_it_is_gone() {
        let mut partition = Partition::new("here", 2);
        let all = [(1, "here"), (2, "here"), (3, "here")];
        let divided = |partition: &mut Partition, instances: &[(u64, &str)]| {
            let mut world = world(instances);
            partition.divide(&mut world, |_| 1);
            partition.keep(&world);
            let all = hosts(&world).into_iter();
            all.map(|(id, host)| (id, usize::from(host != "here"))).collect::<Vec<_>>()
        };
        assert_eq!(divided(&mut partition, &all), [(1, 0), (2, 1), (3, 0)]);
        assert_eq!(divided(&mut partition, &all[1..]), [(2, 1), (3, 0)]);
        // The place of the instance that has gone is free, and its worker is remembered.
        let with_other = [(2, "here"), (3, "here"), (4, "here"), (5, "here")];
        assert_eq!(divided(&mut partition, &with_other), [(2, 1), (3, 0), (4, 0), (5, 1)]);
        assert_eq!(divided(&mut partition, &all), [(1, 0), (2, 1), (3, 0)]);
    }

    #[test]
    fn workers_of_instances_that_are_gone_are_remembered_up_to_a_bound() {
        let mut partition = Partition::new("here", 2);
        for id in 0..REMEMBERED_MAX as u64 + 10 {
            assert!(partition.assign(InstanceId(id), 1));
        }
        assert!(!partition.assign(InstanceId(7), 2), "there is no such worker");
        let mut all = world(&[(9999, "here")]);
        partition.divide(&mut all, |_| 1);
        partition.keep(&all);
        assert_eq!(partition.workers.len(), REMEMBERED_MAX + 1);
        assert_eq!(Partition::new("here", 0).names().len(), 1);
        assert_eq!(Partition::new("here", 200).names().len(), usize::from(WORKERS_MAX));
    }

    /// A file that was refused made the host forget instances, which moved to another worker when
    /// they returned, and gave workers to instances that never existed.
    #[test]
    fn regression_a_file_that_is_refused_changes_nothing() {
        let mut partition = Partition::new("here", 2);
        let gone = 0..REMEMBERED_MAX as u64 + 10;
        gone.for_each(|id| assert!(partition.assign(InstanceId(id), 1)));
        let before = partition.clone();
        let divided = |partition: &Partition| {
            let mut world = world(&[(1 << 32, "here"), (1 << 33, "here"), (1 << 34, "there")]);
            partition.divide(&mut world, |_| 1);
            world
        };
        let world = divided(&partition);
        assert_eq!((divided(&partition), &partition), (world.clone(), &before));
        // Another worker of the host divides the objects after the first one has kept them.
        partition.keep(&world);
        assert_eq!(partition.workers.len(), REMEMBERED_MAX + 2);
        assert!(!partition.workers.contains_key(&InstanceId(1 << 34)), "it is on another host");
        assert_eq!(divided(&partition), world);
        let kept = partition.clone();
        partition.keep(&world);
        assert_eq!(partition, kept);
    }

    /// A frame from an instance to a NAT gateway, as another host sends it: the first fragment of a
    /// datagram, for this port, or a later fragment.
    fn fragment(port: Option<u16>) -> Vec<u8> {
        let mut frame = vec![0; OFFLOAD_BYTES];
        let offset: u16 = if port.is_some() { 0x2000 } else { 3 };
        frame.extend([0x45, 0, 0, 44, 0, 9]);
        frame.extend(offset.to_be_bytes());
        frame.extend([64, 17, 0, 0, 10, 0, 1, 10, 10, 0, 2, 20]);
        frame.extend([0; 2]);
        frame.extend(port.unwrap_or_default().to_be_bytes());
        frame.resize(OFFLOAD_BYTES + 44, 0);
        frame
    }

    /// A first fragment of any host decided to which worker the later fragments of all other hosts
    /// went.
    #[test]
    fn regression_fragments_of_a_host_follow_the_first_fragment_of_this_host_only() {
        let partition = Partition::new("here", 2);
        let mut world = World::default();
        let nat = NatGatewayId(5);
        let gateway = NatGateway {
            name: String::new(),
            subnet: SubnetId(1),
            private: core::net::Ipv4Addr::new(10, 0, 2, 20),
            address: None,
        };
        world.nat_gateways.insert(nat, gateway);
        let mut redirect = Redirect::new(partition.view(0, &world));
        let (own, mallory) = (Arc::from("there"), Arc::from("mallory"));
        let envelope = Envelope::ToNat { from: EniId(7), nat };
        let mut other = |host: &Arc<str>, port: Option<u16>| {
            redirect.other_for(Instant::ZERO, host, &envelope, &fragment(port))
        };
        let [of_first, of_second] = [0, 1].map(|worker| {
            let is_its = |port: &u16| nat::part_of(&fragment(Some(*port)), 2) == Some(worker);
            (40_000..40_010).find(is_its).unwrap()
        });
        assert_eq!(other(&own, Some(of_second)), Some(1));
        assert_eq!(other(&own, None), Some(1));
        // Another host names the same interface, and the same datagram.
        assert_eq!(other(&mallory, None), None, "it has sent no first fragment");
        assert_eq!(other(&mallory, Some(of_first)), None);
        assert_eq!(other(&own, None), Some(1));
        // A gateway that does not exist has no worker.
        let unknown = Envelope::ToNat { from: EniId(7), nat: NatGatewayId(6) };
        let frame = fragment(Some(of_second));
        assert_eq!(redirect.other_for(Instant::ZERO, &own, &unknown, &frame), None);
    }
}
