//! Fuzzes `bodies::hostile`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/hostile/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::hostile(bytes));
