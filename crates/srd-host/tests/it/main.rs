//! Hosts over real sockets: messages in memory of the caller, threads, and a peer that sends false
//! data.

#![allow(clippy::unwrap_used)] // a test may panic

mod hostile;
mod hosts;
mod threads;
