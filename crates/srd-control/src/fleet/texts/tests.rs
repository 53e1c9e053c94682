use super::*;
use crate::machines::{RUNNING, TERMINATED};
use crate::project::placed::{Dice, placed};
use crate::state::interface::{GatewayAttachment, ReferencedGroup};
use crate::state::network::{NetworkAclEntry, PrefixListEntry, Route};
use crate::state::{NetworkInterface, SecurityGroupRule};

/// The tables of each host.
fn made(texts: &mut Texts, region: &Region) -> BTreeMap<String, Arc<CloudTables>> {
    let made = texts.make(region).unwrap().hosts.into_iter();
    made.map(|(host, tables)| (host.to_owned(), tables)).collect()
}

/// Compares the tables of each host with those that the whole region has for its VPCs, and counts
/// the entries that are kept.
fn check(texts: &mut Texts, region: &Region, step: &str) {
    let made = made(texts, region);
    let needs = needs(region);
    assert!(made.keys().eq(needs.hosts.keys()), "{step}");
    for (host, numbers) in &needs.hosts {
        let units = numbers.iter().map(|number| &needs.units[*number]);
        let vpcs: BTreeSet<&str> = units.flatten().copied().collect();
        let whole = part(region, &vpcs).unwrap();
        assert_eq!(*made[*host], whole.tables, "{step}: {host}");
    }
    assert_eq!(texts.units.len(), needs.units.len(), "{step}");
    assert!(texts.unions.len() <= needs.hosts.len(), "{step}");
}

/// A region with three VPCs that are units of their own, and with hosts of several units.
fn apart() -> Region {
    let mut regions = (0..200).map(|seed| {
        let mut region = placed(seed);
        for id in region.peerings.ids_where(|_| true) {
            region.peerings.remove(&id);
        }
        for id in region.group_rules.ids_where(|rule| rule.referenced_group_info.is_some()) {
            region.group_rules.remove(&id);
        }
        region.mirror_sessions.remove("tms-1");
        region.commit();
        region
    });
    let is_meant = |region: &Region| {
        let needs = needs(region);
        needs.units.len() == 3 && needs.hosts.values().any(|units| units.len() > 1)
    };
    regions.find(is_meant).unwrap()
}

/// A rule of a group of a VPC.
fn rule(region: &Region, vpc: &str, port: i64) -> SecurityGroupRule {
    SecurityGroupRule {
        security_group_rule_id: format!("sgr-new-{port}"),
        group_id: region.groups.find(|group| group.vpc_id == vpc).unwrap().group_id.clone(),
        ip_protocol: "tcp".to_owned(),
        from_port: port,
        to_port: port,
        cidr_ipv4: Some("192.0.2.0/24".parse().unwrap()),
        ..SecurityGroupRule::any(false)
    }
}

/// Each change made and read the tables of all units again.
#[test]
fn regression_a_change_of_rules_makes_the_tables_of_its_unit_only() {
    let (mut region, mut texts) = (apart(), Texts::default());
    let former = made(&mut texts, &region);
    assert_eq!((texts.made, texts.units.len()), (3, 3));
    assert_eq!(made(&mut texts, &region), former);
    assert_eq!(texts.made, 3);

    let vpc = needs(&region).units[0].first().unwrap().to_string();
    let concerned: BTreeSet<String> = {
        let needs = needs(&region);
        let concerned = needs.hosts.iter().filter(|(_, units)| units.contains(&0));
        concerned.map(|(host, _)| (*host).to_owned()).collect()
    };
    region.group_rules.insert(rule(&region, &vpc, 7001));
    let present = made(&mut texts, &region);
    assert_eq!(texts.made, 4);
    for (host, tables) in &present {
        let is_former = Arc::ptr_eq(tables, &former[host]);
        assert_eq!(is_former, !concerned.contains(host), "{host}");
        assert_eq!(tables.text().contains("tcp 7001 from 192.0.2.0/24"), !is_former, "{host}");
    }
    // Neither a commit nor a change of an object that no table shows makes other tables.
    region.commit();
    made(&mut texts, &region);
    assert_eq!(texts.made, 4);
    let group = region.groups.find(|group| group.vpc_id == vpc).unwrap().group_id.clone();
    region.groups.get_mut(&group).unwrap().group_name = "other".to_owned();
    let again = made(&mut texts, &region);
    assert_eq!(texts.made, 5);
    assert!(again.iter().all(|(host, tables)| Arc::ptr_eq(tables, &present[host])));
    // A request that fails leaves the former tables.
    region.commit();
    region.group_rules.remove("sgr-new-7001");
    assert_eq!(made(&mut texts, &region), former);
    region.rollback();
    assert_eq!(made(&mut texts, &region), present);
}

