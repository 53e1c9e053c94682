//! Functions for transfers: `regMr`, `isend`, `irecv`, `iflush`, `test`.

use std::ffi::{c_int, c_void};

use srd_efa::layer::Iov;

use super::network::MESSAGE_BYTES_MAX;
use super::{address, handle_of, object, other_kind, out, pointer_of, run};
use crate::abi::{NCCL_PTR_HOST, NcclResult};
use crate::flow::{PARTS_MAX, Request, Sizes};
use crate::plugin::{Object, request_number, request_of};
use crate::receiver::Buffer;
use crate::sender::Send;
use crate::{Fault, Outcome};

/// Handle of every registration. Memory of the host needs no record.
const REGISTERED: u64 = 1;

/// Implements `regMr`: registers memory of the host. Memory of GPUs is refused, as `ptrSupport`
/// announces: NCCL then copies through memory of the host.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn reg_mr(
    _connection: *mut c_void,
    _data: *mut c_void,
    _size: usize,
    kind: c_int,
    registration: *mut *mut c_void,
) -> NcclResult {
    run("regMr", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        let to = unsafe { out("mhandle", registration) }?;
        if kind != NCCL_PTR_HOST {
            return Err(Fault::argument(format!("memory of kind {kind}: the host's (1) only")));
        }
        *to = pointer_of(REGISTERED)?;
        Ok(())
    })
}

/// Implements `deregMr`: does nothing, because registrations have no record.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn dereg_mr(_connection: *mut c_void, _mr: *mut c_void) -> NcclResult {
    NcclResult::Success
}

fn piece(data: *mut c_void, size: usize) -> Outcome<Iov> {
    if size > MESSAGE_BYTES_MAX {
        return Err(Fault::argument(format!("{size} bytes: {MESSAGE_BYTES_MAX} at most")));
    }
    if data.is_null() && size > 0 {
        return Err(Fault::argument("the buffer is null"));
    }
    Ok(Iov { addr: address(data), length: size as u64 })
}

/// Returns the pointer of a request for NCCL. If `request` is `None`, the pointer is null, and NCCL
/// repeats its call.
fn request_pointer(connection: *mut c_void, request: Option<Request>) -> Outcome<*mut c_void> {
    request.map_or(Ok(std::ptr::null_mut()), |request| {
        pointer_of(request_number(handle_of(connection), request))
    })
}

/// Implements `isend`: sends a message.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn isend(
    sender: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    _mr: *mut c_void,
    _profiler: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    run("isend", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        let to = unsafe { out("request", request) }?;
        *to = std::ptr::null_mut();
        let found = object(sender)?;
        let Object::Sender(connection) = &*found else { return Err(other_kind()) };
        let send = Send { piece: piece(data, size)?, tag };
        // SAFETY: NCCL does not change the buffer until the request has ended.
        *to = request_pointer(sender, unsafe { connection.send(&send) }?)?;
        Ok(())
    })
}

/// Implements `irecv`: receives a group of messages. NCCL may mark the completion of a receive as
/// optional (the request is 1 before the call); such a receive is treated like any other.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn irecv(
    receiver: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    _mrs: *mut *mut c_void,
    _profiler: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    run("irecv", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        let to = unsafe { out("request", request) }?;
        *to = std::ptr::null_mut();
        let found = object(receiver)?;
        let Object::Receiver(connection) = &*found else { return Err(other_kind()) };
        let parts = usize::try_from(count).ok().filter(|n| (1..=PARTS_MAX).contains(n));
        let parts = parts.ok_or_else(|| Fault::argument(format!("a group of {count} receives")))?;
        if data.is_null() || sizes.is_null() || tags.is_null() {
            return Err(Fault::argument("data, sizes or tags is null"));
        }
        let mut buffers = [Buffer { piece: Iov { addr: 0, length: 0 }, tag: 0 }; PARTS_MAX];
        for (at, buffer) in buffers.iter_mut().enumerate().take(parts) {
            // SAFETY: each array has `count` elements.
            let (data, size, tag) = unsafe { (*data.add(at), *sizes.add(at), *tags.add(at)) };
            *buffer = Buffer { piece: piece(data, size)?, tag };
        }
        // SAFETY: NCCL does not access the buffers until the request has ended.
        *to = request_pointer(receiver, unsafe { connection.receive(&buffers[..parts]) }?)?;
        Ok(())
    })
}

/// Implements `iflush`: memory of the host needs no flush, so the request is null.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn iflush(
    _receiver: *mut c_void,
    _count: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _mrs: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    run("iflush", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        *unsafe { out("request", request) }? = std::ptr::null_mut();
        Ok(())
    })
}

/// Implements `test`: returns whether a request is complete.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn test(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> NcclResult {
    run("test", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        let to = unsafe { out("done", done) }?;
        *to = 0;
        let (connection, request) = request_of(handle_of(request));
        let found = object(pointer_of(connection)?)?;
        let ended = match &*found {
            Object::Sender(sender) => sender.test(request)?,
            Object::Receiver(receiver) => receiver.test(request)?,
            _ => return Err(other_kind()),
        };
        if let Some(ended) = ended {
            // SAFETY: the pointer is null, or refers to an element for every part of the request.
            unsafe { write_sizes(&ended, sizes) };
            *to = 1;
        }
        Ok(())
    })
}

unsafe fn write_sizes(ended: &Sizes, sizes: *mut c_int) {
    if sizes.is_null() {
        return;
    }
    for (at, bytes) in ended.parts().iter().enumerate() {
        let bytes = c_int::try_from(*bytes).unwrap_or(c_int::MAX);
        // SAFETY: NCCL's array has an element for every part.
        unsafe { sizes.add(at).write(bytes) };
    }
}
