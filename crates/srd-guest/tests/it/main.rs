//! Instances under the seeds of their fuzzer.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/instances.rs"]
mod bodies;
mod corpus;
