//! Calls that move messages without a tag.

use std::ffi::c_void;

use super::message::{Described, injected, receive_described, received, send_described, simple};
use super::{at, buffer};
use crate::abi::endpoint::fid_ep;
use crate::abi::endpoint::msg::{fi_msg, fi_ops_msg};
use crate::abi::errno::FI_EINVAL;
use crate::abi::fid::{fi_addr_t, iovec};
use crate::objects::transfer::Buffer;

/// Operations of an endpoint on messages without a tag.
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

fn described(msg: &fi_msg) -> Described {
    Described {
        iov: msg.msg_iov,
        count: msg.iov_count,
        addr: msg.addr,
        context: msg.context,
        data: msg.data,
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
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { received(ep, Ok(Buffer::one(at(buf), len)), from, None, context) }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: `count` pieces are there; the rest meets the requirements of the called function.
    unsafe { received(ep, buffer(iov, count), from, None, context) }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the application passes a message, or null.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return -(FI_EINVAL as isize) };
    // SAFETY: the message has as many pieces as it declares.
    unsafe { receive_described(ep, &described(msg), None, flags) }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), None, to, None, context) }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: `count` pieces are there; the rest meets the requirements of the called function.
    unsafe { simple(ep, buffer(iov, count), None, to, None, context) }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the application passes a message, or null.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return -(FI_EINVAL as isize) };
    // SAFETY: the message has as many pieces as it declares.
    unsafe { send_described(ep, &described(msg), None, flags) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { injected(ep, Buffer::one(at(buf), len), None, to, None) }
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
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), Some(data), to, None, context) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { injected(ep, Buffer::one(at(buf), len), Some(data), to, None) }
}
