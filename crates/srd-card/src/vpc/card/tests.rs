//! Tests of bounds that would take millions of changes through the public interface.

use super::*;
use crate::limits::FlowKind;
use crate::observe::Path;
use crate::vpc::tables::flow::{ENDS_MAX, Target, To};
use srd_vpc::compile::{Concern, Concerned};

#[path = "../../../tests/lane/mod.rs"]
mod lane;
use lane::{Lab, TCP, open, packet, ports};

/// Sends a packet, always of the same flow. Returns whether it arrives, and the number of times
/// that the rules evaluated it.
fn send(lab: &mut Lab) -> (bool, u64) {
    let judged = |lab: &Lab| lab.ports.iter().map(|port| lab.card.counts(*port).judged).sum();
    let before: u64 = judged(lab);
    let arrives = lab.send(0, &packet((0, 1), TCP, 0, &ports(5000, 80))).is_some();
    (arrives, judged(lab) - before)
}

/// A verdict contains only the low half of the number of a change. After this half begins anew, old
/// verdicts must not be valid.
#[test]
fn the_changes_of_two_numbers_that_look_alike_are_told_apart() {
    let mut lab = Lab::new(&lane::world(&[], [open(), open(), open()]));
    lab.card.epochs.set((1 << 32) - 2);
    lab.card.forget_verdicts();
    assert_eq!(lab.card.epochs.kept(), u32::MAX);
    assert_eq!((send(&mut lab), send(&mut lab)), ((true, 2), (true, 0)));
    lab.card.forget_verdicts();
    assert_eq!(lab.card.epochs.kept(), 1);
    assert_eq!((send(&mut lab), send(&mut lab)), ((true, 2), (true, 0)));

    // A change that concerns no interface of the card.
    lab.card.epochs.set((2 << 32) - 1);
    lab.card.ports.iter_mut().for_each(|port| port.since = Since::all((2 << 32) - 1));
    assert_eq!((send(&mut lab), send(&mut lab)), ((true, 2), (true, 0)));
    let addresses = [lane::v4(99).into()].into();
    let concern = Concern::These(Concerned { addresses, ..Concerned::default() });
    let rules = lab.card.rules.clone();
    lab.card.set_rules_that_concern(rules, &concern);
    assert_eq!(lab.card.epochs.now(), (2 << 32) + 1);
    assert_eq!((send(&mut lab), send(&mut lab)), ((true, 2), (true, 0)));
}

#[test]
fn ends_that_are_too_many_are_forgotten_with_the_next_change() {
    let mut lab = Lab::new(&lane::world(&[], [open(), open(), open()]));
    assert_eq!((send(&mut lab), send(&mut lab)), ((true, 2), (true, 0)));
    let rules = lab.card.rules.clone();
    lab.card.set_rules(rules.clone());
    assert_eq!(send(&mut lab), (true, 0), "nothing has changed");
    for n in 0..=u32::try_from(ENDS_MAX).unwrap() {
        let to = To::Port(PortId(1000 + n));
        let target = Target { to, kind: FlowKind::Exterior, path: Path::Cloud };
        lab.card.ends.targets.number_of(&target);
    }
    assert!(lab.card.ends.are_too_many());
    assert_eq!(send(&mut lab), (true, 0), "they are kept until then");
    lab.card.set_rules(rules);
    assert!(!lab.card.ends.are_too_many());
    assert_eq!((send(&mut lab), send(&mut lab)), ((true, 2), (true, 0)));
}

/// The steps of one call of `expire` are for all instances together. In an earlier version, each
/// instance had as many steps, and all packets waited if flows of many instances expired together.
#[test]
fn regression_expiry_takes_its_steps_of_all_instances_together() {
    const INSTANCES: usize = 1000;
    const FLOWS: u16 = 3;
    const WORK: u32 = 300;
    let mut card = crowded(INSTANCES, FLOWS);
    let left = |card: &Card| card.instances.iter().map(|of| of.flows.tracked()).sum::<u32>();
    let all = u32::try_from(INSTANCES).unwrap() * u32::from(FLOWS);
    assert_eq!(left(&card), all);
    // All flows expire at the same time.
    let later = Instant::ZERO + Duration::from_secs(3600);
    let (mut before, mut calls, mut is_done) = (all, 0, false);
    while !is_done {
        is_done = card.expire(later, WORK);
        calls += 1;
        let now = left(&card);
        assert!(before - now <= WORK, "{} flows in one call", before - now);
        before = now;
    }
    assert_eq!(before, 0);
    // Each flow, and each slot of a timing wheel, takes at least one step.
    assert!(calls >= INSTANCES * usize::from(FLOWS) / WORK as usize, "{calls}");
    // The next round begins at the first instance.
    assert!((0..2 * INSTANCES).any(|_| card.expire(later, WORK)));
    assert_eq!(card.expiring, 0);
}

/// Creates a card with this number of instances, each with this number of flows.
fn crowded(instances: usize, flows: u16) -> Card {
    use crate::meta::packet::Packet;
    use crate::profile::InstanceType;
    use crate::testing::v4;
    use crate::track::PacketKind;

    let rules = Arc::new(Rules::compile(&srd_vpc::object::World::default(), "here"));
    let mut card = Card::new("here", rules, Secret::known(1));
    let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
    for n in 0..instances {
        let guest = Guest { eni: EniId(n as u64), timeouts: Timeouts::DEFAULT };
        card.add_instance(Instant::ZERO, &profile, &[guest]);
    }
    for instance in &mut card.instances {
        for port in 0..flows {
            let bytes = v4(17, (port, 80), b"");
            let packet = Packet::read(&bytes).unwrap();
            let key = Key::of(&packet, &bytes, Direction::Egress, 0);
            let seen = PacketKind::of(&packet, &bytes);
            let flow = Flow::new(Instant::ZERO);
            instance.flows.insert(Instant::ZERO, &key, true, seen, flow).unwrap();
        }
    }
    card
}

/// Measures expiry when the flows of 4,000 instances end together: the longest call, and the sum of
/// all calls, which was the time of a single call in earlier versions. The result is printed,
/// without a check: `cargo test -p srd-card --lib -- --ignored --nocapture longest_call`.
#[test]
#[ignore = "a measurement"]
fn the_longest_call_of_expiry() {
    let mut card = crowded(4000, 250);
    let later = Instant::ZERO + Duration::from_secs(3600);
    let (mut longest, mut all, mut calls) = (0, 0, 0);
    let mut is_done = false;
    while !is_done {
        let began = std::time::Instant::now();
        is_done = card.expire(later, 1000);
        let took = began.elapsed().as_micros();
        (longest, all, calls) = (longest.max(took), all + took, calls + 1);
    }
    std::println!("{calls} calls: {} us each, the longest {longest} us, all {all} us", all / calls);
}
