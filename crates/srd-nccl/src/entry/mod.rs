//! Functions for calls from C and to C. Memory behind pointers is read and written only here; the
//! other modules are ordinary Rust.
//!
//! The safety condition of every function of this module is that NCCL follows its documentation: a
//! pointer is valid during the call, or null where null is allowed. Buffers of a request stay valid
//! until the request has ended or its connection was closed.

use std::ffi::{CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::abi::{LOG_SUBSYSTEMS, Logger, NcclResult};
use crate::plugin::{Object, objects};
use crate::{Fault, Outcome, log};

pub mod connection;
pub mod network;
pub mod tables;
pub mod transfer;

/// Runs a call. An error is written to NCCL's log, and a panic does not unwind into C.
fn run(name: &str, f: impl FnOnce() -> Outcome) -> NcclResult {
    let outcome = catch_unwind(AssertUnwindSafe(f));
    let fault = match outcome {
        Ok(Ok(())) => return NcclResult::Success,
        Ok(Err(fault)) => fault,
        Err(_) => Fault::internal("a bug: standard error says where"),
    };
    log::warn(&format!("{name}: {}", fault.text));
    fault.result
}

/// Returns the variable into which a function writes a result; an error if the pointer is null.
unsafe fn out<'a, T>(name: &str, to: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: NCCL passes null or a valid pointer, which no other thread uses during the call.
    unsafe { to.as_mut() }.ok_or_else(|| Fault::argument(format!("{name} is null")))
}

/// Returns the handle in a pointer of NCCL.
fn handle_of(pointer: *const c_void) -> u64 {
    pointer.addr() as u64
}

/// Returns a handle in the form of a pointer, which must not be dereferenced.
fn pointer_of(handle: u64) -> Outcome<*mut c_void> {
    let address = usize::try_from(handle).map_err(|_| Fault::internal("pointers are short"))?;
    Ok(std::ptr::without_provenance_mut(address))
}

/// Returns the object of a pointer that NCCL holds.
fn object(pointer: *const c_void) -> Outcome<Arc<Object>> {
    objects().find(handle_of(pointer)).ok_or_else(unknown)
}

fn unknown() -> Fault {
    Fault::argument("there is no such object: it was closed, never opened, or opened before a fork")
}

fn other_kind() -> Fault {
    Fault::argument("the object is of another kind")
}

/// Returns the address of a buffer for later use.
fn address(buffer: *mut c_void) -> u64 {
    buffer.expose_provenance() as u64
}

/// Writes the log through NCCL's logger from now on.
fn use_logger(logger: Option<Logger>) {
    if let Some(logger) = logger {
        log::use_printer(Box::new(move |level, text| print(logger, level, text)));
    }
}

/// Passes a line to NCCL's logger.
fn print(logger: Logger, level: c_int, text: &str) {
    let Ok(text) = CString::new(text.replace('\0', " ")) else { return };
    let file = c"libnccl-net-srd".as_ptr();
    // SAFETY: the logger has the arguments of printf: a format, and one string for this format.
    unsafe { logger(level, LOG_SUBSYSTEMS, file, 0, c"%s".as_ptr(), text.as_ptr()) };
}
