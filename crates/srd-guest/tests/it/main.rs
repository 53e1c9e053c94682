//! Replays the fuzzer's seeds of instances as tests.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/instances.rs"]
mod bodies;
#[path = "../../../../fuzz/bodies/chance.rs"]
mod chance;
mod corpus;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
