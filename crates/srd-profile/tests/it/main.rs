//! Profiles of live traffic and of mixes whose figures are known.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod live;
mod mixes;
#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../../srd-net/tests/support/veth.rs"]
mod veth;
