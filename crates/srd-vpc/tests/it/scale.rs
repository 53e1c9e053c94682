//! Tables of a host contain only what the host needs, independent of the size of the cloud.
#![allow(clippy::unwrap_used)]

use crate::large::{at, host, world};
use srd_vpc::compile::{Answer, Asker, Directory, Edit, Flow, Location, Next, Rules};
use srd_vpc::id::*;
use srd_vpc::packet::{Inner, Packet};
use std::sync::Arc;

const OF_HOST: u32 = 20;
const HOSTS: u32 = 500;
const RULES: u16 = 20;

#[test]
fn tables_do_not_grow_with_the_cloud() {
    let tables = |hosts| Directory::new(world(hosts * OF_HOST, OF_HOST, RULES)).tables(&host(0));
    let small = tables(HOSTS / 10).sizes();
    let large = tables(HOSTS).sizes();
    // Only the group that rules name grows with the cloud.
    let named = (HOSTS * OF_HOST / 5) as usize;
    assert_eq!(small, [20, 20, named / 10]);
    assert_eq!(large, [20, 20, named]);
    let whole = Rules::compile(&world(HOSTS * OF_HOST, OF_HOST, RULES), &host(0)).sizes();
    assert_eq!(whole, [20, (HOSTS * OF_HOST) as usize, named]);
}

#[test]
fn bytes_of_tables_and_of_deltas_are_those_of_what_they_hold() {
    let tables = |hosts, group: bool| {
        let mut cloud = world(hosts * OF_HOST, OF_HOST, RULES);
        if !group {
            cloud.groups.get_mut(&GroupId(1)).unwrap().rules.truncate(10);
        }
        Directory::new(cloud).tables(&host(0)).bytes()
    };
    // Without a rule that names the group, a cloud of ten times the size gives a host equal tables.
    assert_eq!(tables(HOSTS / 10, false), tables(HOSTS, false));
    // With such a rule, each member adds a few bytes.
    let members = (HOSTS * OF_HOST / 5 * 9 / 10) as usize;
    let grown = tables(HOSTS, true) - tables(HOSTS / 10, true);
    assert!((members * 4..members * 16).contains(&grown), "{grown} for {members}");
    let cloud = world(HOSTS * OF_HOST, OF_HOST, RULES);
    let whole = Rules::compile(&cloud, &host(0)).bytes();
    assert!(whole > (HOSTS * OF_HOST) as usize * size_of::<Location>());

    let mut directory = Directory::new(cloud.clone());
    let tables = directory.tables(&host(0)).bytes();
    let last = EniId(u64::from(HOSTS * OF_HOST) - 1);
    let mut eni = cloud.enis[&last].clone();
    eni.groups.push(GroupId(2));
    let deltas = directory.apply(&[Edit::Interface(last, Some(eni))]);
    let delta = deltas[&*host(0)].bytes();
    assert!((1..2_000).contains(&delta) && tables > 10 * delta, "{delta} of {tables}");
}

#[test]
fn an_added_member_reaches_the_hosts_whose_rules_name_its_group() {
    let cloud = world(HOSTS * OF_HOST, OF_HOST, RULES);
    let last = EniId(u64::from(HOSTS * OF_HOST) - 1);
    let mut directory = Directory::new(cloud.clone());
    let mut tables: Vec<Rules> = (0..HOSTS).map(|n| directory.tables(&host(n))).collect();
    let mut eni = cloud.enis[&last].clone();
    eni.groups.push(GroupId(4));
    let deltas = directory.apply(&[Edit::Interface(last, Some(eni))]);

    // Ten hosts have an interface whose rules name the group; the new member is on another host.
    let own: Arc<str> = host(HOSTS - 1).into();
    let naming: Vec<Arc<str>> = (0..HOSTS).step_by(50).map(|n| host(n).into()).collect();
    let mut wanted: Vec<_> = naming.iter().chain([&own]).cloned().collect();
    wanted.sort();
    assert_eq!(deltas.keys().cloned().collect::<Vec<_>>(), wanted);
    assert!(deltas[&own].is_whole() && deltas[&own].members() == 0);
    for name in &naming {
        assert!(!deltas[name].is_whole() && deltas[name].members() == 1, "{name}");
    }

    let packet = Packet {
        source: at(HOSTS * OF_HOST - 1).into(),
        destination: at(0).into(),
        inner: Inner::Tcp(40_000, 1),
    };
    let receive = |rules: &Rules| rules.receive(EniId(0), &packet, None, false, Flow::New).is_ok();
    assert!(!receive(&tables[0]));
    tables[0].apply(deltas[&*host(0)].clone());
    assert!(receive(&tables[0]));
}

#[test]
fn a_moved_interface_is_withdrawn_where_it_was_asked_for() {
    let cloud = world(HOSTS * OF_HOST, OF_HOST, RULES);
    let last = HOSTS * OF_HOST - 1;
    let mut directory = Directory::new(cloud.clone());
    let mut tables: Vec<Rules> = (0..HOSTS).map(|n| directory.tables(&host(n))).collect();
    let packet = |n| Packet {
        source: at(n * OF_HOST).into(),
        destination: at(last).into(),
        inner: Inner::Tcp(40_000, 443),
    };
    let asking = [3, 7, 9];
    for n in asking {
        let eni = EniId(u64::from(n * OF_HOST));
        let sent = tables[n as usize].send(eni, &packet(n), Flow::New).unwrap();
        let Next::Ask(question) = sent.next else { panic!("{sent:?}") };
        let answer = directory.answer(&host(n), question).unwrap();
        assert!(matches!(&answer, Answer::Address(.., Some(place))
            if place.host.as_deref() == Some(&*host(HOSTS - 1))));
        tables[n as usize].learn(Asker::Interface(eni), answer).unwrap();
    }
    let instance = InstanceId(u64::from(last));
    let mut moved = cloud.instances[&instance].clone();
    moved.host = Some(host(1));
    let deltas = directory.apply(&[Edit::Instance(instance, Some(moved))]);
    let withdrawn: Vec<_> = deltas.iter().filter(|(_, d)| !d.withdrawn().is_empty()).collect();
    let names: Vec<&str> = withdrawn.iter().map(|(name, _)| &***name).collect();
    assert_eq!(names, ["host-3", "host-7", "host-9"]);
    // The former host and the new host of the instance.
    assert_eq!(deltas.len(), asking.len() + 2);
    let eni = EniId(u64::from(3 * OF_HOST));
    assert!(matches!(tables[3].send(eni, &packet(3), Flow::New).unwrap().next, Next::To { .. }));
    tables[3].apply(deltas["host-3"].clone());
    assert!(matches!(tables[3].send(eni, &packet(3), Flow::New).unwrap().next, Next::Ask(_)));
}
