//! Calls on completion queues.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use super::{Object, close, code, count, give, head, state, state_of, table, write_text};
use crate::abi::cq::{fi_cq_attr, fi_cq_err_entry, fi_cq_tagged_entry, fi_ops_cq, fid_cq};
use crate::abi::domain::fid_domain;
use crate::abi::errno::{FI_EINVAL, FI_ENOSYS};
use crate::abi::fid::{FI_CLASS_CQ, FI_GETWAIT, FI_GETWAITOBJ, fi_addr_t, fi_ops, fid};
use crate::objects::domain::{Domain, Kind, Slot};
use crate::requests::negotiate::VERSION_1_5;
use crate::results::completion::{Completion, CompletionQueue, Format};
use crate::results::queue::WaitMode;
use crate::{Errno, Outcome};

// SAFETY: `fid_cq` begins with a fid, and only `open` makes completion queues.
unsafe impl Object for CompletionQueue {
    type Head = fid_cq;
    const CLASS: usize = FI_CLASS_CQ;
    const OPS: &'static fi_ops = &fi_ops { close: close::<Self>, control, ..fi_ops::REFUSING };
}

/// Bytes of an error's entry in releases before 1.5, in which `err_data` is the last field.
const OLD_ERROR_BYTES: usize = std::mem::offset_of!(fi_cq_err_entry, err_data_size);

static OPS: fi_ops_cq = fi_ops_cq {
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
    ..fi_ops_cq::REFUSING
};

/// Implements `fi_cq_open`.
pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    let open = || -> Outcome {
        // SAFETY: the application passes attributes, or null.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno(FI_EINVAL))?;
        let format = Format::from_number(attr.format)?;
        let waiting = WaitMode::from_object(attr.wait_obj)?;
        if attr.wait_cond != 0 {
            return Err(Errno(FI_ENOSYS));
        }
        // SAFETY: the domain is open.
        let slot = Slot::take(unsafe { state::<Domain>(domain) }, Kind::CompletionQueue)?;
        let queue = CompletionQueue::new(slot, attr.size, format, waiting)?;
        let make = |_: &CompletionQueue| fid_cq {
            fid: head::<CompletionQueue>(context),
            ops: table(&OPS),
        };
        // SAFETY: `out` is the application's.
        unsafe { give(out, queue, make) }
    };
    code(open())
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: this is the table of completion queues.
    let queue = unsafe { state_of::<CompletionQueue>(fid) };
    let Some(queue) = queue.map(|queue| queue.queue()) else { return -FI_EINVAL };
    // SAFETY: both commands take a pointer to an `int`.
    unsafe { answer_wait(command, arg, queue.descriptor(), queue.waiting()) }
}

/// Answers the commands `FI_GETWAIT`, for the file descriptor, and `FI_GETWAITOBJ`, for the kind of
/// wait object.
pub(super) unsafe fn answer_wait(
    command: c_int,
    arg: *mut c_void,
    descriptor: Outcome<c_int>,
    waiting: WaitMode,
) -> c_int {
    let answer = match command {
        FI_GETWAIT => descriptor,
        FI_GETWAITOBJ => Ok(waiting.object()),
        _ => Err(Errno(FI_ENOSYS)),
    };
    let write = |value: c_int| {
        if arg.is_null() {
            return Err(Errno(FI_EINVAL));
        }
        // SAFETY: the caller guarantees an `int` at `arg`.
        unsafe { *arg.cast::<c_int>() = value };
        Ok(())
    };
    code(answer.and_then(write))
}

/// Memory into which completions are written: entries of the queue's format, and their senders.
struct Entries {
    buffer: *mut u8,
    sources: *mut fi_addr_t,
    bytes: usize,
}

impl Entries {
    /// Writes one completion in the queue's format. Each shorter format is the first part of the
    /// longest format.
    unsafe fn write(&self, at: usize, completion: &Completion) {
        let entry = fi_cq_tagged_entry {
            op_context: ptr::with_exposed_provenance_mut(completion.context),
            flags: completion.flags,
            len: completion.length,
            buf: ptr::with_exposed_provenance_mut(completion.buffer),
            data: completion.data,
            tag: completion.tag,
        };
        // SAFETY: the application passes memory for more than `at` entries of this format, and for
        // the same number of senders if `sources` is not null.
        unsafe {
            let to = self.buffer.add(at * self.bytes);
            ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), to, self.bytes);
            if !self.sources.is_null() {
                *self.sources.add(at) = completion.source;
            }
        }
    }
}

