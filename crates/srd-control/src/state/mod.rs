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
//! | [`launch`] | launch templates |
//! | [`scaling`] | Auto Scaling groups, launch configurations |
//! | [`id`] | identifiers |

pub mod endpoint;
pub mod id;
pub mod interface;
pub mod launch;
pub mod mirror;
pub mod network;
pub mod scaling;
pub mod storage;
pub mod table;
pub mod transit;
pub mod vpn;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::hosts::table::Hosts;
use crate::sign::Keys;
use crate::tls::Authority;

pub use endpoint::{EndpointService, VpcEndpoint};
pub use id::IdGenerator;
pub use interface::{
    Address, EgressOnlyGateway, Instance, InternetGateway, NatGateway, NetworkInterface,
    SecurityGroup, SecurityGroupRule,
};
pub use launch::{LaunchTemplate, LaunchTemplateVersion};
pub use mirror::{MirrorFilter, MirrorFilterRule, MirrorSession, MirrorTarget};
pub use network::{
    DhcpOptions, FlowLog, NetworkAcl, PeeringConnection, PrefixList, RouteTable, Subnet,
    SubnetCidrReservation, Vpc,
};
pub use scaling::{LaunchConfiguration, ScalingActivity, ScalingGroup};
pub use storage::{Image, Snapshot, Volume};
pub use table::{Change, Object, Row, Table};
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