/// Each change of a rule made and read the tables of all instances of its VPC.
#[test]
fn regression_a_change_of_rules_reads_the_tables_of_its_group_only() {
    let (mut region, mut texts) = (apart(), Texts::default());
    made(&mut texts, &region);
    assert_eq!(texts.read, 3);
    let vpc = needs(&region).units[0].first().unwrap().to_string();
    let has = |texts: &Texts, port: i64| {
        let phrase = format!("tcp {port} from 192.0.2.0/24");
        texts.units.values().any(|unit| unit.tables.text().contains(&phrase))
    };
    for port in [7001, 7002, 7003] {
        region.group_rules.insert(rule(&region, &vpc, port));
        check(&mut texts, &region, "a new rule");
        assert!(has(&texts, port));
        region.commit();
    }
    region.group_rules.get_mut("sgr-new-7002").unwrap().from_port = 7000;
    check(&mut texts, &region, "a wider rule");
    region.group_rules.remove("sgr-new-7001");
    check(&mut texts, &region, "a rule less");
    assert!(!has(&texts, 7001) && !has(&texts, 7002) && has(&texts, 7003));
    region.rollback();
    check(&mut texts, &region, "a rollback");
    assert!(has(&texts, 7001) && has(&texts, 7002));
    assert_eq!((texts.made, texts.read), (9, 3));

    // A rule with a list may need the table of the list.
    let lists = region.prefix_lists.ids_where(|_| true);
    let mut listed = rule(&region, &vpc, 7004);
    (listed.cidr_ipv4, listed.prefix_list_id) = (None, Some(lists[0].clone()));
    region.group_rules.insert(listed);
    check(&mut texts, &region, "a rule with a list");
    assert_eq!((texts.made, texts.read), (10, 4));
}

#[test]
fn a_group_has_as_many_rules_as_with_a_read_of_all_tables() {
    fn outcome(texts: &mut Texts, region: &Region) -> Result<(), String> {
        texts.make(region).map(|_| ())
    }
    let (mut region, mut texts) = (apart(), Texts::default());
    outcome(&mut texts, &region).unwrap();
    let vpc = needs(&region).units[0].first().unwrap().to_string();
    let mut last = Ok(());
    for port in 1..=1005 {
        region.group_rules.insert(rule(&region, &vpc, port));
        // An interface with one group allows 1000 rules, and one with two groups 500.
        if !(490..=505).contains(&port) && port < 990 {
            continue;
        }
        last = outcome(&mut texts, &region);
        assert_eq!(last, outcome(&mut Texts::default(), &region), "{port}");
        assert!(last.is_err() || texts.read == 3, "{port}");
    }
    assert!(last.unwrap_err().contains("rules"));
}

#[test]
fn tables_that_no_host_needs_are_freed() {
    let (mut region, mut texts) = (apart(), Texts::default());
    made(&mut texts, &region);
    let vpcs: Vec<String> = region.vpcs.iter().map(|vpc| vpc.vpc_id.clone()).collect();
    for (count, vpc) in vpcs.iter().enumerate() {
        let gone = |of: &NetworkInterface| of.vpc_id == *vpc;
        for id in region.interfaces.ids_where(gone) {
            let interface = region.interfaces.remove(&id).unwrap();
            let instance = interface.attachment.and_then(|at| at.instance_id);
            if let Some(instance) = instance.and_then(|id| region.instances.get_mut(&id)) {
                instance.state.code = TERMINATED;
            }
        }
        region.vpcs.remove(vpc);
        region.commit();
        let weak: Vec<_> = texts.units.values().map(|unit| Arc::downgrade(&unit.tables)).collect();
        check(&mut texts, &region, vpc);
        assert_eq!(texts.units.len(), 2 - count);
        assert!(!texts.units.keys().any(|vpcs| vpcs.contains(vpc)));
        assert_eq!(weak.iter().filter(|tables| tables.strong_count() > 0).count(), 2 - count);
    }
    assert!(texts.unions.is_empty());
}

