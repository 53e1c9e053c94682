//! After random series of changes, tables that apply deltas equal compiled tables, and return the
//! verdicts of the reference evaluation ([`srd_vpc::judge`]). Each host gets only the changes that
//! concern it.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use crate::generate;
use crate::generate::Dice;
use srd_vpc::compile::*;
use srd_vpc::id::*;
use srd_vpc::judge::*;
use srd_vpc::object::*;
use srd_vpc::packet::Packet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const HOSTS: [&str; 3] = ["h0", "h1", "h2"];
/// Largest number of queries for one packet: one for the destination in the sender's cloud, and one
/// at the target of its route.
const QUESTIONS_MAX: usize = 2;

/// A directory (the control plane) and the tables of three hosts.
struct Cloud {
    directory: Directory,
    hosts: BTreeMap<Arc<str>, Rules>,
}

impl Cloud {
    fn new(world: World) -> Self {
        let mut directory = Directory::new(world);
        let hosts = HOSTS.map(|host| (host.into(), directory.tables(host))).into();
        Self { directory, hosts }
    }

    fn ask(&mut self, host: &str, asker: Asker, question: Question) {
        let answer = self.directory.answer(host, question).unwrap();
        assert_eq!(answer.question(), question);
        self.hosts.get_mut(host).unwrap().learn(asker, answer).unwrap();
    }

    /// Returns the verdict on a packet that an interface sends. Queries are answered immediately.
    fn send(&mut self, eni: EniId, packet: &Packet) -> Result<Verdict, Reason> {
        let host = host_of(self.directory.world(), eni);
        for _ in 0..=QUESTIONS_MAX {
            let sent = self.hosts[&*host].send(eni, packet, Flow::New)?;
            let (place, crosses, packet) = match sent.next {
                Next::Ask(question) => {
                    self.ask(&host, Asker::Interface(eni), question);
                    continue;
                }
                Next::Served(service) => return Ok(Verdict::Served(service)),
                Next::Nat(_) => return Err(Reason::OutwardsOnly),
                Next::Left(exit) => return Ok(Verdict::Left(exit)),
                Next::To { place, crosses, .. } => (place.clone(), crosses, sent.packet),
            };
            let by_nat = sent.nat.is_some();
            let there = place.host.unwrap();
            if !by_nat {
                self.check_sender(&host, &there, [eni, place.eni], packet.source);
            }
            let world = self.directory.world();
            let vpc = world.subnets[&world.enis[&eni].subnet].vpc;
            self.hosts[&there].receive(place.eni, &packet, Some(vpc), crosses, Flow::New)?;
            return Ok(Verdict::Delivered(place.eni));
        }
        panic!("{packet:?} asks more than {QUESTIONS_MAX} times");
    }

    /// Checks that the receiver's host finds the sender and its location.
    fn check_sender(&mut self, here: &str, there: &str, [from, to]: [EniId; 2], source: IpAddr) {
        let sender = |rules: &Rules| rules.sender(to, from, source).map(|of| of.place.clone());
        let found = sender(&self.hosts[there]);
        let found = match found {
            Err(NoSender::Ask(question)) => {
                self.ask(there, Asker::Host(here.into()), question);
                sender(&self.hosts[there])
            }
            found => found,
        };
        assert_eq!(found.unwrap().host.as_deref(), Some(here));
    }

    fn apply(&mut self, edits: &[Edit]) -> BTreeMap<Arc<str>, Delta> {
        let deltas = self.directory.apply(edits);
        for (host, delta) in &deltas {
            self.hosts.get_mut(host).unwrap().apply(delta.clone());
        }
        deltas
    }

    /// Checks that the tables and the answers equal those of a new directory of the same world.
    fn check(&self, seed: u64) {
        let mut anew = Directory::new(self.directory.world().clone());
        for (host, rules) in &self.hosts {
            let mut tables = anew.tables(host);
            for (asker, answer) in rules.known() {
                let answer = anew.answer(host, answer.question()).unwrap();
                tables.learn(asker.clone(), answer).unwrap();
            }
            assert!(*rules == tables, "seed {seed}, {host}:\n{rules:#?}\n{tables:#?}");
        }
    }
}

fn host_of(world: &World, eni: EniId) -> Arc<str> {
    let instance = world.enis[&eni].attachment.as_ref().unwrap().instance;
    world.instances[&instance].host.as_deref().unwrap().into()
}

