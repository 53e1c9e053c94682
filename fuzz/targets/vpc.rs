//! Fuzzes `bodies::vpc`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/vpc.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::vpc(bytes));
