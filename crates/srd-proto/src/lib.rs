//! srd-proto
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod error;
pub mod event;
pub mod ids;
pub mod rng;
pub mod time;
pub mod transmit;
