//! libfabric's table of functions for messages (`rdma/fi_endpoint.h`).

use std::ffi::c_void;

use super::fid_ep;
use crate::abi::fid::{fi_addr_t, iovec};

layout! {
    /// A message.
    struct fi_msg: 48 {
        msg_iov @ 0: *const iovec,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
        addr @ 24: fi_addr_t,
        context @ 32: *mut c_void,
        data @ 40: u64,
    }
}

ops! {
    /// Calls of an endpoint that send and receive messages without tags.
    struct fi_ops_msg: 80 {
        recv @ 8: fn(
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void,
            src_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        recvv @ 16: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            src_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        recvmsg @ 24: fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
        send @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        sendv @ 40: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        sendmsg @ 48: fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
        inject @ 56: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t,
        ) -> isize,
        senddata @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        injectdata @ 72: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
        ) -> isize,
    }
}
