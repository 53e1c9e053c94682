//! Tests of the C library through its header and through C programs.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod header;
mod impaired;
mod programs;
#[path = "../support/mod.rs"]
mod support;
