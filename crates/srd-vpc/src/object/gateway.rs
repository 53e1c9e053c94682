//! Exits of a cloud: gateways, elastic addresses, peering, gateway endpoints.

use crate::id::*;
use alloc::string::String;
use core::net::Ipv4Addr;

/// An internet gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InternetGateway {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The cloud that it is attached to.
    pub vpc: Option<VpcId>,
}

/// An egress-only internet gateway: IPv6 connections from inside only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressOnlyGateway {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The cloud that it is attached to.
    pub vpc: VpcId,
}

/// A NAT gateway. It stands in a subnet with an interface of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatGateway {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The subnet that it stands in.
    pub subnet: SubnetId,
    /// Its private address in that subnet.
    pub private: Ipv4Addr,
    /// The elastic address of a public gateway; `None` for a private gateway.
    pub address: Option<AllocationId>,
}

/// An elastic address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElasticAddress {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The public address.
    pub public: Ipv4Addr,
    /// The interface, and its private address, that it stands for.
    pub association: Option<(EniId, Ipv4Addr)>,
}

/// A peering connection between two clouds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peering {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The cloud that requested the connection.
    pub requester: VpcId,
    /// The cloud that accepts the connection.
    pub accepter: VpcId,
    /// Did the accepter agree? Nothing passes before.
    pub active: bool,
}

/// A gateway endpoint: addresses of a service, reached without an internet gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The cloud that it belongs to.
    pub vpc: VpcId,
    /// The service's addresses.
    pub list: PrefixListId,
    /// Connections to these services are always tracked, as those of DynamoDB are.
    pub always_tracked: bool,
}
