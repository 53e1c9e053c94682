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
//! | [`id`] | identifiers |

pub mod id;
pub mod interface;
pub mod network;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use id::IdGenerator;
pub use interface::{
    Address, EgressOnlyGateway, Instance, InternetGateway, NatGateway, NetworkInterface,
    SecurityGroup, SecurityGroupRule,
};
pub use network::{
    DhcpOptions, FlowLog, NetworkAcl, PeeringConnection, PrefixList, RouteTable, Subnet,
    SubnetCidrReservation, Vpc,
};
pub use table::{Change, Object, Table};

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

/// A tag of an object: a key and a value that the user has chosen.
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
            /// Generator of identifiers for new objects.
            pub ids: IdGenerator,
            /// Time of the current request, in seconds since 1970.
            pub now: u64,
            /// Answers to requests with a client token, by action and token.
            pub tokens: BTreeMap<(String, String), TokenUse>,
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

            /// Makes all changes since the last commit permanent, so that a rollback keeps them.
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
}

/// Answer to a request with a client token, for repetitions of the request.
#[derive(Clone, Debug)]
pub struct TokenUse {
    /// SHA-256 of the parameters of the request.
    pub parameters: Vec<u8>,
    /// The answer to the request, as JSON.
    pub answer: serde_json::Value,
    /// Size of the answer in bytes, as JSON.
    pub bytes: usize,
    /// Time of the request, in seconds since 1970.
    pub at: u64,
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
}
