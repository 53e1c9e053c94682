//! Fuzzes `bodies::instances`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/instances.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bodies::instances(bytes);
});
