//! Integration tests of the simulator: its scenarios, and the seeds of its fuzzers.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/sim.rs"]
mod bodies;
mod cards;
mod corpus;
mod scenarios;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
mod waste;
