//! Calls that move messages with a tag.

use std::ffi::c_void;

use super::{at, buffer, sent};
use crate::abi::bits::FI_REMOTE_CQ_DATA;
use crate::abi::endpoint::fid_ep;
use crate::abi::errno::FI_EINVAL;
use crate::abi::fid::{fi_addr_t, iovec};
use crate::abi::tagged::{fi_msg_tagged, fi_ops_tagged};
use crate::endpoint::Endpoint;
use crate::transfer::{Buffer, Manner, Recv, Send};
use crate::{Errno, Outcome};

/// What an endpoint does with messages with a tag.
pub(super) static OPS: fi_ops_tagged = fi_ops_tagged {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..fi_ops_tagged::REFUSING
};

unsafe fn endpoint<'a>(ep: *mut fid_ep) -> &'a Endpoint {
    // SAFETY: the endpoint is open.
    unsafe { super::state::<Endpoint>(ep) }
}

/// A send without data, with the endpoint's flags.
unsafe fn simple(
    ep: *mut fid_ep,
    buffer: Outcome<Buffer>,
    data: Option<u64>,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    sent(buffer.and_then(|buffer| {
        // SAFETY: the application leaves the buffer alone until it hears of the end.
        unsafe {
            let endpoint = endpoint(ep);
            let send = Send { to, tag: Some(tag), buffer, data, context: at(context) };
            endpoint.send(&send, Manner::flags(endpoint.tx_flags()))
        }
    }))
}

/// A send whose buffer is free at once.
unsafe fn injected(
    ep: *mut fid_ep,
    buffer: Buffer,
    data: Option<u64>,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: the buffer is readable during the call.
    unsafe {
        let endpoint = endpoint(ep);
        let send = Send { to, tag: Some(tag), buffer, data, context: 0 };
        sent(endpoint.send(&send, Manner::inject(endpoint.tx_flags())))
    }
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { received(ep, Ok(Buffer::one(at(buf), len)), from, tag, ignore, context) }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: there are so many pieces; the rest is as that function wants it.
    unsafe { received(ep, buffer(iov, count), from, tag, ignore, context) }
}

unsafe fn received(
    ep: *mut fid_ep,
    buffer: Outcome<Buffer>,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    sent(buffer.and_then(|buffer| {
        // SAFETY: the application leaves the buffer alone until it hears of the end.
        unsafe {
            let endpoint = endpoint(ep);
            let recv = Recv { from, tag: Some((tag, ignore)), buffer, context: at(context) };
            endpoint.recv(&recv, endpoint.rx_flags())
        }
    }))
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    let recv = || -> Outcome {
        // SAFETY: the application passes a message, with as many pieces as it says, and leaves
        // them alone until it hears of the end.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno(FI_EINVAL))?;
            let buffer = buffer(msg.msg_iov, msg.iov_count)?;
            let tag = Some((msg.tag, msg.ignore));
            let recv = Recv { from: msg.addr, tag, buffer, context: at(msg.context) };
            endpoint(ep).recv(&recv, flags)
        }
    };
    sent(recv())
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), None, to, tag, context) }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: there are so many pieces; the rest is as that function wants it.
    unsafe { simple(ep, buffer(iov, count), None, to, tag, context) }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    let send = || -> Outcome {
        // SAFETY: the application passes a message, with as many pieces as it says, and leaves
        // them alone until it hears of the end.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno(FI_EINVAL))?;
            let buffer = buffer(msg.msg_iov, msg.iov_count)?;
            let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
            let tag = Some(msg.tag);
            let send = Send { to: msg.addr, tag, buffer, data, context: at(msg.context) };
            endpoint(ep).send(&send, Manner::flags(flags))
        }
    };
    sent(send())
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { injected(ep, Buffer::one(at(buf), len), None, to, tag) }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), Some(data), to, tag, context) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { injected(ep, Buffer::one(at(buf), len), Some(data), to, tag) }
}
