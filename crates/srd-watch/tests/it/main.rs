//! Bursts on an interface of this machine.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod live;
#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../../srd-net/tests/support/veth.rs"]
mod veth;
