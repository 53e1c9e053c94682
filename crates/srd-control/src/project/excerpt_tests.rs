use proptest::prelude::*;
use srd_enrol::CloudTables;

use super::*;
use crate::project::needs::needs;
use crate::project::part::part;
use crate::project::placed::placed;
use crate::state::interface::ReferencedGroup;

proptest! {
    #[test]
    fn the_tables_of_the_units_of_a_host_are_those_of_all_its_vpcs(seed: u64) {
        let region = placed(seed);
        let needs = needs(&region);
        let excerpts = excerpts(&region, &needs.units);
        for numbers in needs.hosts.values() {
            let mut vpcs = BTreeSet::new();
            let mut tables = CloudTables::default();
            for number in numbers {
                let unit = &needs.units[*number];
                let own = excerpts[*number].region(&region).unwrap();
                tables.add(&part(&own, unit).unwrap().tables).unwrap();
                prop_assert!(unit.iter().all(|vpc| vpcs.insert(*vpc)), "{:?}", needs);
            }
            prop_assert_eq!(&tables, &part(&region, &vpcs).unwrap().tables);
        }
    }

    /// Each warning of the whole region that concerns an object of a unit is one of the unit.
    #[test]
    fn the_warnings_of_a_unit_are_warnings_of_the_region(seed: u64) {
        let region = placed(seed);
        let needs = needs(&region);
        for (unit, excerpt) in needs.units.iter().zip(excerpts(&region, &needs.units)) {
            let own = part(&excerpt.region(&region).unwrap(), unit).unwrap();
            let whole = part(&region, unit).unwrap();
            prop_assert!(own.warnings.iter().all(|of| whole.warnings.contains(of)));
            let concerns = |of: &&String| {
                let id = of.split(':').next().unwrap_or_default();
                !["pl-", "tmf-", "tms-", "vpce-"].iter().any(|kind| id.starts_with(kind))
            };
            for warning in whole.warnings.iter().filter(concerns) {
                prop_assert!(own.warnings.contains(warning), "{}", warning);
            }
        }
    }
}

#[test]
fn an_excerpt_differs_if_and_only_if_one_of_its_objects_does() {
    let mut region = placed(1);
    let vpcs: Vec<String> = region.vpcs.iter().map(|vpc| vpc.vpc_id.clone()).collect();
    let made = |region: &Region| {
        let units = vpcs.iter().map(|vpc| BTreeSet::from([vpc.as_str()]));
        let units: Vec<BTreeSet<&str>> = units.collect();
        excerpts(region, &units)
    };
    let before = made(&region);
    let group = region.groups.find(|group| group.vpc_id == vpcs[1]).unwrap().group_id.clone();
    region.group_rules.insert(SecurityGroupRule {
        security_group_rule_id: "sgr-1".into(),
        group_id: group,
        cidr_ipv4: Some("192.0.2.0/24".parse().unwrap()),
        ..SecurityGroupRule::any(false)
    });
    let after = made(&region);
    let same: Vec<bool> = before.iter().zip(&after).map(|(a, b)| a.is_same(b)).collect();
    assert_eq!(same, [true, false, true]);
    region.rollback();
    assert!(before.iter().zip(made(&region)).all(|(a, b)| a.is_same(&b)));
}

#[test]
fn the_groups_of_changed_rules_are_told_if_nothing_else_has_changed() {
    let mut region = placed(1);
    let vpc = region.vpcs.iter().next().unwrap().vpc_id.clone();
    let made = |region: &Region| {
        let unit = BTreeSet::from([vpc.as_str()]);
        excerpts(region, &[unit]).pop().unwrap()
    };
    let groups = region.groups.ids_where(|group| group.vpc_id == vpc);
    let rule = |group: &str| SecurityGroupRule {
        security_group_rule_id: format!("sgr-of-{group}"),
        group_id: group.to_owned(),
        cidr_ipv4: Some("192.0.2.0/24".parse().unwrap()),
        ..SecurityGroupRule::any(false)
    };
    let before = made(&region);
    let none = BTreeSet::new();
    assert_eq!(before.changed_groups(&made(&region)), Some(none));
    region.group_rules.insert(rule(&groups[0]));
    let one = made(&region);
    assert_eq!(before.changed_groups(&one), Some(BTreeSet::from([groups[0].as_str()])));
    assert_eq!(one.changed_groups(&before), Some(BTreeSet::from([groups[0].as_str()])));
    region.group_rules.insert(rule(&groups[1]));
    let both = BTreeSet::from([groups[0].as_str(), groups[1].as_str()]);
    assert_eq!(before.changed_groups(&made(&region)), Some(both));
    region.group_rules.remove(&rule(&groups[0]).security_group_rule_id);
    let other = made(&region);
    assert_eq!(before.changed_groups(&other), Some(BTreeSet::from([groups[1].as_str()])));

    // A group of the same VPC is there already, and a prefix list is not.
    let mut member = rule(&groups[2]);
    member.cidr_ipv4 = None;
    member.referenced_group_info = Some(ReferencedGroup {
        group_id: groups[1].clone(),
        user_id: None,
        vpc_id: None,
        vpc_peering_connection_id: None,
        peering_status: None,
    });
    region.group_rules.insert(member);
    let with_member = made(&region);
    let changed = other.changed_groups(&with_member);
    assert_eq!(changed, Some(BTreeSet::from([groups[2].as_str()])));
    let mut listed = rule(&groups[0]);
    listed.cidr_ipv4 = None;
    listed.prefix_list_id = Some("pl-of-another-region".to_owned());
    region.group_rules.insert(listed);
    assert_eq!(with_member.changed_groups(&made(&region)), None);
    region.rollback();
    region.groups.get_mut(&groups[0]).unwrap().description = "another one".to_owned();
    assert_eq!(before.changed_groups(&made(&region)), None);
}
