//! Functions of `srd.h` for shared memory, reads, writes and atomic operations.

use std::ffi::{c_int, c_void};

use srd_efa::layer::AtomicOp;
use srd_host::Span;

use super::{SrdEndpoint, on, out, piece};
use crate::Error;
use crate::transfer::{Compute, Copying, RemoteLocation};

/// Implements `srd_share`: shares memory with peers.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_share(
    endpoint: *mut SrdEndpoint,
    buf: *mut c_void,
    len: usize,
    access: u32,
    key: *mut u64,
) -> c_int {
    on(endpoint, |endpoint| {
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        let to = unsafe { out("key", key) }?;
        piece(buf, len)?;
        let span = Span { addr: buf.expose_provenance(), length: len };
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        *to = unsafe { endpoint.share(span, access) }?;
        Ok(0)
    })
}

/// Implements `srd_unshare`: ends the sharing of memory.
#[unsafe(no_mangle)]
pub extern "C" fn srd_unshare(endpoint: *mut SrdEndpoint, key: u64) -> c_int {
    on(endpoint, |endpoint| endpoint.unshare(key).map(|()| 0))
}

/// Implements `srd_read`: reads a peer's memory.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_read(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    buf: *mut c_void,
    len: usize,
    key: u64,
    offset: u64,
    flags: u32,
    context: *mut c_void,
) -> c_int {
    let place = RemoteLocation { peer, key, offset };
    // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
    unsafe { copy(endpoint, place, (buf, len), true, None, (flags, context)) }
}

/// Implements `srd_write`: writes a peer's memory.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_write(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    buf: *const c_void,
    len: usize,
    key: u64,
    offset: u64,
    flags: u32,
    context: *mut c_void,
) -> c_int {
    let place = RemoteLocation { peer, key, offset };
    // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
    unsafe { copy(endpoint, place, (buf, len), false, None, (flags, context)) }
}

/// Implements `srd_write_notify`: writes a peer's memory, and causes an event at the peer.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_write_notify(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    buf: *const c_void,
    len: usize,
    key: u64,
    offset: u64,
    data: u64,
    flags: u32,
    context: *mut c_void,
) -> c_int {
    let place = RemoteLocation { peer, key, offset };
    // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
    unsafe { copy(endpoint, place, (buf, len), false, Some(data), (flags, context)) }
}

unsafe fn copy(
    endpoint: *mut SrdEndpoint,
    place: RemoteLocation,
    (buf, len): (*const c_void, usize),
    read: bool,
    data: Option<u64>,
    (flags, context): (u32, *mut c_void),
) -> c_int {
    on(endpoint, |endpoint| {
        let (piece, context) = (piece(buf, len)?, context.addr());
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        unsafe { endpoint.copy(&Copying { place, piece, read, data, flags, context }) }?;
        Ok(0)
    })
}

/// Implements `srd_fetch_add`: adds to a number at a peer.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_fetch_add(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    key: u64,
    offset: u64,
    add: u64,
    result: *mut u64,
    context: *mut c_void,
) -> c_int {
    let compute = Compute {
        place: RemoteLocation { peer, key, offset },
        op: AtomicOp::Sum,
        operand: (&raw const add).expose_provenance(),
        compare: None,
        result: (!result.is_null()).then(|| result.expose_provenance()),
        context: context.addr(),
    };
    // SAFETY: the C program guarantees valid pointers: see the page of `entry`. Operands are copied
    // within the call.
    on(endpoint, |endpoint| unsafe { endpoint.compute(&compute) }.map(|()| 0))
}

/// Implements `srd_compare_swap`: compares and replaces a number at a peer.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_compare_swap(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    key: u64,
    offset: u64,
    expected: u64,
    desired: u64,
    result: *mut u64,
    context: *mut c_void,
) -> c_int {
    let compute = Compute {
        place: RemoteLocation { peer, key, offset },
        op: AtomicOp::Cswap,
        operand: (&raw const desired).expose_provenance(),
        compare: Some((&raw const expected).expose_provenance()),
        result: Some(result.expose_provenance()),
        context: context.addr(),
    };
    on(endpoint, |endpoint| {
        if result.is_null() {
            return Err(Error::invalid("result: it is null, and nobody could tell what happened"));
        }
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`. Operands are
        // copied within the call.
        unsafe { endpoint.compute(&compute) }.map(|()| 0)
    })
}
