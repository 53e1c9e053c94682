//! libfabric's types and functions for counters (`rdma/fi_eq.h`).

use std::ffi::{c_int, c_void};

use super::fid::fid;

layout! {
    /// Requested attributes of a counter.
    struct fi_cntr_attr: 24 {
        events @ 0: c_int,
        wait_obj @ 4: c_int,
        wait_set @ 8: *mut c_void,
        flags @ 16: u64,
    }
}

layout! {
    /// An open counter.
    struct fid_cntr: 32 {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_cntr,
    }
}

ops! {
    /// Operations of a counter.
    struct fi_ops_cntr: 64 {
        read @ 8: fn(cntr: *mut fid_cntr) -> u64,
        readerr @ 16: fn(cntr: *mut fid_cntr) -> u64,
        add @ 24: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
        set @ 32: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
        wait @ 40: fn(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int,
        adderr @ 48: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
        seterr @ 56: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
    }
}
