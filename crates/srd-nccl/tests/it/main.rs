//! The plugin, loaded and called as NCCL does.

#![allow(clippy::unwrap_used, unsafe_code)] // a test may fail loudly, and calls as C does

mod closing;
mod lies;
mod loopback;
mod network;
#[path = "../support/mod.rs"]
mod support;
