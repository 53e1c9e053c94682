//! Fuzzes `bodies::vhost`; the corpus tests replay the same function on stable.
#![no_main]

#[path = "../bodies/vhost/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bodies::vhost(bytes);
});
