//! Calls that move messages with a tag.

use std::ffi::c_void;

use super::message::{Described, injected, receive_described, received, send_described, simple};
use super::{at, buffer};
use crate::abi::endpoint::fid_ep;
use crate::abi::endpoint::tagged::{fi_msg_tagged, fi_ops_tagged};
use crate::abi::errno::FI_EINVAL;
use crate::abi::fid::{fi_addr_t, iovec};
use crate::objects::transfer::Buffer;

/// Operations of an endpoint on messages with a tag.
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

fn described(msg: &fi_msg_tagged) -> Described {
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
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { received(ep, Ok(Buffer::one(at(buf), len)), from, Some((tag, ignore)), context) }
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
    // SAFETY: `count` pieces are there; the rest meets the requirements of the called function.
    unsafe { received(ep, buffer(iov, count), from, Some((tag, ignore)), context) }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the application passes a message, or null.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return -(FI_EINVAL as isize) };
    // SAFETY: the message has as many pieces as it declares.
    unsafe { receive_described(ep, &described(msg), Some((msg.tag, msg.ignore)), flags) }
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
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), None, to, Some(tag), context) }
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
    // SAFETY: `count` pieces are there; the rest meets the requirements of the called function.
    unsafe { simple(ep, buffer(iov, count), None, to, Some(tag), context) }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the application passes a message, or null.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return -(FI_EINVAL as isize) };
    // SAFETY: the message has as many pieces as it declares.
    unsafe { send_described(ep, &described(msg), Some(msg.tag), flags) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { injected(ep, Buffer::one(at(buf), len), None, to, Some(tag)) }
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
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { simple(ep, Ok(Buffer::one(at(buf), len)), Some(data), to, Some(tag), context) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: the caller meets the requirements of the called function.
    unsafe { injected(ep, Buffer::one(at(buf), len), Some(data), to, Some(tag)) }
}
