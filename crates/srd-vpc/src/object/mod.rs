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
    /// Virtual private clouds.
    pub vpcs: BTreeMap<VpcId, Vpc>,
    /// Subnets.
    pub subnets: BTreeMap<SubnetId, Subnet>,
    /// Route tables.
    pub route_tables: BTreeMap<RouteTableId, RouteTable>,
    /// Network access control lists.
    pub acls: BTreeMap<AclId, Acl>,
    /// Security groups.
    pub groups: BTreeMap<GroupId, Group>,
    /// Managed prefix lists.
    pub prefix_lists: BTreeMap<PrefixListId, PrefixList>,
    /// Elastic network interfaces.
    pub enis: BTreeMap<EniId, Eni>,
    /// Instances.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Placement groups.
    pub placements: BTreeMap<PlacementId, Placement>,
    /// Internet gateways.
    pub internet_gateways: BTreeMap<InternetGatewayId, InternetGateway>,
    /// Egress-only internet gateways.
    pub egress_only_gateways: BTreeMap<EgressOnlyGatewayId, EgressOnlyGateway>,
    /// NAT gateways.
    pub nat_gateways: BTreeMap<NatGatewayId, NatGateway>,
    /// Elastic addresses.
    pub addresses: BTreeMap<AllocationId, ElasticAddress>,
    /// Peering connections.
    pub peerings: BTreeMap<PeeringId, Peering>,
    /// Gateway endpoints.
    pub endpoints: BTreeMap<EndpointId, Endpoint>,
    /// Sets of DHCP options.
    pub dhcp_options: BTreeMap<DhcpOptionsId, DhcpOptions>,
    /// Flow logs.
    pub flow_logs: BTreeMap<FlowLogId, FlowLog>,
    /// Mirror filters.
    pub mirror_filters: BTreeMap<MirrorFilterId, MirrorFilter>,
    /// Mirror targets.
    pub mirror_targets: BTreeMap<MirrorTargetId, MirrorTarget>,
    /// Mirror sessions.
    pub mirror_sessions: BTreeMap<MirrorSessionId, MirrorSession>,
}
