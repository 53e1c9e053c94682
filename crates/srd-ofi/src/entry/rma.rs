//! Calls that read and write peers' memory.

use std::ffi::c_void;

use srd_efa::layer::RmaIov;

use super::{at, buffer, sent};
use crate::abi::bits::{FI_INJECT, FI_REMOTE_CQ_DATA};
use crate::abi::endpoint::fid_ep;
use crate::abi::endpoint::rma::{fi_msg_rma, fi_ops_rma, fi_rma_iov};
use crate::abi::errno::FI_EINVAL;
use crate::abi::fid::{fi_addr_t, iovec};
use crate::objects::endpoint::Endpoint;
use crate::objects::transfer::{Access, Buffer, TransferFlags};
use crate::requests::offers::IOV_LIMIT;
use crate::{Errno, Outcome};

/// Operations of an endpoint on peers' memory.
pub(super) static OPS: fi_ops_rma = fi_ops_rma {
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
    ..fi_ops_rma::REFUSING
};

/// Remote address of an access.
struct Target {
    to: fi_addr_t,
    addr: u64,
    key: u64,
}

/// Reads or writes one contiguous piece of the peer's memory.
unsafe fn access(
    ep: *mut fid_ep,
    read: bool,
    buffer: Outcome<Buffer>,
    target: &Target,
    data: Option<u64>,
    context: *mut c_void,
) -> isize {
    sent(buffer.and_then(|buffer| {
        // SAFETY: the endpoint is open, and the application does not touch the buffer until the
        // operation completes.
        unsafe {
            let endpoint: &Endpoint = super::state::<Endpoint>(ep);
            let piece = RmaIov { addr: target.addr, length: buffer.bytes(), rkey: target.key };
            let context = at(context);
            let to = target.to;
            let access = Access { to, read, buffer, remote: &[piece], data, context };
            endpoint.rma(&access, TransferFlags::flags(default_flags(endpoint, read)))
        }
    }))
}

/// Returns the endpoint's default flags for an access. `FI_INJECT` applies to the buffer of data
/// that leaves, so it has no effect on a read.
fn default_flags(endpoint: &Endpoint, read: bool) -> u64 {
    endpoint.tx_flags() & if read { !FI_INJECT } else { !0 }
}

/// Writes from a buffer that the application may reuse at once.
unsafe fn injected(ep: *mut fid_ep, buffer: Buffer, target: &Target, data: Option<u64>) -> isize {
    // SAFETY: the endpoint is open, and the buffer readable during the call.
    unsafe {
        let endpoint: &Endpoint = super::state::<Endpoint>(ep);
        let piece = RmaIov { addr: target.addr, length: buffer.bytes(), rkey: target.key };
        let to = target.to;
        let access = Access { to, read: false, buffer, remote: &[piece], data, context: 0 };
        sent(endpoint.rma(&access, TransferFlags::inject(endpoint.tx_flags())))
    }
}

/// Performs the access that a message describes.
unsafe fn described(ep: *mut fid_ep, read: bool, msg: *const fi_msg_rma, flags: u64) -> isize {
    let ask = || -> Outcome {
        // SAFETY: the application passes a message, with as many pieces as it declares, and does
        // not touch its own pieces until the operation completes.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno(FI_EINVAL))?;
            let buffer = buffer(msg.msg_iov, msg.iov_count)?;
            if msg.rma_iov.is_null() || !(1..=IOV_LIMIT).contains(&msg.rma_iov_count) {
                return Err(Errno(FI_EINVAL));
            }
            let pieces = std::slice::from_raw_parts(msg.rma_iov, msg.rma_iov_count);
            let mut remote = [RmaIov { addr: 0, length: 0, rkey: 0 }; IOV_LIMIT];
            for (to, from) in remote.iter_mut().zip(pieces) {
                *to = remote_piece(from);
            }
            let access = Access {
                to: msg.addr,
                read,
                buffer,
                remote: &remote[..pieces.len()],
                data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data),
                context: at(msg.context),
            };
            super::state::<Endpoint>(ep).rma(&access, TransferFlags::flags(flags))
        }
    };
    sent(ask())
}

fn remote_piece(iov: &fi_rma_iov) -> RmaIov {
    RmaIov { addr: iov.addr, length: iov.len as u64, rkey: iov.key }
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Ok(Buffer::one(at(buf), len));
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { access(ep, true, buffer, &Target { to, addr, key }, None, context) }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: `count` pieces are there; the rest meets the requirements of the called function.
    unsafe { access(ep, true, buffer(iov, count), &Target { to, addr, key }, None, context) }
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { described(ep, true, msg, flags) }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Ok(Buffer::one(at(buf), len));
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { access(ep, false, buffer, &Target { to, addr, key }, None, context) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: `count` pieces are there; the rest meets the requirements of the called function.
    unsafe { access(ep, false, buffer(iov, count), &Target { to, addr, key }, None, context) }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { described(ep, false, msg, flags) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { injected(ep, Buffer::one(at(buf), len), &Target { to, addr, key }, None) }
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Ok(Buffer::one(at(buf), len));
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { access(ep, false, buffer, &Target { to, addr, key }, Some(data), context) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { injected(ep, Buffer::one(at(buf), len), &Target { to, addr, key }, Some(data)) }
}
