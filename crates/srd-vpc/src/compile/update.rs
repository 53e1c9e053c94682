//! Changes of interfaces elsewhere: the mapping and the groups' addresses follow, and nothing else
//! is compiled again.

use super::blocks::of_eni;
use super::build::{Places, host_of};
use super::*;
use crate::object::{Eni, World};
use core::cmp::Ordering;
use ipnet::IpNet;

/// More interfaces than this at once are compiled anew.
const CHANGED_MAX: usize = 64;

/// What an update did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Everything is as it was.
    Nothing,
    /// Tables were changed in place.
    Patched {
        /// Groups whose addresses were read again.
        groups: BTreeSet<GroupId>,
        /// Blocks of the mapping that were looked up again.
        blocks: usize,
    },
    /// Everything was compiled anew.
    Rebuilt,
}

impl Rules {
    /// Follows the world from `old`, which these tables were made from, to `new`.
    pub fn update(&mut self, old: &World, new: &World) -> Change {
        let Some(changed) = self.changed_elsewhere(old, new) else {
            *self = Self::compile(new, &self.host);
            return Change::Rebuilt;
        };
        if changed.is_empty() {
            return Change::Nothing;
        }
        let mut groups = BTreeSet::new();
        let mut touched: BTreeSet<(VpcId, IpNet)> = BTreeSet::new();
        for id in &changed {
            let (before, after) = (old.enis.get(id), new.enis.get(id));
            let own_groups = |eni: Option<&Eni>| eni.map_or(Vec::new(), |eni| eni.groups.clone());
            groups.extend(own_groups(before).into_iter().chain(own_groups(after)));
            for eni in [before, after].into_iter().flatten() {
                let Some(subnet) = new.subnets.get(&eni.subnet) else { continue };
                touched.extend(of_eni(eni).map(|block| (subnet.vpc, block)));
            }
        }
        groups.retain(|id| self.members.contains_key(id));
        touched.retain(|(vpc, _)| self.mapping.contains_key(vpc));
        self.fill_members(new, &groups);
        self.map_again(new, &touched);
        self.watch_again(new, &changed);
        Change::Patched { groups, blocks: touched.len() }
    }

    /// The interfaces that differ, if nothing else does that these tables depend on.
    fn changed_elsewhere(&self, old: &World, new: &World) -> Option<BTreeSet<EniId>> {
        let same = old.vpcs == new.vpcs
            && old.subnets == new.subnets
            && old.route_tables == new.route_tables
            && old.acls == new.acls
            && old.groups == new.groups
            && old.prefix_lists == new.prefix_lists
            && old.placements == new.placements
            && old.internet_gateways == new.internet_gateways
            && old.egress_only_gateways == new.egress_only_gateways
            && old.nat_gateways == new.nat_gateways
            && old.addresses == new.addresses
            && old.peerings == new.peerings
            && old.endpoints == new.endpoints;
        if !same {
            return None;
        }
        let instances = different(&old.instances, &new.instances);
        let of = |eni: &Eni| eni.attachment.as_ref().map(|attachment| attachment.instance);
        let mut changed = different(&old.enis, &new.enis);
        if !instances.is_empty() {
            let moved = |eni: &Eni| of(eni).is_some_and(|id| instances.contains(&id));
            let all = old.enis.iter().chain(&new.enis);
            changed.extend(all.filter(|(_, eni)| moved(eni)).map(|(id, _)| *id));
        }
        let is_elsewhere = |id: &EniId| {
            let here = new.enis.get(id).is_some_and(|e| host_of(new, e) == Some(&*self.host));
            let elastic = |id| {
                move |a: &crate::object::ElasticAddress| {
                    a.association.is_some_and(|(of, _)| of == id)
                }
            };
            !here
                && !self.ports.contains_key(id)
                && !new
                    .route_tables
                    .values()
                    .flat_map(|t| &t.routes)
                    .any(|r| r.target == Target::Eni(*id))
                && !new.addresses.values().any(elastic(*id))
        };
        (changed.len() <= CHANGED_MAX && changed.iter().all(is_elsewhere)).then_some(changed)
    }

    /// Reads again which of these interfaces are middleboxes.
    fn watch_again(&mut self, world: &World, changed: &BTreeSet<EniId>) {
        let places = Places::new(world);
        for id in changed {
            self.unchecked.remove(id);
            let Some(eni) = world.enis.get(id).filter(|eni| !eni.source_dest_check) else {
                continue;
            };
            let Some(subnet) = world.subnets.get(&eni.subnet) else { continue };
            if self.mapping.contains_key(&subnet.vpc) {
                self.unchecked.insert(*id, (subnet.vpc, places.of(*id, eni)));
            }
        }
    }

    /// Looks up again which interface has each of these blocks: the first one.
    fn map_again(&mut self, world: &World, touched: &BTreeSet<(VpcId, IpNet)>) {
        let places = Places::new(world);
        for (vpc, block) in touched {
            if let Some(table) = self.mapping.get_mut(vpc) {
                table.remove(*block);
            }
        }
        for (id, eni) in &world.enis {
            let Some(subnet) = world.subnets.get(&eni.subnet) else { continue };
            for block in of_eni(eni).filter(|block| touched.contains(&(subnet.vpc, *block))) {
                if let Some(table) = self.mapping.get_mut(&subnet.vpc) {
                    table.put(block, places.of(*id, eni), |_, _| true);
                }
            }
        }
    }
}

/// The keys whose values differ, or that only one of two tables has: one walk along both.
fn different<K: Ord + Copy, V: PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let mut found = BTreeSet::new();
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return found,
        };
        match order {
            Ordering::Less => found.extend(old.next().map(|(key, _)| *key)),
            Ordering::Greater => found.extend(new.next().map(|(key, _)| *key)),
            Ordering::Equal => {
                let (a, b) = (old.next(), new.next());
                found.extend(a.filter(|_| a != b).map(|(key, _)| *key));
            }
        }
    }
}
