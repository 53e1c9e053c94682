//! Tests of the vhost-user back end with a front end that the tests implement.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/vhost/mod.rs"]
mod bodies;
#[path = "../../../../fuzz/bodies/chance.rs"]
mod chance;
mod corpus;
mod frames;
mod hostile;
mod kinds;
mod memory;
mod protocol;
mod relayed;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
