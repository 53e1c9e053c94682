//! Exits of a cloud: gateways, elastic addresses, peering connections, gateway endpoints.

use crate::id::*;
use alloc::string::String;
use core::net::Ipv4Addr;
use ipnet::Ipv4Net;

/// Block from which a control plane takes public addresses: it is reserved for tests of networks
/// (RFC 2544), and is routed nowhere else. So hosts route addresses of this block alone into
/// instances if a control plane has chosen them.
pub const PUBLIC_POOL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15);

/// An internet gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InternetGateway {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The cloud that the gateway is attached to; `None` if the gateway is detached.
    pub vpc: Option<VpcId>,
}

/// An egress-only internet gateway: it carries IPv6 connections that were opened from inside the
/// cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressOnlyGateway {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The cloud that the gateway is attached to.
    pub vpc: VpcId,
}

/// A NAT gateway, which has its own interface in a subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatGateway {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// Subnet of the gateway's interface.
    pub subnet: SubnetId,
    /// Private address of the gateway, in the subnet of its interface.
    pub private: Ipv4Addr,
    /// The elastic address of a public gateway; `None` for a private gateway.
    pub address: Option<AllocationId>,
}

/// An elastic IP address: a public address that an interface or a NAT gateway can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElasticAddress {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The public IPv4 address.
    pub public: Ipv4Addr,
    /// Interface and private address that the elastic address is associated with; `None` if it is
    /// associated with no interface.
    pub association: Option<(EniId, Ipv4Addr)>,
}

/// A peering connection between two clouds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peering {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The cloud that requested the connection.
    pub requester: VpcId,
    /// The cloud that accepts the connection.
    pub accepter: VpcId,
    /// Whether the accepter has accepted the connection. While it has not, no packet passes.
    pub active: bool,
}

/// A gateway endpoint: a target of routes to the addresses of a service, without an internet
/// gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The cloud that the endpoint belongs to.
    pub vpc: VpcId,
    /// Prefix list with the service's addresses.
    pub list: PrefixListId,
    /// Whether connections to the service are always tracked, as connections to DynamoDB are.
    pub always_tracked: bool,
}
