//! Fuzzes `bodies::header`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/proto.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::header(bytes));
