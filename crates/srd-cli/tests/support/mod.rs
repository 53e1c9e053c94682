//! Helpers for tests with one or two machines: daemons, cards, guests, captures and transfers.

// Each test program uses only a part of the helpers; a test may fail by a panic.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod api;
#[path = "../../../srd-vpc-file/tests/support/cloud_text.rs"]
pub(crate) mod cloud_text;
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
pub(crate) mod successor;
pub(crate) mod transfer;
