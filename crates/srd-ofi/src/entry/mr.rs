//! Calls that register memory.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::{Object, close, code, give, head, state_of};
use crate::abi::domain::{fi_mr_attr, fi_ops_mr, fid_mr};
use crate::abi::errno::{FI_EBADFLAGS, FI_EDOMAIN, FI_EINVAL, FI_ENOSYS};
use crate::abi::fid::{FI_CLASS_MR, FI_ENABLE, fi_ops, fid, iovec};
use crate::objects::domain::Domain;
use crate::objects::endpoint::Endpoint;
use crate::objects::region::Iov;
use crate::objects::registration::Registration;
use crate::requests::offers::IOV_LIMIT;
use crate::{Errno, Outcome};

// SAFETY: `fid_mr` begins with a fid, and only `register` makes regions.
unsafe impl Object for Registration {
    type Head = fid_mr;
    const CLASS: usize = FI_CLASS_MR;
    const OPS: &'static fi_ops =
        &fi_ops { close: close::<Self>, bind, control, ..fi_ops::REFUSING };
}

/// Operations of a domain that register memory.
pub(super) static OPS: fi_ops_mr = fi_ops_mr { reg, regv, regattr, ..fi_ops_mr::REFUSING };

unsafe extern "C" fn reg(
    fid: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let request = RegistrationRequest { access, offset, key: requested_key, flags, context };
    // SAFETY: `fid` is a domain, and `out` is the application's.
    code(unsafe { register(fid, vec![(buf.addr(), len)], request, out) })
}

unsafe extern "C" fn regv(
    fid: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let request = RegistrationRequest { access, offset, key: requested_key, flags, context };
    // SAFETY: the application passes `count` pieces.
    let pieces = unsafe { pieces(iov, count) };
    // SAFETY: `fid` is a domain, and `out` is the application's.
    code(pieces.and_then(|pieces| unsafe { register(fid, pieces, request, out) }))
}

unsafe extern "C" fn regattr(
    fid: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    out: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the application passes attributes, or null.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return -FI_EINVAL };
    // Device memory is not supported, so requests for it are refused.
    if attr.iface != 0 {
        return -FI_ENOSYS;
    }
    let request = RegistrationRequest {
        access: attr.access,
        offset: attr.offset,
        key: attr.requested_key,
        flags,
        context: attr.context,
    };
    // SAFETY: the application passes `count` pieces.
    let pieces = unsafe { pieces(attr.mr_iov, attr.iov_count) };
    // SAFETY: `fid` is a domain, and `out` is the application's.
    code(pieces.and_then(|pieces| unsafe { register(fid, pieces, request, out) }))
}

struct RegistrationRequest {
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

unsafe fn pieces(iov: *const iovec, count: usize) -> Outcome<Vec<Iov>> {
    if iov.is_null() || !(1..=IOV_LIMIT).contains(&count) {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: the caller guarantees `count` pieces.
    let iov = unsafe { std::slice::from_raw_parts(iov, count) };
    Ok(iov.iter().map(|piece| (piece.iov_base.addr(), piece.iov_len)).collect())
}

unsafe fn register(
    fid: *mut fid,
    pieces: Vec<Iov>,
    request: RegistrationRequest,
    out: *mut *mut fid_mr,
) -> Outcome {
    // SAFETY: `fid` is an open object.
    let domain = unsafe { state_of::<Domain>(fid) }.ok_or(Errno(FI_EINVAL))?;
    if request.offset != 0 {
        return Err(Errno(FI_EINVAL));
    }
    if request.flags != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    let registration = Registration::new(domain, pieces, request.access, request.key)?;
    let make = |made: &Registration| fid_mr {
        fid: head::<Registration>(request.context),
        mem_desc: ptr::null_mut(),
        key: made.key,
    };
    // SAFETY: `out` is the application's.
    unsafe { give(out, registration, make) }
}

/// A region belongs to all endpoints of its domain, so binding it to an endpoint needs no action.
/// Counters of a region are not supported: the counters of an endpoint count accesses by peers.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, _: u64) -> c_int {
    let bind = || -> Outcome {
        // SAFETY: both are open objects.
        let (region, endpoint) =
            unsafe { (state_of::<Registration>(fid), state_of::<Endpoint>(other)) };
        let region = region.ok_or(Errno(FI_EINVAL))?;
        let endpoint = endpoint.ok_or(Errno(FI_ENOSYS))?;
        let ours = Arc::ptr_eq(&region.domain, endpoint.slot.domain());
        if ours { Ok(()) } else { Err(Errno(FI_EDOMAIN)) }
    };
    code(bind())
}

/// A region is ready from the beginning, so enabling it needs no action.
extern "C" fn control(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}
