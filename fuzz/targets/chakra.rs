//! Fuzzes `bodies::chakra`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/sim.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::chakra(bytes));
