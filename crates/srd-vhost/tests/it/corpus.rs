//! Replays the fuzzer's corpus of the vhost-user device on a stable toolchain, through the same
//! function, and changes it at random.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::bodies;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use srd_proto::rng::Rng;

fn seeds() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/vhost");
    let mut paths: Vec<_> = fs::read_dir(corpus).unwrap().map(|e| e.unwrap().path()).collect();
    // What fuzzers added locally is named by a hash and left to them.
    paths.retain(|path| path.file_name().is_some_and(|name| name.len() != 40));
    paths.sort();
    assert!(paths.len() >= 6, "the seeds are there");
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.next_u64() % n.max(1) as u64).unwrap()
}

/// A seed with bytes changed, parts doubled, cut out, or taken from another.
fn changed(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[below(rng, seeds.len())].clone();
    for _ in 0..=below(rng, 8) {
        let at = below(rng, bytes.len());
        let end = at + below(rng, bytes.len() - at + 1);
        match below(rng, 6) {
            0 | 1 if !bytes.is_empty() => bytes[at] = rng.next_u64().to_le_bytes()[0],
            2 if !bytes.is_empty() => bytes[at] ^= 1 << below(rng, 8),
            3 => drop(bytes.drain(at..end)),
            4 => bytes.extend_from_within(at..end),
            _ => bytes.extend_from_slice(&seeds[below(rng, seeds.len())]),
        }
    }
    bytes
}

#[test]
fn seeds_and_what_chance_makes_of_them_replay() {
    let seeds = seeds();
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
    let seeds = seeds();
    let (began, mut runs) = (Instant::now(), 0_u64);
    let mut rng = Rng::new(2);
    while began.elapsed() < Duration::from_secs(600) {
        bodies::vhost(&changed(&mut rng, &seeds));
        runs += 1;
    }
    println!("{runs} inputs");
}
