//! Replays the fuzzer's corpus of the cloud's data plane on a stable toolchain, through the same
//! function, and also with random changes.

#![allow(clippy::unwrap_used)]

use crate::chance::{below, changed};
use crate::{bodies, seeds};
use std::time::{Duration, Instant};

use srd_proto::rng::Rng;

#[test]
fn seeds_and_what_chance_makes_of_them_replay() {
    let seeds = seeds::read("instances");
    assert!(seeds.len() >= 6, "the seeds are there");
    for seed in &seeds {
        // The seed of NAT gateways is an exception, because the fuzzed function checks its packets
        // itself.
        assert!(bodies::instances(seed) > 1 || seed[0] == 7, "nothing came out");
    }
    let mut rng = Rng::new(1);
    for _ in 0..1500 {
        bodies::instances(&changed(&mut rng, &seeds));
    }
}

/// Returns a seed with additional steps between its own: hand-overs of a complete state, hand-overs
/// of a damaged state, and pauses.
fn handed_over(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let (mut rest, mut bytes) = (seed, Vec::new());
    while let Some((head, more)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([head[1], head[2]])).min(more.len());
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(&more[..length]);
        rest = &more[length..];
        match below(rng, 5) {
            // A pause, which may be short, or so long that connections end.
            2 => {
                let milliseconds = 1 << below(rng, 16);
                let [high, low] = u16::try_from(milliseconds).unwrap().to_be_bytes();
                bytes.extend_from_slice(&[5, high, low]);
                bytes.resize(bytes.len() + milliseconds, 0);
            }
            0 => bytes.extend_from_slice(&[8, 0, 0]),
            1 => {
                let length = u8::try_from(4 + below(rng, 6)).unwrap();
                bytes.extend_from_slice(&[9, 0, length]);
                bytes.extend((0..length).map(|_| rng.next_u64().to_le_bytes()[0]));
            }
            _ => {}
        }
    }
    bytes
}

/// A card that takes over in the middle acts like the previous card, and a damaged state does no
/// harm.
#[test]
fn a_card_that_was_handed_over_does_what_it_would_have_done() {
    let seeds = seeds::read("instances");
    let mut rng = Rng::new(3);
    for seed in &seeds {
        for _ in 0..60 {
            bodies::instances(&handed_over(&mut rng, seed));
        }
    }
    for _ in 0..200 {
        let seed = changed(&mut rng, &seeds);
        bodies::instances(&handed_over(&mut rng, &seed));
    }
}

#[test]
#[ignore = "ten minutes of chance: for a nightly run"]
fn ten_minutes_of_chance_replay() {
    let seeds = seeds::read("instances");
    let (began, mut runs) = (Instant::now(), 0_u64);
    let mut rng = Rng::new(2);
    while began.elapsed() < Duration::from_secs(600) {
        bodies::instances(&changed(&mut rng, &seeds));
        runs += 1;
    }
    println!("{runs} inputs");
}
