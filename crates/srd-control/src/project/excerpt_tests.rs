use proptest::prelude::*;
use srd_enrol::CloudTables;

use super::*;
use crate::project::needs::needs;
use crate::project::part::part;
use crate::project::placed::placed;

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
