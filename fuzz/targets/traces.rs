//! Fuzzes `bodies::traces`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/sim.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::traces(bytes));
