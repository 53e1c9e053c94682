//! Replays the fuzzers' corpus of the messaging layer on a stable toolchain, through the same
//! function, and scripts of chance beside it.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

#[path = "../../../fuzz/bodies/rdm.rs"]
mod bodies;

use std::fs;
use std::path::Path;

use srd_proto::rng::Rng;

#[test]
fn messaging_seeds_replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rdm");
    let entries = fs::read_dir(corpus).expect("the target has seeds");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // What fuzzers added locally is named by a hash and left to them.
    paths.retain(|path| path.file_name().is_some_and(|name| name.len() != 40));
    paths.sort();
    assert!(paths.len() >= 5, "the seeds are there");
    for path in paths {
        println!("{}", path.display());
        bodies::rdm(&fs::read(&path).unwrap());
    }
}

#[test]
fn scripts_of_chance_cause_no_panic() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let script: Vec<u8> = (0..400).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        bodies::rdm(&script);
    }
}
