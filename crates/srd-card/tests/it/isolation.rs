//! No inner packet enters another cloud: all bytes that a guest sends stay in its cloud, even if
//! another cloud on the same host has the same addresses.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use crate::generate;
use crate::reference::vpc as reference;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::generate::Dice;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Directory, Rules};
use srd_vpc::id::*;
use srd_vpc::judge::{Exit, Origin, Service};
use srd_vpc::object::{RulePeer, Traffic, World};

const HOST: &str = "h0";

/// Interfaces of this host that have received a frame, and envelopes of frames for other hosts.
#[derive(Default)]
struct Out {
    guests: Vec<PortId>,
    hosts: Vec<Envelope>,
}

impl Environment for Out {
    fn to_guest(&mut self, port: PortId, _: Vec<u8>) {
        self.guests.push(port);
    }
    fn to_host(&mut self, way: FrameRoute<'_>, _: Vec<u8>) {
        self.hosts.push(way.envelope);
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// Creates a world without peerings, with groups that admit many packets.
fn world(dice: &mut Dice) -> World {
    let mut world = generate::world(dice);
    world.peerings.clear();
    for group in world.groups.values_mut() {
        for rule in &mut group.rules {
            rule.traffic = Traffic::All;
            if dice.one_in(2) {
                rule.peer = RulePeer::Block("0.0.0.0/0".parse().unwrap());
            }
        }
    }
    world.acls.values_mut().for_each(|acl| {
        for entry in &mut acl.entries {
            entry.allow = true;
        }
    });
    world
}

fn card(world: &World, rules: Rules) -> (Card, Vec<(PortId, EniId)>) {
    let mut card = Card::new(HOST, Arc::new(rules), Secret::known(5));
    let kind = InstanceType::find("c7i.48xlarge").unwrap();
    let profile = Profile::of(kind);
    let exits = world.internet_gateways.keys().map(|id| Exit::InternetGateway(*id));
    card.set_edges(exits.map(|exit| (exit, Arc::from("edge"))).collect());
    let mut ports = Vec::new();
    for (id, eni) in &world.enis {
        let instance = eni.attachment.as_ref().unwrap().instance;
        if world.instances[&instance].host.as_deref() == Some(HOST) {
            let guest = Guest { eni: *id, timeouts: Timeouts::DEFAULT };
            ports.push((card.add_instance(Instant::ZERO, &profile, &[guest])[0], *id));
        }
    }
    (card, ports)
}

/// A packet of the generator, with a few changed bytes, truncated, or joined to another packet.
fn bytes(dice: &mut Dice, world: &World, eni: EniId) -> Vec<u8> {
    let mut packet = generate::packet(dice, world);
    if let Origin::Eni(other) = packet.0
        && dice.one_in(2)
    {
        // Replaces a source that belongs to another interface by the interface's own.
        let own = &world.enis[&eni];
        let is_v4 = packet.1.source.is_ipv4() && other != eni;
        packet.1.source = if is_v4 { own.ipv4[0].into() } else { packet.1.source };
    }
    let mut frame = reference::frame(&packet.1);
    if dice.one_in(3) {
        // A second packet may look like the content of an ICMP error or of a tunnel, or like
        // options.
        let (_, quoted) = generate::packet(dice, world);
        frame.extend_from_slice(&reference::frame(&quoted)[OFFLOAD_BYTES..]);
    }
    for _ in 0..dice.below(4) {
        let at = usize::try_from(dice.below(frame.len() as u64)).unwrap();
        frame[at] = u8::try_from(dice.below(256)).unwrap();
    }
    if dice.one_in(10) {
        frame.truncate(usize::try_from(dice.below(frame.len() as u64)).unwrap());
    }
    frame
}

#[test]
fn no_inner_packet_leads_into_another_cloud() {
    let (mut arrived, mut left) = (0, 0);
    for seed in 0..60 {
        let dice = &mut Dice(seed);
        let world = world(dice);
        let asks = seed % 2 == 0;
        let mut directory = Directory::new(world.clone());
        let rules = if asks { directory.tables(HOST) } else { Rules::compile(&world, HOST) };
        let (mut card, ports) = card(&world, rules);
        let vpc_of = |eni: EniId| world.subnets[&world.enis[&eni].subnet].vpc;
        let mut now = Instant::ZERO;
        for _ in 0..400 {
            let (port, eni) = dice.pick(&ports);
            let own = vpc_of(eni);
            now += Duration::from_millis(1);
            let mut out = Out::default();
            card.from_guest(now, port, bytes(dice, &world, eni), &mut out);
            while let Some(question) = card.poll_question() {
                let answer = directory.answer(HOST, question).unwrap();
                card.learn(now, answer, &mut out).unwrap();
            }
            for port in out.guests {
                let to = ports.iter().find(|(other, _)| *other == port).unwrap().1;
                assert_eq!(vpc_of(to), own, "seed {seed}: {eni} to {to}");
                arrived += 1;
            }
            for envelope in out.hosts {
                assert_eq!(envelope.sender(), eni.0, "seed {seed}: {envelope:?}");
                if let Envelope::Between { from, to } = envelope {
                    assert_eq!((from, vpc_of(to)), (eni, own), "seed {seed}");
                }
                left += 1;
            }
        }
        let clouds: BTreeSet<VpcId> = ports.iter().map(|(_, eni)| vpc_of(*eni)).collect();
        assert!(clouds.len() > 1, "one host, several clouds");
    }
    assert!(arrived > 100 && left > 500, "{arrived} {left}");
}
