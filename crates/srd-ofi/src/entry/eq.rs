//! Calls on event queues.

use std::ffi::{c_char, c_int, c_void};
use std::{ptr, slice};

use super::cq::answer_wait;
use super::{Object, close, code, count, give, head, state, state_of, table, write_text};
use crate::abi::bits::{FI_PEEK, FI_WRITE};
use crate::abi::eq::{fi_eq_attr, fi_eq_err_entry, fi_ops_eq, fid_eq};
use crate::abi::errno::{FI_EAGAIN, FI_EINVAL};
use crate::abi::fabric::fid_fabric;
use crate::abi::fid::{FI_CLASS_EQ, fi_ops, fid};
use crate::objects::fabric::Fabric;
use crate::results::event::EventQueue;
use crate::results::queue::{WaitMode, Waited, timeout};
use crate::{Errno, Outcome};

// SAFETY: `fid_eq` begins with a fid, and only `open` makes event queues.
unsafe impl Object for EventQueue {
    type Head = fid_eq;
    const CLASS: usize = FI_CLASS_EQ;
    const OPS: &'static fi_ops = &fi_ops { close: close::<Self>, control, ..fi_ops::REFUSING };
}

static OPS: fi_ops_eq = fi_ops_eq { read, readerr, write, sread, strerror, ..fi_ops_eq::REFUSING };

/// Implements `fi_eq_open`.
pub(super) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    let open = || -> Outcome {
        // SAFETY: the application passes attributes, or null.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno(FI_EINVAL))?;
        let waiting = WaitMode::from_object(attr.wait_obj)?;
        // SAFETY: the fabric is open.
        let fabric = unsafe { state::<Fabric>(fabric) };
        let writable = attr.flags & FI_WRITE != 0;
        let queue = EventQueue::new(fabric.clone(), attr.size, writable, waiting)?;
        let make = |_: &EventQueue| fid_eq { fid: head::<EventQueue>(context), ops: table(&OPS) };
        // SAFETY: `out` is the application's.
        unsafe { give(out, queue, make) }
    };
    code(open())
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: this is the table of event queues.
    let queue = unsafe { state_of::<EventQueue>(fid) };
    let Some(queue) = queue.map(|queue| queue.queue()) else { return -FI_EINVAL };
    // SAFETY: both commands take a pointer to an `int`.
    unsafe { answer_wait(command, arg, queue.descriptor(), queue.waiting()) }
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: the queue is open.
    let found = unsafe { state::<EventQueue>(eq) }.read(len, flags & FI_PEEK != 0);
    let write = |found: crate::results::event::Event| {
        // SAFETY: the application provides `len` bytes, which are enough for the event, and memory
        // for its kind.
        unsafe {
            *event = found.kind;
            ptr::copy_nonoverlapping(found.bytes.as_ptr(), buf.cast(), found.bytes.len());
        }
        found.bytes.len()
    };
    count(found.map(write))
}

/// Implements `fi_eq_readerr`: there are no errors to read, because every call that could be
/// asynchronous completes at once.
extern "C" fn readerr(_: *mut fid_eq, _: *mut fi_eq_err_entry, _: u64) -> isize {
    count(Err(Errno(FI_EAGAIN)))
}

unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _: u64,
) -> isize {
    if buf.is_null() {
        return count(Err(Errno(FI_EINVAL)));
    }
    // SAFETY: the application passes `len` bytes.
    let bytes = unsafe { slice::from_raw_parts(buf.cast(), len) };
    // SAFETY: the queue is open.
    count(unsafe { state::<EventQueue>(eq) }.write(event, bytes).map(|()| len))
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    milliseconds: c_int,
    flags: u64,
) -> isize {
    // SAFETY: the queue is open.
    match unsafe { state::<EventQueue>(eq) }.wait(timeout(milliseconds)) {
        // SAFETY: the arguments are passed on unchanged.
        Ok(Waited::Ready) => unsafe { read(eq, event, buf, len, flags) },
        Ok(Waited::Signalled | Waited::TimedOut) => count(Err(Errno(FI_EAGAIN))),
        Err(error) => count(Err(error)),
    }
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    _: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the application gives `len` bytes.
    unsafe { write_text("no error", buf, len) };
    c"no error".as_ptr()
}
