//! Functions of `srd.h` for events, errors and the version.

use std::ffi::{c_char, c_int};

use super::{SrdEndpoint, on};
use crate::Error;
use crate::event::Event;
use crate::status::{Status, last};

/// Implements `srd_poll`: returns events, and waits for them.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
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
            // SAFETY: the program's array has `max` elements, and `at` is below `max`.
            unsafe { events.add(at).write(event) };
        })?;
        Ok(c_int::try_from(taken).unwrap_or(max))
    })
}

/// Implements `srd_fd`: returns the descriptor to wait on for events.
#[unsafe(no_mangle)]
pub extern "C" fn srd_fd(endpoint: *mut SrdEndpoint) -> c_int {
    on(endpoint, |endpoint| Ok(endpoint.descriptor()))
}

/// Implements `srd_strerror`: returns the text of a status.
#[unsafe(no_mangle)]
pub extern "C" fn srd_strerror(error: c_int) -> *const c_char {
    Status::of(error).map_or(c"no number of an error", Status::text).as_ptr()
}

/// Implements `srd_last_error`: returns the text of the thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn srd_last_error() -> *const c_char {
    last()
}

/// Implements `srd_version`: returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn srd_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