unsafe extern "C" fn read(cq: *mut fid_cq, buf: *mut c_void, most: usize) -> isize {
    // SAFETY: the requirements of `readfrom` hold, without senders.
    unsafe { readfrom(cq, buf, most, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    most: usize,
    sources: *mut fi_addr_t,
) -> isize {
    // SAFETY: the queue is open.
    let queue = unsafe { state::<CompletionQueue>(cq) };
    let entries = Entries { buffer: buf.cast(), sources, bytes: queue.format.bytes() };
    // SAFETY: the application provides memory for `most` entries.
    count(queue.read(most, |at, completion| unsafe { entries.write(at, completion) }))
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    buf: *mut c_void,
    most: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the requirements of `sreadfrom` hold, without senders.
    unsafe { sreadfrom(cq, buf, most, ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    most: usize,
    sources: *mut fi_addr_t,
    _: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the queue is open.
    let queue = unsafe { state::<CompletionQueue>(cq) };
    let entries = Entries { buffer: buf.cast(), sources, bytes: queue.format.bytes() };
    // SAFETY: the application provides memory for `most` entries.
    count(queue.wait_read(most, timeout, |at, completion| unsafe { entries.write(at, completion) }))
}

/// Implements `fi_cq_readerr`: writes the fields of an error that all releases share. If the
/// application provides memory for text, the text is copied there; otherwise the queue keeps it
/// until the next error is read. `err_data` is valid on input only with a size, and releases before
/// 1.5 have no size.
unsafe extern "C" fn readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, _: u64) -> isize {
    // SAFETY: the queue is open.
    let queue = unsafe { state::<CompletionQueue>(cq) };
    let (completion, failure) = match queue.read_failure() {
        Ok(found) => found,
        Err(error) => return count(Err(error)),
    };
    if !failure.text.is_empty() {
        crate::core::log(crate::core::Level::Info, &failure.text);
    }
    let has_size = queue.slot.domain().fabric.api_version >= VERSION_1_5;
    // SAFETY: the application provides an entry of its release, and memory for text of the length
    // in the entry.
    unsafe {
        let room = if has_size { (*buf).err_data_size } else { 0 };
        let given = if room == 0 { ptr::null_mut() } else { (*buf).err_data };
        let (err_data, err_data_size) = if !given.is_null() {
            write_text(&failure.text, given.cast(), room);
            (given, if failure.text.is_empty() { 0 } else { room.min(failure.text.len() + 1) })
        } else if failure.text.is_empty() {
            (ptr::null_mut(), 0)
        } else {
            let (kept, bytes) = queue.keep_text(&failure.text);
            (kept.cast_mut().cast(), bytes)
        };
        let entry = fi_cq_err_entry {
            op_context: ptr::with_exposed_provenance_mut(completion.context),
            flags: completion.flags,
            len: completion.length,
            buf: ptr::with_exposed_provenance_mut(completion.buffer),
            data: completion.data,
            tag: completion.tag,
            olen: failure.overflow,
            err: failure.error,
            prov_errno: failure.provider_error,
            err_data,
            err_data_size,
        };
        let bytes = if has_size { size_of_val(&entry) } else { OLD_ERROR_BYTES };
        ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), buf.cast::<u8>(), bytes);
    }
    1
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: the queue is open.
    code(unsafe { state::<CompletionQueue>(cq) }.signal())
}

/// Implements `fi_cq_strerror`: returns the text that `readerr` returned with the error, or,
/// without such a text, the meaning of the error's number.
unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    provider_error: c_int,
    err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    let meaning = crate::results::failure::meaning(provider_error);
    // SAFETY: the application passes the pointer that it got from `readerr`, or null; `buf` has
    // `len` bytes.
    unsafe {
        let given = super::text(err_data.cast()).filter(|text| !text.is_empty());
        write_text(given.unwrap_or(&meaning.to_string_lossy()), buf, len);
        if given.is_some() { err_data.cast() } else { meaning.as_ptr() }
    }
}
