//! Everything that NCCL holds.

use std::sync::OnceLock;

use crate::context::Context;
use crate::flow::Request;
use crate::listener::Listener;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::table::{HANDLE_BITS, Table};
use crate::{Outcome, machine};

/// An object whose handle NCCL holds.
#[derive(Debug)]
pub enum Object {
    /// Result of `init`.
    Context(Context),
    /// Result of `listen`.
    Listener(Listener),
    /// Result of `connect`, possibly not yet returned.
    Sender(Sender),
    /// Result of `accept`.
    Receiver(Receiver),
}

/// Everything that NCCL holds.
pub static OBJECTS: Table<Object> = Table::new();

/// The context of communicators that bring none: those of version 10.
///
/// # Errors
/// The environment does not fit.
pub fn common_context() -> Outcome<&'static Context> {
    static COMMON: OnceLock<Context> = OnceLock::new();
    let machine = machine::machine()?;
    Ok(COMMON.get_or_init(|| Context::new(machine)))
}

/// The number of a request: its connection's handle and its own.
#[must_use]
pub fn request_number(of: u64, request: Request) -> u64 {
    of << Request::BITS | request.number()
}

/// Back from it.
#[must_use]
pub fn request_of(number: u64) -> (u64, Request) {
    const { assert!(HANDLE_BITS + Request::BITS == u64::BITS) };
    (number >> Request::BITS, Request::of(number))
}
