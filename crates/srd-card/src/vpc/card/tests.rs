//! Bounds that would take a test from outside millions of changes.

use super::*;
use crate::limits::FlowKind;
use crate::observe::Path;
use crate::vpc::flow::{ENDS_MAX, Target, To};

#[path = "../../../tests/lane/mod.rs"]
mod lane;
use lane::{Lab, TCP, open, packet, ports};

/// A packet of a known flow: whether it arrives, and how often rules were asked.
fn send(lab: &mut Lab) -> (bool, u64) {
    let judged = |lab: &Lab| lab.ports.iter().map(|port| lab.card.counts(*port).judged).sum();
    let before: u64 = judged(lab);
    let arrives = lab.send(0, &packet((0, 1), TCP, 0, &ports(5000, 80))).is_some();
    (arrives, judged(lab) - before)
}

/// When the numbers that flows keep begin anew, an old verdict must not look like a new one.
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

    // The same with a change that concerns nobody here.
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
