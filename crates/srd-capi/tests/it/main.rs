//! The C library, as programs in C and its header see it.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod header;
mod impaired;
mod programs;
#[path = "../support/mod.rs"]
mod support;
