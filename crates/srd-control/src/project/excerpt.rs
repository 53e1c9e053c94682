//! The objects of a region on which the tables of some VPCs depend.
//!
//! The tables of an excerpt are made from a region that contains these objects only. A change of
//! the state replaces an object by another one ([`Table::shared`]). So excerpts with the same
//! objects lead to equal tables, and no other object of the region can change the tables.
//!
//! All excerpts of a region are made in one pass over its objects, and share the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::{
    Address, DhcpOptions, EgressOnlyGateway, FlowLog, IdGenerator, Instance, InternetGateway,
    MirrorFilter, MirrorFilterRule, MirrorSession, MirrorTarget, NatGateway, NetworkAcl,
    NetworkInterface, PeeringConnection, PrefixList, Region, RouteTable, Row, SecurityGroup,
    SecurityGroupRule, Subnet, Table, Vpc, VpcEndpoint,
};

/// An object with the number of its row.
type Shared<T> = (u64, Arc<T>);
/// Function that returns the objects of one kind of an excerpt.
type Rows<T> = fn(&mut Excerpt) -> &mut Vec<Shared<T>>;

/// Declares an excerpt by its tables of a region. The table of rules of groups is the first one.
macro_rules! excerpt {
    ($rules:ident: $rule:ty; $($table:ident: $type:ty,)*) => {
        /// Objects of a region. An object may be there several times.
        #[derive(Clone, Debug, Default)]
        pub struct Excerpt {
            $rules: Vec<Shared<$rule>>,
            $($table: Vec<Shared<$type>>,)*
        }

        impl Excerpt {
            /// Whether the objects are the same, so that the tables are equal.
            pub fn is_same(&self, other: &Self) -> bool {
                self.has_same_others(other) && are_same(&self.$rules, &other.$rules)
            }

            /// Whether the objects other than rules of groups are the same.
            fn has_same_others(&self, other: &Self) -> bool {
                $(are_same(&self.$table, &other.$table) &&)* true
            }

            /// Returns a region that contains these objects only. `of`: their region.
            ///
            /// # Errors
            /// If two objects have one row, or one identifier.
            pub fn region(&self, of: &Region) -> Result<Region, String> {
                let mut region = Region::empty(&of.account, &of.name, IdGenerator::new(0));
                share(&mut region.$rules, &self.$rules)?;
                $(share(&mut region.$table, &self.$table)?;)*
                Ok(region)
            }
        }
    };
}

excerpt! {
    group_rules: SecurityGroupRule;
    vpcs: Vpc,
    subnets: Subnet,
    groups: SecurityGroup,
    acls: NetworkAcl,
    route_tables: RouteTable,
    internet_gateways: InternetGateway,
    egress_only_gateways: EgressOnlyGateway,
    nat_gateways: NatGateway,
    addresses: Address,
    interfaces: NetworkInterface,
    peerings: PeeringConnection,
    prefix_lists: PrefixList,
    dhcp_options: DhcpOptions,
    flow_logs: FlowLog,
    instances: Instance,
    endpoints: VpcEndpoint,
    mirror_filters: MirrorFilter,
    mirror_filter_rules: MirrorFilterRule,
    mirror_targets: MirrorTarget,
    mirror_sessions: MirrorSession,
}

impl Excerpt {
    /// Returns the groups whose rules differ, and maybe others; `None` if objects other than rules
    /// of groups differ, or one of these rules names a prefix list. The part of a host has only the
    /// prefix lists that other tables name.
    pub fn changed_groups<'a>(&'a self, other: &'a Self) -> Option<BTreeSet<&'a str>> {
        if !self.has_same_others(other) {
            return None;
        }
        let mut groups = BTreeSet::new();
        for rule in differences(&self.group_rules, &other.group_rules) {
            if rule.prefix_list_id.is_some() {
                return None;
            }
            groups.insert(rule.group_id.as_str());
        }
        Some(groups)
    }
}

fn is_same<T>((row, object): &Shared<T>, (of, other): &Shared<T>) -> bool {
    row == of && Arc::ptr_eq(object, other)
}

fn are_same<T>(some: &[Shared<T>], others: &[Shared<T>]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(one, other)| is_same(one, other))
}

/// Returns the objects of both lists from the first difference to the last one.
fn differences<'a, T>(
    some: &'a [Shared<T>],
    others: &'a [Shared<T>],
) -> impl Iterator<Item = &'a T> {
    let begin = some.iter().zip(others).take_while(|(one, other)| is_same(one, other)).count();
    let (some, others) = (&some[begin..], &others[begin..]);
    let ends = some.iter().rev().zip(others.iter().rev());
    let end = ends.take_while(|(one, other)| is_same(one, other)).count();
    let (some, others) = (&some[..some.len() - end], &others[..others.len() - end]);
    some.iter().chain(others).map(|(_, object)| &**object)
}

