//! The next step that brings a group closer to what it shall be. Nothing here changes the state.
//!
//! A group first loses the members that do not run or are not healthy. Then it ends members that
//! exceed the desired capacity, or starts those that are missing. A group of the right size moves
//! members between zones until the zones differ by at most one member: it starts a member in the
//! smaller zone, and the next step ends one in the larger zone.

use std::collections::BTreeMap;

use crate::machines::RUNNING;
use crate::state::scaling::GroupMember;
use crate::state::{Region, ScalingGroup, Subnet};

/// Time in seconds after a failed start in which a group starts no instance.
pub(crate) const RETRY_S: u64 = 60;

/// Health of a member that is not replaced.
pub(super) const HEALTHY: &str = "Healthy";
/// Largest number of instances that one step starts.
pub(crate) const LAUNCH_MAX: usize = 100;

/// Extent of a step that starts instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// All missing instances, at most [`LAUNCH_MAX`].
    All,
    /// One instance, in the subnet with this number in the order of preference.
    One(usize),
}

/// A step of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// These members do not run or are not healthy: they leave the group, and are terminated.
    Drop(Vec<String>),
    /// The group is too large: these members are terminated.
    End(Vec<String>),
    /// An instance is started in each of these subnets; a subnet may be named several times.
    Launch(Vec<String>),
}

/// A subnet in which a group can start instances.
#[derive(Clone)]
struct Candidate<'a> {
    subnet: &'a Subnet,
    /// Number of members in the zone of the subnet.
    in_zone: usize,
    /// Number of members in the subnet.
    in_subnet: usize,
}

/// Returns the next step of a group; `None` if there is nothing to do.
pub(crate) fn next(region: &Region, group: &ScalingGroup, extent: Extent) -> Option<Step> {
    let is_lost = |member: &&GroupMember| {
        let instance = region.instances.get(&member.instance_id);
        let runs = instance.is_some_and(|instance| instance.state.code == RUNNING);
        !runs || member.health_status != HEALTHY
    };
    let lost: Vec<String> =
        group.instances.iter().filter(is_lost).map(|of| of.instance_id.clone()).collect();
    if !lost.is_empty() {
        return Some(Step::Drop(lost));
    }
    let desired = usize::try_from(group.desired_capacity).unwrap_or(0);
    let count = group.instances.len();
    if count > desired {
        let ended = excess(region, group, count - desired);
        return (!ended.is_empty()).then_some(Step::End(ended));
    }
    // A clock that was set back does not make the group wait longer.
    if (1..=RETRY_S).contains(&group.retry_at.saturating_sub(region.now)) {
        return None;
    }
    let candidates = match count < desired {
        true => candidates(region, group),
        false => smaller_zones(region, group),
    };
    let missing = (desired - count).clamp(1, LAUNCH_MAX);
    let subnets = match extent {
        Extent::All => spread(candidates, missing),
        Extent::One(number) => {
            candidates.get(number).map(|of| of.subnet.subnet_id.clone()).into_iter().collect()
        }
    };
    (!subnets.is_empty()).then_some(Step::Launch(subnets))
}

/// Returns the subnets of a group in the order of preference: those of the zones with the fewest
/// members first, and in a zone those with the fewest members.
fn candidates<'a>(region: &'a Region, group: &ScalingGroup) -> Vec<Candidate<'a>> {
    let named: Vec<&str> =
        group.vpc_zone_identifier.split(',').filter(|id| !id.is_empty()).collect();
    let subnets: Vec<&Subnet> = match named.is_empty() {
        false => named.iter().filter_map(|id| region.subnets.get(id)).collect(),
        true => {
            let default = |zone: &String| {
                region.subnets.find(|of| of.default_for_az && of.availability_zone == *zone)
            };
            group.availability_zones.iter().filter_map(default).collect()
        }
    };
    let mut in_subnet: BTreeMap<&str, usize> = BTreeMap::new();
    for member in &group.instances {
        let instance = region.instances.get(&member.instance_id);
        if let Some(subnet) = instance.and_then(|of| of.subnet_id.as_deref()) {
            *in_subnet.entry(subnet).or_default() += 1;
        }
    }
    let candidate = |subnet: &'a Subnet| Candidate {
        subnet,
        in_zone: in_zone(group, &subnet.availability_zone),
        in_subnet: in_subnet.get(subnet.subnet_id.as_str()).copied().unwrap_or(0),
    };
    let mut candidates: Vec<Candidate<'_>> = subnets.into_iter().map(candidate).collect();
    candidates.sort_by_key(|of| (of.in_zone, of.in_subnet));
    candidates
}

fn in_zone(group: &ScalingGroup, zone: &str) -> usize {
    group.instances.iter().filter(|member| member.availability_zone == zone).count()
}

