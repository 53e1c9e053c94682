//! Fuzzes `bodies::wireguard`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/wireguard.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::wireguard(bytes));
