//! Objects that the tables of a host depend on.

use super::*;
use crate::object::{Destination, RulePeer, World};

/// Objects whose change concerns a host. Identifiers of objects that do not exist are included, so
/// that the host is notified when such an object is created.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    /// Groups of the host's interfaces.
    pub(super) groups: BTreeSet<GroupId>,
    /// Groups that the rules of `groups` name, including groups that do not exist or whose cloud is
    /// not peered.
    pub(super) mentioned: BTreeSet<GroupId>,
    /// Groups whose addresses the tables contain.
    pub(super) named: BTreeSet<GroupId>,
    pub(super) lists: BTreeSet<PrefixListId>,
    pub(super) subnets: BTreeSet<SubnetId>,
    /// Clouds that contain the subnets in `subnets`.
    pub(super) own: BTreeSet<VpcId>,
    /// Clouds that the host can reach.
    pub(super) reached: BTreeSet<VpcId>,
    pub(super) tables: BTreeSet<RouteTableId>,
    pub(super) acls: BTreeSet<AclId>,
    pub(super) targets: BTreeSet<Target>,
    /// Clouds of the host's middleboxes: interfaces that forward packets of other interfaces.
    pub(super) forwards: BTreeSet<VpcId>,
}

impl Needs {
    pub(super) fn of(world: &World, rules: &Rules) -> Self {
        let enis = rules.ports.keys().filter_map(|id| world.enis.get(id));
        let mut needs = Self {
            groups: enis.flat_map(|eni| eni.groups.iter().copied()).collect(),
            named: rules.members.keys().copied().collect(),
            subnets: rules.subnets.keys().copied().collect(),
            own: rules.subnets.values().map(|subnet| subnet.vpc).collect(),
            reached: rules.mapping.keys().copied().collect(),
            acls: rules.subnets.values().map(|subnet| subnet.acl).collect(),
            forwards: rules.unchecked.values().map(|(vpc, _)| *vpc).collect(),
            ..Self::default()
        };
        let groups = needs.groups.iter().filter_map(|id| world.groups.get(id));
        for rule in groups.flat_map(|group| &group.rules) {
            match rule.peer {
                RulePeer::Group(id) => _ = needs.mentioned.insert(id),
                RulePeer::List(id) => _ = needs.lists.insert(id),
                RulePeer::Block(_) => {}
            }
        }
        for subnet in needs.subnets.iter().filter_map(|id| world.subnets.get(id)) {
            let main = world.vpcs.get(&subnet.vpc).map(|vpc| vpc.main_route_table);
            needs.tables.extend(subnet.route_table.or(main));
        }
        let tables = needs.tables.iter().filter_map(|id| world.route_tables.get(id));
        for route in tables.flat_map(|table| &table.routes) {
            needs.targets.insert(route.target);
            if let Destination::List(id) = route.destination {
                needs.lists.insert(id);
            }
        }
        needs
    }
}