/// Gives different addresses to interfaces of a cloud that have equal addresses: the tables of one
/// host cannot distinguish such interfaces.
fn without_twins(mut world: World) -> World {
    let mut taken = BTreeSet::new();
    for eni in world.enis.values_mut() {
        let Some(vpc) = world.subnets.get(&eni.subnet).map(|subnet| subnet.vpc) else { continue };
        for address in &mut eni.ipv4 {
            while !taken.insert((vpc, IpAddr::from(*address))) {
                *address = Ipv4Addr::from(u32::from(*address) + 1);
            }
        }
        for address in &mut eni.ipv6 {
            while !taken.insert((vpc, IpAddr::from(*address))) {
                *address = Ipv6Addr::from(u128::from(*address) + 1);
            }
        }
        eni.ipv4_prefixes.clear();
    }
    world
}

/// Returns an edit of one object of a random kind: its state in another random world, or its
/// removal.
fn edit(dice: &mut Dice, world: &World, other: &World) -> Edit {
    let gone = dice.one_in(5);
    let id = dice.below(24);
    macro_rules! of {
        ($kind:ident, $id:expr, $table:ident) => {{
            let id = $id;
            Edit::$kind(id, other.$table.get(&id).filter(|_| !gone).cloned())
        }};
    }
    match dice.below(20) {
        0 => of!(Subnet, SubnetId(id % 12), subnets),
        1 => of!(RouteTable, RouteTableId(id % 8), route_tables),
        2 => of!(Acl, AclId(id % 8), acls),
        3 => of!(Group, GroupId(id % 12), groups),
        4 => of!(PrefixList, PrefixListId(id % 4), prefix_lists),
        5 => of!(Placement, PlacementId(id % 2), placements),
        6 => of!(InternetGateway, InternetGatewayId(id % 4), internet_gateways),
        7 => of!(EgressOnlyGateway, EgressOnlyGatewayId(id % 4), egress_only_gateways),
        8 => of!(NatGateway, NatGatewayId(id % 6), nat_gateways),
        9 => of!(Address, AllocationId(id % 9), addresses),
        10 => of!(Peering, PeeringId(id % 5), peerings),
        11 => of!(Endpoint, EndpointId(id % 4), endpoints),
        // A cloud in use is not removed.
        12 => Edit::Vpc(VpcId(id % 4), other.vpcs.get(&VpcId(id % 4)).cloned()),
        // Changes only the host, or only the groups.
        13 | 14 => {
            let mut instance = world.instances[&InstanceId(id)].clone();
            instance.host = Some(HOSTS[dice.below(3) as usize].into());
            Edit::Instance(InstanceId(id), Some(instance))
        }
        15 | 16 if world.enis.contains_key(&EniId(id)) => {
            let mut eni = world.enis[&EniId(id)].clone();
            let group = GroupId(dice.below(12));
            match eni.groups.iter().position(|id| *id == group) {
                Some(at) => _ = eni.groups.remove(at),
                None => eni.groups.push(group),
            }
            Edit::Interface(EniId(id), Some(eni))
        }
        _ => of!(Interface, EniId(id), enis),
    }
}

/// Whether two interfaces of a cloud have equal addresses.
fn has_twins(world: &World) -> bool {
    without_twins(world.clone()).enis.iter().any(|(id, eni)| *eni != world.enis[id])
}

