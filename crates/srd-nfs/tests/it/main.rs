//! Both halves of the NFS proxy, a server behind them, and unknown clients.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod admission;
mod attacks;
mod halves;
mod nonsense;
mod segments;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "../../../srd-net/tests/support/veth.rs"]
mod veth;
