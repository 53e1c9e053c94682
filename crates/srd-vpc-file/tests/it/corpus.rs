//! Replays the fuzzer's corpus of `vpc.toml` on a stable toolchain, through the fuzzer's function.

#![allow(clippy::unwrap_used)]

use crate::{bodies, seeds};
use std::path::Path;

#[test]
fn seeds_are_valid_and_replay() {
    for seed in seeds::read("vpc") {
        let text = std::str::from_utf8(&seed).unwrap();
        let file = srd_vpc_file::parse(text, Path::new("seed.toml"));
        assert!(file.is_ok(), "{}", file.unwrap_err());
        bodies::vpc(&seed);
    }
}

/// Small version of the fuzzer: every seed is truncated, and single bytes are changed.
#[test]
fn seeds_survive_cuts_and_changes() {
    for bytes in seeds::read("vpc") {
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
