//! Clouds, subnets, and the route tables and access control lists of subnets.

use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A virtual private cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vpc {
    /// The tag `Name`, or empty.
    pub name: String,
    /// IPv4 blocks, the primary one first.
    pub ipv4: Vec<Ipv4Net>,
    /// IPv6 blocks.
    pub ipv6: Vec<Ipv6Net>,
    /// The table of subnets that name none.
    pub main_route_table: RouteTableId,
    /// The list of subnets that name none.
    pub default_acl: AclId,
    /// The group of interfaces that name none.
    pub default_group: GroupId,
    /// Options that DHCP hands out; the Region's defaults if none.
    pub dhcp_options: Option<DhcpOptionsId>,
    /// Does the resolver at the base address plus two answer?
    pub dns_support: bool,
    /// Do instances with public addresses get public names?
    pub dns_hostnames: bool,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The cloud that it belongs to.
    pub vpc: VpcId,
    /// The availability zone.
    pub zone: String,
    /// The IPv4 block.
    pub ipv4: Ipv4Net,
    /// The IPv6 block, of 64 bits.
    pub ipv6: Option<Ipv6Net>,
    /// The route table; the cloud's main table if none.
    pub route_table: Option<RouteTableId>,
    /// The access control list.
    pub acl: AclId,
    /// Does an interface of a new instance get a public IPv4 address?
    pub map_public_ip: bool,
}

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTable {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The cloud that it belongs to.
    pub vpc: VpcId,
    /// Routes besides the local ones, which each block of the cloud has without being named.
    pub routes: Vec<Route>,
}

/// One route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destinations that the route matches.
    pub destination: Destination,
    /// Target of their packets.
    pub target: Target,
    /// Did a gateway propagate it? A static route beats a propagated one of the same length.
    pub propagated: bool,
}

/// The destinations of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    /// A block of addresses.
    Block(IpNet),
    /// All blocks of a prefix list.
    List(PrefixListId),
}

/// Target of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Inside the cloud.
    Local,
    /// An internet gateway.
    InternetGateway(InternetGatewayId),
    /// An egress-only internet gateway, for IPv6.
    EgressOnlyGateway(EgressOnlyGatewayId),
    /// A NAT gateway.
    NatGateway(NatGatewayId),
    /// A peering connection.
    Peering(PeeringId),
    /// A gateway endpoint.
    Endpoint(EndpointId),
    /// An interface, that of a middlebox.
    Eni(EniId),
    /// A target that is gone: packets are dropped, the state of the route is `blackhole`.
    Blackhole,
}

/// A network access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The cloud that it belongs to.
    pub vpc: VpcId,
    /// Entries in both directions and for both families, in ascending order of their number within
    /// a direction. The last, implicit entry denies.
    pub entries: Vec<AclEntry>,
}

/// One numbered entry of an access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclEntry {
    /// 1 to 32,766; the lowest number that matches decides.
    pub number: u16,
    /// Direction of packets: true for outbound.
    pub egress: bool,
    /// Allow or deny.
    pub allow: bool,
    /// Matched packets.
    pub traffic: Traffic,
    /// The other side: the source of what enters, the destination of what leaves.
    pub block: IpNet,
}

/// Packets by protocol, ports or ICMP type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// All protocols and ports.
    All,
    /// TCP to destination ports from the first to the second.
    Tcp(u16, u16),
    /// UDP to destination ports from the first to the second.
    Udp(u16, u16),
    /// ICMP for IPv4: a type and a code, each of them all if none.
    Icmp(Option<u8>, Option<u8>),
    /// ICMP for IPv6: a type and a code, each of them all if none.
    Icmpv6(Option<u8>, Option<u8>),
    /// Another protocol, by its number.
    Protocol(u8),
}

/// A set of DHCP options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DhcpOptions {
    /// The tag `Name`, or empty.
    pub name: String,
    /// Domain for unqualified names.
    pub domain_name: Option<String>,
    /// Resolvers; the cloud's own if empty.
    pub name_servers: Vec<IpAddr>,
    /// Time servers.
    pub ntp_servers: Vec<IpAddr>,
}
