//! Common parts of the calls that move messages, with a tag or without.

use std::ffi::c_void;

use super::{at, buffer, sent};
use crate::Outcome;
use crate::abi::bits::FI_REMOTE_CQ_DATA;
use crate::abi::endpoint::fid_ep;
use crate::abi::fid::{fi_addr_t, iovec};
use crate::objects::endpoint::Endpoint;
use crate::objects::transfer::{Buffer, Recv, Send, TransferFlags};

/// A message as `fi_msg` and `fi_msg_tagged` describe it.
#[derive(Clone, Copy)]
pub(super) struct Described {
    /// Pieces of the message.
    pub(super) iov: *const iovec,
    /// Number of pieces of the message.
    pub(super) count: usize,
    /// Number of the receiver or of the requested sender in the address vector.
    pub(super) addr: fi_addr_t,
    /// The application's context of the operation.
    pub(super) context: *mut c_void,
    /// Data for the receiver's completion.
    pub(super) data: u64,
}

unsafe fn endpoint<'a>(ep: *mut fid_ep) -> &'a Endpoint {
    // SAFETY: the endpoint is open.
    unsafe { super::state::<Endpoint>(ep) }
}

/// Sends a message with the endpoint's default flags.
pub(super) unsafe fn simple(
    ep: *mut fid_ep,
    buffer: Outcome<Buffer>,
    data: Option<u64>,
    to: fi_addr_t,
    tag: Option<u64>,
    context: *mut c_void,
) -> isize {
    sent(buffer.and_then(|buffer| {
        // SAFETY: the application does not touch the buffer until the operation completes.
        unsafe {
            let endpoint = endpoint(ep);
            let send = Send { to, tag, buffer, data, context: at(context) };
            endpoint.send(&send, TransferFlags::flags(endpoint.tx_flags()))
        }
    }))
}

/// Sends a message from a buffer that the application may reuse at once.
pub(super) unsafe fn injected(
    ep: *mut fid_ep,
    buffer: Buffer,
    data: Option<u64>,
    to: fi_addr_t,
    tag: Option<u64>,
) -> isize {
    // SAFETY: the buffer is readable during the call.
    unsafe {
        let endpoint = endpoint(ep);
        let send = Send { to, tag, buffer, data, context: 0 };
        sent(endpoint.send(&send, TransferFlags::inject(endpoint.tx_flags())))
    }
}

/// Sends the message that a descriptor describes.
pub(super) unsafe fn send_described(
    ep: *mut fid_ep,
    message: &Described,
    tag: Option<u64>,
    flags: u64,
) -> isize {
    // SAFETY: there are as many pieces as the message declares.
    let buffer = unsafe { buffer(message.iov, message.count) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data);
    sent(buffer.and_then(|buffer| {
        let send = Send { to: message.addr, tag, buffer, data, context: at(message.context) };
        // SAFETY: the application does not touch the buffer until the operation completes.
        unsafe { endpoint(ep).send(&send, TransferFlags::flags(flags)) }
    }))
}

/// Posts a receive with the endpoint's default flags.
pub(super) unsafe fn received(
    ep: *mut fid_ep,
    buffer: Outcome<Buffer>,
    from: fi_addr_t,
    tag: Option<(u64, u64)>,
    context: *mut c_void,
) -> isize {
    sent(buffer.and_then(|buffer| {
        // SAFETY: the application does not touch the buffer until the operation completes.
        unsafe {
            let endpoint = endpoint(ep);
            let recv = Recv { from, tag, buffer, context: at(context) };
            endpoint.recv(&recv, endpoint.rx_flags())
        }
    }))
}

/// Posts the receive that a descriptor describes.
pub(super) unsafe fn receive_described(
    ep: *mut fid_ep,
    message: &Described,
    tag: Option<(u64, u64)>,
    flags: u64,
) -> isize {
    // SAFETY: there are as many pieces as the message declares.
    let buffer = unsafe { buffer(message.iov, message.count) };
    sent(buffer.and_then(|buffer| {
        let recv = Recv { from: message.addr, tag, buffer, context: at(message.context) };
        // SAFETY: the application does not touch the buffer until the operation completes.
        unsafe { endpoint(ep).recv(&recv, flags) }
    }))
}
