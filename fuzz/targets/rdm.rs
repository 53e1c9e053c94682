//! Fuzzes `bodies::rdm`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/rdm.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::rdm(bytes));