fn follow(seeds: std::ops::Range<u64>) -> BTreeMap<&'static str, u64> {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        let dice = &mut Dice(seed);
        let mut cloud = Cloud::new(without_twins(generate::world(dice)));
        let other = without_twins(generate::world(dice));
        for _ in 0..12 {
            let mut next = cloud.directory.world().clone();
            let mut edits = Vec::new();
            for _ in 0..=dice.below(3) {
                let edit = edit(dice, &next, &other);
                let before = next.clone();
                edit.apply(&mut next);
                if has_twins(&next) { next = before } else { edits.push(edit) }
            }
            let before = cloud.hosts.clone();
            let deltas = cloud.apply(&edits);
            assert_eq!(*cloud.directory.world(), next);
            for (host, delta) in &deltas {
                // Addresses of groups, lists and answers go only to hosts that need them.
                if !delta.is_whole() {
                    assert!(cloud.hosts[host] != before[host], "seed {seed}, {host}: {delta:?}");
                }
                *seen.entry("whole").or_default() += u64::from(delta.is_whole());
                *seen.entry("members").or_default() += u64::from(delta.members() > 0);
                *seen.entry("acls").or_default() += u64::from(delta.acls() > 0);
                *seen.entry("withdrawn").or_default() += delta.withdrawn().len() as u64;
            }
            *seen.entry("unconcerned").or_default() += (HOSTS.len() - deltas.len()) as u64;
            for _ in 0..20 {
                let (Origin::Eni(eni), packet) = generate::packet(dice, &other) else { continue };
                let world = cloud.directory.world();
                if !world.enis.contains_key(&eni) {
                    continue;
                }
                let walked = judge(world, Origin::Eni(eni), &packet).verdict;
                let found = cloud.send(eni, &packet).unwrap_or_else(Verdict::Dropped);
                assert_eq!(found, walked, "seed {seed}: {eni} {packet:?}");
                *seen.entry("packets").or_default() += 1;
            }
            *seen.entry("answers").or_default() +=
                cloud.hosts.values().map(|rules| rules.answers() as u64).sum::<u64>();
            cloud.check(seed);
        }
    }
    seen
}

#[test]
fn tables_after_deltas_are_those_that_a_compilation_makes() {
    let seen = follow(0..60);
    for name in ["whole", "members", "acls", "withdrawn", "unconcerned", "packets", "answers"] {
        assert!(seen[name] > 50, "{name}: {seen:?}");
    }
}

#[test]
#[ignore = "20,000 series of changes: for a nightly run"]
fn tables_after_deltas_are_those_that_a_compilation_makes_of_many_worlds() {
    println!("{:?}", follow(0..20_000));
}

#[test]
fn arrivals_from_the_internet_need_no_question() {
    for seed in 0..100 {
        let dice = &mut Dice(seed);
        let world = without_twins(generate::world(dice));
        let whole = HOSTS.map(|host| Rules::compile(&world, host));
        let cloud = Cloud::new(world.clone());
        for _ in 0..50 {
            let (Origin::Internet, packet) = generate::packet(dice, &world) else { continue };
            for (asking, whole) in cloud.hosts.values().zip(&whole) {
                assert_eq!(asking.from_internet(&packet), whole.from_internet(&packet));
            }
        }
    }
}

fn address(n: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + n).into()
}

#[test]
fn a_full_share_learns_nothing_new_until_something_is_idle() {
    let mut cloud = Cloud::new(without_twins(generate::world(&mut Dice(1))));
    let rules = cloud.hosts.values_mut().find(|rules| rules.vpcs().contains(&VpcId(0))).unwrap();
    let answer = |n| Answer::Address(VpcId(0), address(n), None);
    let asker = |id| Asker::Interface(EniId(id));
    for n in 0..SHARE_MAX {
        assert_eq!(rules.learn(asker(1), answer(n)), Ok(()));
    }
    assert_eq!(rules.learn(asker(1), answer(SHARE_MAX)), Err(NotLearned::ShareFull));
    // Another interface has a separate share.
    assert_eq!(rules.learn(asker(2), answer(SHARE_MAX)), Ok(()));
    assert_eq!(rules.answers(), SHARE_MAX as usize + 1);
    assert_eq!(rules.sweep(), [], "all was learned since the last sweep");
    assert_eq!(rules.sweep().len(), SHARE_MAX as usize + 1, "nothing was needed since");
    assert_eq!(rules.learn(asker(1), answer(SHARE_MAX)), Ok(()));
}

/// Regression: four interfaces of one instance used up all answers, so no other interface reached a
/// new address.
#[test]
fn regression_those_that_ask_for_everything_leave_another_one_as_much_as_each_has() {
    for greedy in [1, 4, 5, 15, 400] {
        let mut cloud = Cloud::new(without_twins(generate::world(&mut Dice(1))));
        let rules = cloud.hosts.values_mut().find(|rules| rules.vpcs().contains(&VpcId(0)));
        let rules = rules.unwrap();
        let mut n = 0;
        let mut fill = |asker: u64| {
            let asker = Asker::Interface(EniId(asker));
            let learn = |_: &u32| {
                n += 1;
                if let Some((question, concern)) = rules.make_room(&asker) {
                    let Question::Address(_, address) = question else { panic!("an address") };
                    let addresses = [address].into();
                    let these = Concerned { addresses, ..Concerned::default() };
                    assert_eq!(concern, Concern::These(these));
                    assert!(!rules.knows(question));
                }
                let answer = Answer::Address(VpcId(0), address(n), None);
                rules.learn(asker.clone(), answer).is_ok()
            };
            (0..=SHARE_MAX).take_while(learn).count()
        };
        (0..greedy).for_each(|asker| _ = fill(asker));
        let (own, more) = (fill(greedy), fill(greedy));
        let fair = KNOWN_MAX / (usize::try_from(greedy).unwrap() + 1);
        let fair = fair.min(SHARE_MAX as usize);
        assert!(own.abs_diff(fair) <= 1 && more == 0, "{greedy}: {own} of {fair} answers");
        assert!(rules.answers() <= KNOWN_MAX);
    }
}