/// Declares an object: a part with an identifier and tags. Functions of [`Row`] may follow.
macro_rules! object {
    ($(#[$meta:meta])* $name:ident($prefix:literal, $resource:literal, $id:ident) $fields:tt
        $($row:tt)*) => {
        $crate::state::part! { $(#[$meta])* $name $fields }

        impl $crate::state::Row for $name {
            const PREFIX: &'static str = $prefix;
            fn id(&self) -> &str {
                &self.$id
            }
            $($row)*
        }

        impl $crate::state::Object for $name {
            const RESOURCE: &'static str = $resource;
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

/// A tag of an object: a key and a value that the user has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tag {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

/// Declares the region, and what is done for each of its tables: tables of rows, and tables of
/// objects, which have tags.
macro_rules! region {
    (
        rows { $($(#[$row_meta:meta])* $row:ident: $row_type:ty,)* }
        objects { $($(#[$meta:meta])* $field:ident: $type:ty,)* }
    ) => {
        /// The objects of one account in one region.
        #[derive(Clone, Debug)]
        pub struct Region {
            /// Name, for example `us-east-1`.
            pub name: String,
            /// Number of the account.
            pub account: String,
            /// Generator of identifiers for new objects.
            pub ids: IdGenerator,
            /// Time of the current request, in seconds since 1970.
            pub now: u64,
            $($(#[$row_meta])* pub $row: Table<$row_type>,)*
            $($(#[$meta])* pub $field: Table<$type>,)*
        }

        impl Region {
            /// Returns a region without objects.
            pub fn empty(account: &str, name: &str, ids: IdGenerator) -> Self {
                Self {
                    name: name.to_owned(),
                    account: account.to_owned(),
                    ids,
                    now: 0,
                    $($row: Table::default(),)*
                    $($field: Table::default(),)*
                }
            }

            /// Returns the name of each table, and the number of its objects.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$((stringify!($field), self.$field.len()),)*].into_iter()
            }

            /// Undoes all changes since the last commit.
            pub fn rollback(&mut self) {
                $(self.$row.rollback();)*
                $(self.$field.rollback();)*
            }

            /// Whether an object has changed since the last commit.
            pub fn is_changed(&self) -> bool {
                $(self.$row.is_changed() ||)* $(self.$field.is_changed() ||)* false
            }

            /// All changes since the last commit.
            ///
            /// # Errors
            /// If an object cannot be written as JSON.
            pub fn changes(&self) -> Result<Vec<Change>, String> {
                let mut changes = Vec::new();
                $(changes.extend(self.$row.changes()?);)*
                $(changes.extend(self.$field.changes()?);)*
                Ok(changes)
            }

            /// The identifiers and records of all objects.
            ///
            /// # Errors
            /// If an object cannot be written as JSON.
            pub fn records(&self) -> Result<Vec<(String, String)>, String> {
                let mut records = Vec::new();
                $(records.extend(self.$row.records()?);)*
                $(records.extend(self.$field.records()?);)*
                Ok(records)
            }

            /// Makes all changes since the last commit permanent, so that a rollback keeps them.
            pub fn commit(&mut self) {
                $(self.$row.commit();)*
                $(self.$field.commit();)*
            }

            /// Whether the changes since the last commit make a table larger than this.
            pub fn has_grown_beyond(&self, max: usize) -> bool {
                $(self.$row.has_grown_beyond(max) ||)*
                $(self.$field.has_grown_beyond(max) ||)* false
            }

            /// Adds an object from its record in the store. `is_new`: the state was empty at first,
            /// so the undo log does not change.
            ///
            /// # Errors
            /// If the record is not the one of an object with this identifier, or another object
            /// has its row.
            pub fn read(&mut self, id: &str, record: &str, is_new: bool) -> Result<(), String> {
                let mut parts = record.splitn(3, ' ');
                let (Some(prefix), Some(row), Some(json)) =
                    (parts.next(), parts.next(), parts.next())
                else {
                    return Err("the record has not the form PREFIX ROW JSON".to_owned());
                };
                let row = row.parse().map_err(|_| format!("`{row}` is no number of a row"))?;
                match prefix {
                    $(<$row_type>::PREFIX => self.$row.read(id, row, json, is_new),)*
                    $(<$type>::PREFIX => self.$field.read(id, row, json, is_new),)*
                    _ => Err(format!("`{prefix}` is no kind of object")),
                }
            }

            /// Removes an object that another controller has removed.
            pub fn forget(&mut self, id: &str) {
                $(self.$row.remove(id);)*
                $(self.$field.remove(id);)*
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
            pub fn all_tags(&self) -> Vec<(&str, &'static str, &Tag)> {
                let mut all = Vec::new();
                $(for object in self.$field.iter() {
                    for tag in object.tags() {
                        all.push((object.id(), <$type as Object>::RESOURCE, tag));
                    }
                })*
                all
            }
        }
    };
}

region! {
    rows {
        /// Answers to requests with a client token.
        tokens: TokenUse,
        /// Versions of launch templates.
        template_versions: LaunchTemplateVersion,
        /// Auto Scaling groups.
        scaling_groups: ScalingGroup,
        /// Launch configurations.
        launch_configurations: LaunchConfiguration,
        /// Starts and ends of instances of Auto Scaling groups, the oldest first.
        scaling_activities: ScalingActivity,
    }
    objects {
        /// VPCs of the region.
        vpcs: Vpc,
        /// Subnets of the region.
        subnets: Subnet,
        /// Reservations of addresses in subnets of the region.
        reservations: SubnetCidrReservation,
        /// Security groups of the region.
        groups: SecurityGroup,
        /// Rules of security groups of the region.
        group_rules: SecurityGroupRule,
        /// Network ACLs of the region.
        acls: NetworkAcl,
        /// Route tables of the region.
        route_tables: RouteTable,
        /// Internet gateways of the region.
        internet_gateways: InternetGateway,
        /// Egress-only internet gateways of the region.
        egress_only_gateways: EgressOnlyGateway,
        /// NAT gateways of the region.
        nat_gateways: NatGateway,
        /// Elastic addresses of the region.
        addresses: Address,
        /// Interfaces of the region.
        interfaces: NetworkInterface,
        /// Peering connections of the region.
        peerings: PeeringConnection,
        /// Prefix lists of the region.
        prefix_lists: PrefixList,
        /// Sets of DHCP options of the region.
        dhcp_options: DhcpOptions,
        /// Flow logs of the region.
        flow_logs: FlowLog,
        /// Instances of the region.
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
        /// Launch templates.
        launch_templates: LaunchTemplate,
    }
}

/// Answer to a request with a client token, for repetitions of the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TokenUse {
    /// The action and the token: `token/ACTION/TOKEN`.
    pub id: String,
    /// SHA-256 of the parameters of the request, in base64.
    pub parameters: String,
    /// The answer.
    pub answer: serde_json::Value,
    /// Size of the answer in bytes, as JSON.
    pub bytes: usize,
    /// Time of the request, in seconds since 1970.
    pub at: u64,
}

impl Row for TokenUse {
    const PREFIX: &'static str = "token";
    fn id(&self) -> &str {
        &self.id
    }
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
    /// Access keys that the store contains.
    pub keys: Keys,
    /// Hosts that have enrolled, and enrolment tokens.
    pub hosts: Hosts,
    /// Authority that issues certificates of servers.
    pub authority: Option<Authority>,
    /// Names of log groups that a trial has recorded.
    pub log_groups: BTreeSet<String>,
    /// Names of buckets that a trial has recorded.
    pub buckets: BTreeSet<String>,
    /// Load balancers that a trial has recorded, by their names as resources.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
}
