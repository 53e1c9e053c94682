//! State of the control plane: accounts, their regions, and the objects of each region.
//!
//! Fields of the objects have the names of EC2's API, and serialize under these names. So an object
//! is also its own description in an answer; members that EC2's model does not contain are left
//! out of answers.
//!
//! | module | content |
//! |---|---|
//! | [`table`] | tables with an undo log |
//! | [`network`] | VPCs, subnets, network ACLs, route tables, peering, prefix lists, logs |
//! | [`interface`] | security groups, interfaces, elastic addresses, gateways, instances |
//! | [`endpoint`] | VPC endpoints and their services |
//! | [`transit`] | transit gateways |
//! | [`vpn`] | carrier, customer and virtual private gateways, VPN connections |
//! | [`mirror`] | traffic mirroring |
//! | [`storage`] | volumes, snapshots, images |
//! | [`id`] | identifiers |

pub mod endpoint;
pub mod id;
pub mod interface;
pub mod mirror;
pub mod network;
pub mod storage;
pub mod table;
pub mod transit;
pub mod vpn;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use endpoint::{EndpointService, VpcEndpoint};
pub use id::IdGenerator;
pub use interface::{
    Address, EgressOnlyGateway, Instance, InternetGateway, NatGateway, NetworkInterface,
    SecurityGroup, SecurityGroupRule,
};
pub use mirror::{MirrorFilter, MirrorFilterRule, MirrorSession, MirrorTarget};
pub use network::{
    DhcpOptions, FlowLog, NetworkAcl, PeeringConnection, PrefixList, RouteTable, Subnet,
    SubnetCidrReservation, Vpc,
};
pub use storage::{Image, Snapshot, Volume};
pub use table::{Change, Object, Table};
pub use transit::{TransitAttachment, TransitGateway, TransitRouteTable};
pub use vpn::{CarrierGateway, CustomerGateway, VpnConnection, VpnGateway};

/// Declares a part of an object: a structure that serializes under EC2's names.
macro_rules! part {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }
    };
}

