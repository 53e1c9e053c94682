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