fn share<T: Row>(table: &mut Table<T>, rows: &[Shared<T>]) -> Result<(), String> {
    for (row, object) in rows {
        if table.get(object.id()).is_none() {
            table.share(*row, Arc::clone(object))?;
        }
    }
    Ok(())
}

/// Returns the excerpt of each of these sets of VPCs: the objects of its VPCs, and objects to which
/// these refer.
pub fn excerpts<'a>(region: &'a Region, units: &[BTreeSet<&'a str>]) -> Vec<Excerpt> {
    let mut of_vpc: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, vpcs) in units.iter().enumerate() {
        vpcs.iter().for_each(|vpc| of_vpc.entry(vpc).or_default().push(number));
    }
    let excerpts = vec![Excerpt::default(); units.len()];
    let mut selection = Selection { region, units: of_vpc, excerpts };
    selection.add_networks();
    selection.add_rules();
    selection.add_gateways();
    selection.add_machines();
    selection.add_mirrors();
    selection.excerpts
}

/// Excerpts that are being made.
struct Selection<'a> {
    region: &'a Region,
    /// Numbers of the excerpts of each VPC.
    units: BTreeMap<&'a str, Vec<usize>>,
    excerpts: Vec<Excerpt>,
}

impl<'a> Selection<'a> {
    /// Adds an object to the excerpts of a VPC. Without a VPC or an object, nothing happens.
    fn add<T>(&mut self, vpc: Option<&str>, object: Option<(u64, &Arc<T>)>, rows: Rows<T>) {
        let units = vpc.and_then(|vpc| self.units.get(vpc));
        let (Some(units), Some((row, object))) = (units, object) else { return };
        for unit in units {
            rows(&mut self.excerpts[*unit]).push((row, Arc::clone(object)));
        }
    }

