//! Packets for a guest that wait for a limit while something changes (V4). A packet whose earlier
//! address is unknown is dropped if the change concerns its interface, and only then.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::lane::*;
use crate::private_nat::{self, APP, FAR, GATEWAY, tcp};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Cause, Envelope, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::Exit;
use srd_vpc::object::*;

const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 5);
const GATEWAY_ID: InternetGatewayId = InternetGatewayId(1);
/// Number of packets that are sent at once; the limit lets some of them pass at once.
const SENT: usize = 5;

/// Adds an instance with a limit of packets per second.
fn add(card: &mut Card, eni: u64, packets_per_second: u64) -> PortId {
    let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
    let profile = profile.with_packets_per_second(packets_per_second);
    let guest = Guest { eni: EniId(eni), timeouts: Timeouts::DEFAULT };
    card.add_instance(Instant::ZERO, &profile, &[guest])[0]
}

fn public_world() -> World {
    let mut world = world(&[], [open(), open(), open()]);
    let gateway = InternetGateway { name: String::new(), vpc: Some(VpcId(1)) };
    world.internet_gateways.insert(GATEWAY_ID, gateway);
    let association = Some((EniId(1), v4(11)));
    let address = ElasticAddress { name: String::new(), public: PUBLIC, association };
    world.addresses.insert(AllocationId(1), address);
    world
}

fn edges(of: &[(InternetGatewayId, &str)]) -> BTreeMap<Exit, Arc<str>> {
    of.iter().map(|(id, host)| (Exit::InternetGateway(*id), Arc::from(*host))).collect()
}

fn framed(packet: &[u8]) -> Vec<u8> {
    [&[0; OFFLOAD_BYTES][..], packet].concat()
}

/// Sends packets from the internet to the second instance, whose limit makes them wait; then makes
/// a change. Returns the cause for which those that waited were dropped; `None` if all arrived.
fn dropped_after(change: impl FnOnce(&mut Card, &[PortId])) -> Option<Cause> {
    let mut card = Card::new(HOST, rules(&public_world()), Secret::known(7));
    let ports = [add(&mut card, 0, 1 << 40), add(&mut card, 1, 1000)];
    card.set_edges(edges(&[(GATEWAY_ID, HOST)]));
    let mut seen = Delivered::default();
    for _ in 0..SENT {
        let mut packet = packet((0, 1), UDP, 0, &ports_of_udp());
        packet[12..16].copy_from_slice(&[8, 8, 8, 8]);
        packet[16..20].copy_from_slice(&PUBLIC.octets());
        let host = Arc::from(HOST);
        card.from_host(Instant::ZERO, &host, Envelope::Arriving, framed(&packet), &mut seen);
    }
    outcome(&mut card, ports[1], &mut seen, |card| change(card, &ports))
}

fn ports_of_udp() -> Vec<u8> {
    [9_u16, 5000, 20, 0].iter().flat_map(|word| word.to_be_bytes()).chain([0; 12]).collect()
}

fn outcome(
    card: &mut Card,
    port: PortId,
    seen: &mut Delivered,
    change: impl FnOnce(&mut Card),
) -> Option<Cause> {
    let before = seen.0.len();
    assert!((1..SENT).contains(&before), "{before} of {SENT} passed at once");
    change(card);
    card.poll(Instant::ZERO + Duration::from_secs(1), seen);
    let drops = card.drops(port);
    let cause = drops.all().find(|(_, packets)| *packets > 0);
    let lost = cause.map_or(0, |(_, packets)| usize::try_from(packets).unwrap());
    assert_eq!(drops.total(), lost as u64, "one cause");
    assert_eq!(seen.0.len() + lost, SENT);
    assert!(lost == 0 || lost == SENT - before);
    cause.map(|(cause, _)| cause)
}

fn rules(world: &World) -> Arc<Rules> {
    Arc::new(Rules::compile(world, HOST))
}

/// In an earlier version, the start and the end of any instance dropped packets of all others.
#[test]
fn regression_packets_from_the_internet_wait_through_changes_that_do_not_concern_them() {
    let started = |card: &mut Card, _: &[PortId]| _ = add(card, 2, 1000);
    let ended = |card: &mut Card, ports: &[PortId]| card.remove_instance(Instant::ZERO, ports[0]);
    let gateway = |card: &mut Card, _: &[PortId]| {
        card.set_edges(edges(&[(GATEWAY_ID, HOST), (InternetGatewayId(2), "there")]));
    };
    let public = |card: &mut Card, _: &[PortId]| {
        card.set_publics(BTreeSet::from([Ipv4Addr::new(198, 51, 100, 6)]), Arc::from("there"));
    };
    let of_another = |card: &mut Card, _: &[PortId]| {
        let mut world = public_world();
        world.groups.get_mut(&GroupId(0)).unwrap().rules.clear();
        card.set_rules(rules(&world));
    };
    let both = |card: &mut Card, ports: &[PortId]| {
        started(card, ports);
        of_another(card, ports);
    };
    for (number, change) in
        [&started as &dyn Fn(&mut Card, &[PortId]), &ended, &gateway, &public, &of_another, &both]
            .into_iter()
            .enumerate()
    {
        assert_eq!(dropped_after(change), None, "change {number}");
    }
}

#[test]
fn packets_from_the_internet_that_wait_are_dropped_after_a_change_of_their_interface() {
    let groups = |card: &mut Card, _: &[PortId]| {
        let mut world = public_world();
        world.groups.get_mut(&GroupId(1)).unwrap().rules.pop();
        card.set_rules(rules(&world));
    };
    let address = |card: &mut Card, _: &[PortId]| {
        let mut world = public_world();
        world.addresses.clear();
        card.set_rules(rules(&world));
    };
    let both = |card: &mut Card, ports: &[PortId]| {
        groups(card, ports);
        add(card, 2, 1000);
    };
    for change in [&groups as &dyn Fn(&mut Card, &[PortId]), &address, &both] {
        assert_eq!(dropped_after(change), Some(Cause::Changed));
    }
    let edge = |card: &mut Card, _: &[PortId]| card.set_edges(edges(&[(GATEWAY_ID, "there")]));
    assert_eq!(dropped_after(edge), Some(Cause::NotItsHost), "the host is no edge any more");
}

/// A packet through a NAT gateway of another host passes as long as its sender is there.
#[test]
fn regression_packets_through_a_gateway_wait_for_their_sender_to_stay() {
    let before = private_nat::world(["one", "two"]);
    let mut other = before.clone();
    private_nat::interface(&mut other, 3, 11, Ipv4Addr::new(10, 0, 1, 11), "one");
    let mut moved = before.clone();
    private_nat::interface(&mut moved, 1, 11, APP, "three");
    for (after, cause) in [(other, None), (moved, Some(Cause::NotItsHost))] {
        let compile = |world: &World| Arc::new(Rules::compile(world, "two"));
        let mut card = Card::new("two", compile(&before), Secret::known(7));
        let port = add(&mut card, 2, 1000);
        let mut seen = Delivered::default();
        for _ in 0..SENT {
            let frame = framed(&tcp(GATEWAY, FAR, (40_000, 443), 2));
            let envelope = Envelope::Translated { from: EniId(1), to: EniId(2) };
            card.from_host(Instant::ZERO, &Arc::from("one"), envelope, frame, &mut seen);
        }
        let found = outcome(&mut card, port, &mut seen, |card| card.set_rules(compile(&after)));
        assert_eq!(found, cause);
    }
}
