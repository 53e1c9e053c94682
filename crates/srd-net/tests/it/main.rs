//! Back ends and endpoints over loopback, over virtual devices, and over the network in memory.

#![allow(clippy::unwrap_used)] // a test may panic

mod back_end_example;
mod copies;
mod documentation;
mod endpoint;
#[macro_use]
#[path = "../support/inner.rs"]
mod inner;
mod pauses;
mod shards;
mod small_interface;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod tcx;
mod udp;
mod waiters;
mod xdp;
mod xdp_io;

/// Returns the name with which this program runs a single test: `module` is the `module_path!()` of
/// the test function.
fn name_of(module: &str, function: &str) -> String {
    let (_, module) = module.split_once("::").unwrap_or_default();
    format!("{module}::{function}")
}
