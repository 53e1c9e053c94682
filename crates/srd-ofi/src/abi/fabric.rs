//! libfabric's types and functions for fabrics (`rdma/fabric.h`).

use std::ffi::{c_int, c_void};

use super::domain::fid_domain;
use super::eq::{fi_eq_attr, fid_eq};
use super::fid::fid;
use super::info::fi_info;

layout! {
    /// An open fabric.
    struct fid_fabric: 40 {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_fabric,
        api_version @ 32: u32,
    }
}

ops! {
    /// Operations of a fabric.
    struct fi_ops_fabric: 56 {
        domain @ 8: fn(
            fabric: *mut fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain,
            context: *mut c_void,
        ) -> c_int,
        passive_ep @ 16: fn(
            fabric: *mut fid_fabric, info: *mut fi_info, pep: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
        eq_open @ 24: fn(
            fabric: *mut fid_fabric, attr: *mut fi_eq_attr, eq: *mut *mut fid_eq,
            context: *mut c_void,
        ) -> c_int,
        wait_open @ 32: fn(
            fabric: *mut fid_fabric, attr: *mut c_void, waitset: *mut *mut c_void,
        ) -> c_int,
        trywait @ 40: fn(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int,
        domain2 @ 48: fn(
            fabric: *mut fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain,
            flags: u64, context: *mut c_void,
        ) -> c_int,
    }
}
