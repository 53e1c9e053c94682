//! Hosts over real sockets: messages in memory of the caller, threads, and a peer that lies.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod hostile;
mod hosts;
mod threads;
