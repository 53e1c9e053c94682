//! Tests of the plugin, loaded and called like NCCL does.

#![allow(clippy::unwrap_used, unsafe_code)] // a test may fail loudly, and calls like C code

#[path = "../../../srd-net/tests/support/cable.rs"]
mod cable;
mod closing;
mod lies;
mod loopback;
mod network;
#[path = "../support/mod.rs"]
mod support;
