//! libfabric's types and functions for domains and memory regions (`rdma/fi_domain.h`).

use std::ffi::{c_int, c_void};

use super::av::{fi_av_attr, fid_av};
use super::cntr::{fi_cntr_attr, fid_cntr};
use super::cq::{fi_cq_attr, fid_cq};
use super::endpoint::fid_ep;
use super::fid::{fid, iovec};
use super::info::{fi_info, fi_rx_attr, fi_tx_attr};

layout! {
    /// An open domain.
    struct fid_domain: 40 {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_domain,
        mr @ 32: *mut fi_ops_mr,
    }
}

ops! {
    /// Operations of a domain.
    struct fi_ops_domain: 96 {
        av_open @ 8: fn(
            domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av,
            context: *mut c_void,
        ) -> c_int,
        cq_open @ 16: fn(
            domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq,
            context: *mut c_void,
        ) -> c_int,
        endpoint @ 24: fn(
            domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        scalable_ep @ 32: fn(
            domain: *mut fid_domain, info: *mut fi_info, sep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        cntr_open @ 40: fn(
            domain: *mut fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr,
            context: *mut c_void,
        ) -> c_int,
        poll_open @ 48: fn(
            domain: *mut fid_domain, attr: *mut c_void, pollset: *mut *mut c_void,
        ) -> c_int,
        stx_ctx @ 56: fn(
            domain: *mut fid_domain, attr: *mut fi_tx_attr, stx: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
        srx_ctx @ 64: fn(
            domain: *mut fid_domain, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        query_atomic @ 72: fn(
            domain: *mut fid_domain, datatype: c_int, op: c_int, attr: *mut c_void, flags: u64,
        ) -> c_int,
        query_collective @ 80: fn(
            domain: *mut fid_domain, coll: c_int, attr: *mut c_void, flags: u64,
        ) -> c_int,
        endpoint2 @ 88: fn(
            domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, flags: u64,
            context: *mut c_void,
        ) -> c_int,
    }
}

layout! {
    /// A memory region, with only the fields that all releases share.
    struct fi_mr_attr: 80 {
        mr_iov @ 0: *const iovec,
        iov_count @ 8: usize,
        access @ 16: u64,
        offset @ 24: u64,
        requested_key @ 32: u64,
        context @ 40: *mut c_void,
        auth_key_size @ 48: usize,
        auth_key @ 56: *mut u8,
        iface @ 64: c_int,
        device @ 72: u64,
    }
}

ops! {
    /// Operations that register memory.
    struct fi_ops_mr: 32 {
        reg @ 8: fn(
            fid: *mut fid, buf: *const c_void, len: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int,
        regv @ 16: fn(
            fid: *mut fid, iov: *const iovec, count: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int,
        regattr @ 24: fn(
            fid: *mut fid, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr,
        ) -> c_int,
    }
}

layout! {
    /// A registered memory region.
    struct fid_mr: 40 {
        fid @ 0: fid,
        mem_desc @ 24: *mut c_void,
        key @ 32: u64,
    }
}