#[test]
fn a_directory_answers_no_more_than_a_host_may_hold_until_it_says_what_it_has_forgotten() {
    let mut cloud = Cloud::new(without_twins(generate::world(&mut Dice(1))));
    let question = |n: usize| Question::Address(VpcId(0), address(u32::try_from(n).unwrap()));
    let directory = &mut cloud.directory;
    assert!((0..HELD_MAX).all(|n| directory.answer("h0", question(n)).is_some()));
    assert!(directory.answer("h0", question(HELD_MAX)).is_none());
    assert!(directory.answer("h0", question(0)).is_some(), "it holds this one");
    assert!(directory.answer("h1", question(HELD_MAX)).is_some(), "another host");
    directory.forgotten("h0", &[question(0)]);
    assert!(directory.answer("h0", question(HELD_MAX)).is_some());
}

#[test]
fn what_packets_need_is_not_idle() {
    let mut cloud = Cloud::new(without_twins(generate::world(&mut Dice(3))));
    let other = cloud.directory.world().clone();
    let dice = &mut Dice(3);
    let sends = |cloud: &Cloud, (origin, packet): &(Origin, Packet)| {
        let Origin::Eni(eni) = *origin else { return None };
        let rules = &cloud.hosts[&*host_of(&other, eni)];
        match rules.send(eni, packet, Flow::New) {
            Ok(EgressVerdict { next: Next::To { place, .. }, .. }) => Some(place.eni),
            _ => None,
        }
    };
    let asking = (0..2_000).map(|_| generate::packet(dice, &other)).find(|(origin, packet)| {
        let Origin::Eni(eni) = *origin else { return false };
        let before: usize = cloud.hosts.values().map(Rules::answers).sum();
        let delivered = matches!(cloud.send(eni, packet), Ok(Verdict::Delivered(_)));
        delivered && cloud.hosts.values().map(Rules::answers).sum::<usize>() > before
    });
    let asking = asking.unwrap();
    let to = sends(&cloud, &asking).unwrap();
    for _ in 0..3 {
        cloud.hosts.values_mut().for_each(|rules| _ = rules.sweep());
        assert_eq!(sends(&cloud, &asking), Some(to), "it was used between two sweeps");
    }
    cloud.hosts.values_mut().for_each(|rules| _ = rules.sweep());
    let idle: usize = cloud.hosts.values_mut().map(|rules| rules.sweep().len()).sum();
    assert!(idle > 0 && sends(&cloud, &asking).is_none(), "{idle}");
}

#[test]
fn a_directory_tells_a_host_nothing_of_clouds_out_of_its_reach() {
    let mut said = [0, 0];
    for seed in 0..40 {
        let mut cloud = Cloud::new(without_twins(generate::world(&mut Dice(seed))));
        let world = cloud.directory.world().clone();
        for (host, rules) in &cloud.hosts {
            for (id, eni) in &world.enis {
                let vpc = world.subnets[&eni.subnet].vpc;
                let reached = rules.vpcs().contains(&vpc);
                let questions = eni.ipv4.iter().map(|at| Question::Address(vpc, (*at).into()));
                for question in questions.chain([Question::Interface(*id)]) {
                    let answer = cloud.directory.answer(host, question).unwrap();
                    let nothing =
                        matches!(answer, Answer::Address(.., None) | Answer::Interface(_, None));
                    assert_eq!(nothing, !reached, "{question:?}");
                    said[usize::from(nothing)] += 1;
                }
            }
        }
    }
    assert!(said[0] > 100 && said[1] > 20, "{said:?}");
    assert_eq!(Directory::default().answer("h9", Question::Interface(EniId(0))), None);
}
