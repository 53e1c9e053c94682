//! Bursts on an interface of this machine, and the seeds of the fuzzers of capture files.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/captures.rs"]
mod bodies;
mod corpus;
mod live;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../../srd-net/tests/support/veth.rs"]
mod veth;
