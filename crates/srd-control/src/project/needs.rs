//! The VPCs that each host needs, in units.
//!
//! A host needs the VPCs in which it has instances, and VPCs that active peering connections join
//! with them, also through further VPCs.
//!
//! Two VPCs are linked if an object refers to both. The tables of VPCs without a link do not depend
//! on each other: so the VPCs of a host are divided into units, and the tables of the host are
//! those of its units. Hosts share units. A change of a VPC concerns the units that contain it.

use std::collections::{BTreeMap, BTreeSet};

use super::part::host_of;
use super::route::PEERING_LIVES;
use crate::state::{PeeringConnection, Region};

/// The neighbours of each VPC.
type Neighbours<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The VPCs that hosts need.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs<'a> {
    /// The units of all hosts, without repetitions. A VPC may belong to several units.
    pub units: Vec<BTreeSet<&'a str>>,
    /// Hosts with running instances of the region, each with the numbers of its units. No VPC
    /// belongs to two units of a host.
    pub hosts: BTreeMap<&'a str, Vec<usize>>,
}

/// Returns the VPCs that each host with running instances of the region needs.
pub fn needs(region: &Region) -> Needs<'_> {
    let (joined, linked) = (joined(region), linked(region));
    let mut needs = Needs::default();
    let mut numbers: BTreeMap<BTreeSet<&str>, usize> = BTreeMap::new();
    // Hosts with instances in the same VPCs have the same units.
    let mut known: BTreeMap<BTreeSet<&str>, Vec<usize>> = BTreeMap::new();
    for (host, vpcs) in vpcs_of_hosts(region) {
        if let Some(units) = known.get(&vpcs) {
            needs.hosts.insert(host, units.clone());
            continue;
        }
        let mut units = Vec::new();
        for unit in units_of(&reachable(&vpcs, &joined), &linked) {
            let next = needs.units.len();
            let number = *numbers.entry(unit.clone()).or_insert(next);
            if number == next {
                needs.units.push(unit);
            }
            units.push(number);
        }
        needs.hosts.insert(host, units.clone());
        known.insert(vpcs, units);
    }
    needs
}

/// The VPCs in which each host has running instances.
fn vpcs_of_hosts(region: &Region) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut hosts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for interface in region.interfaces.iter() {
        if let Some(host) = host_of(region, interface) {
            hosts.entry(host).or_default().insert(&interface.vpc_id);
        }
    }
    hosts
}

fn add<'a>(all: &mut Neighbours<'a>, [one, other]: [&'a str; 2]) {
    if one != other {
        all.entry(one).or_default().insert(other);
        all.entry(other).or_default().insert(one);
    }
}

/// The VPCs of both sides of a peering connection.
fn sides(peering: &PeeringConnection) -> [&str; 2] {
    [&peering.requester_vpc_info, &peering.accepter_vpc_info].map(|side| side.vpc_id.as_str())
}

/// The VPCs that active peering connections join.
fn joined(region: &Region) -> Neighbours<'_> {
    let mut joined = Neighbours::new();
    for peering in region.peerings.iter().filter(|peering| peering.status.code == "active") {
        add(&mut joined, sides(peering));
    }
    joined
}

/// The VPCs to which an object refers together: a peering connection, a rule with a group of
/// another VPC, an instance with interfaces in several VPCs, a session of traffic mirroring.
fn linked(region: &Region) -> Neighbours<'_> {
    let mut linked = Neighbours::new();
    let lives = |of: &&PeeringConnection| PEERING_LIVES.contains(&of.status.code.as_str());
    for peering in region.peerings.iter().filter(lives) {
        add(&mut linked, sides(peering));
    }
    for rule in region.group_rules.iter() {
        let Some(other) = &rule.referenced_group_info else { continue };
        let groups = [&rule.group_id, &other.group_id].map(|id| region.groups.get(id));
        if let [Some(own), Some(other)] = groups {
            add(&mut linked, [&own.vpc_id, &other.vpc_id]);
        }
    }
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for interface in region.interfaces.iter() {
        let instance = interface.attachment.as_ref().and_then(|at| at.instance_id.as_deref());
        if let Some(instance) = instance {
            let vpc = interface.vpc_id.as_str();
            add(&mut linked, [*first.entry(instance).or_insert(vpc), vpc]);
        }
    }
    for session in region.mirror_sessions.iter() {
        let target = region.mirror_targets.get(&session.traffic_mirror_target_id);
        let target = target.and_then(|target| target.network_interface_id.as_ref());
        let Some(target) = target.and_then(|id| region.interfaces.get(id)) else { continue };
        if let Some(source) = region.interfaces.get(&session.network_interface_id) {
            add(&mut linked, [&source.vpc_id, &target.vpc_id]);
        }
    }
    linked
}

/// The VPCs that are joined with these, also through further VPCs, and these.
fn reachable<'a>(from: &BTreeSet<&'a str>, joined: &Neighbours<'a>) -> BTreeSet<&'a str> {
    let mut all = from.clone();
    let mut open: Vec<&str> = from.iter().copied().collect();
    while let Some(vpc) = open.pop() {
        for next in joined.get(vpc).into_iter().flatten() {
            if all.insert(next) {
                open.push(next);
            }
        }
    }
    all
}

/// Divides VPCs into sets without links between each other.
fn units_of<'a>(vpcs: &BTreeSet<&'a str>, linked: &Neighbours<'a>) -> Vec<BTreeSet<&'a str>> {
    let mut left = vpcs.clone();
    let mut units = Vec::new();
    while let Some(first) = left.pop_first() {
        let mut unit = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(vpc) = open.pop() {
            for next in linked.get(vpc).into_iter().flatten() {
                if left.remove(next) {
                    unit.insert(next);
                    open.push(next);
                }
            }
        }
        units.push(unit);
    }
    units
}
