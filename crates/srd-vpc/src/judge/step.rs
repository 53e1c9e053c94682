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
    /// An interface of a cloud.
    Eni(EniId),
    /// The internet, outside of all clouds.
    Internet,
}

/// One step of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Check that the sending interface has the source address. Middleboxes are not checked.
    Source {
        /// The sending interface.
        eni: EniId,
        /// Whether the interface may send with the packet's source address.
        own: bool,
    },
    /// Evaluation of the security groups of an interface.
    Groups {
        /// The interface whose security groups are evaluated.
        eni: EniId,
        /// The direction, seen from the interface.
        direction: Direction,
        /// The rule that allows the packet, if there is one.
        rule: Option<(GroupId, GroupRuleId)>,
        /// Result of connection tracking, if the packet is allowed.
        tracking: Option<Tracking>,
    },
    /// The packet belongs to a connection that the interface tracks, so security groups are not
    /// evaluated.
    Established {
        /// The interface that tracks the connection.
        eni: EniId,
    },
    /// Both interfaces are in one subnet: neither access control lists nor routes are evaluated.
    SameSubnet(SubnetId),
    /// Decision of the access control list of a subnet.
    Acl {
        /// The subnet whose access control list is evaluated.
        subnet: SubnetId,
        /// Access control list of the subnet.
        acl: AclId,
        /// Direction of the packet: out of the subnet, or into it.
        direction: Direction,
        /// The packet with the addresses that the list evaluated.
        packet: Packet,
        /// Number of the entry that decided; `None`: the implicit last entry, which denies.
        number: Option<u16>,
        /// Whether the list allows the packet.
        allow: bool,
    },
    /// Selection of a route in the route table of a subnet.
    Route {
        /// The subnet whose route table is used.
        subnet: SubnetId,
        /// The route table of the subnet.
        table: RouteTableId,
        /// The block that matched and its target; `None` if no route matches.
        route: Option<(IpNet, Target)>,
    },
    /// A gateway rewrites the source address.
    Source4 {
        /// The gateway that rewrites the address.
        by: Translator,
        /// Source address before the translation.
        from: Ipv4Addr,
        /// Source address after the translation.
        to: Ipv4Addr,
    },
    /// A gateway rewrites the destination address.
    Destination4 {
        /// The gateway that rewrites the address.
        by: Translator,
        /// Destination address before the translation.
        from: Ipv4Addr,
        /// Destination address after the translation.
        to: Ipv4Addr,
    },
    /// Look-up of the interface that has an address.
    Mapping {
        /// The cloud whose addresses were searched.
        vpc: VpcId,
        /// The address that is looked up.
        address: IpAddr,
        /// The interface that has the address, if there is one.
        eni: Option<EniId>,
    },
    /// Check that an interface accepts a packet that a route has sent to it, whatever its
    /// destination.
    Middlebox {
        /// The interface that is the target of the route.
        eni: EniId,
        /// Whether the interface accepts the packet: its source and destination check is off, or
        /// the destination is its own address.
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
    /// The packet leaves all clouds by this exit.
    Left(Exit),
    /// The packet arrives at a service that the network itself provides.
    Served(Service),
    /// The packet is dropped.
    Dropped(Reason),
}

/// Gateway or endpoint through which a packet leaves all clouds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// An internet gateway.
    InternetGateway(InternetGatewayId),
    /// An egress-only internet gateway.
    EgressOnlyGateway(EgressOnlyGatewayId),
    /// A gateway endpoint.
    Endpoint(EndpointId),
}

/// Services of the network that each interface reaches at reserved addresses, independent of
/// security groups and access control lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Name resolver: the base address of the cloud plus two, 169.254.169.253, fd00:ec2::253.
    Resolver,
    /// Instance metadata: 169.254.169.254, fd00:ec2::254.
    Metadata,
    /// Time service: 169.254.169.123, fd00:ec2::123.
    Time,
}

/// Reason why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Source and destination are of different address families.
    Families,
    /// The source is not an address of the sender.
    NotItsAddress,
    /// A packet from the internet has a source that belongs to a cloud, or that the internet does
    /// not carry.
    NotFromOutside,
    /// No rule of the sender's security groups allows the packet.
    GroupsOut,
    /// No rule of the receiver's security groups allows the packet.
    GroupsIn,
    /// The access control list of the sender's subnet, or of another subnet that the packet leaves,
    /// denies it.
    AclOut,
    /// The access control list of a subnet that the packet enters denies it.
    AclIn,
    /// No route matches the destination.
    NoRoute,
    /// The target of the route was deleted.
    Blackhole,
    /// An internet gateway has no public address for the sender.
    NoPublicAddress,
    /// The gateway is not attached to the cloud.
    Detached,
    /// The gateway does not carry this address family.
    WrongFamily,
    /// The internet does not carry the destination: it is private, link-local, multicast, or
    /// reserved.
    NotCarried,
    /// The packet would open a connection inwards through an egress-only gateway or a NAT gateway.
    OutwardsOnly,
    /// The peering connection is not active, or does not belong to this cloud.
    NotPeered,
    /// The peered cloud does not have the destination, or it has the source: peering carries
    /// packets between its two clouds only.
    NoTransit,
    /// No interface has the address.
    NoInterface,
    /// The interface accepts only packets for its own addresses.
    ChecksDestination,
    /// The NAT gateway has no public address.
    PrivateNat,
    /// The answer of a connection leaves by another gateway, so its source address would be wrong.
    AnotherWayBack,
    /// The answer of a TCP connection reaches a NAT gateway that the connection did not pass. The
    /// gateway translates only segments that open a connection or belong to a known connection, and
    /// sends a reset.
    OpensNoConnection,
    /// Routes form a loop.
    Circle,
    /// The destination of the packet is its own source address.
    ToItself,
    /// An object to which another object refers does not exist.
    Missing(MissingObject),
}

impl Reason {
    /// Returns the name of the counter of packets that are dropped for this reason, as users see
    /// it.
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
            Self::OpensNoConnection => "opens no connection",
            Self::Circle => "circle of routes",
            Self::ToItself => "to itself",
            Self::Missing(MissingObject::Eni) => "missing interface",
            Self::Missing(MissingObject::Subnet) => "missing subnet",
            Self::Missing(MissingObject::Gateway) => "missing gateway",
        }
    }
}

/// Kind of an object that does not exist but that another object refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingObject {
    /// An interface.
    Eni,
    /// A subnet, or its cloud, access control list or route table.
    Subnet,
    /// A gateway.
    Gateway,
}

/// Distance between the two ends of a flow. Limits of a flow depend on the distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Both ends are in one cluster placement group.
    Cluster,
    /// Both ends are in one zone of one cloud.
    Zone,
    /// Both ends are in one cloud.
    Vpc,
    /// The ends are in two peered clouds.
    Peering,
    /// One end is outside of all clouds.
    Outside,
}

/// A verdict and the steps that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Steps of the evaluation, in order.
    pub steps: Vec<Step>,
    /// Verdict on the packet.
    pub verdict: Verdict,
    /// The packet at the end of its path, with the addresses that gateways have rewritten.
    pub packet: Packet,
    /// Distance between the two ends of the flow; `None` if the packet was dropped, or arrived at a
    /// service of the network itself.
    pub reach: Option<Reach>,
}

impl Judgement {
    /// Whether the packet reached a destination.
    pub fn passes(&self) -> bool {
        !matches!(self.verdict, Verdict::Dropped(_))
    }
}
