//! The objects that NCCL holds.

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
    /// Result of NCCL's call `init`.
    Context(Context),
    /// Result of NCCL's call `listen`.
    Listener(Listener),
    /// Result of NCCL's call `connect`. NCCL may not have received it yet.
    Sender(Sender),
    /// Result of NCCL's call `accept`.
    Receiver(Receiver),
}

/// All objects that NCCL holds.
pub static OBJECTS: Table<Object> = Table::new();

/// Returns the context that all communicators of version 10 of the interface share; that version
/// has no contexts.
///
/// # Errors
/// A [`Fault`](crate::Fault), if the environment is not suitable.
pub fn common_context() -> Outcome<&'static Context> {
    static COMMON: OnceLock<Context> = OnceLock::new();
    let machine = machine::machine()?;
    Ok(COMMON.get_or_init(|| Context::new(machine)))
}

/// Returns the number of a request for NCCL: the handle of the connection and the request's own
/// number.
#[must_use]
pub fn request_number(of: u64, request: Request) -> u64 {
    of << Request::BITS | request.number()
}

/// Splits a number that [`request_number`] returned into the connection's handle and the request.
#[must_use]
pub fn request_of(number: u64) -> (u64, Request) {
    const { assert!(HANDLE_BITS + Request::BITS == u64::BITS) };
    (number >> Request::BITS, Request::of(number))
}
