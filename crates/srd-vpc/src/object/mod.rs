//! Objects of virtual private clouds as plain data, without checks. Each operation checks its
//! arguments before it changes a [`World`].

mod gateway;
mod group;
mod interface;
mod log_field;
mod network;
mod observe;

pub use gateway::*;
pub use group::*;
pub use interface::*;
pub use log_field::*;
pub use network::*;
pub use observe::*;

use crate::id::*;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// All objects of one account and Region, one table for each kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    /// Number of the account that owns the objects, if it was given.
    pub account: Option<String>,
    /// Name of the Region of the objects, if it was given.
    pub region: Option<String>,
    /// Whether packets with private addresses may pass to and from the internet. The real internet
    /// does not carry private addresses; a network that takes its place in an experiment may.
    pub internet_private: bool,
    /// Virtual private clouds, by identifier.
    pub vpcs: BTreeMap<VpcId, Vpc>,
    /// Subnets, by identifier.
    pub subnets: BTreeMap<SubnetId, Subnet>,
    /// Route tables, by identifier.
    pub route_tables: BTreeMap<RouteTableId, RouteTable>,
    /// Network access control lists, by identifier.
    pub acls: BTreeMap<AclId, Acl>,
    /// Security groups, by identifier.
    pub groups: BTreeMap<GroupId, Group>,
    /// Managed prefix lists, by identifier.
    pub prefix_lists: BTreeMap<PrefixListId, PrefixList>,
    /// Elastic network interfaces, by identifier.
    pub enis: BTreeMap<EniId, Eni>,
    /// Instances, by identifier.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Placement groups, by identifier.
    pub placements: BTreeMap<PlacementId, Placement>,
    /// Internet gateways, by identifier.
    pub internet_gateways: BTreeMap<InternetGatewayId, InternetGateway>,
    /// Egress-only internet gateways, by identifier.
    pub egress_only_gateways: BTreeMap<EgressOnlyGatewayId, EgressOnlyGateway>,
    /// NAT gateways, by identifier.
    pub nat_gateways: BTreeMap<NatGatewayId, NatGateway>,
    /// Elastic addresses, by identifier.
    pub addresses: BTreeMap<AllocationId, ElasticAddress>,
    /// Peering connections, by identifier.
    pub peerings: BTreeMap<PeeringId, Peering>,
    /// Gateway endpoints, by identifier.
    pub endpoints: BTreeMap<EndpointId, Endpoint>,
    /// Sets of DHCP options, by identifier.
    pub dhcp_options: BTreeMap<DhcpOptionsId, DhcpOptions>,
    /// Flow logs, by identifier.
    pub flow_logs: BTreeMap<FlowLogId, FlowLog>,
    /// Mirror filters, by identifier.
    pub mirror_filters: BTreeMap<MirrorFilterId, MirrorFilter>,
    /// Mirror targets, by identifier.
    pub mirror_targets: BTreeMap<MirrorTargetId, MirrorTarget>,
    /// Mirror sessions, by identifier.
    pub mirror_sessions: BTreeMap<MirrorSessionId, MirrorSession>,
}
