//! Runs the code of the card's fuzz target with random input, on machines without a fuzzer.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use crate::bodies;
use srd_proto::rng::Rng;

/// Runs the fuzz target once for each seed, with `bytes` random bytes as input.
fn by_chance(seeds: std::ops::Range<u64>, bytes: usize) {
    for seed in seeds {
        println!("seed {seed}");
        bodies::card(&script(seed, bytes));
    }
}

fn script(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..bytes).map(|_| u8::try_from(rng.below(256)).unwrap()).collect()
}

#[test]
fn guests_and_peers_that_write_by_chance_break_nothing() {
    by_chance(0..300, 1500);
}

#[test]
#[ignore = "minutes; finds what a fuzzer would, where there is none"]
fn guests_and_peers_that_write_by_chance_for_long_break_nothing() {
    by_chance(1000..40_000, 3000);
}