#[test]
fn a_part_that_a_host_would_refuse_changes_nothing() {
    let (mut region, mut texts) = (apart(), Texts::default());
    let former = made(&mut texts, &region);
    let vpc = needs(&region).units[0].first().unwrap().to_string();
    let group = region.groups.find(|group| group.vpc_id == vpc).unwrap().group_id.clone();
    let description = "x".repeat(srd_enrol::cloud::TABLE_BYTES_MAX);
    region.groups.get_mut(&group).unwrap().description = description;
    assert!(texts.make(&region).unwrap_err().contains("are the most"));
    region.rollback();
    let count = texts.made;
    assert_eq!(made(&mut texts, &region), former);
    assert_eq!(texts.made, count, "the former tables have been kept");
}

/// A request that failed after the tables of some hosts had been put together gave these hosts
/// equal tables as other ones, to which they then had to change.
#[test]
fn regression_tables_of_several_units_outlive_a_request_that_fails() {
    let (region, mut texts) = (apart(), Texts::default());
    let former = made(&mut texts, &region);
    let needs = needs(&region);
    let of_host = needs.hosts.values().find(|units| units.len() > 1).unwrap();
    let tables = of_host.iter().map(|number| {
        let vpcs = needs.units[*number].iter().map(|vpc| (*vpc).to_owned());
        Arc::clone(&texts.units[&vpcs.collect::<BTreeSet<String>>()].tables)
    });
    // The request fails with the next host.
    texts.together(tables.collect(), &mut BTreeMap::new()).unwrap();
    let present = made(&mut texts, &region);
    assert!(present.iter().all(|(host, tables)| Arc::ptr_eq(tables, &former[host])));
}

/// A change as a request or another controller makes it.
fn change(region: &mut Region, dice: &mut Dice, number: i64) -> &'static str {
    let groups = region.groups.ids_where(|_| true);
    let instances = region.instances.ids_where(|_| true);
    let lists = region.prefix_lists.ids_where(|_| true);
    match dice.below(12) {
        0 | 1 => {
            let id = dice.pick(&groups);
            let vpc = region.groups.get(&id).unwrap().vpc_id.clone();
            let mut rule = rule(region, &vpc, 7000 + number);
            match dice.below(3) {
                0 => {
                    let other = ReferencedGroup {
                        group_id: dice.pick(&groups),
                        user_id: None,
                        vpc_id: None,
                        vpc_peering_connection_id: None,
                        peering_status: None,
                    };
                    (rule.cidr_ipv4, rule.referenced_group_info) = (None, Some(other));
                }
                1 => (rule.cidr_ipv4, rule.prefix_list_id) = (None, Some(dice.pick(&lists))),
                _ => {}
            }
            region.group_rules.insert(rule);
            "a new rule"
        }
        2 => {
            let rules = region.group_rules.ids_where(|_| true);
            region.group_rules.remove(&dice.pick(&rules));
            "a rule less"
        }
        3 => {
            let peerings = region.peerings.ids_where(|_| true);
            let code = ["active", "pending-acceptance", "deleted"][dice.below(3)];
            let peering = region.peerings.get_mut(&dice.pick(&peerings)).unwrap();
            code.clone_into(&mut peering.status.code);
            "another state of a peering connection"
        }
        4 => {
            let list = region.prefix_lists.get_mut(&dice.pick(&lists)).unwrap();
            let cidr = format!("192.0.{}.0/24", number % 200);
            list.versions.push(vec![PrefixListEntry { cidr, description: None }]);
            list.version = i64::try_from(list.versions.len()).ok();
            "another version of a prefix list"
        }
        5 | 6 => {
            let instance = region.instances.get_mut(&dice.pick(&instances)).unwrap();
            instance.host = Some(dice.host());
            "another host of an instance"
        }
        7 => {
            let instance = region.instances.get_mut(&dice.pick(&instances)).unwrap();
            instance.host = Some(dice.host());
            instance.state.code = if instance.state.code == RUNNING { 80 } else { RUNNING };
            "a start or a stop of an instance"
        }
        8 => {
            let acls = region.acls.ids_where(|_| true);
            let acl = region.acls.get_mut(&dice.pick(&acls)).unwrap();
            acl.entries.remove(0);
            let first = acl.entries[0].clone();
            acl.entries.push(NetworkAclEntry { rule_number: 1000 + number, ..first });
            "other entries of a network ACL"
        }
        9 => {
            let all = region.vpcs.ids_where(|_| true);
            let options = region.dhcp_options.ids_where(|_| true);
            region.vpcs.get_mut(&dice.pick(&all)).unwrap().dhcp_options_id = dice.pick(&options);
            "other DHCP options"
        }
        10 => {
            region.mirror_sessions.remove("tms-1");
            region.endpoints.remove("vpce-1");
            "no mirror session and no endpoint"
        }
        _ => {
            let addresses = region.addresses.ids_where(|_| true);
            let address = region.addresses.get_mut(&dice.pick(&addresses)).unwrap();
            address.network_interface_id = None;
            "an address without an interface"
        }
    }
}

