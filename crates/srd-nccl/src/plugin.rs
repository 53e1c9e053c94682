//! The objects that NCCL holds.

use std::sync::OnceLock;

use srd_host::OfProcess;

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

/// Returns the objects that NCCL holds. The child of a fork has an empty table, since a lock of the
/// parent's table that another thread held at the fork stays locked in the child. The handles of
/// both differ.
#[must_use]
pub fn objects() -> &'static Table<Object> {
    static OBJECTS: OfProcess<Table<Object>> = OfProcess::new();
    OBJECTS.get(|process| Table::new(process.forks().to_le_bytes()[0]))
}

/// Returns the context that all communicators of version 10 of the interface share; that version
/// has no contexts.
///
/// # Errors
/// A [`Fault`](crate::Fault), if the environment is not suitable.
pub fn common_context() -> Outcome<&'static Context> {
    static COMMON: OfProcess<OnceLock<Context>> = OfProcess::new();
    let machine = machine::machine()?;
    Ok(COMMON.get(|_| OnceLock::new()).get_or_init(|| Context::new(machine)))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::Machine;
    use crate::settings::Settings;

    #[test]
    #[allow(unsafe_code, reason = "a fork")]
    fn the_child_of_a_fork_has_no_objects() {
        let settings = Settings::read(|_| None).unwrap();
        let machine = Arc::new(Machine { settings, devices: Vec::new() });
        let handle = objects().add(Arc::new(Object::Context(Context::new(machine)))).unwrap();
        // SAFETY: the child searches in a table of its own, and ends without any destructor.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let is_found = objects().find(handle).is_some();
            // SAFETY: ends this process, at once.
            unsafe { libc::_exit(i32::from(is_found)) };
        }
        let mut status = -1;
        // SAFETY: waits for this process's child, and writes to a local integer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has the table of its parent");
        assert!(objects().remove(handle).is_some());
    }
}
