//! Replays the fuzzer's corpus of `vpc.toml` on a stable toolchain, through the same function.

#![allow(clippy::unwrap_used)]

use crate::bodies;
use std::fs;
use std::path::Path;

fn seeds() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/vpc");
    let mut paths: Vec<_> = fs::read_dir(corpus).unwrap().map(|e| e.unwrap().path()).collect();
    // What fuzzers added locally is named by a hash and left to them.
    paths.retain(|path| path.file_name().is_some_and(|name| name.len() != 40));
    paths.sort();
    assert_eq!(paths.len(), 2);
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn seeds_are_valid_and_replay() {
    for seed in seeds() {
        let text = std::str::from_utf8(&seed).unwrap();
        let file = srd_vpc_file::parse(text, Path::new("seed.toml"));
        assert!(file.is_ok(), "{}", file.unwrap_err());
        bodies::vpc(&seed);
    }
}

/// A taste of what the fuzzer does: every seed cut short, and with single bytes changed.
#[test]
fn seeds_survive_cuts_and_changes() {
    for bytes in seeds() {
        for n in 0..bytes.len() {
            bodies::vpc(&bytes[..n]);
            for byte in *b"0-9\n\"" {
                let mut changed = bytes.clone();
                changed[n] = byte;
                bodies::vpc(&changed);
            }
        }
    }
}
