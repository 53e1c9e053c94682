//! Collective operations, which are not offered: a table of refusals (`rdma/fi_collective.h`).

use std::ffi::{c_int, c_void};

use super::atomic::fi_ioc;
use super::fid_ep;
use crate::abi::fid::fi_addr_t;

ops! {
    /// Calls of an endpoint that execute collective operations.
    struct fi_ops_collective: 96 {
        barrier @ 8: fn(ep: *mut fid_ep, coll_addr: fi_addr_t, context: *mut c_void) -> isize,
        broadcast @ 16: fn(
            ep: *mut fid_ep, buf: *mut c_void, count: usize, desc: *mut c_void,
            coll_addr: fi_addr_t, root_addr: fi_addr_t, datatype: c_int, flags: u64,
            context: *mut c_void,
        ) -> isize,
        alltoall @ 24: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t, datatype: c_int,
            flags: u64, context: *mut c_void,
        ) -> isize,
        allreduce @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t, datatype: c_int,
            op: c_int, flags: u64, context: *mut c_void,
        ) -> isize,
        allgather @ 40: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t, datatype: c_int,
            flags: u64, context: *mut c_void,
        ) -> isize,
        reduce_scatter @ 48: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t, datatype: c_int,
            op: c_int, flags: u64, context: *mut c_void,
        ) -> isize,
        reduce @ 56: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            root_addr: fi_addr_t, datatype: c_int, op: c_int, flags: u64, context: *mut c_void,
        ) -> isize,
        scatter @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            root_addr: fi_addr_t, datatype: c_int, flags: u64, context: *mut c_void,
        ) -> isize,
        gather @ 72: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            root_addr: fi_addr_t, datatype: c_int, flags: u64, context: *mut c_void,
        ) -> isize,
        msg @ 80: fn(
            ep: *mut fid_ep, msg: *const c_void, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize,
        barrier2 @ 88: fn(
            ep: *mut fid_ep, coll_addr: fi_addr_t, flags: u64, context: *mut c_void,
        ) -> isize,
    }
}
