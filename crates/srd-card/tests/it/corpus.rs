//! Replays the fuzzer's corpus of the card on a stable toolchain, through the same
//! function.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use crate::bodies;
use std::fs;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/card")
}

#[test]
fn seeds_of_guests_and_peers_that_write_what_they_like_replay() {
    let entries = fs::read_dir(corpus()).expect("the target has seeds");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // What fuzzers added locally is named by a hash and left to them.
    paths.retain(|path| path.file_name().is_some_and(|name| name.len() != 40));
    paths.sort();
    assert!(paths.len() >= 5, "the seeds are there");
    for path in paths {
        println!("{}", path.display());
        bodies::card(&fs::read(&path).unwrap());
    }
}
