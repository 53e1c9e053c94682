//! The text of a `vpc.toml` for the state of a region.
//!
//! [`project`] is a pure function: equal states give equal texts. Objects are named by their
//! identifiers. Contents that a file cannot express are left out, and each is named in a warning.
//!
//! A default VPC without interfaces is left out, because a card does nothing with it.
//!
//! A host of several hosts needs the VPCs of its instances, and VPCs that a peering connection
//! joins with them. [`needs`] divides them into units, [`excerpt`] finds the objects of each unit,
//! and [`part`] returns their tables.
//!
//! | file | content |
//! |---|---|
//! | `toml_text` | tables and strings of TOML |
//! | `phrase` | rules of groups, entries of ACLs |
//! | `network` | VPCs, subnets, ACLs, groups, prefix lists, DHCP options |
//! | `route` | route tables, gateways, elastic addresses, peering connections |
//! | `machine` | instances and interfaces |
//! | `observe` | flow logs |
//! | `mirror` | traffic mirroring |
//! | [`needs`] | the VPCs that each host needs, in units |
//! | [`excerpt`] | the objects on which the tables of a unit depend |
//! | [`part`] | the tables of a unit |

pub mod excerpt;
mod machine;
mod mirror;
pub mod needs;
mod network;
mod observe;
pub mod part;
mod phrase;
mod route;
mod toml_text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::machines::RUNNING;
use crate::state::{Instance, NetworkInterface, Region};
use toml_text::Text;

/// Type of interfaces that belong to NAT gateways. A file describes them with their gateway.
const NAT_INTERFACE: &str = "nat_gateway";

/// A region as the text of a `vpc.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Projection {
    /// Content of the `vpc.toml`.
    pub text: String,
    /// Contents of the state that the text does not express, one sentence for each.
    pub warnings: Vec<String>,
    /// Identifiers of the instances in the text.
    pub instances: BTreeSet<String>,
}

/// Returns the text of a `vpc.toml` that describes a region. `flow_logs`: directory in which each
/// flow log of the text gets a directory of its own; without it, flow logs are left out.
pub fn project(region: &Region, flow_logs: Option<&Path>) -> Projection {
    let mut scope = Scope::new(region, None);
    let text = write(&mut scope, flow_logs);
    let instances = scope.instances.iter().map(|id| (*id).to_owned()).collect();
    Projection { text: text.into_string(), warnings: scope.warnings, instances }
}

fn write(scope: &mut Scope<'_>, flow_logs: Option<&Path>) -> Text {
    let region = scope.region;
    let mut text = Text::default();
    if region.account.len() == 12 && region.account.bytes().all(|b| b.is_ascii_digit()) {
        text.string("account", &region.account);
    }
    text.string("region", &region.name);
    network::write(scope, &mut text);
    machine::write(scope, &mut text);
    route::write(scope, &mut text);
    observe::write(scope, &mut text, flow_logs);
    mirror::write(scope, &mut text);
    text
}

/// The objects of a region that are in the text.
struct Scope<'a> {
    region: &'a Region,
    /// Whether the text is for hosts of several hosts. Each instance then has its host, and
    /// interfaces of instances that do not run are left out.
    is_part: bool,
    vpcs: BTreeSet<&'a str>,
    subnets: BTreeSet<&'a str>,
    interfaces: BTreeSet<&'a str>,
    instances: BTreeSet<&'a str>,
    /// Interfaces of each instance, in the order of their devices.
    attached: BTreeMap<&'a str, Vec<&'a NetworkInterface>>,
    warnings: Vec<String>,
}

impl<'a> Scope<'a> {
    /// All VPCs, or those of the VPCs `part` that hosts with instances in these need, without other
    /// objects.
    fn of_vpcs(region: &'a Region, part: Option<&BTreeSet<&str>>) -> Self {
        let used: BTreeSet<&str> = region.interfaces.iter().map(|i| i.vpc_id.as_str()).collect();
        let vpcs = region.vpcs.iter().map(|vpc| (vpc.is_default, vpc.vpc_id.as_str()));
        let vpcs = vpcs.filter(|(is_default, id)| !is_default || used.contains(id));
        let vpcs = vpcs.map(|(_, id)| id);
        Self {
            region,
            is_part: part.is_some(),
            vpcs: vpcs.filter(|id| part.is_none_or(|part| part.contains(id))).collect(),
            subnets: BTreeSet::new(),
            interfaces: BTreeSet::new(),
            instances: BTreeSet::new(),
            attached: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// The objects of all VPCs, or those that hosts with instances in the VPCs `part` need.
    fn new(region: &'a Region, part: Option<&BTreeSet<&str>>) -> Self {
        let mut scope = Self::of_vpcs(region, part);
        for subnet in region.subnets.iter().filter(|s| scope.vpcs.contains(s.vpc_id.as_str())) {
            if subnet.cidr_block.is_some() {
                scope.subnets.insert(&subnet.subnet_id);
            } else {
                let what = format!("subnet {} has IPv6 addresses only", subnet.subnet_id);
                scope.warnings.push(what);
            }
        }
        for interface in region.interfaces.iter().filter(|i| i.interface_type != NAT_INTERFACE) {
            let is_left_out = scope.is_part && part::host_of(region, interface).is_none();
            if is_left_out || !scope.vpcs.contains(interface.vpc_id.as_str()) {
                continue;
            }
            let has_ipv4 = !interface.private_ip_addresses.is_empty();
            if has_ipv4 && scope.subnets.contains(interface.subnet_id.as_str()) {
                scope.interfaces.insert(&interface.network_interface_id);
                let at = interface.attachment.as_ref();
                if let Some(instance) = at.and_then(|at| at.instance_id.as_deref()) {
                    scope.attached.entry(instance).or_default().push(interface);
                }
            } else {
                let id = &interface.network_interface_id;
                scope.warnings.push(format!("interface {id} has no IPv4 address"));
            }
        }
        for all in scope.attached.values_mut() {
            all.sort_by_key(|interface| {
                interface.attachment.as_ref().map(|at| (at.network_card_index, at.device_index))
            });
        }
        let runs = |i: &&Instance| i.state.code == RUNNING && (part.is_none() || i.host.is_some());
        for instance in region.instances.iter().filter(runs) {
            if !scope.interfaces_of(instance).is_empty() {
                scope.instances.insert(&instance.instance_id);
            } else if part.is_none() {
                let what = "has no interface with an IPv4 address, so it does not run";
                scope.warn(&instance.instance_id, what);
            }
        }
        scope
    }

    /// Adds a warning about an object.
    fn warn(&mut self, id: &str, what: impl AsRef<str>) {
        self.warnings.push(format!("{id}: {}", what.as_ref()));
    }

    /// The interfaces of an instance that are in the text, in the order of their devices.
    fn interfaces_of(&self, instance: &Instance) -> &[&'a NetworkInterface] {
        self.attached.get(instance.instance_id.as_str()).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
pub(crate) mod generate;
#[cfg(test)]
pub(crate) mod placed;
#[cfg(test)]
mod tests;
