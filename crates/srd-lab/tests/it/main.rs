//! Fabrics of namespaces on this machine.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod fabric;
mod impair;
#[path = "../support/ready.rs"]
mod ready;
