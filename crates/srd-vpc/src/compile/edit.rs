//! Changes of a world, one object at a time.

use super::blocks::differing;
use crate::id::*;
use crate::object::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The new state of an object; `None`: the object is removed. The tables that are compiled for a
/// host do not depend on DHCP options, logs and mirrors, so these objects have no edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Change of a cloud.
    Vpc(VpcId, Option<Vpc>),
    /// Change of a subnet.
    Subnet(SubnetId, Option<Subnet>),
    /// Change of a route table.
    RouteTable(RouteTableId, Option<RouteTable>),
    /// Change of an access control list.
    Acl(AclId, Option<Acl>),
    /// Change of a security group and its rules.
    Group(GroupId, Option<Group>),
    /// Change of a prefix list.
    PrefixList(PrefixListId, Option<PrefixList>),
    /// An interface: addresses, groups, attachment.
    Interface(EniId, Option<Eni>),
    /// Change of an instance, with its host.
    Instance(InstanceId, Option<Instance>),
    /// Change of a placement group.
    Placement(PlacementId, Option<Placement>),
    /// Change of an internet gateway.
    InternetGateway(InternetGatewayId, Option<InternetGateway>),
    /// Change of an egress-only internet gateway.
    EgressOnlyGateway(EgressOnlyGatewayId, Option<EgressOnlyGateway>),
    /// Change of a NAT gateway.
    NatGateway(NatGatewayId, Option<NatGateway>),
    /// Change of an elastic address.
    Address(AllocationId, Option<ElasticAddress>),
    /// Change of a peering connection.
    Peering(PeeringId, Option<Peering>),
    /// Change of a gateway endpoint.
    Endpoint(EndpointId, Option<Endpoint>),
}

impl Edit {
    /// Returns the edits that turn the world `old` into `new`. Objects on which no host's compiled
    /// tables depend are left out.
    pub fn between(old: &World, new: &World) -> Vec<Self> {
        let mut edits = Vec::new();
        macro_rules! differing {
            ($($kind:ident $table:ident,)*) => {$(
                let ids = differing(&old.$table, &new.$table).into_iter();
                edits.extend(ids.map(|id| Self::$kind(id, new.$table.get(&id).cloned())));
            )*};
        }
        differing!(
            Vpc vpcs, Subnet subnets, RouteTable route_tables, Acl acls, Group groups,
            PrefixList prefix_lists, Interface enis, Instance instances, Placement placements,
            InternetGateway internet_gateways, EgressOnlyGateway egress_only_gateways,
            NatGateway nat_gateways, Address addresses, Peering peerings, Endpoint endpoints,
        );
        edits
    }

    /// Whether the edit would change this world.
    pub fn changes(&self, world: &World) -> bool {
        match self {
            Self::Vpc(id, to) => world.vpcs.get(id) != to.as_ref(),
            Self::Subnet(id, to) => world.subnets.get(id) != to.as_ref(),
            Self::RouteTable(id, to) => world.route_tables.get(id) != to.as_ref(),
            Self::Acl(id, to) => world.acls.get(id) != to.as_ref(),
            Self::Group(id, to) => world.groups.get(id) != to.as_ref(),
            Self::PrefixList(id, to) => world.prefix_lists.get(id) != to.as_ref(),
            Self::Interface(id, to) => world.enis.get(id) != to.as_ref(),
            Self::Instance(id, to) => world.instances.get(id) != to.as_ref(),
            Self::Placement(id, to) => world.placements.get(id) != to.as_ref(),
            Self::InternetGateway(id, to) => world.internet_gateways.get(id) != to.as_ref(),
            Self::EgressOnlyGateway(id, to) => world.egress_only_gateways.get(id) != to.as_ref(),
            Self::NatGateway(id, to) => world.nat_gateways.get(id) != to.as_ref(),
            Self::Address(id, to) => world.addresses.get(id) != to.as_ref(),
            Self::Peering(id, to) => world.peerings.get(id) != to.as_ref(),
            Self::Endpoint(id, to) => world.endpoints.get(id) != to.as_ref(),
        }
    }

    /// Applies the edit to a world.
    pub fn apply(&self, world: &mut World) {
        match self {
            Self::Vpc(id, to) => put(&mut world.vpcs, *id, to),
            Self::Subnet(id, to) => put(&mut world.subnets, *id, to),
            Self::RouteTable(id, to) => put(&mut world.route_tables, *id, to),
            Self::Acl(id, to) => put(&mut world.acls, *id, to),
            Self::Group(id, to) => put(&mut world.groups, *id, to),
            Self::PrefixList(id, to) => put(&mut world.prefix_lists, *id, to),
            Self::Interface(id, to) => put(&mut world.enis, *id, to),
            Self::Instance(id, to) => put(&mut world.instances, *id, to),
            Self::Placement(id, to) => put(&mut world.placements, *id, to),
            Self::InternetGateway(id, to) => put(&mut world.internet_gateways, *id, to),
            Self::EgressOnlyGateway(id, to) => put(&mut world.egress_only_gateways, *id, to),
            Self::NatGateway(id, to) => put(&mut world.nat_gateways, *id, to),
            Self::Address(id, to) => put(&mut world.addresses, *id, to),
            Self::Peering(id, to) => put(&mut world.peerings, *id, to),
            Self::Endpoint(id, to) => put(&mut world.endpoints, *id, to),
        }
    }
}

fn put<K: Ord, V: Clone>(all: &mut BTreeMap<K, V>, id: K, to: &Option<V>) {
    match to {
        Some(value) => _ = all.insert(id, value.clone()),
        None => _ = all.remove(&id),
    }
}
