//! Tests of kernel TCP in a fabric of network namespaces.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../srd-lab/tests/support/ready.rs"]
mod ready;
mod tcp;
