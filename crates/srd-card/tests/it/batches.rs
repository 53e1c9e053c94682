//! Batches of frames: the card must treat each frame of a batch as if it were passed alone.
#![allow(clippy::unwrap_used)]

use crate::generate;
use crate::generate::Dice;
use crate::lane;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::{Origin, Service};
use srd_vpc::object::{Eni, World};
use srd_vpc::packet::{Inner, Packet};
use std::net::IpAddr;
use std::sync::Arc;

const HOST: &str = "here";
const INTERFACES: u64 = 24;

/// Frames that left the card, in order, each with its destination as text.
#[derive(Default, PartialEq, Debug)]
struct SentFrames(Vec<(String, Vec<u8>)>);

impl Environment for SentFrames {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.0.push((format!("guest {port:?}"), frame));
    }
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        self.0.push((format!("{way:?}"), frame));
    }
    fn to_service(&mut self, port: PortId, service: Service, frame: Vec<u8>) {
        self.0.push((format!("{service:?} of {port:?}"), frame));
    }
}

/// Creates a world with all interfaces on this host, so that packets pass the card's code for sent
/// packets and its code for received packets.
fn world(dice: &mut Dice) -> World {
    let mut world = generate::world(dice);
    for instance in world.instances.values_mut() {
        instance.host = Some(HOST.into());
    }
    world
}

/// Creates a card with the instances of this host.
fn card(world: &World, packets_per_second: u64) -> Card {
    let here = |eni: &Eni| {
        let instance = eni.attachment.as_ref().and_then(|at| world.instances.get(&at.instance));
        instance.is_some_and(|instance| instance.host.as_deref() == Some(HOST))
    };
    let kind = InstanceType::find("c7i.48xlarge").unwrap();
    let profile =
        Profile::of(kind).with_packets_per_second(packets_per_second).with_tracking_allowance(40);
    let mut card = Card::new(HOST, Arc::new(Rules::compile(world, HOST)), Secret::known(7));
    for (eni, _) in world.enis.iter().filter(|(_, eni)| here(eni)) {
        let guest = Guest { eni: *eni, timeouts: Timeouts::DEFAULT };
        card.add_instance(Instant::ZERO, &profile, &[guest]);
    }
    card
}