    /// Adds the objects of a table to the excerpts of their VPCs.
    fn add_all<T: Row>(
        &mut self,
        table: &'a Table<T>,
        rows: Rows<T>,
        vpc: impl Fn(&'a T) -> Option<&'a str>,
    ) {
        for (row, object) in table.shared() {
            self.add(vpc(object), Some((row, object)), rows);
        }
    }

    fn add_networks(&mut self) {
        let region = self.region;
        self.add_all(&region.vpcs, |of| &mut of.vpcs, |vpc| Some(vpc.vpc_id.as_str()));
        self.add_all(&region.subnets, |of| &mut of.subnets, |of| Some(of.vpc_id.as_str()));
        self.add_all(&region.groups, |of| &mut of.groups, |of| Some(of.vpc_id.as_str()));
        self.add_all(&region.acls, |of| &mut of.acls, |of| Some(of.vpc_id.as_str()));
        self.add_all(&region.flow_logs, |of| &mut of.flow_logs, |of| vpc_of(region, of));
        for vpc in region.vpcs.iter() {
            let options = region.dhcp_options.shared_row(&vpc.dhcp_options_id);
            self.add(Some(vpc.vpc_id.as_str()), options, |of| &mut of.dhcp_options);
        }
        for (row, table) in region.route_tables.shared() {
            let vpc = Some(table.vpc_id.as_str());
            self.add(vpc, Some((row, table)), |of| &mut of.route_tables);
            let lists = table.routes.iter().filter_map(|r| r.destination_prefix_list_id.as_ref());
            for list in lists {
                self.add(vpc, region.prefix_lists.shared_row(list), |of| &mut of.prefix_lists);
            }
        }
        for (row, peering) in region.peerings.shared() {
            let sides = [&peering.requester_vpc_info, &peering.accepter_vpc_info];
            for vpc in sides.map(|side| Some(side.vpc_id.as_str())) {
                self.add(vpc, Some((row, peering)), |of| &mut of.peerings);
                for side in sides {
                    self.add(vpc, region.vpcs.shared_row(&side.vpc_id), |of| &mut of.vpcs);
                }
            }
        }
    }

    /// Adds the rules of groups, with groups and prefix lists that they name.
    fn add_rules(&mut self) {
        let region = self.region;
        for (row, rule) in region.group_rules.shared() {
            let vpc = region.groups.get(&rule.group_id).map(|group| group.vpc_id.as_str());
            self.add(vpc, Some((row, rule)), |of| &mut of.group_rules);
            if let Some(other) = &rule.referenced_group_info {
                // The excerpts of the VPC have all its groups.
                let other = region.groups.shared_row(&other.group_id);
                let other = other.filter(|(_, group)| Some(group.vpc_id.as_str()) != vpc);
                self.add(vpc, other, |of| &mut of.groups);
            }
            if let Some(list) = &rule.prefix_list_id {
                self.add(vpc, region.prefix_lists.shared_row(list), |of| &mut of.prefix_lists);
            }
        }
    }

    /// Adds gateways and endpoints, with addresses and prefix lists that they use.
    fn add_gateways(&mut self) {
        let region = self.region;
        self.add_all(
            &region.internet_gateways,
            |of| &mut of.internet_gateways,
            |gateway| gateway.attachments.first().map(|at| at.vpc_id.as_str()),
        );
        self.add_all(
            &region.egress_only_gateways,
            |of| &mut of.egress_only_gateways,
            |gateway| gateway.attachments.first().map(|at| at.vpc_id.as_str()),
        );
        for (row, gateway) in region.nat_gateways.shared() {
            let vpc = Some(gateway.vpc_id.as_str());
            self.add(vpc, Some((row, gateway)), |of| &mut of.nat_gateways);
            let addresses = gateway.nat_gateway_addresses.iter();
            for address in addresses.filter_map(|address| address.allocation_id.as_ref()) {
                self.add(vpc, region.addresses.shared_row(address), |of| &mut of.addresses);
            }
        }
        self.add_all(
            &region.addresses,
            |of| &mut of.addresses,
            |address| {
                let interface = region.interfaces.get(address.network_interface_id.as_ref()?)?;
                Some(interface.vpc_id.as_str())
            },
        );
        if region.endpoints.is_empty() {
            return;
        }
        let mut lists: BTreeMap<&str, &str> = BTreeMap::new();
        for list in region.prefix_lists.iter() {
            lists.entry(&list.prefix_list_name).or_insert(&list.prefix_list_id);
        }
        for (row, endpoint) in region.endpoints.shared() {
            let vpc = Some(endpoint.vpc_id.as_str());
            self.add(vpc, Some((row, endpoint)), |of| &mut of.endpoints);
            if let Some(list) = lists.get(endpoint.service_name.as_str()) {
                self.add(vpc, region.prefix_lists.shared_row(list), |of| &mut of.prefix_lists);
            }
        }
    }

    /// Adds interfaces and their instances.
    fn add_machines(&mut self) {
        let region = self.region;
        for (row, interface) in region.interfaces.shared() {
            let vpc = Some(interface.vpc_id.as_str());
            self.add(vpc, Some((row, interface)), |of| &mut of.interfaces);
            let attachment = interface.attachment.as_ref();
            if let Some(instance) = attachment.and_then(|at| at.instance_id.as_ref()) {
                self.add(vpc, region.instances.shared_row(instance), |of| &mut of.instances);
            }
        }
    }

    /// Adds the sessions of traffic mirroring to the excerpts of their sources.
    fn add_mirrors(&mut self) {
        let region = self.region;
        // The VPCs whose sessions use each filter.
        let mut filters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (row, session) in region.mirror_sessions.shared() {
            let Some(source) = region.interfaces.get(&session.network_interface_id) else {
                continue;
            };
            let vpc = Some(source.vpc_id.as_str());
            self.add(vpc, Some((row, session)), |of| &mut of.mirror_sessions);
            let target = region.mirror_targets.shared_row(&session.traffic_mirror_target_id);
            self.add(vpc, target, |of| &mut of.mirror_targets);
            let id = session.traffic_mirror_filter_id.as_str();
            self.add(vpc, region.mirror_filters.shared_row(id), |of| &mut of.mirror_filters);
            filters.entry(id).or_default().insert(&source.vpc_id);
        }
        for (row, rule) in region.mirror_filter_rules.shared() {
            for vpc in filters.get(rule.traffic_mirror_filter_id.as_str()).into_iter().flatten() {
                self.add(Some(*vpc), Some((row, rule)), |of| &mut of.mirror_filter_rules);
            }
        }
    }
}

/// The VPC of the resource of a flow log.
fn vpc_of<'a>(region: &'a Region, log: &FlowLog) -> Option<&'a str> {
    let id = &log.resource_id;
    let vpc = region.vpcs.get(id).map(|of| &of.vpc_id);
    let vpc = vpc.or_else(|| region.subnets.get(id).map(|of| &of.vpc_id));
    let vpc = vpc.or_else(|| region.interfaces.get(id).map(|of| &of.vpc_id));
    vpc.map(String::as_str)
}

#[cfg(test)]
#[path = "excerpt_tests.rs"]
mod tests;
