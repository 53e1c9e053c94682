//! Steps of a packet's evaluation, and its verdict.

use super::groups::{Direction, Tracking};
use crate::id::*;
use crate::object::Target;
use crate::packet::Packet;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use ipnet::IpNet;

/// Origin of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// An interface sends it.
    Eni(EniId),
    /// The packet comes from the internet.
    Internet,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Whether the source is an address of the interface that sends. Middleboxes are not checked.
    Source {
        /// The interface.
        eni: EniId,
        /// Whether it may send from this address.
        own: bool,
    },
    /// The groups of an interface.
    Groups {
        /// The interface.
        eni: EniId,
        /// The direction, seen from the interface.
        direction: Direction,
        /// The rule that allows the packet, if there is one.
        rule: Option<(GroupId, GroupRuleId)>,
        /// Whether the interface remembers the flow, if it is allowed.
        tracking: Option<Tracking>,
    },
    /// The packet is an answer of a flow that was allowed: groups are not evaluated.
    Established {
        /// The interface.
        eni: EniId,
    },
    /// Both ends are in one subnet: neither lists nor routes are evaluated.
    SameSubnet(SubnetId),
    /// The access control list of a subnet.
    Acl {
        /// The subnet.
        subnet: SubnetId,
        /// Its list.
        acl: AclId,
        /// Out of the subnet, or into it.
        direction: Direction,
        /// The packet as the list saw it.
        packet: Packet,
        /// The entry that decided; the last, implicit one if none.
        number: Option<u16>,
        /// Decision of the list.
        allow: bool,
    },
    /// The route table of a subnet.
    Route {
        /// The subnet.
        subnet: SubnetId,
        /// The table.
        table: RouteTableId,
        /// The block that matched, and where it leads.
        route: Option<(IpNet, Target)>,
    },
    /// A gateway writes another source.
    Source4 {
        /// Gateway that translates.
        by: Translator,
        /// The address before.
        from: Ipv4Addr,
        /// The address after.
        to: Ipv4Addr,
    },
    /// A gateway writes another destination.
    Destination4 {
        /// Gateway that translates.
        by: Translator,
        /// The address before.
        from: Ipv4Addr,
        /// The address after.
        to: Ipv4Addr,
    },
    /// The address was looked up.
    Mapping {
        /// The cloud whose addresses were searched.
        vpc: VpcId,
        /// The address.
        address: IpAddr,
        /// The interface that has it.
        eni: Option<EniId>,
    },
    /// An interface that packets for others are sent to: does it take them?
    Middlebox {
        /// The interface.
        eni: EniId,
        /// Whether its source and destination check is off.
        takes: bool,
    },
}

/// A gateway that translates addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Translator {
    /// An internet gateway, for an elastic address.
    InternetGateway(InternetGatewayId),
    /// A NAT gateway.
    NatGateway(NatGatewayId),
}

impl core::fmt::Display for Translator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::InternetGateway(id) => id.fmt(f),
            Self::NatGateway(id) => id.fmt(f),
        }
    }
}

/// Verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet arrives at an interface.
    Delivered(EniId),
    /// Outside of all clouds.
    Left(Exit),
    /// The packet arrives at a service of the network's own.
    Served(Service),
    /// Nowhere.
    Dropped(Reason),
}

/// By what a packet leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// An internet gateway.
    InternetGateway(InternetGatewayId),
    /// An egress-only internet gateway.
    EgressOnlyGateway(EgressOnlyGatewayId),
    /// A gateway endpoint.
    Endpoint(EndpointId),
}

/// Services that each interface reaches at addresses that no cloud has, independent of groups and
/// lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Names: the base address of the cloud plus two, 169.254.169.253, fd00:ec2::253.
    Resolver,
    /// Instance metadata: 169.254.169.254, fd00:ec2::254.
    Metadata,
    /// Time: 169.254.169.123, fd00:ec2::123.
    Time,
}

/// Reason why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Source and destination are of different families.
    Families,
    /// The source is not an address of the sender.
    NotItsAddress,
    /// The source is an address of a cloud, or one that the internet does not carry.
    NotFromOutside,
    /// No rule of the sender's groups allows it.
    GroupsOut,
    /// No rule of the receiver's groups allows it.
    GroupsIn,
    /// The list of the subnet that it leaves denies it.
    AclOut,
    /// The list of the subnet that it enters denies it.
    AclIn,
    /// No route leads there.
    NoRoute,
    /// The target of the route is gone.
    Blackhole,
    /// An internet gateway has no public address for the sender.
    NoPublicAddress,
    /// The gateway is not attached to the cloud.
    Detached,
    /// The gateway does not carry this family.
    WrongFamily,
    /// The internet does not carry the destination: it is private, link-local, multicast, or
    /// reserved.
    NotCarried,
    /// An egress-only gateway, or a NAT gateway, lets no connection in.
    OutwardsOnly,
    /// The peering connection is not active, or does not belong to this cloud.
    NotPeered,
    /// The other cloud does not have the address: peering leads no further.
    NoTransit,
    /// No interface has the address.
    NoInterface,
    /// The interface takes packets for its own addresses only.
    ChecksDestination,
    /// The NAT gateway has no public address.
    PrivateNat,
    /// The answer of a connection leaves by another gateway, with another source.
    AnotherWayBack,
    /// Routes lead in a circle.
    Circle,
    /// The packet is from an interface to the same address.
    ToItself,
    /// An object that another refers to does not exist.
    Missing(MissingObject),
}

impl Reason {
    /// The name under which such packets are counted, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Families => "two families",
            Self::NotItsAddress => "not its address",
            Self::NotFromOutside => "not from outside",
            Self::GroupsOut => "security groups out",
            Self::GroupsIn => "security groups in",
            Self::AclOut => "acl out",
            Self::AclIn => "acl in",
            Self::NoRoute => "no route",
            Self::Blackhole => "blackhole",
            Self::NoPublicAddress => "no public address",
            Self::Detached => "gateway not attached",
            Self::WrongFamily => "wrong family",
            Self::NotCarried => "not carried outside",
            Self::OutwardsOnly => "outwards only",
            Self::NotPeered => "not peered",
            Self::NoTransit => "no transit",
            Self::NoInterface => "no interface",
            Self::ChecksDestination => "not its destination",
            Self::PrivateNat => "nat without public address",
            Self::AnotherWayBack => "another way back",
            Self::Circle => "circle of routes",
            Self::ToItself => "to itself",
            Self::Missing(MissingObject::Eni) => "missing interface",
            Self::Missing(MissingObject::Subnet) => "missing subnet",
            Self::Missing(MissingObject::Gateway) => "missing gateway",
        }
    }
}

/// The kind of an object that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingObject {
    /// An interface.
    Eni,
    /// A subnet, or its cloud, list or table.
    Subnet,
    /// A gateway.
    Gateway,
}

/// Distance between the ends: limits for one flow depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// In one cluster placement group.
    Cluster,
    /// In one cloud and zone.
    Zone,
    /// In one cloud.
    Vpc,
    /// In two clouds that are peered.
    Peering,
    /// Outside of all clouds.
    Outside,
}

/// A verdict and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Steps of the evaluation, in order.
    pub steps: Vec<Step>,
    /// Verdict on the packet.
    pub verdict: Verdict,
    /// The packet at its end, with the addresses that gateways have written.
    pub packet: Packet,
    /// Distance between the ends, if the packet arrived.
    pub reach: Option<Reach>,
}

impl Judgement {
    /// Whether the packet arrived somewhere.
    pub fn passes(&self) -> bool {
        !matches!(self.verdict, Verdict::Dropped(_))
    }
}
