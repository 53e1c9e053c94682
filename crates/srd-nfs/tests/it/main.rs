//! Both halves of the NFS proxy, a server behind them, and unknown clients.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod admission;
mod attacks;
mod halves;
mod nonsense;
#[path = "../support/mod.rs"]
mod support;
