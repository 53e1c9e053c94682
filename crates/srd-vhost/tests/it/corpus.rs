//! Replays the fuzzer's corpus of the vhost-user device on a stable toolchain, through the fuzzer's
//! function. Also replays random mutations of the corpus.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::chance::changed;
use crate::{bodies, seeds};
use std::time::{Duration, Instant};

use srd_proto::rng::Rng;

#[test]
fn seeds_and_what_chance_makes_of_them_replay() {
    let seeds = seeds::read("vhost");
    assert!(seeds.len() >= 6, "the seeds are there");
    let frames = seeds.iter().map(|seed| bodies::vhost(seed));
    let (taken, given) = frames.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert!(taken >= 8 && given >= 8, "{taken} frames taken, {given} given");
    let mut rng = Rng::new(1);
    for _ in 0..500 {
        bodies::vhost(&changed(&mut rng, &seeds));
    }
}

#[test]
#[ignore = "ten minutes of chance: for a nightly run"]
fn ten_minutes_of_chance_replay() {
    let seeds = seeds::read("vhost");
    let (began, mut runs) = (Instant::now(), 0_u64);
    let mut rng = Rng::new(2);
    while began.elapsed() < Duration::from_secs(600) {
        bodies::vhost(&changed(&mut rng, &seeds));
        runs += 1;
    }
    println!("{runs} inputs");
}
