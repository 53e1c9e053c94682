//! Replays the fuzzers' corpus of the messaging layer on a stable toolchain, through the same
//! functions, and in addition random scripts.

#![allow(clippy::unwrap_used)] // helpers of tests belong to the tests

use crate::{bodies, hostile, seeds};

use srd_proto::rng::Rng;

/// Replays the seed inputs of a fuzz target.
fn replay(target: &str, run: fn(&[u8])) {
    assert!(seeds::replay(target, run) >= 5, "the seeds are there");
}

/// Runs random scripts, each of `bytes` bytes.
fn by_chance(seeds: u64, bytes: usize, run: fn(&[u8])) {
    for seed in 0..seeds {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let script: Vec<u8> = (0..bytes).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        run(&script);
    }
}

#[test]
fn messaging_seeds_replay() {
    replay("rdm", bodies::rdm);
}

#[test]
fn scripts_of_chance_cause_no_panic() {
    by_chance(60, 400, bodies::rdm);
}

#[test]
fn seeds_of_a_peer_that_lies_replay() {
    replay("hostile", hostile::hostile);
}

#[test]
fn a_peer_that_lies_by_chance_breaks_nothing() {
    by_chance(250, 1000, hostile::hostile);
}
