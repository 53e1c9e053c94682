//! libfabric's table of functions for atomic operations (`rdma/fi_atomic.h`).

use std::ffi::{c_int, c_void};

use super::fid_ep;
use crate::abi::fid::fi_addr_t;

layout! {
    /// A piece of local memory, counted in elements.
    struct fi_ioc: 16 {
        addr @ 0: *mut c_void,
        count @ 8: usize,
    }
}

layout! {
    /// A piece of remote memory, counted in elements.
    struct fi_rma_ioc: 24 {
        addr @ 0: u64,
        count @ 8: usize,
        key @ 16: u64,
    }
}

layout! {
    /// Number and size of the elements of an atomic operation.
    struct fi_atomic_attr: 16 {
        count @ 0: usize,
        size @ 8: usize,
    }
}

layout! {
    /// An atomic operation.
    struct fi_msg_atomic: 72 {
        msg_iov @ 0: *const fi_ioc,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
        addr @ 24: fi_addr_t,
        rma_iov @ 32: *const fi_rma_ioc,
        rma_iov_count @ 40: usize,
        datatype @ 48: c_int,
        op @ 52: c_int,
        context @ 56: *mut c_void,
        data @ 64: u64,
    }
}

ops! {
    /// Calls of an endpoint that execute atomic operations on remote memory.
    struct fi_ops_atomic: 112 {
        write @ 8: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: c_int, op: c_int,
            context: *mut c_void,
        ) -> isize,
        writev @ 16: fn(
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: c_int, op: c_int,
            context: *mut c_void,
        ) -> isize,
        writemsg @ 24: fn(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize,
        inject @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, dest_addr: fi_addr_t, addr: u64,
            key: u64, datatype: c_int, op: c_int,
        ) -> isize,
        readwrite @ 40: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64,
            key: u64, datatype: c_int, op: c_int, context: *mut c_void,
        ) -> isize,
        readwritev @ 48: fn(
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: c_int, op: c_int,
            context: *mut c_void,
        ) -> isize,
        readwritemsg @ 56: fn(
            ep: *mut fid_ep, msg: *const fi_msg_atomic, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize,
        compwrite @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: c_int,
            op: c_int, context: *mut c_void,
        ) -> isize,
        compwritev @ 72: fn(
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            comparev: *const fi_ioc, compare_desc: *mut *mut c_void, compare_count: usize,
            resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: c_int, op: c_int,
            context: *mut c_void,
        ) -> isize,
        compwritemsg @ 80: fn(
            ep: *mut fid_ep, msg: *const fi_msg_atomic, comparev: *const fi_ioc,
            compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize,
        writevalid @ 88: fn(
            ep: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize,
        ) -> c_int,
        readwritevalid @ 96: fn(
            ep: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize,
        ) -> c_int,
        compwritevalid @ 104: fn(
            ep: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize,
        ) -> c_int,
    }
}
