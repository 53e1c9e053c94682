//! Fuzzes `bodies::pcap`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/captures.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::pcap(bytes));