/// Returns the subnets in which a group of the right size starts a member, so that another one can
/// end. They are empty if no member is in a wrong zone.
fn smaller_zones<'a>(region: &'a Region, group: &ScalingGroup) -> Vec<Candidate<'a>> {
    let mut candidates = candidates(region, group);
    let movable = |zone: &str| {
        let mut members = group.instances.iter();
        members.any(|of| of.availability_zone == zone && !of.protected_from_scale_in)
    };
    let is_outside = group.instances.iter().any(|member| {
        let zone = &member.availability_zone;
        !candidates.iter().any(|of| of.subnet.availability_zone == *zone) && movable(zone)
    });
    if is_outside {
        return candidates;
    }
    let largest = candidates.iter().filter(|of| movable(&of.subnet.availability_zone));
    let largest = largest.map(|of| of.in_zone).max().unwrap_or(0);
    candidates.retain(|of| of.in_zone + 2 <= largest);
    candidates
}

/// Distributes a number of instances over subnets, each to the subnet that is first in the order of
/// preference after the instances before it.
fn spread(mut candidates: Vec<Candidate<'_>>, count: usize) -> Vec<String> {
    let mut subnets = Vec::new();
    for _ in 0..count {
        let Some(best) = candidates.iter().min_by_key(|of| (of.in_zone, of.in_subnet)) else {
            break;
        };
        let subnet = best.subnet;
        for of in &mut candidates {
            of.in_zone += usize::from(of.subnet.availability_zone == subnet.availability_zone);
            of.in_subnet += usize::from(of.subnet.subnet_id == subnet.subnet_id);
        }
        subnets.push(subnet.subnet_id.clone());
    }
    subnets
}

/// Returns the members that a reduction ends: members outside of the zones of the group first, then
/// those of the zone with the most members, by the termination policies. Protected members stay.
fn excess(region: &Region, group: &ScalingGroup, count: usize) -> Vec<String> {
    let origins = Origins::of(region);
    let zones: Vec<String> =
        candidates(region, group).iter().map(|of| of.subnet.availability_zone.clone()).collect();
    let mut left: Vec<(usize, &GroupMember)> = group.instances.iter().enumerate().collect();
    let mut ended = Vec::new();
    for _ in 0..count {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, member) in &left {
            *sizes.entry(&member.availability_zone).or_default() += 1;
        }
        let size = |member: &GroupMember| {
            let zone = &member.availability_zone;
            let is_outside = !zones.contains(zone);
            (is_outside, sizes.get(zone.as_str()).copied().unwrap_or(0))
        };
        let open = left.iter().filter(|(_, member)| !member.protected_from_scale_in);
        let first = open.min_by_key(|(age, member)| {
            (std::cmp::Reverse(size(member)), rank(group, *age, origins.of_member(group, member)))
        });
        let Some((age, member)) = first.copied() else { break };
        ended.push(member.instance_id.clone());
        left.retain(|(other, _)| *other != age);
    }
    ended
}

/// Places of the launch configurations of a region in the order of their creation, from 1.
struct Origins<'a>(BTreeMap<&'a str, i64>);

impl<'a> Origins<'a> {
    fn of(region: &'a Region) -> Self {
        let names = region.launch_configurations.iter();
        let names = names.map(|of| of.launch_configuration_name.as_str());
        Self(names.zip(1..).collect())
    }

    /// Returns the order of a member by the parameters of its launch, the oldest ones first. A
    /// member of a launch configuration precedes those of templates, and a member of another
    /// template, or of a configuration that was deleted, those of the present one.
    fn of_member(&self, group: &ScalingGroup, member: &GroupMember) -> i64 {
        let configuration = member.launch_configuration_name.as_deref();
        let Some(template) = &group.launch_template else {
            return configuration.and_then(|name| self.0.get(name)).copied().unwrap_or(0);
        };
        if configuration.is_some() {
            return -1;
        }
        let own = member.launch_template.as_ref();
        let own = own.filter(|of| of.launch_template_id == template.launch_template_id);
        own.and_then(|of| of.version.parse().ok()).unwrap_or(0)
    }
}

/// Returns the order of a member among those that may end, by the policies of the group: the
/// smallest ends first. `age` is the number of the member, the oldest first; `origin` the order by
/// the parameters of its launch.
fn rank(group: &ScalingGroup, age: usize, origin: i64) -> Vec<i64> {
    let age = i64::try_from(age).unwrap_or(i64::MAX);
    let policies = group.termination_policies.iter();
    let ranks = policies.flat_map(|policy| match policy.as_str() {
        "NewestInstance" => vec![-age],
        "OldestLaunchTemplate" | "OldestLaunchConfiguration" => vec![origin],
        "Default" => vec![origin, age],
        "AllocationStrategy" => Vec::new(),
        _ => vec![age],
    });
    ranks.chain([age]).collect()
}
