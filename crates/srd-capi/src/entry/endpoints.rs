//! The endpoints of this process, by the handles that C programs hold.
//!
//! The child of a fork starts with an empty table: another thread of the parent may have held the
//! lock of the parent's table during the fork, and the child would wait for this lock forever.

use std::sync::{Arc, PoisonError, RwLock};

use srd_host::{OfProcess, Process};

use crate::endpoint::Endpoint;
use crate::table::Table;
use crate::{Error, Outcome, Status};

/// Largest number of open endpoints of a process. Each endpoint has a thread.
pub const ENDPOINTS_MAX: u32 = 1024;

/// Returns the endpoints of this process. The lock is held only for short calls.
fn current() -> &'static RwLock<Table<Arc<Endpoint>>> {
    static CURRENT: OfProcess<RwLock<Table<Arc<Endpoint>>>> = OfProcess::new();
    // Tags differ, so that a process and its forked child have no handle in common.
    CURRENT.get(|process| RwLock::new(Table::new(ENDPOINTS_MAX, process.forks().to_le_bytes()[0])))
}

/// Returns the error for a handle without an endpoint.
fn unknown(handle: usize) -> Error {
    if handle != 0 && Process::current().forks() > 0 {
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
    let table = current().read().unwrap_or_else(PoisonError::into_inner);
    table.find(handle).cloned().ok_or_else(|| unknown(handle))
}

/// Adds an endpoint. Returns its handle.
///
/// # Errors
/// `Full` if there are already [`ENDPOINTS_MAX`] endpoints.
pub(super) fn add(endpoint: Arc<Endpoint>) -> Outcome<usize> {
    current().write().unwrap_or_else(PoisonError::into_inner).add(endpoint)
}

/// Removes an endpoint. Returns it.
///
/// # Errors
/// The errors of [`find`].
pub(super) fn remove(handle: usize) -> Outcome<Arc<Endpoint>> {
    let mut table = current().write().unwrap_or_else(PoisonError::into_inner);
    table.remove(handle).ok_or_else(|| unknown(handle))
}
