//! Comparison of cards with `explain`, in random small clouds: a card must treat each flow as the
//! output of `explain` predicts, for the same reason.
#![allow(clippy::unwrap_used)]

use crate::agree::{Reached, agree, agree_with};
use crate::generate::Dice;
use crate::seeds;
use srd_vpc::judge::Reason;

/// Compares in random clouds. Each host has this number of workers.
fn run(first: u64, clouds: u64, workers: u8) -> Reached {
    let mut all = Reached::default();
    for seed in first..first + clouds {
        let dice = &mut Dice(seed);
        let bytes: Vec<u8> = (0..400).map(|_| u8::try_from(dice.below(256)).unwrap()).collect();
        println!("seed {seed}");
        let reached = agree_with(&bytes, workers);
        all.answered += reached.answered;
        all.left += reached.left;
        all.by_nat += reached.by_nat;
        all.dropped += reached.dropped;
        all.other_ways += reached.other_ways;
        all.reasons.extend(reached.reasons);
    }
    all
}

#[test]
fn the_card_does_what_explain_says() {
    check(&run(0, 500, 1));
}

/// The interfaces of a host are divided among the cards of its workers. Packets between two
/// workers, and packets that arrive at another worker than that of their interface, are treated in
/// the same way.
#[test]
fn the_cards_of_several_workers_do_what_explain_says() {
    check(&run(0, 500, 2));
    check(&run(500, 500, 3));
}

fn check(reached: &Reached) {
    let counts = [reached.answered, reached.left, reached.by_nat, reached.dropped];
    assert!(counts.iter().all(|count| *count > 30), "{reached:?}");
    assert!(reached.other_ways > 5, "{reached:?}");
    for reason in [
        Reason::GroupsIn,
        Reason::GroupsOut,
        Reason::AclIn,
        Reason::AclOut,
        Reason::NoRoute,
        Reason::Blackhole,
        Reason::NotCarried,
        Reason::OutwardsOnly,
        Reason::PrivateNat,
        Reason::NotPeered,
        Reason::NoInterface,
        Reason::Circle,
        Reason::ToItself,
        Reason::AnotherWayBack,
        Reason::OpensNoConnection,
    ] {
        assert!(reached.reasons.contains(&reason), "{reason:?}: {reached:?}");
    }
}

#[test]
#[ignore = "a million flows: for a nightly run"]
fn the_card_does_what_explain_says_of_a_million_flows() {
    println!("{:?}", run(1_000, 25_000, 1));
    println!("{:?}", run(30_000, 25_000, 2));
}

/// Inputs that a fuzzer has found, or that cover much code with few bytes.
#[test]
fn seeds_replay() {
    seeds::replay("agree", agree);
}
