//! Instances under the seeds of their fuzzer.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/instances.rs"]
mod bodies;
#[path = "../../../../fuzz/bodies/chance.rs"]
mod chance;
mod corpus;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
