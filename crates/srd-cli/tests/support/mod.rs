//! Helpers for tests that run two daemons.

// Each test file uses a part of them; a test may fail loudly.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod dpdk;
pub(crate) mod hosts;
pub(crate) mod inner;
pub(crate) mod machine;
pub(crate) mod pair;
pub(crate) mod pcapng;
pub(crate) mod qemu;
#[path = "../../../srd-lab/tests/support/ready.rs"]
mod ready;
pub(crate) mod routed;
pub(crate) mod transfer;
