//! The functions of libfabric for counters.

use std::ffi::{c_int, c_void};

use super::{Object, close, code, give, head, state, table};
use crate::abi::cntr::{fi_cntr_attr, fi_ops_cntr, fid_cntr};
use crate::abi::domain::fid_domain;
use crate::abi::errno::{FI_EINVAL, FI_ENOSYS};
use crate::abi::fid::{FI_CLASS_CNTR, fi_ops};
use crate::objects::domain::{Domain, Kind, Slot};
use crate::results::counter::{Count, Counter};
use crate::results::queue::WaitMode;
use crate::{Errno, Outcome};

// SAFETY: `fid_cntr` begins with a fid, and only `open` makes counters.
unsafe impl Object for Counter {
    type Head = fid_cntr;
    const CLASS: usize = FI_CLASS_CNTR;
    const OPS: &'static fi_ops = &fi_ops { close: close::<Self>, ..fi_ops::REFUSING };
}

static OPS: fi_ops_cntr =
    fi_ops_cntr { read, readerr, add, set, wait, adderr, seterr, ..fi_ops_cntr::REFUSING };

/// Implements `fi_cntr_open`.
pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    out: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    let open = || -> Outcome {
        // SAFETY: the application passes attributes, or null for the usual ones.
        let attr = unsafe { attr.as_ref() };
        // Only completions are counted, not bytes.
        if attr.is_some_and(|attr| attr.events != 0) {
            return Err(Errno(FI_EINVAL));
        }
        let waiting =
            match attr.map_or(Ok(WaitMode::Calls), |a| WaitMode::from_object(a.wait_obj))? {
                WaitMode::Descriptor => return Err(Errno(FI_ENOSYS)),
                waiting => waiting,
            };
        // SAFETY: the domain is open.
        let slot = Slot::take(unsafe { state::<Domain>(domain) }, Kind::Counter)?;
        let make = |_: &Counter| fid_cntr { fid: head::<Counter>(context), ops: table(&OPS) };
        // SAFETY: `out` is the application's.
        unsafe { give(out, Counter::new(slot, waiting), make) }
    };
    code(open())
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: the counter is open.
    unsafe { state::<Counter>(cntr) }.read().completed
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: the counter is open.
    unsafe { state::<Counter>(cntr) }.read().failed
}

unsafe fn change(cntr: *mut fid_cntr, change: impl FnOnce(&mut Count)) -> c_int {
    // SAFETY: the counter is open.
    code(unsafe { state::<Counter>(cntr) }.change(change))
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the counter is open.
    unsafe { change(cntr, |count| count.completed = count.completed.wrapping_add(value)) }
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the counter is open.
    unsafe { change(cntr, |count| count.completed = value) }
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the counter is open.
    unsafe { change(cntr, |count| count.failed = count.failed.wrapping_add(value)) }
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the counter is open.
    unsafe { change(cntr, |count| count.failed = value) }
}

unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: the counter is open.
    code(unsafe { state::<Counter>(cntr) }.wait(threshold, timeout))
}