/// Declares an object: a part with an identifier and tags.
macro_rules! object {
    ($(#[$meta:meta])* $name:ident($prefix:literal, $resource:literal, $id:ident) $fields:tt) => {
        $crate::state::part! { $(#[$meta])* $name $fields }

        impl $crate::state::Object for $name {
            const PREFIX: &'static str = $prefix;
            const RESOURCE: &'static str = $resource;
            fn id(&self) -> &str {
                &self.$id
            }
            fn tags(&self) -> &[$crate::state::Tag] {
                &self.tags
            }
            fn tags_mut(&mut self) -> &mut Vec<$crate::state::Tag> {
                &mut self.tags
            }
        }
    };
}

pub(crate) use object;
pub(crate) use part;

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tag {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

/// Declares the region, and what is done for each of its tables.
macro_rules! region {
    ($($(#[$meta:meta])* $field:ident: $type:ty,)*) => {
        /// The objects of one account in one region.
        #[derive(Clone, Debug)]
        pub struct Region {
            /// Name, for example `us-east-1`.
            pub name: String,
            /// Number of the account.
            pub account: String,
            /// Generator of identifiers.
            pub ids: IdGenerator,
            /// Time of the current request, in seconds since 1970.
            pub now: u64,
            /// Answers to requests with a client token, by action and token.
            pub tokens: BTreeMap<(String, String), TokenUse>,
            $($(#[$meta])* pub $field: Table<$type>,)*
        }

        impl Region {
            /// An empty region.
            pub fn empty(account: &str, name: &str, ids: IdGenerator) -> Self {
                Self {
                    name: name.to_owned(),
                    account: account.to_owned(),
                    ids,
                    now: 0,
                    tokens: BTreeMap::new(),
                    $($field: Table::default(),)*
                }
            }

            /// Undoes all changes since the last commit.
            pub fn rollback(&mut self) {
                $(self.$field.rollback();)*
            }

            /// Whether an object has changed since the last commit.
            pub fn is_changed(&self) -> bool {
                $(self.$field.is_changed() ||)* false
            }

            /// All changes since the last commit, with the prefix of their table.
            pub fn changes(&self) -> Vec<(&'static str, Change)> {
                let mut changes = Vec::new();
                $(changes.extend(
                    self.$field.changes().into_iter().map(|c| (<$type>::PREFIX, c)),
                );)*
                changes
            }

            /// Keeps all changes.
            pub fn commit(&mut self) {
                $(self.$field.commit();)*
            }

            /// Whether the changes since the last commit make a table larger than this.
            pub fn has_grown_beyond(&self, max: usize) -> bool {
                $(self.$field.has_grown_beyond(max) ||)* false
            }

            /// Adds an object that the store had kept.
            ///
            /// # Errors
            /// If the prefix names no table, or the value is not an object of that table.
            pub fn restore(
                &mut self,
                prefix: &str,
                row: u64,
                value: serde_json::Value,
            ) -> Result<(), String> {
                match prefix {
                    $(<$type>::PREFIX => {
                        let object = serde_json::from_value(value).map_err(|e| e.to_string())?;
                        self.$field.restore(row, object);
                        Ok(())
                    })*
                    _ => Err(format!("`{prefix}` is no kind of object")),
                }
            }

            /// Calls the function with the tags of the object with this identifier, and returns
            /// `None` if there is no such object.
            pub fn with_tags<R>(
                &mut self,
                id: &str,
                change: impl FnOnce(&mut Vec<Tag>) -> R,
            ) -> Option<R> {
                $(if self.$field.get(id).is_some() {
                    return self.$field.get_mut(id).map(|object| change(object.tags_mut()));
                })*
                None
            }

            /// All tags: identifier and resource type of the object, and the tag.
            pub fn all_tags(&self) -> Vec<(String, &'static str, Tag)> {
                let mut all = Vec::new();
                $(for object in self.$field.iter() {
                    for tag in object.tags() {
                        let id = object.id().to_owned();
                        all.push((id, <$type as Object>::RESOURCE, tag.clone()));
                    }
                })*
                all
            }
        }
    };
}

region! {
    /// VPCs.
    vpcs: Vpc,
    /// Subnets.
    subnets: Subnet,
    /// Reservations of addresses in subnets.
    reservations: SubnetCidrReservation,
    /// Security groups.
    groups: SecurityGroup,
    /// Rules of security groups.
    group_rules: SecurityGroupRule,
    /// Network ACLs.
    acls: NetworkAcl,
    /// Route tables.
    route_tables: RouteTable,
    /// Internet gateways.
    internet_gateways: InternetGateway,
    /// Egress-only internet gateways.
    egress_only_gateways: EgressOnlyGateway,
    /// NAT gateways.
    nat_gateways: NatGateway,
    /// Elastic addresses.
    addresses: Address,
    /// Interfaces.
    interfaces: NetworkInterface,
    /// Peering connections.
    peerings: PeeringConnection,
    /// Prefix lists.
    prefix_lists: PrefixList,
    /// Sets of DHCP options.
    dhcp_options: DhcpOptions,
    /// Flow logs.
    flow_logs: FlowLog,
    /// Instances.
    instances: Instance,
    /// VPC endpoints.
    endpoints: VpcEndpoint,
    /// Services of VPC endpoints.
    endpoint_services: EndpointService,
    /// Transit gateways.
    transit_gateways: TransitGateway,
    /// Attachments to transit gateways.
    transit_attachments: TransitAttachment,
    /// Route tables of transit gateways.
    transit_route_tables: TransitRouteTable,
    /// Carrier gateways.
    carrier_gateways: CarrierGateway,
    /// Customer gateways.
    customer_gateways: CustomerGateway,
    /// Virtual private gateways.
    vpn_gateways: VpnGateway,
    /// VPN connections.
    vpn_connections: VpnConnection,
    /// Filters of traffic mirroring.
    mirror_filters: MirrorFilter,
    /// Rules of these filters.
    mirror_filter_rules: MirrorFilterRule,
    /// Targets of traffic mirroring.
    mirror_targets: MirrorTarget,
    /// Sessions of traffic mirroring.
    mirror_sessions: MirrorSession,
    /// Volumes.
    volumes: Volume,
    /// Snapshots.
    snapshots: Snapshot,
    /// Images of the account.
    images: Image,
}

/// Answer to a request with a client token, for repetitions of the request.
#[derive(Clone, Debug)]
pub struct TokenUse {
    /// SHA-256 of the parameters of the request.
    pub parameters: Vec<u8>,
    /// The answer.
    pub answer: serde_json::Value,
    /// Size of the answer in bytes, as JSON.
    pub bytes: usize,
    /// Time of the request, in seconds since 1970.
    pub at: u64,
}

/// A load balancer, as far as endpoint services need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    /// `network` or `gateway`.
    pub kind: String,
    /// Zones of its subnets.
    pub zones: Vec<String>,
}

/// All accounts: each account has its own regions.
#[derive(Debug, Default)]
pub struct Cloud {
    /// The regions by account and name.
    pub regions: BTreeMap<(String, String), Region>,
    /// Names of log groups that a trial has recorded.
    pub log_groups: BTreeSet<String>,
    /// Names of buckets that a trial has recorded.
    pub buckets: BTreeSet<String>,
    /// Load balancers that a trial has recorded, by their names as resources.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
}
