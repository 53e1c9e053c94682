//! Endpoints that exchange packets over a wire in memory: tests of the transport from outside.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod addresses;
mod attacks;
#[path = "../../../../fuzz/bodies/proto.rs"]
mod bodies;
mod copies;
mod corpus;
mod egress;
mod endpoint_example;
mod first_window;
mod full_table;
mod hibernation;
mod interactive;
mod operations;
mod pair;
mod path_mtu;
mod ports;
mod protected;
mod regressions;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
mod shards;
mod silence;
#[path = "../support/mod.rs"]
mod support;
mod teardown;
mod trust;
mod unreliable;
