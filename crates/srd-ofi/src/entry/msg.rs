//! Calls that move messages without a tag.

use std::ffi::c_void;

use super::{at, buffer, sent};
use crate::abi::bits::FI_REMOTE_CQ_DATA;
use crate::abi::endpoint::fid_ep;
use crate::abi::errno::FI_EINVAL;
use crate::abi::fid::{fi_addr_t, iovec};
use crate::abi::msg::{fi_msg, fi_ops_msg};
use crate::endpoint::Endpoint;
use crate::transfer::{Buffer, Manner, Recv, Send};
use crate::{Errno, Outcome};

/// What an endpoint does with messages without a tag.
pub(super) static OPS: fi_ops_msg = fi_ops_msg {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..fi_ops_msg::REFUSING
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
    context: *mut c_void,
) -> isize {
    sent(buffer.and_then(|buffer| {
        // SAFETY: the application leaves the buffer alone until it hears of the end.
        unsafe {
            let endpoint = endpoint(ep);
            let send = Send { to, tag: None, buffer, data, context: at(context) };
            endpoint.send(&send, Manner::flags(endpoint.tx_flags()))
        }
    }))
}

/// A send whose buffer is free at once.
unsafe fn injected(ep: *mut fid_ep, buffer: Buffer, data: Option<u64>, to: fi_addr_t) -> isize {
    // SAFETY: the buffer is readable during the call.
    unsafe {
        let endpoint = endpoint(ep);
        let send = Send { to, tag: None, buffer, data, context: 0 };
        sent(endpoint.send(&send, Manner::inject(endpoint.tx_flags())))
    }
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { received(ep, Ok(Buffer::one(at(buf), len)), from, context) }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: there are so many pieces; the rest is as that function wants it.
    unsafe { received(ep, buffer(iov, count), from, context) }
}

unsafe fn received(
    ep: *mut fid_ep,
    buffer: Outcome<Buffer>,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    sent(buffer.and_then(|buffer| {
        // SAFETY: the application leaves the buffer alone until it hears of the end.
        unsafe {
            let endpoint = endpoint(ep);
            let recv = Recv { from, tag: None, buffer, context: at(context) };
            endpoint.recv(&recv, endpoint.rx_flags())
        }
    }))
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    let recv = || -> Outcome {
        // SAFETY: the application passes a message, with as many pieces as it says, and leaves
        // them alone until it hears of the end.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno(FI_EINVAL))?;
            let buffer = buffer(msg.msg_iov, msg.iov_count)?;
            let tag = None;
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
    context: *mut c_void,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), None, to, context) }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: there are so many pieces; the rest is as that function wants it.
    unsafe { simple(ep, buffer(iov, count), None, to, context) }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    let send = || -> Outcome {
        // SAFETY: the application passes a message, with as many pieces as it says, and leaves
        // them alone until it hears of the end.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno(FI_EINVAL))?;
            let buffer = buffer(msg.msg_iov, msg.iov_count)?;
            let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
            let tag = None;
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
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { injected(ep, Buffer::one(at(buf), len), None, to) }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), Some(data), to, context) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
) -> isize {
    // SAFETY: as that function wants it.
    unsafe { injected(ep, Buffer::one(at(buf), len), Some(data), to) }
}
