//! Calls that compute in peers' memory.

use std::ffi::{c_int, c_void};
use std::ptr;

use srd_efa::layer::RmaIov;

use super::{at, sent};
use crate::abi::endpoint::atomic::{fi_ioc, fi_msg_atomic, fi_ops_atomic, fi_rma_ioc};
use crate::abi::endpoint::fid_ep;
use crate::abi::errno::{FI_EINVAL, FI_EOPNOTSUPP};
use crate::abi::fid::fi_addr_t;
use crate::objects::arithmetic::{Form, Operation};
use crate::objects::endpoint::Endpoint;
use crate::objects::transfer::{Buffer, Compute, TransferFlags};
use crate::requests::offers::IOV_LIMIT;
use crate::{Errno, Outcome};

/// Atomic operations of an endpoint.
pub(super) static OPS: fi_ops_atomic = fi_ops_atomic {
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
    ..fi_ops_atomic::REFUSING
};

/// The application's elements, in pieces.
#[derive(Clone, Copy)]
struct Elements {
    pieces: *const fi_ioc,
    count: usize,
}

impl Elements {
    const NONE: Self = Self { pieces: ptr::null(), count: 0 };

    /// Returns the buffer of elements of `size` bytes. The buffer is empty if there are no pieces,
    /// or if their pointer is null, as in a fetch without operand.
    unsafe fn buffer(self, size: usize) -> Outcome<Buffer> {
        if self.count > IOV_LIMIT {
            return Err(Errno(FI_EINVAL));
        }
        if self.count == 0 || self.pieces.is_null() {
            return Buffer::of(std::iter::empty());
        }
        // SAFETY: the application passes `count` pieces.
        let pieces = unsafe { std::slice::from_raw_parts(self.pieces, self.count) };
        if pieces.iter().any(|piece| piece.count.checked_mul(size).is_none()) {
            return Err(Errno(FI_EINVAL));
        }
        Buffer::of(pieces.iter().map(|piece| (at(piece.addr), piece.count * size)))
    }
}

/// Arguments of an atomic operation, except the peer's elements.
#[derive(Clone, Copy)]
struct Call {
    form: Form,
    datatype: c_int,
    op: c_int,
    operand: Elements,
    compare: Elements,
    result: Elements,
    to: fi_addr_t,
    context: *mut c_void,
}

/// Submits an atomic operation. `remote` names the peer's elements: a list of pieces (`Ok`), or the
/// address and the key of one piece (`Err`), with as many elements as there are operands or
/// results.
unsafe fn compute(
    ep: *mut fid_ep,
    call: &Call,
    remote: Result<&[fi_rma_ioc], (u64, u64)>,
    how: impl FnOnce(&Endpoint) -> TransferFlags,
) -> isize {
    let ask = || -> Outcome {
        let operation = Operation::from_numbers(call.form, call.op, call.datatype);
        let Operation { op, datatype, size } = operation.ok_or(Errno(FI_EOPNOTSUPP))?;
        // SAFETY: the application passes as many pieces as it declares, and does not touch them
        // until the operation completes; the endpoint is open.
        unsafe {
            let operand = if operation.is_some_and(|operation| operation.has_operand()) {
                call.operand.buffer(size)?
            } else {
                Buffer::of(std::iter::empty())?
            };
            let (compare, result) = (call.compare.buffer(size)?, call.result.buffer(size)?);
            let mut pieces = [RmaIov { addr: 0, length: 0, rkey: 0 }; IOV_LIMIT];
            let count = match remote {
                Ok(given) if given.len() <= IOV_LIMIT => {
                    for (to, from) in pieces.iter_mut().zip(given) {
                        let length = from.count.checked_mul(size).ok_or(Errno(FI_EINVAL))?;
                        *to = RmaIov { addr: from.addr, length: length as u64, rkey: from.key };
                    }
                    given.len()
                }
                Ok(_) => return Err(Errno(FI_EINVAL)),
                Err((addr, rkey)) => {
                    let length = operand.bytes().max(result.bytes());
                    pieces[0] = RmaIov { addr, length, rkey };
                    1
                }
            };
            let endpoint: &Endpoint = super::state::<Endpoint>(ep);
            let (to, context, remote) = (call.to, at(call.context), &pieces[..count]);
            let compute = Compute { to, op, datatype, operand, compare, result, remote, context };
            endpoint.atomic(&compute, how(endpoint))
        }
    };
    sent(ask())
}

