//! Clouds, subnets, and the route tables and access control lists of subnets.

use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A virtual private cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vpc {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// IPv4 blocks, the primary block first.
    pub ipv4: Vec<Ipv4Net>,
    /// IPv6 blocks of the cloud.
    pub ipv6: Vec<Ipv6Net>,
    /// Route table of subnets that name no table.
    pub main_route_table: RouteTableId,
    /// Access control list of subnets that name no list.
    pub default_acl: AclId,
    /// Security group of interfaces that name no group.
    pub default_group: GroupId,
    /// Options that DHCP hands out; `None`: the Region's defaults.
    pub dhcp_options: Option<DhcpOptionsId>,
    /// Whether the resolver at the base address plus two answers.
    pub dns_support: bool,
    /// Whether instances with public addresses get public names.
    pub dns_hostnames: bool,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The cloud that the subnet belongs to.
    pub vpc: VpcId,
    /// The availability zone of the subnet.
    pub zone: String,
    /// The IPv4 block of the subnet.
    pub ipv4: Ipv4Net,
    /// The IPv6 block, a /64; `None` if the subnet has no IPv6 addresses.
    pub ipv6: Option<Ipv6Net>,
    /// Route table; `None`: the cloud's main table.
    pub route_table: Option<RouteTableId>,
    /// The access control list of the subnet.
    pub acl: AclId,
    /// Whether an interface of a new instance gets a public IPv4 address.
    pub map_public_ip: bool,
}

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTable {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The cloud that the route table belongs to.
    pub vpc: VpcId,
    /// Routes of the table. The local routes, which every table has for each block of its cloud,
    /// are not included.
    pub routes: Vec<Route>,
}

/// One route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destinations that the route matches.
    pub destination: Destination,
    /// Target to which packets that match the route are forwarded.
    pub target: Target,
    /// Whether a gateway propagated the route. A static route beats a propagated route of equal
    /// length.
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
    /// The cloud itself: packets go to the interface that has the destination address.
    Local,
    /// An internet gateway of the cloud.
    InternetGateway(InternetGatewayId),
    /// An egress-only internet gateway, for IPv6.
    EgressOnlyGateway(EgressOnlyGatewayId),
    /// A NAT gateway.
    NatGateway(NatGatewayId),
    /// A peering connection.
    Peering(PeeringId),
    /// A gateway endpoint.
    Endpoint(EndpointId),
    /// An interface of a middlebox.
    Eni(EniId),
    /// A target that was deleted: packets are dropped. EC2 calls this state `blackhole`.
    Blackhole,
}

/// A network access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The cloud that the list belongs to.
    pub vpc: VpcId,
    /// Entries in both directions and for both address families. Within a direction, their numbers
    /// ascend. The implicit last entry denies.
    pub entries: Vec<AclEntry>,
}

/// One numbered entry of an access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclEntry {
    /// Number from 1 to 32,766. The matching entry with the lowest number decides.
    pub number: u16,
    /// Direction of packets: true for outbound.
    pub egress: bool,
    /// Whether the entry allows the packets; otherwise it denies them.
    pub allow: bool,
    /// Packets that the entry matches.
    pub traffic: Traffic,
    /// Remote addresses: sources of incoming packets, destinations of outgoing ones.
    pub block: IpNet,
}

/// Packets by protocol, and by ports or ICMP type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// All protocols and ports.
    All,
    /// TCP with destination ports from the first value to the second.
    Tcp(u16, u16),
    /// UDP with destination ports from the first value to the second.
    Udp(u16, u16),
    /// Type and code of ICMP for IPv4; `None` means all.
    Icmp(Option<u8>, Option<u8>),
    /// Type and code of ICMP for IPv6; `None` means all.
    Icmpv6(Option<u8>, Option<u8>),
    /// Another protocol, by its number.
    Protocol(u8),
}

/// A set of DHCP options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DhcpOptions {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// Domain that clients append to unqualified host names, if there is one.
    pub domain_name: Option<String>,
    /// Addresses of resolvers; if empty, the cloud's own resolver.
    pub name_servers: Vec<IpAddr>,
    /// Addresses of NTP servers.
    pub ntp_servers: Vec<IpAddr>,
}
