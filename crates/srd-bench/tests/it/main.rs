//! Kernel TCP in a fabric of namespaces.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../srd-lab/tests/support/ready.rs"]
mod ready;
mod tcp;
