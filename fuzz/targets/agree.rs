//! Fuzzes the cards against the results of `explain`.
#![no_main]

#[path = "../bodies/agree/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(bodies::agree(bytes)));