/// A change of an object to which others refer, also from other VPCs.
fn change_target(region: &mut Region, dice: &mut Dice, number: i64) -> &'static str {
    let instances = region.instances.ids_where(|_| true);
    let interfaces = region.interfaces.ids_where(|_| true);
    match dice.below(5) {
        0 | 1 => {
            let mut route = Route {
                destination_cidr_block: Some(format!("192.88.{number}.0/24").parse().unwrap()),
                origin: "CreateRoute".to_owned(),
                state: "active".to_owned(),
                ..Route::default()
            };
            let gateways = region.nat_gateways.ids_where(|_| true);
            let peerings = region.peerings.ids_where(|_| true);
            match dice.below(4) {
                0 => route.instance_id = Some(dice.pick(&instances)),
                1 => route.network_interface_id = Some(dice.pick(&interfaces)),
                2 => route.nat_gateway_id = Some(dice.pick(&gateways)),
                _ => route.vpc_peering_connection_id = Some(dice.pick(&peerings)),
            }
            let tables = region.route_tables.ids_where(|_| true);
            region.route_tables.get_mut(&dice.pick(&tables)).unwrap().routes.push(route);
            "a route to an object of any VPC"
        }
        2 => {
            let used = region.interfaces.iter().flat_map(|of| &of.groups);
            let used: BTreeSet<String> = used.map(|group| group.group_id.clone()).collect();
            let unused = region.groups.ids_where(|group| !used.contains(&group.group_id));
            if let Some(id) = unused.first() {
                region.groups.remove(id);
            }
            "a group less, which rules may name"
        }
        3 => {
            let taken = region.internet_gateways.iter().flat_map(|of| &of.attachments);
            let taken: BTreeSet<String> = taken.map(|at| at.vpc_id.clone()).collect();
            let free = region.vpcs.ids_where(|vpc| !taken.contains(&vpc.vpc_id)).pop();
            let gateways = region.internet_gateways.ids_where(|_| true);
            let gateway = region.internet_gateways.get_mut(&dice.pick(&gateways)).unwrap();
            let attachment = |vpc_id| GatewayAttachment { state: "available".to_owned(), vpc_id };
            gateway.attachments = free.map(attachment).into_iter().collect();
            "an internet gateway of another VPC, or of none"
        }
        _ => {
            let attached = region.interfaces.ids_where(|of| of.attachment.is_some());
            let interface = region.interfaces.get_mut(&dice.pick(&attached)).unwrap();
            let attachment = interface.attachment.as_mut().unwrap();
            (attachment.instance_id, attachment.device_index) = (Some(dice.pick(&instances)), 1);
            "an interface at another instance"
        }
    }
}

#[test]
fn tables_are_those_of_the_present_region_after_each_change() {
    for seed in 0..6 {
        let (mut region, mut dice) = (placed(seed), Dice::new(seed));
        let mut texts = Texts::default();
        for number in 0..30 {
            let what = match dice.below(6) {
                0 => {
                    region.rollback();
                    "a rollback"
                }
                1 => {
                    region.commit();
                    "a commit"
                }
                2 | 3 => change_target(&mut region, &mut dice, number),
                _ => change(&mut region, &mut dice, number),
            };
            check(&mut texts, &region, &format!("{seed}, {number}: {what}"));
        }
    }
}
