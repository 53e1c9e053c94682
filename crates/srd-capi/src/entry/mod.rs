//! The functions of `srd.h`. Memory behind pointers is read and written only here; the other
//! modules are ordinary Rust.
//!
//! The safety condition of every function is that the program follows `srd.h`: a pointer other than
//! null refers to memory of the documented size, which stays valid for the documented time. A null
//! pointer returns an error wherever the documentation does not allow it.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use srd_efa::layer::Iov;

use crate::endpoint::Endpoint;
use crate::{Error, Outcome, Status};

pub mod endpoints;
pub mod memory;
pub mod message;
pub mod open;
pub mod poll;

/// An endpoint in C: a handle, not the address of an object.
#[derive(Debug)]
#[repr(C)]
pub struct SrdEndpoint {
    _nothing: [u8; 0],
}

fn handle_of(endpoint: *mut SrdEndpoint) -> usize {
    endpoint.addr()
}

/// Returns the endpoint of a handle.
fn find(endpoint: *mut SrdEndpoint) -> Outcome<Arc<Endpoint>> {
    endpoints::find(handle_of(endpoint))
}

/// Runs a call. A panic or an error becomes a status number.
fn run(call: impl FnOnce() -> Outcome<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(number)) => number,
        Ok(Err(error)) => error.keep(),
        Err(_) => Error::from(Status::Internal).keep(),
    }
}

/// Runs a call on an endpoint. If the call panics, the endpoint is disabled.
fn on(endpoint: *mut SrdEndpoint, call: impl FnOnce(&Arc<Endpoint>) -> Outcome<c_int>) -> c_int {
    run(|| {
        let endpoint = find(endpoint)?;
        endpoint.check()?;
        catch_unwind(AssertUnwindSafe(|| call(&endpoint))).unwrap_or_else(|_| {
            endpoint.fail();
            Err(Status::Internal.into())
        })
    })
}

/// Returns a buffer of the program as an [`Iov`]. The pointer may be null only if the buffer is
/// empty.
fn piece<T>(buffer: *const T, bytes: usize) -> Outcome<Iov> {
    if buffer.is_null() && bytes > 0 {
        return Err(Error::invalid(format!("buf: it is null, and len is {bytes}")));
    }
    let addr = buffer.expose_provenance();
    if bytes > isize::MAX.unsigned_abs() || addr.checked_add(bytes).is_none() {
        return Err(Error::invalid(format!("len: no memory has {bytes} bytes at {addr:#x}")));
    }
    Ok(Iov { addr: addr as u64, length: bytes as u64 })
}

/// Returns the variable of the program to which a result is written.
///
/// # Safety
/// `out` is null, or may be written until the call ends.
unsafe fn out<'a, T>(name: &str, out: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: the caller fulfils the conditions of `# Safety`.
    unsafe { out.as_mut() }.ok_or_else(|| Error::invalid(format!("{name}: it is null")))
}

/// Copies a text of the program; `None` if its pointer is null.
///
/// # Safety
/// `string` is null, or ends with a zero and is valid during the call.
unsafe fn text(name: &str, string: *const c_char) -> Outcome<Option<String>> {
    if string.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller fulfils the conditions of `# Safety`.
    let text = unsafe { CStr::from_ptr(string) }.to_str();
    let text = text.map_err(|_| Error::invalid(format!("{name}: it is not UTF-8")))?;
    Ok(Some(text.to_owned()))
}

/// Writes a text with its closing zero. Returns the length of the text.
///
/// # Safety
/// `buffer` is null, or `room` bytes may be written at this address.
unsafe fn write(text: &str, buffer: *mut c_char, room: usize) -> Outcome<c_int> {
    if buffer.is_null() {
        return Err(Error::invalid("text: it is null"));
    }
    if text.len() >= room {
        return Err(Error::new(
            Status::TooLong,
            format!("room: {} bytes are needed; SRD_ADDRESS_BYTES always suffice", text.len() + 1),
        ));
    }
    // SAFETY: the buffer has space for the text and its closing zero, and does not overlap memory
    // of the library.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
        *buffer.add(text.len()) = 0;
    }
    Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_do_not_get_past_a_call() {
        assert_eq!(run(|| panic!("on purpose")), Status::Internal.number());
        assert_eq!(run(|| Ok(3)), 3);
    }

    #[test]
    fn buffers_that_cannot_be_are_refused() {
        assert_eq!(piece(std::ptr::null::<u8>(), 0).unwrap().length, 0);
        assert!(piece(std::ptr::null::<u8>(), 1).is_err());
        let one = 1u8;
        assert!(piece(&raw const one, usize::MAX).is_err());
        assert_eq!(piece(&raw const one, 1).unwrap().length, 1);
    }
}