/// Submits the atomic operation that a message describes.
unsafe fn described(
    ep: *mut fid_ep,
    form: Form,
    msg: *const fi_msg_atomic,
    compare: Elements,
    result: Elements,
    flags: u64,
) -> isize {
    // SAFETY: the application passes a message, with as many pieces as it declares.
    unsafe {
        let Some(msg) = msg.as_ref() else { return -(FI_EINVAL as isize) };
        if msg.rma_iov.is_null() || !(1..=IOV_LIMIT).contains(&msg.rma_iov_count) {
            return -(FI_EINVAL as isize);
        }
        let remote = std::slice::from_raw_parts(msg.rma_iov, msg.rma_iov_count);
        let call = Call {
            form,
            datatype: msg.datatype,
            op: msg.op,
            operand: Elements { pieces: msg.msg_iov, count: msg.iov_count },
            compare,
            result,
            to: msg.addr,
            context: msg.context,
        };
        compute(ep, &call, Ok(remote), |_| TransferFlags::flags(flags))
    }
}

fn one<T>(addr: *const T, count: usize) -> fi_ioc {
    fi_ioc { addr: addr.cast_mut().cast(), count }
}

fn by_endpoint(endpoint: &Endpoint) -> TransferFlags {
    TransferFlags::flags(endpoint.tx_flags())
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let piece = one(buf, count);
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { writev(ep, &piece, ptr::null_mut(), 1, to, addr, key, datatype, op, context) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let operand = Elements { pieces: iov, count };
    let (compare, result) = (Elements::NONE, Elements::NONE);
    let call = Call { form: Form::Change, datatype, op, operand, compare, result, to, context };
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { compute(ep, &call, Err((addr, key)), by_endpoint) }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { described(ep, Form::Change, msg, Elements::NONE, Elements::NONE, flags) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let piece = one(buf, count);
    let operand = Elements { pieces: &raw const piece, count: 1 };
    let (compare, result) = (Elements::NONE, Elements::NONE);
    let context = ptr::null_mut();
    let call = Call { form: Form::Change, datatype, op, operand, compare, result, to, context };
    let how = |endpoint: &Endpoint| TransferFlags::inject(endpoint.tx_flags());
    // SAFETY: the caller meets the requirements of the called function; the Messaging Layer
    // copies operands.
    unsafe { compute(ep, &call, Err((addr, key)), how) }
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (piece, mut result) = (one(buf, count), one(result, count));
    let none = ptr::null_mut();
    // SAFETY: the caller meets the requirements of the called function.
    unsafe {
        readwritev(
            ep,
            &piece,
            none,
            1,
            &raw mut result,
            none,
            1,
            to,
            addr,
            key,
            datatype,
            op,
            context,
        )
    }
}

unsafe extern "C" fn readwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let operand = Elements { pieces: iov, count };
    let result = Elements { pieces: resultv, count: result_count };
    let compare = Elements::NONE;
    let call = Call { form: Form::Fetch, datatype, op, operand, compare, result, to, context };
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { compute(ep, &call, Err((addr, key)), by_endpoint) }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let result = Elements { pieces: resultv, count: result_count };
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { described(ep, Form::Fetch, msg, Elements::NONE, result, flags) }
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    compare: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (piece, compare, mut result) = (one(buf, count), one(compare, count), one(result, count));
    let none = ptr::null_mut();
    // SAFETY: the caller meets the requirements of the called function.
    unsafe {
        compwritev(
            ep,
            &piece,
            none,
            1,
            &compare,
            none,
            1,
            &raw mut result,
            none,
            1,
            to,
            addr,
            key,
            datatype,
            op,
            context,
        )
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    comparev: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let operand = Elements { pieces: iov, count };
    let compare = Elements { pieces: comparev, count: compare_count };
    let result = Elements { pieces: resultv, count: result_count };
    let call = Call { form: Form::Compare, datatype, op, operand, compare, result, to, context };
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { compute(ep, &call, Err((addr, key)), by_endpoint) }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    comparev: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let compare = Elements { pieces: comparev, count: compare_count };
    let result = Elements { pieces: resultv, count: result_count };
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { described(ep, Form::Compare, msg, compare, result, flags) }
}

/// Writes the largest number of elements of an atomic operation to `count`; an error if the
/// operation is not supported.
unsafe fn valid(
    ep: *mut fid_ep,
    form: Form,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    let ask = || -> Outcome {
        let operation = Operation::from_numbers(form, op, datatype).ok_or(Errno(FI_EOPNOTSUPP))?;
        // SAFETY: the endpoint is open; the count is the application's.
        unsafe {
            let endpoint: &Endpoint = super::state::<Endpoint>(ep);
            let bytes = endpoint.atomic_bytes_max(form == Form::Compare);
            if !count.is_null() {
                *count = bytes? / operation.size;
            }
        }
        Ok(())
    };
    super::code(ask())
}

unsafe extern "C" fn writevalid(
    ep: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { valid(ep, Form::Change, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(
    ep: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { valid(ep, Form::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(
    ep: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { valid(ep, Form::Compare, datatype, op, count) }
}
