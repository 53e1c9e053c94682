//! Functions of `srd.h` for messages.

use std::ffi::{c_int, c_void};

use super::{SrdEndpoint, on, out, piece};
use crate::transfer::{Recv, Send};

/// Implements `srd_send`: sends a message.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_send(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    tag: u64,
    buf: *const c_void,
    len: usize,
    flags: u32,
    context: *mut c_void,
) -> c_int {
    on(endpoint, |endpoint| {
        let (piece, context) = (piece(buf, len)?, context.addr());
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        unsafe { endpoint.send(&Send { peer, tag, piece, flags, context }) }?;
        Ok(0)
    })
}

/// Implements `srd_recv`: posts a receive for a message.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_recv(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    tag: u64,
    ignore: u64,
    buf: *mut c_void,
    len: usize,
    context: *mut c_void,
) -> c_int {
    on(endpoint, |endpoint| {
        let (piece, context) = (piece(buf, len)?, context.addr());
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        unsafe { endpoint.recv(&Recv { peer, tag, ignore, piece, context }) }?;
        Ok(0)
    })
}

/// Implements `srd_cancel`: cancels a posted receive.
#[unsafe(no_mangle)]
pub extern "C" fn srd_cancel(endpoint: *mut SrdEndpoint, context: *mut c_void) -> c_int {
    on(endpoint, |endpoint| endpoint.cancel(context.addr()).map(|()| 0))
}

/// Implements `srd_inject_bytes_max`: returns the largest message that can be injected.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_inject_bytes_max(
    endpoint: *mut SrdEndpoint,
    bytes: *mut usize,
) -> c_int {
    on(endpoint, |endpoint| {
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        let to = unsafe { out("bytes", bytes) }?;
        *to = usize::try_from(endpoint.inject_bytes_max()?).unwrap_or(usize::MAX);
        Ok(0)
    })
}
