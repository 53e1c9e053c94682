//! Security groups: what the interfaces of a group may receive and send.
//!
//! All groups of an interface are merged, and rules only allow. A rule that names a group matches
//! the private addresses of the group's interfaces, in packets from and to the cloud of the group.
//! The group has to be in the same cloud or in a peered one, and the named group's own rules have
//! no effect. Source: *Security group rules* in Amazon's VPC guide.

use super::traffic;
use crate::id::{EniId, GroupId, GroupRuleId, NatGatewayId, VpcId};
use crate::object::{Eni, GroupRule, NatGateway, RulePeer, World};
use crate::packet::{Inner, Packet};
use core::net::IpAddr;
use ipnet::IpNet;

/// Direction of packets to which rules apply, seen from the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Packets towards the interface.
    Ingress,
    /// Packets that the interface sends.
    Egress,
}

/// Returns the rule that allows a packet, if there is one. Rules are compared with the remote
/// address: the source of an incoming packet, the destination of an outgoing packet. `cloud`: the
/// cloud of the remote end, if it is known; only groups of this cloud contain the remote end.
pub(super) fn allowed_by(
    world: &World,
    eni: &Eni,
    direction: Direction,
    packet: &Packet,
    cloud: Option<VpcId>,
) -> Option<(GroupId, GroupRuleId)> {
    let other = match direction {
        Direction::Ingress => packet.source,
        Direction::Egress => packet.destination,
    };
    let vpc = world.subnets.get(&eni.subnet)?.vpc;
    rules(world, eni, direction)
        .find(|(_, rule)| {
            traffic::is_of(rule.traffic, packet) && is_peer(world, vpc, rule.peer, (other, cloud))
        })
        .map(|(group, rule)| (group, rule.id))
}

/// Returns the rules of an interface in one direction.
fn rules<'a>(
    world: &'a World,
    eni: &'a Eni,
    direction: Direction,
) -> impl Iterator<Item = (GroupId, &'a GroupRule)> {
    let groups = eni.groups.iter().filter_map(|id| Some((*id, world.groups.get(id)?)));
    groups
        .flat_map(|(id, group)| group.rules.iter().map(move |rule| (id, rule)))
        .filter(move |(_, rule)| rule.egress == (direction == Direction::Egress))
}

fn is_peer(
    world: &World,
    vpc: VpcId,
    peer: RulePeer,
    (other, cloud): (IpAddr, Option<VpcId>),
) -> bool {
    match peer {
        RulePeer::Block(block) => block.contains(&other),
        RulePeer::List(id) => {
            let list = world.prefix_lists.get(&id);
            list.is_some_and(|list| list.entries.iter().any(|block| block.contains(&other)))
        }
        RulePeer::Group(id) => {
            let of = world.groups.get(&id).map(|group| group.vpc);
            // Clouds with the same addresses may be peered with one cloud. // V1
            cloud.is_none_or(|cloud| of == Some(cloud))
                && members(world, vpc, id).any(|eni| has_address(eni, other))
        }
    }
}

/// Returns the interfaces of a group, if the group belongs to this cloud or to a peered cloud.
fn members(world: &World, vpc: VpcId, id: GroupId) -> impl Iterator<Item = &Eni> {
    let group = world.groups.get(&id).filter(|group| {
        group.vpc == vpc
            || world.peerings.values().any(|peering| {
                let ends = [peering.requester, peering.accepter];
                peering.active && ends.contains(&vpc) && ends.contains(&group.vpc)
            })
    });
    let all = world.enis.values().filter(move |_| group.is_some());
    all.filter(move |eni| eni.groups.contains(&id))
}

/// Whether an interface has this address itself or in a delegated prefix.
pub(crate) fn has_address(eni: &Eni, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            eni.ipv4.contains(&address) || eni.ipv4_prefixes.iter().any(|p| p.contains(&address))
        }
        IpAddr::V6(address) => {
            eni.ipv6.contains(&address) || eni.ipv6_prefixes.iter().any(|p| p.contains(&address))
        }
    }
}

/// Reason why a flow uses, or does not use, an entry of the tracking table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tracking {
    /// No packet of either direction could be refused, so the flow needs no entry.
    Untracked,
    /// The flow is neither TCP nor UDP, and such flows are always tracked.
    OtherProtocol,
    /// The rule that allows the flow does not allow all addresses.
    RuleIsNarrow,
    /// The rules of the other direction do not allow all packets to or from all addresses.
    AnswersAreNarrow,
    /// The flow passes a NAT gateway, an egress-only gateway, or certain services, for which all
    /// flows are tracked.
    Automatic,
}

impl Tracking {
    /// Whether the flow uses an entry of the tracking table.
    pub fn is_tracked(self) -> bool {
        self != Self::Untracked
    }
}

/// Returns how an interface tracks the flow of a packet that its groups allow in this direction.
/// `automatic`: whether the flow passes a gateway or service whose flows are always tracked.
/// Source: *Security group connection tracking* in Amazon's EC2 guide.
pub(super) fn tracking(
    world: &World,
    eni: &Eni,
    direction: Direction,
    packet: &Packet,
    automatic: bool,
) -> Tracking {
    if !matches!(packet.inner, Inner::Tcp(..) | Inner::Udp(..)) {
        return Tracking::OtherProtocol;
    }
    if automatic {
        return Tracking::Automatic;
    }
    let everywhere = |peer: RulePeer| match peer {
        RulePeer::Block(IpNet::V4(block)) => block.prefix_len() == 0 && packet.source.is_ipv4(),
        RulePeer::Block(IpNet::V6(block)) => block.prefix_len() == 0 && packet.source.is_ipv6(),
        RulePeer::List(_) | RulePeer::Group(_) => false,
    };
    let mut there = rules(world, eni, direction);
    if !there.any(|(_, rule)| everywhere(rule.peer) && traffic::is_of(rule.traffic, packet)) {
        return Tracking::RuleIsNarrow;
    }
    let back = match direction {
        Direction::Ingress => Direction::Egress,
        Direction::Egress => Direction::Ingress,
    };
    let mut back = rules(world, eni, back);
    let open = |rule: &GroupRule| {
        everywhere(rule.peer) && traffic::is_all_of_protocol(rule.traffic, packet)
    };
    if back.any(|(_, rule)| open(rule)) { Tracking::Untracked } else { Tracking::AnswersAreNarrow }
}

/// Returns the NAT gateway of a cloud that has this private address.
pub(super) fn nat_at(
    world: &World,
    vpc: VpcId,
    address: IpAddr,
) -> Option<(NatGatewayId, &NatGateway)> {
    let IpAddr::V4(address) = address else { return None };
    let here = |id| world.subnets.get(&id).is_some_and(|subnet| subnet.vpc == vpc);
    let mut all = world.nat_gateways.iter().map(|(id, gateway)| (*id, gateway));
    all.find(|(_, gateway)| gateway.private == address && here(gateway.subnet))
}

/// Returns the interface of a cloud that has this address.
pub(super) fn eni_at(world: &World, vpc: VpcId, address: IpAddr) -> Option<(EniId, &Eni)> {
    let here = |eni: &Eni| world.subnets.get(&eni.subnet).is_some_and(|subnet| subnet.vpc == vpc);
    let mut enis = world.enis.iter().map(|(id, eni)| (*id, eni));
    enis.find(|(_, eni)| has_address(eni, address) && here(eni))
}
