//! Calls from C. Memory behind pointers is copied or borrowed here; everything else is ordinary
//! Rust.
//!
//! An object of libfabric is a structure that begins with its head, `fid_...`, whose address the
//! application holds. Here it is a [`Handle`]: head and state in one allocation, from `fi_...open`
//! to `fi_close`. Other objects that need the state share it; until they release it, `fi_close`
//! returns `-FI_EBUSY`.
//!
//! The requirements of libfabric's manual on applications are the safety condition of every
//! function of this module: pointers are null where that is allowed, or valid for the call;
//! objects are used between opening and closing only, and closed once.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use srd_host::Process;

use crate::abi::errno::{FI_EBUSY, FI_EINVAL};
use crate::abi::fid::{fi_ops, fid, iovec};
use crate::objects::transfer::Buffer;
use crate::{Errno, Outcome};

pub mod atomic;
pub mod av;
pub mod cntr;
pub mod cq;
pub mod domain;
pub mod endpoint;
pub mod eq;
pub mod fabric;
pub mod info;
mod message;
pub mod mr;
pub mod msg;
pub mod provider;
pub mod rma;
pub mod tagged;

/// A kind of libfabric's objects that this provider makes.
///
/// # Safety
/// `Head` is `repr(C)` and begins with a `fid`; only this type makes heads whose class is `CLASS`.
pub unsafe trait Object: Sized {
    /// The structure that the application holds a pointer to.
    type Head;
    /// Value of `fid.fclass`.
    const CLASS: usize;
    /// The calls that every object has.
    const OPS: &'static fi_ops;
}

/// An object of this provider. The application holds a pointer to `head`, which libfabric defines;
/// the other fields are the provider's own.
#[derive(Debug)]
#[repr(C)]
pub struct Handle<T: Object> {
    head: T::Head,
    state: Arc<T>,
    process: Process,
}

/// Returns the `fid` at the beginning of a head.
fn head<T: Object>(context: *mut c_void) -> fid {
    fid { fclass: T::CLASS, context, ops: table(T::OPS) }
}

/// Returns a table of calls as a pointer for C. No caller writes into tables.
fn table<T>(ops: &'static T) -> *mut T {
    std::ptr::from_ref(ops).cast_mut()
}

/// Allocates a new object and writes its address into the application's variable `out`.
unsafe fn give<T: Object>(
    out: *mut *mut T::Head,
    state: T,
    head: impl FnOnce(&T) -> T::Head,
) -> Outcome {
    if out.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    let head = head(&state);
    let (state, process) = (Arc::new(state), Process::current());
    let handle = Box::into_raw(Box::new(Handle::<T> { head, state, process }));
    // SAFETY: `out` is the application's variable for the pointer, and the head is first.
    unsafe { *out = handle.cast() };
    Ok(())
}

/// Returns the state of an object.
unsafe fn state<'a, T: Object>(head: *const T::Head) -> &'a Arc<T> {
    // SAFETY: the application got `head` from `give`, and has not closed it.
    unsafe { &(*head.cast::<Handle<T>>()).state }
}

/// Returns the state of the object that begins with `fid`; `None` if the object has another kind.
unsafe fn state_of<'a, T: Object>(fid: *const fid) -> Option<&'a Arc<T>> {
    // SAFETY: `fid` is null or the beginning of an object.
    let class = unsafe { fid.as_ref() }?.fclass;
    // SAFETY: only this type makes objects of this class.
    (class == T::CLASS).then(|| unsafe { state::<T>(fid.cast()) })
}

/// Closes an object that no other object uses. In the child of a fork, the object is abandoned
/// without being dropped.
unsafe extern "C" fn close<T: Object>(fid: *mut fid) -> c_int {
    let Some(state) = (
        // SAFETY: the application passes an object that is not closed.
        unsafe { state_of::<T>(fid) }
    ) else {
        return -FI_EINVAL;
    };
    // SAFETY: the application passes an object that is not closed.
    if !unsafe { (*fid.cast::<Handle<T>>()).process.is_current() } {
        // Threads of the parent process may hold the locks of the object: it is abandoned.
        return 0;
    }
    if Arc::strong_count(state) > 1 {
        return -FI_EBUSY;
    }
    // SAFETY: the object came from `give`, and the application does not use it again.
    drop(unsafe { Box::from_raw(fid.cast::<Handle<T>>()) });
    0
}

/// Converts an outcome to zero or a negative error.
fn code(outcome: Outcome) -> c_int {
    outcome.map_or_else(|error| -error.0, |()| 0)
}

/// Converts an outcome to a number of entries or bytes, or a negative error.
fn count(outcome: Outcome<usize>) -> isize {
    outcome.map_or_else(|error| -(error.0 as isize), |count| count.cast_signed())
}

/// Converts the outcome of a transfer to zero or a negative error.
fn sent(outcome: Outcome) -> isize {
    outcome.map_or_else(|error| -(error.0 as isize), |()| 0)
}

/// Converts a pointer to an address that can be converted back later.
fn at<T>(pointer: *const T) -> usize {
    pointer.expose_provenance()
}

/// Returns a buffer of `count` pieces; `iov` may be null if `count` is zero.
unsafe fn buffer(iov: *const iovec, count: usize) -> Outcome<Buffer> {
    if count == 0 {
        return Buffer::of(std::iter::empty());
    }
    if iov.is_null() || count > crate::requests::offers::IOV_LIMIT {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: the caller guarantees `count` pieces.
    let pieces = unsafe { std::slice::from_raw_parts(iov, count) };
    Buffer::of(pieces.iter().map(|piece| (at(piece.iov_base), piece.iov_len)))
}

/// Returns a C string as text; `None` for null and for invalid UTF-8.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it is a C string that is valid during the call.
    unsafe { CStr::from_ptr(string) }.to_str().ok()
}

/// Writes text and a terminating zero into `room` bytes. Text that does not fit is cut.
unsafe fn write_text(text: &str, buffer: *mut c_char, room: usize) {
    if buffer.is_null() || room == 0 {
        return;
    }
    let bytes = text.len().min(room - 1);
    // SAFETY: the application provides `room` bytes; the call writes `bytes` and one zero, which
    // fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), bytes);
        *buffer.add(bytes) = 0;
    }
}
