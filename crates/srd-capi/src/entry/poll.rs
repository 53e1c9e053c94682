//! Events, errors and the version.

use std::ffi::{c_char, c_int};

use super::{SrdEndpoint, on};
use crate::Error;
use crate::event::Event;
use crate::status::{Status, last};

/// `srd_poll`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_poll(
    endpoint: *mut SrdEndpoint,
    events: *mut Event,
    max: c_int,
    timeout_ms: c_int,
) -> c_int {
    on(endpoint, |endpoint| {
        let most = usize::try_from(max).ok().filter(|most| *most > 0);
        let most = most.ok_or_else(|| Error::invalid("max: give the room in events, 1 or more"))?;
        if events.is_null() {
            return Err(Error::invalid("events: it is null"));
        }
        let taken = endpoint.poll(most, timeout_ms, |at, event| {
            // SAFETY: the program gives room for `max`, and `at` is below.
            unsafe { events.add(at).write(event) };
        })?;
        Ok(c_int::try_from(taken).unwrap_or(max))
    })
}

/// `srd_fd`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_fd(endpoint: *mut SrdEndpoint) -> c_int {
    on(endpoint, |endpoint| Ok(endpoint.descriptor()))
}

/// `srd_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_strerror(error: c_int) -> *const c_char {
    Status::of(error).map_or(c"no number of an error", Status::text).as_ptr()
}

/// `srd_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_last_error() -> *const c_char {
    last()
}

/// `srd_version`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
