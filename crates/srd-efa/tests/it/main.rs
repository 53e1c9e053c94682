//! The Messaging Layer with the seeds of its fuzzers.

#![allow(clippy::unwrap_used)] // a test may panic

#[path = "../../../../fuzz/bodies/rdm.rs"]
mod bodies;
mod corpus;
#[path = "../../../../fuzz/bodies/hostile/mod.rs"]
mod hostile;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