fn frame(dice: &mut Dice, packet: &Packet) -> Vec<u8> {
    let mut transport = [0; 20];
    if let Inner::Tcp(from, to) | Inner::Udp(from, to) = packet.inner {
        transport[..2].copy_from_slice(&from.to_be_bytes());
        transport[2..4].copy_from_slice(&to.to_be_bytes());
        (transport[12], transport[13]) = (0x50, dice.pick(&[0x02, 0x12, 0x10, 0x11, 0x04]));
    }
    let mut bytes = vec![0; OFFLOAD_BYTES];
    match (packet.source, packet.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend_from_slice(&[0x45, 0, 0, 40, 0, 7, 0, 0, 64, packet.protocol(), 0, 0]);
            bytes.extend_from_slice(&[from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes.extend_from_slice(&[0x60, 0, 0, 0, 0, 20, packet.protocol(), 64]);
            bytes.extend_from_slice(&[from.octets(), to.octets()].concat());
        }
        _ => {}
    }
    bytes.extend_from_slice(&transport);
    if dice.one_in(40) {
        bytes.truncate(usize::try_from(dice.below(40)).unwrap());
    }
    bytes
}

/// Returns frames that one interface sends: random frames, and repetitions of these frames.
fn frames(dice: &mut Dice, world: &World) -> (EniId, Vec<Vec<u8>>) {
    let sender = EniId(dice.below(INTERFACES));
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for _ in 0..dice.below(40) {
        if !frames.is_empty() && dice.one_in(2) {
            let again = dice.pick(&frames);
            frames.push(again);
            continue;
        }
        let (origin, packet) = generate::packet(dice, world);
        let own = world.enis[&sender].ipv4[0];
        let packet = match origin {
            Origin::Internet if packet.source.is_ipv4() => Packet { source: own.into(), ..packet },
            _ => packet,
        };
        frames.push(frame(dice, &packet));
    }
    (sender, frames)
}

/// Compares a card that gets frames one by one with a card that gets them in batches. In half of
/// the rounds, answers to delivered packets are sent as well, whose flows have entries. Returns the
/// number of frames that passed.
fn compare(seed: u64, packets_per_second: u64) -> usize {
    let dice = &mut Dice(seed);
    let mut world = world(dice);
    let mut cards = [card(&world, packets_per_second), card(&world, packets_per_second)];
    let (mut now, mut passed) = (Instant::ZERO, 0);
    let mut delivered: Vec<(EniId, Vec<u8>)> = Vec::new();
    for round in 0..60 {
        now += Duration::from_micros(dice.below(3_000));
        if dice.one_in(12) {
            let other = generate::world(dice);
            let group = GroupId(dice.below(12));
            world.groups.get_mut(&group).unwrap().rules = other.groups[&group].rules.clone();
            cards.iter_mut().for_each(|c| c.set_rules(Arc::new(Rules::compile(&world, HOST))));
        }
        let (sender, mut frames) = frames(dice, &world);
        if !delivered.is_empty() && dice.one_in(2) {
            let (eni, _) = dice.pick(&delivered);
            let own = delivered.iter().filter(|(to, _)| *to == eni);
            let mut answers: Vec<Vec<u8>> = own.map(|(_, frame)| answer(frame)).collect();
            answers.truncate(40);
            let port = cards[0].port_of(eni).unwrap();
            passed += same(&mut cards, now, port, &mut answers, seed, round).len();
        }
        let port = cards[0].port_of(sender).unwrap();
        for (to, frame) in same(&mut cards, now, port, &mut frames, seed, round) {
            passed += 1;
            if let Some(to) = to.strip_prefix("guest PortId(").and_then(|n| n.strip_suffix(')')) {
                let eni = cards[0].eni_of(PortId(to.parse().unwrap())).unwrap();
                delivered.push((eni, frame));
            }
        }
    }
    passed
}

fn answer(frame: &[u8]) -> Vec<u8> {
    let mut answer = frame.to_vec();
    let (at, length) = if frame[OFFLOAD_BYTES] >> 4 == 4 { (12, 4) } else { (8, 16) };
    let addresses = OFFLOAD_BYTES + at;
    answer[addresses..addresses + 2 * length].rotate_left(length);
    let ports = addresses + 2 * length;
    // A later fragment may be shorter.
    if let Some(ports) = answer.get_mut(ports..ports + 4) {
        ports.rotate_left(2);
    }
    answer
}

/// Passes frames to both cards, and compares their output and their counters.
fn same(
    [one, all]: &mut [Card; 2],
    now: Instant,
    port: PortId,
    frames: &mut Vec<Vec<u8>>,
    seed: u64,
    round: u32,
) -> Vec<(String, Vec<u8>)> {
    let (mut by_one, mut at_once) = (SentFrames::default(), SentFrames::default());
    one.poll(now, &mut by_one);
    all.poll(now, &mut at_once);
    for frame in frames.iter() {
        one.from_guest(now, port, frame.clone(), &mut by_one);
    }
    all.from_guest_all(now, port, frames, &mut at_once);
    assert!(frames.is_empty());
    assert_eq!(by_one, at_once, "seed {seed}, round {round}");
    for port in (0..24).map(PortId) {
        assert_eq!(one.counts(port), all.counts(port), "seed {seed}, round {round}");
        assert_eq!(one.drops(port), all.drops(port), "seed {seed}, round {round}");
        assert_eq!(one.allowances(port), all.allowances(port), "seed {seed}, round {round}");
        assert_eq!(one.flows(port), all.flows(port), "seed {seed}, round {round}");
    }
    assert_eq!(one.drops_of_none(), all.drops_of_none());
    at_once.0
}

#[test]
fn a_card_says_of_frames_at_once_what_it_says_of_each() {
    let passed: usize = (0..150).map(|seed| compare(seed, 1 << 40)).sum();
    assert!(passed > 5_000, "{passed}");
}

/// With a low limit of packets per second, packets of a batch wait for the limit, and some are
/// dropped.
#[test]
fn frames_at_once_wait_and_are_dropped_as_each_of_them_would_be() {
    let passed: usize = (150..300).map(|seed| compare(seed, 2_000)).sum();
    assert!(passed > 2_000, "{passed}");
}

/// Returns frames with envelopes that another host sends: packets of its own interfaces, packets of
/// interfaces of other hosts, and other kinds of envelopes.
fn from_there(dice: &mut Dice, world: &World) -> Vec<(Envelope, Vec<u8>)> {
    let mut frames: Vec<(Envelope, Vec<u8>)> = Vec::new();
    for _ in 0..dice.below(40) {
        if !frames.is_empty() && dice.one_in(2) {
            let again = dice.pick(&frames);
            frames.push(again);
            continue;
        }
        let [from, to] = [(); 2].map(|()| EniId(dice.below(INTERFACES)));
        let (_, mut packet) = generate::packet(dice, world);
        if packet.source.is_ipv4() && !dice.one_in(8) {
            packet.source = world.enis[&from].ipv4[0].into();
            packet.destination = world.enis[&to].ipv4[0].into();
        }
        let to = if dice.one_in(30) { EniId(999) } else { to };
        let kinds = [Envelope::Arriving, Envelope::FromNat { nat: NatGatewayId(1), to, port: 0 }];
        let odd = dice.pick(&kinds);
        let envelope = if dice.one_in(12) { odd } else { Envelope::Between { from, to } };
        frames.push((envelope, frame(dice, &packet)));
    }
    frames
}

#[test]
fn a_card_says_of_frames_of_another_host_at_once_what_it_says_of_each() {
    let mut passed = 0;
    for seed in 0..200 {
        let dice = &mut Dice(seed);
        let mut world = world(dice);
        for (_, instance) in world.instances.iter_mut().filter(|(id, _)| id.0 % 2 == 0) {
            instance.host = Some("there".into());
        }
        let packets_per_second = if seed % 2 == 0 { 1 << 40 } else { 2_000 };
        let [mut one, mut all] = [(); 2].map(|()| card(&world, packets_per_second));
        let there: Arc<str> = "there".into();
        let mut now = Instant::ZERO;
        for round in 0..40 {
            now += Duration::from_micros(dice.below(3_000));
            let mut frames = from_there(dice, &world);
            let (mut by_one, mut at_once) = (SentFrames::default(), SentFrames::default());
            one.poll(now, &mut by_one);
            all.poll(now, &mut at_once);
            for (envelope, frame) in frames.clone() {
                one.from_host(now, &there, envelope, frame, &mut by_one);
            }
            all.from_host_all(now, &there, frames.drain(..), &mut at_once);
            assert_eq!(by_one, at_once, "seed {seed}, round {round}");
            assert_eq!(one.drops_of_none(), all.drops_of_none());
            for port in (0..24).map(PortId) {
                assert_eq!(one.counts(port), all.counts(port), "seed {seed}, round {round}");
                assert_eq!(one.drops(port), all.drops(port), "seed {seed}, round {round}");
                assert_eq!(one.allowances(port), all.allowances(port));
                assert_eq!(one.flows(port), all.flows(port), "seed {seed}, round {round}");
            }
            passed += at_once.0.len();
        }
    }
    assert!(passed > 2_000, "{passed}");
}

/// G5 of express.md: in an earlier version, super-packets of 65,498 bytes of data or more were lost
/// if they came in a batch.
#[test]
fn regression_a_super_packet_that_is_too_long_is_divided_in_a_batch_too() {
    const STEP: u16 = 1472;
    let world = lane::world(&[], [lane::open(), lane::open(), lane::open()]);
    for (payload_bytes, passed) in [(65_497, 1), (65_498, 2), (65_507, 2)] {
        let payload = vec![7; payload_bytes];
        let udp_bytes = u16::try_from(8 + payload_bytes).unwrap();
        let head = [9_u16, 80, udp_bytes, 0].map(u16::to_be_bytes).concat();
        let packet = lane::packet((0, 1), lane::UDP, 0, &[&head[..], &payload].concat());
        let mut offload = [0; OFFLOAD_BYTES];
        (offload[0], offload[1]) = (1, 5); // a checksum is needed; segments of UDP
        offload[2..4].copy_from_slice(&28_u16.to_le_bytes());
        offload[4..6].copy_from_slice(&STEP.to_le_bytes());
        offload[6..8].copy_from_slice(&20_u16.to_le_bytes());
        offload[8..10].copy_from_slice(&6_u16.to_le_bytes());
        let frame = [&offload[..], &packet].concat();
        let (mut one, mut all) = (lane::Lab::new(&world), lane::Lab::new(&world));
        let (mut by_one, mut at_once) = (SentFrames::default(), SentFrames::default());
        one.card.from_guest(Instant::ZERO, one.ports[0], frame.clone(), &mut by_one);
        let mut frames = vec![frame];
        all.card.from_guest_all(Instant::ZERO, all.ports[0], &mut frames, &mut at_once);
        assert_eq!(by_one, at_once, "{payload_bytes}");
        assert_eq!(at_once.0.len(), passed, "{payload_bytes}");
    }
}

#[test]
fn frames_for_an_interface_that_is_not_here_are_counted() {
    let mut card = card(&world(&mut Dice(1)), 1 << 40);
    let mut frames = vec![vec![0; 60]; 3];
    card.from_guest_all(Instant::ZERO, PortId(1000), &mut frames, &mut SentFrames::default());
    let drops: Vec<_> = card.drops_of_none().all().filter(|(_, n)| *n > 0).collect();
    assert!(frames.is_empty());
    assert_eq!(drops, [(srd_card::vpc::Cause::NotHere, 3)]);
}
