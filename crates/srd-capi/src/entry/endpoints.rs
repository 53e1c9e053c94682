//! The endpoints of this process, by the handles that C programs hold.
//!
//! The child of a fork starts with an empty table: another thread of the parent may have held the
//! lock of the parent's table during the fork, and the child would wait for this lock forever.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use srd_host::Process;

use crate::endpoint::Endpoint;
use crate::table::Table;
use crate::{Error, Outcome, Status};

/// Largest number of open endpoints of a process. Each endpoint has a thread.
pub const ENDPOINTS_MAX: u32 = 1024;

/// The endpoints of a process. The lock is held only for short calls.
#[derive(Debug)]
struct Endpoints {
    process: Process,
    table: RwLock<Table<Arc<Endpoint>>>,
}

/// Endpoints of the last process that used the library: this process, or its parent before a fork.
/// They are never freed.
static CURRENT: AtomicPtr<Endpoints> = AtomicPtr::new(ptr::null_mut());

/// Returns the endpoints of this process.
fn current() -> &'static Endpoints {
    let before = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or was leaked below.
    if let Some(known) = unsafe { before.as_ref() }
        && known.process.is_current()
    {
        return known;
    }
    let process = Process::current();
    // Tags differ, so that a process and its forked child have no handle in common.
    let table = RwLock::new(Table::new(ENDPOINTS_MAX, process.forks().to_le_bytes()[0]));
    let new = Box::into_raw(Box::new(Endpoints { process, table }));
    let set = CURRENT.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire);
    let now = match set {
        Ok(_) => new,
        Err(other) => {
            // SAFETY: the pointer was created above, and never published.
            drop(unsafe { Box::from_raw(new) });
            other
        }
    };
    // SAFETY: the pointer is not null, and a published table is never freed.
    unsafe { &*now }
}

/// Returns the error for a handle without an endpoint.
fn unknown(handle: usize, process: Process) -> Error {
    if handle != 0 && process.forks() > 0 {
        return Status::Forked.into();
    }
    let text = match handle {
        0 => "endpoint: it is null",
        _ => "endpoint: it was closed, or never was one",
    };
    Error::new(Status::Handle, text)
}

/// Returns the endpoint of a handle.
///
/// # Errors
/// `Handle` if the handle is not valid; `Forked` in the child of a fork, where the handle may
/// belong to the parent.
pub(super) fn find(handle: usize) -> Outcome<Arc<Endpoint>> {
    let Endpoints { process, table } = current();
    let table = table.read().unwrap_or_else(PoisonError::into_inner);
    table.find(handle).cloned().ok_or_else(|| unknown(handle, *process))
}

/// Adds an endpoint. Returns its handle.
///
/// # Errors
/// `Full` if there are already [`ENDPOINTS_MAX`] endpoints.
pub(super) fn add(endpoint: Arc<Endpoint>) -> Outcome<usize> {
    current().table.write().unwrap_or_else(PoisonError::into_inner).add(endpoint)
}

/// Removes an endpoint. Returns it.
///
/// # Errors
/// The errors of [`find`].
pub(super) fn remove(handle: usize) -> Outcome<Arc<Endpoint>> {
    let Endpoints { process, table } = current();
    let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
    table.remove(handle).ok_or_else(|| unknown(handle, *process))
}
