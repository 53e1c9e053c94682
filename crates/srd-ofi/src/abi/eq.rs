//! libfabric's types and functions for event queues (`rdma/fi_eq.h`).

use std::ffi::{c_char, c_int, c_void};

use super::fid::fid;

layout! {
    /// Requested attributes of an event queue.
    struct fi_eq_attr: 32 {
        size @ 0: usize,
        flags @ 8: u64,
        wait_obj @ 16: c_int,
        signaling_vector @ 20: c_int,
        wait_set @ 24: *mut c_void,
    }
}

layout! {
    /// A failed asynchronous call.
    struct fi_eq_err_entry: 48 {
        fid @ 0: *mut fid,
        context @ 8: *mut c_void,
        data @ 16: u64,
        err @ 24: c_int,
        prov_errno @ 28: c_int,
        err_data @ 32: *mut c_void,
        err_data_size @ 40: usize,
    }
}

layout! {
    /// An open event queue.
    struct fid_eq: 32 {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_eq,
    }
}

ops! {
    /// Operations of an event queue.
    struct fi_ops_eq: 48 {
        read @ 8: fn(
            eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64,
        ) -> isize,
        readerr @ 16: fn(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize,
        write @ 24: fn(
            eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, flags: u64,
        ) -> isize,
        sread @ 32: fn(
            eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, timeout: c_int,
            flags: u64,
        ) -> isize,
        strerror @ 40: fn(
            eq: *mut fid_eq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    }
}
