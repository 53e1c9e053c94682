//! Indexes of a world: by host, address, group, instance, subnet.
//!
//! Bound: one entry for each interface of the world, and for each interface one entry for each of
//! its addresses and groups.

use super::blocks::{self, Blocks};
use super::*;
use crate::object::{Eni, Strategy, World};
use core::net::IpAddr;
use ipnet::IpNet;

/// Interfaces by host, address, group, instance and subnet.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// Names of hosts and zones, each stored once.
    names: BTreeSet<Arc<str>>,
    hosts: BTreeMap<Arc<str>, BTreeSet<EniId>>,
    addresses: BTreeMap<VpcId, Blocks<BTreeSet<EniId>>>,
    /// For each group, the address blocks of its interfaces, with the number of interfaces that
    /// have the block.
    groups: BTreeMap<GroupId, Blocks<u32>>,
    instances: BTreeMap<InstanceId, BTreeSet<EniId>>,
    subnets: BTreeMap<SubnetId, BTreeSet<EniId>>,
}

impl Index {
    pub(super) fn new(world: &World) -> Self {
        let mut index = Self::default();
        for (id, eni) in &world.enis {
            index.add(world, *id, eni);
        }
        index
    }

    /// Adds an interface, with the host, cloud and instance that it has in `world`.
    pub(super) fn add(&mut self, world: &World, id: EniId, eni: &Eni) {
        if let Some(host) = host_of(world, eni) {
            let host = self.intern(host);
            self.hosts.entry(host).or_default().insert(id);
        }
        if let Some(subnet) = world.subnets.get(&eni.subnet) {
            self.intern(&subnet.zone);
            let table = self.addresses.entry(subnet.vpc).or_default();
            for block in blocks::of_eni(eni) {
                table.entry(block).insert(id);
            }
        }
        for (group, block) in memberships(eni) {
            *self.groups.entry(group).or_default().entry(block) += 1;
        }
        if let Some(attachment) = &eni.attachment {
            self.instances.entry(attachment.instance).or_default().insert(id);
        }
        self.subnets.entry(eni.subnet).or_default().insert(id);
    }

    /// Removes an interface. The world must still be in the state in which the interface was added.
    pub(super) fn take(&mut self, world: &World, id: EniId, eni: &Eni) {
        if let Some(host) = host_of(world, eni) {
            take(&mut self.hosts, host, id);
        }
        if let Some(subnet) = world.subnets.get(&eni.subnet)
            && let Some(table) = self.addresses.get_mut(&subnet.vpc)
        {
            for block in blocks::of_eni(eni) {
                let having = table.entry(block);
                having.remove(&id);
                if having.is_empty() {
                    table.remove(block);
                }
            }
        }
        for (group, block) in memberships(eni) {
            let Some(of) = self.groups.get_mut(&group) else { continue };
            let count = of.entry(block);
            *count = count.saturating_sub(1);
            if *count == 0 {
                of.remove(block);
            }
        }
        if let Some(attachment) = &eni.attachment {
            take(&mut self.instances, &attachment.instance, id);
        }
        take(&mut self.subnets, &eni.subnet, id);
    }

    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(name) = self.names.get(name) {
            return name.clone();
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        name
    }

    fn name(&self, name: &str) -> Arc<str> {
        self.names.get(name).cloned().unwrap_or_else(|| name.into())
    }

    /// Returns the interfaces of a host, in the order of their identifiers.
    pub(super) fn on_host<'a>(
        &'a self,
        world: &'a World,
        host: &str,
    ) -> impl Iterator<Item = (EniId, &'a Eni)> + use<'a> {
        let ids = self.hosts.get(host).into_iter().flatten();
        ids.filter_map(|id| Some((*id, world.enis.get(id)?)))
    }

    pub(super) fn of_instance(&self, id: InstanceId) -> impl Iterator<Item = EniId> + '_ {
        self.instances.get(&id).into_iter().flatten().copied()
    }

    pub(super) fn of_subnet(&self, id: SubnetId) -> impl Iterator<Item = EniId> + '_ {
        self.subnets.get(&id).into_iter().flatten().copied()
    }

    /// Returns the interface of a cloud that has this address; if several interfaces have it, the
    /// interface with the smallest identifier.
    pub(super) fn at(&self, vpc: VpcId, address: IpAddr) -> Option<EniId> {
        self.addresses.get(&vpc)?.at(address).filter_map(|having| having.first()).min().copied()
    }

    /// Returns all interfaces of a cloud that have this address: at most one, unless several
    /// interfaces were given the same address.
    pub(super) fn all_at(
        &self,
        vpc: VpcId,
        address: IpAddr,
    ) -> impl Iterator<Item = EniId> + use<'_> {
        let table = self.addresses.get(&vpc).into_iter();
        table.flat_map(move |table| table.at(address)).flatten().copied()
    }

    /// Returns the addresses of a group's interfaces.
    pub(super) fn members(&self, id: GroupId) -> Blocks<()> {
        self.groups.get(&id).map(Blocks::set).unwrap_or_default()
    }

    pub(super) fn is_member(&self, id: GroupId, block: IpNet) -> bool {
        self.groups.get(&id).is_some_and(|of| of.of(block).is_some())
    }

    pub(super) fn place(&self, world: &World, id: EniId, eni: &Eni) -> Location {
        let instance = eni.attachment.as_ref().map(|attachment| attachment.instance);
        let instance = instance.and_then(|id| world.instances.get(&id));
        let cluster = instance.and_then(|instance| instance.placement).filter(|id| {
            let placement = world.placements.get(id);
            placement.is_some_and(|placement| placement.strategy == Strategy::Cluster)
        });
        let zone = world.subnets.get(&eni.subnet).map_or("", |subnet| &subnet.zone);
        Location {
            eni: id,
            subnet: eni.subnet,
            host: host_of(world, eni).map(|host| self.name(host)),
            zone: self.name(zone),
            express: eni.attachment.as_ref().map(|a| a.express).unwrap_or_default(),
            cluster,
        }
    }

    pub(super) fn remote(&self, world: &World, id: EniId, eni: &Eni) -> Remote {
        let mut own = Blocks::default();
        blocks::of_eni(eni).for_each(|block| own.add(block));
        let vpc = world.subnets.get(&eni.subnet).map(|subnet| subnet.vpc);
        let source_dest_check = eni.source_dest_check;
        Remote { vpc, source_dest_check, own, place: self.place(world, id, eni) }
    }
}

/// Returns each pair of a group and a block of the interface.
pub(super) fn memberships(eni: &Eni) -> impl Iterator<Item = (GroupId, IpNet)> + '_ {
    let groups: BTreeSet<GroupId> = eni.groups.iter().copied().collect();
    groups.into_iter().flat_map(|group| blocks::of_eni(eni).map(move |block| (group, block)))
}

/// Returns the host of an interface.
pub(super) fn host_of<'a>(world: &'a World, eni: &Eni) -> Option<&'a str> {
    let instance = eni.attachment.as_ref()?.instance;
    world.instances.get(&instance)?.host.as_deref()
}

fn take<K, Q>(all: &mut BTreeMap<K, BTreeSet<EniId>>, key: &Q, id: EniId)
where
    K: Ord + core::borrow::Borrow<Q>,
    Q: Ord + ?Sized,
{
    let Some(ids) = all.get_mut(key) else { return };
    ids.remove(&id);
    if ids.is_empty() {
        all.remove(key);
    }
}
