//! On random worlds and packets, the compiled tables return the verdicts of the reference
//! evaluation ([`srd_vpc::judge`]), which reads all objects again for each packet.
#![allow(clippy::unwrap_used)]

use crate::generate;
use crate::generate::Dice;
use srd_vpc::compile::{Flow, Next, Rules};
use srd_vpc::id::*;
use srd_vpc::judge::*;
use srd_vpc::object::*;
use srd_vpc::packet::Packet;
use std::collections::BTreeMap;

/// Results on which the reference evaluation and the compiled tables have to agree: verdict,
/// packet, distance, and tracking by the sender and by the receiver.
#[derive(Debug, PartialEq)]
enum Outcome {
    Dropped(Reason),
    Passed(Verdict, Packet, Option<Reach>, Option<Tracking>, Option<Tracking>),
}

fn by_walk(world: &World, origin: Origin, packet: &Packet) -> Outcome {
    let judgement = judge(world, origin, packet);
    let tracking = |wanted: Direction| {
        judgement.steps.iter().find_map(|step| match step {
            Step::Groups { direction, tracking, .. } if *direction == wanted => *tracking,
            _ => None,
        })
    };
    match judgement.verdict {
        Verdict::Dropped(reason) => Outcome::Dropped(reason),
        verdict => Outcome::Passed(
            verdict,
            judgement.packet,
            judgement.reach,
            tracking(Direction::Egress),
            tracking(Direction::Ingress),
        ),
    }
}

fn by_tables(
    world: &World,
    hosts: &BTreeMap<String, Rules>,
    origin: Origin,
    packet: &Packet,
) -> Outcome {
    let said = match origin {
        Origin::Internet => from_internet(hosts, packet),
        Origin::Eni(eni) => sent(world, hosts, eni, packet),
    };
    said.unwrap_or_else(Outcome::Dropped)
}

fn from_internet(hosts: &BTreeMap<String, Rules>, packet: &Packet) -> Result<Outcome, Reason> {
    let all = hosts.values().map(|rules| rules.from_internet(packet));
    let here = all.reduce(|a, b| if a == Err(Reason::NoInterface) { b } else { a }).unwrap();
    let (eni, packet, tracking) = here?;
    let verdict = Verdict::Delivered(eni);
    Ok(Outcome::Passed(verdict, packet, Some(Reach::Outside), None, Some(tracking)))
}

fn host_of(world: &World, eni: EniId) -> &str {
    let instance = world.enis[&eni].attachment.as_ref().unwrap().instance;
    world.instances[&instance].host.as_deref().unwrap()
}

fn sent(
    world: &World,
    hosts: &BTreeMap<String, Rules>,
    eni: EniId,
    packet: &Packet,
) -> Result<Outcome, Reason> {
    let sent = hosts[host_of(world, eni)].send(eni, packet, Flow::New)?;
    let (verdict, reach, received) = match sent.next {
        Next::Served(service) => (Verdict::Served(service), None, None),
        Next::Left(exit) => (Verdict::Left(exit), Some(Reach::Outside), None),
        Next::To { place, crosses, reach, .. } => {
            let host = &hosts[place.host.as_deref().unwrap()];
            let vpc = world.subnets[&world.enis[&eni].subnet].vpc;
            let received = host.receive(place.eni, &sent.packet, Some(vpc), crosses, Flow::New)?;
            (Verdict::Delivered(place.eni), Some(reach), received)
        }
        // The gateway has no connections here.
        Next::Nat(_) => return Err(Reason::OutwardsOnly),
        Next::Ask(question) => panic!("whole tables ask {question:?}"),
    };
    Ok(Outcome::Passed(verdict, sent.packet, reach, sent.tracking, received))
}

fn compile(world: &World) -> BTreeMap<String, Rules> {
    ["h0", "h1", "h2"].map(|host| (host.to_string(), Rules::compile(world, host))).into()
}

/// Compares `packets` packets in each world. Returns the number of times that each kind of verdict
/// was reached.
fn compare(worlds: u64, packets: u64) -> BTreeMap<String, u64> {
    let mut reached = BTreeMap::new();
    for seed in 0..worlds {
        let dice = &mut Dice(seed);
        let world = generate::world(dice);
        let hosts = compile(&world);
        for _ in 0..packets {
            let (origin, packet) = generate::packet(dice, &world);
            let walked = by_walk(&world, origin, &packet);
            let found = by_tables(&world, &hosts, origin, &packet);
            assert_eq!(found, walked, "seed {seed}: {origin:?} {packet:?}");
            let name = match walked {
                Outcome::Dropped(reason) => format!("{reason:?}"),
                Outcome::Passed(Verdict::Left(exit), ..) => format!("{exit:?}"),
                Outcome::Passed(verdict, _, reach, ..) => format!("{verdict:?} {reach:?}"),
            };
            let name = name.split('(').next().unwrap().to_string();
            *reached.entry(name).or_default() += 1;
        }
    }
    reached
}

/// Checks that every kind of verdict was reached. Otherwise the comparison has not tested that
/// kind.
fn assert_all_reached(reached: &BTreeMap<String, u64>) {
    for name in [
        "Families",
        "NotItsAddress",
        "NotFromOutside",
        "GroupsOut",
        "GroupsIn",
        "AclOut",
        "AclIn",
        "NoRoute",
        "Blackhole",
        "NoPublicAddress",
        "Detached",
        "WrongFamily",
        "NotCarried",
        "OutwardsOnly",
        "NotPeered",
        "NoTransit",
        "NoInterface",
        "ChecksDestination",
        "PrivateNat",
        "Circle",
        "ToItself",
        "Missing",
        "InternetGateway",
        "EgressOnlyGateway",
        "Endpoint",
        "Delivered",
        "Served",
    ] {
        assert!(reached.contains_key(name), "{name} is not reached: {reached:?}");
    }
}

#[test]
fn tables_say_what_the_walk_says() {
    assert_all_reached(&compare(600, 200));
}

#[test]
#[ignore = "a million packets: for a nightly run"]
fn tables_say_what_the_walk_says_of_a_million_packets() {
    assert_all_reached(&compare(5_000, 200));
}
