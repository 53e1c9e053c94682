//! Programs in C that use the provider, with the libfabric of this machine.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod alltoall;
#[path = "../../../srd-net/tests/support/cable.rs"]
mod cable;
mod direct;
mod faults;
mod layout;
mod load;
mod network;
#[path = "../support/node.rs"]
mod node;
mod objects;
mod pingpong;
mod processes;
#[path = "../support/mod.rs"]
mod support;
