//! Tests of cloud files, and of the verdicts that follow from them.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/vpc.rs"]
mod bodies;
mod corpus;
mod errors;
mod large;
mod observe;
mod options;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
mod usage;
mod verdicts;
