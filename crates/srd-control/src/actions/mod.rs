//! The actions of EC2 and Auto Scaling, a file for each kind of object.
//!
//! | module | actions on |
//! |---|---|
//! | `vpc`, `vpc_block` | VPCs and their address blocks |
//! | `subnet` | subnets and reservations in them |
//! | `group`, `group_rule`, `group_size` | security groups and their rules |
//! | `acl` | network ACLs |
//! | `route`, `route_table` | routes and route tables |
//! | `gateway` | internet gateways, egress-only gateways |
//! | `nat` | NAT gateways |
//! | `carrier` | carrier gateways |
//! | `customer_gateway`, `vpn_gateway`, `vpn_connection` | VPNs |
//! | `transit_gateway`, `transit_attachment`, `transit_peering` | transit gateways |
//! | `transit_table`, `transit_route` | route tables of transit gateways |
//! | `endpoint`, `endpoint_service`, `endpoint_catalogue` | VPC endpoints and their services |
//! | `managed` | interfaces of endpoints and transit gateways |
//! | `mirror_filter`, `mirror_session` | traffic mirroring |
//! | `address` | elastic addresses |
//! | `interface`, `interface_address`, `interface_view` | interfaces |
//! | `free` | free addresses of subnets |
//! | `instance`, `instance_view`, `console` | instances |
//! | `launch` | instance types, launch templates, states of instances |
//! | `scaling` | Auto Scaling groups, which are a service of their own |
//! | `volume`, `image` | volumes, snapshots, images |
//! | `peering` | peering connections |
//! | `prefix_list` | managed prefix lists |
//! | `dhcp` | sets of DHCP options |
//! | `flow_log` | flow logs |
//! | `classic_link` | ClassicLink |
//! | `tag` | tags |
//! | `zone` | regions, zones, attributes of the account |
//! | `list`, `source` | filters and pages of descriptions |
//! | `field` | values of objects that filters name |
//! | `support` | checks that several actions share |

mod acl;
mod address;
mod carrier;
mod classic_link;
mod console;
mod customer_gateway;
mod dhcp;
mod endpoint;
mod endpoint_catalogue;
mod endpoint_service;
mod field;
mod flow_log;
mod free;
mod gateway;
mod group;
mod group_rule;
mod group_size;
mod image;
mod instance;
mod instance_view;
mod interface;
mod interface_address;
mod interface_view;
mod launch;
mod list;
mod managed;
pub(crate) mod mirror_filter;
mod mirror_session;
mod nat;
mod peering;
pub(crate) mod prefix_list;
mod route;
mod route_table;
pub mod scaling;
mod source;
mod subnet;
pub(crate) mod support;
mod tag;
mod transit_attachment;
mod transit_gateway;
mod transit_peering;
mod transit_route;
mod transit_table;
mod volume;
mod vpc;
mod vpc_block;
mod vpn_connection;
mod vpn_gateway;
mod zone;

#[cfg(test)]
mod source_tests;

use serde_json::Value;

pub(crate) use launch::lives::mark_stopped;

use crate::error::ApiResult;
use crate::state::{Cloud, Region};
use crate::wire::Request;

/// An action that works on one region.
type RegionAction = fn(&mut Region, &Request) -> ApiResult<Value>;
/// An action that works on several regions; the key consists of the request's account and region.
type CloudAction = fn(&mut Cloud, &(String, String), &Request) -> ApiResult<Value>;

/// Implementation of an action.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Works on one region.
    Region(RegionAction),
    /// Works on several regions.
    Cloud(CloudAction),
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Region(_) => "Region",
            Self::Cloud(_) => "Cloud",
        })
    }
}

/// Names of actions, with their implementations.
type Actions = &'static [(&'static str, Handler)];

/// Actions of all groups, in one table for each group.
const ALL: [Actions; 43] = [
    vpc::ACTIONS,
    vpc_block::ACTIONS,
    subnet::ACTIONS,
    group::ACTIONS,
    group_rule::ACTIONS,
    acl::ACTIONS,
    route::ACTIONS,
    route_table::ACTIONS,
    gateway::ACTIONS,
    nat::ACTIONS,
    address::ACTIONS,
    interface::ACTIONS,
    interface_address::ACTIONS,
    instance::ACTIONS,
    peering::ACTIONS,
    prefix_list::ACTIONS,
    dhcp::ACTIONS,
    flow_log::ACTIONS,
    tag::ACTIONS,
    zone::ACTIONS,
    carrier::ACTIONS,
    customer_gateway::ACTIONS,
    vpn_gateway::ACTIONS,
    vpn_connection::ACTIONS,
    transit_gateway::ACTIONS,
    transit_attachment::ACTIONS,
    transit_peering::ACTIONS,
    transit_table::ACTIONS,
    transit_route::ACTIONS,
    endpoint::ACTIONS,
    endpoint_service::ACTIONS,
    endpoint_catalogue::ACTIONS,
    mirror_filter::ACTIONS,
    mirror_session::ACTIONS,
    volume::ACTIONS,
    image::ACTIONS,
    classic_link::ACTIONS,
    console::ACTIONS,
    launch::data::ACTIONS,
    launch::kind::ACTIONS,
    launch::lives::ACTIONS,
    launch::template::ACTIONS,
    launch::version::ACTIONS,
];

/// Returns the implementation of an action.
pub fn find(name: &str) -> Option<Handler> {
    find_in(&ALL, name)
}

/// Names of all actions, sorted.
pub fn names() -> Vec<&'static str> {
    names_in(&ALL)
}

/// Returns the implementation of an action in the tables of a service.
fn find_in(tables: &[Actions], name: &str) -> Option<Handler> {
    let mut all = tables.iter().copied().flatten();
    all.find(|(action, _)| *action == name).map(|(_, handler)| *handler)
}

/// Names of the actions in the tables of a service, sorted.
fn names_in(tables: &[Actions]) -> Vec<&'static str> {
    let mut names: Vec<&str> = tables.iter().copied().flatten().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names
}

/// The actions of EC2 on virtual private clouds and the objects around them.
const SCOPE: &str = include_str!("../../model/scope.txt");

/// Names of the actions on virtual private clouds that are not served, sorted.
pub fn missing() -> Vec<&'static str> {
    SCOPE.lines().filter(|name| !name.is_empty() && find(name).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::model::model;

    #[test]
    fn the_table_and_the_cut_of_the_model_name_the_same_actions() {
        let served = names();
        let cut: Vec<&str> = model().operations.keys().map(String::as_str).collect();
        assert_eq!(served, cut);
        assert!(served.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(SCOPE.lines().all(|name| model().names.contains(name)));
        assert!(missing().iter().all(|name| !served.contains(name)));
    }
}
