//! The endpoints of this process, by the handles that C programs hold.
//!
//! The child of a fork begins with none: a thread of its parent may hold the lock of the parent's
//! table, and would never release it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use srd_host::Process;

use crate::endpoint::Endpoint;
use crate::table::Table;
use crate::{Error, Outcome, Status};

/// Endpoints that a process may have open. Each has a thread.
pub const ENDPOINTS_MAX: u32 = 1024;

/// The endpoints of a process. The lock is held for short calls only.
#[derive(Debug)]
struct Endpoints {
    process: Process,
    table: RwLock<Table<Arc<Endpoint>>>,
}

/// Endpoints of the process that used the library last: this one, or its parent before a fork.
/// They are never freed.
static CURRENT: AtomicPtr<Endpoints> = AtomicPtr::new(ptr::null_mut());

/// Endpoints of this process.
fn current() -> &'static Endpoints {
    let before = CURRENT.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    if let Some(known) = unsafe { before.as_ref() }
        && known.process.is_current()
    {
        return known;
    }
    let process = Process::current();
    // The handles of a process and of the one that it was forked from differ.
    let table = RwLock::new(Table::new(ENDPOINTS_MAX, process.forks().to_le_bytes()[0]));
    let new = Box::into_raw(Box::new(Endpoints { process, table }));
    let set = CURRENT.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire);
    let now = match set {
        Ok(_) => new,
        Err(other) => {
            // SAFETY: made above, and never published.
            drop(unsafe { Box::from_raw(new) });
            other
        }
    };
    // SAFETY: it is not null, and never freed once it stands there.
    unsafe { &*now }
}

/// The error of a handle that leads to nothing.
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

/// The endpoint of a handle.
///
/// # Errors
/// `Handle` if the handle is not valid; `Forked` in the child of a fork, where it may be the
/// parent's.
pub(super) fn find(handle: usize) -> Outcome<Arc<Endpoint>> {
    let Endpoints { process, table } = current();
    let table = table.read().unwrap_or_else(PoisonError::into_inner);
    table.find(handle).cloned().ok_or_else(|| unknown(handle, *process))
}

/// Adds an endpoint; its handle.
///
/// # Errors
/// `Full` beyond [`ENDPOINTS_MAX`].
pub(super) fn add(endpoint: Arc<Endpoint>) -> Outcome<usize> {
    current().table.write().unwrap_or_else(PoisonError::into_inner).add(endpoint)
}

/// Takes an endpoint out.
///
/// # Errors
/// The errors of [`find`].
pub(super) fn remove(handle: usize) -> Outcome<Arc<Endpoint>> {
    let Endpoints { process, table } = current();
    let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
    table.remove(handle).ok_or_else(|| unknown(handle, *process))
}
