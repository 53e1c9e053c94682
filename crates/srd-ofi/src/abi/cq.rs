//! libfabric's types and functions for completion queues (`rdma/fi_eq.h`).

use std::ffi::{c_char, c_int, c_void};

use super::fid::{fi_addr_t, fid};

layout! {
    /// Requested attributes of a completion queue.
    struct fi_cq_attr: 40 {
        size @ 0: usize,
        flags @ 8: u64,
        format @ 16: c_int,
        wait_obj @ 20: c_int,
        signaling_vector @ 24: c_int,
        wait_cond @ 28: c_int,
        wait_set @ 32: *mut c_void,
    }
}

layout! {
    /// An open completion queue.
    struct fid_cq: 32 {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_cq,
    }
}

ops! {
    /// Operations of a completion queue.
    struct fi_ops_cq: 64 {
        read @ 8: fn(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize,
        readfrom @ 16: fn(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
        ) -> isize,
        readerr @ 24: fn(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize,
        sread @ 32: fn(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int,
        ) -> isize,
        sreadfrom @ 40: fn(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
            cond: *const c_void, timeout: c_int,
        ) -> isize,
        signal @ 48: fn(cq: *mut fid_cq) -> c_int,
        strerror @ 56: fn(
            cq: *mut fid_cq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    }
}

layout! {
    /// A completion. The shorter formats are its first 8, 24 and 40 bytes.
    struct fi_cq_tagged_entry: 48 {
        op_context @ 0: *mut c_void,
        flags @ 8: u64,
        len @ 16: usize,
        buf @ 24: *mut c_void,
        data @ 32: u64,
        tag @ 40: u64,
    }
}

layout! {
    /// A failed operation, with only the fields that all releases share.
    struct fi_cq_err_entry: 80 {
        op_context @ 0: *mut c_void,
        flags @ 8: u64,
        len @ 16: usize,
        buf @ 24: *mut c_void,
        data @ 32: u64,
        tag @ 40: u64,
        olen @ 48: usize,
        err @ 56: c_int,
        prov_errno @ 60: c_int,
        err_data @ 64: *mut c_void,
        err_data_size @ 72: usize,
    }
}

/// Formats of a completion queue's entries.
pub const FI_CQ_FORMAT_UNSPEC: c_int = 0;
pub const FI_CQ_FORMAT_CONTEXT: c_int = 1;
pub const FI_CQ_FORMAT_MSG: c_int = 2;
pub const FI_CQ_FORMAT_DATA: c_int = 3;
pub const FI_CQ_FORMAT_TAGGED: c_int = 4;

/// Kinds of wait objects.
pub const FI_WAIT_NONE: c_int = 0;
pub const FI_WAIT_UNSPEC: c_int = 1;
pub const FI_WAIT_FD: c_int = 3;
