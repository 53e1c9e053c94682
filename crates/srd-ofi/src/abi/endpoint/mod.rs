//! Endpoints, their options and names (`rdma/fi_endpoint.h`, `rdma/fi_cm.h`), and the tables of
//! calls that move data: an endpoint points to each table, and each call takes an endpoint.

pub mod atomic;
pub mod collective;
pub mod msg;
pub mod rma;
pub mod tagged;

use std::ffi::{c_int, c_void};

use super::fid::fid;
use super::info::{fi_rx_attr, fi_tx_attr};
use atomic::fi_ops_atomic;
use collective::fi_ops_collective;
use msg::fi_ops_msg;
use rma::fi_ops_rma;
use tagged::fi_ops_tagged;

layout! {
    /// An open endpoint.
    struct fid_ep: 80 {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_ep,
        cm @ 32: *mut fi_ops_cm,
        msg @ 40: *mut fi_ops_msg,
        rma @ 48: *mut fi_ops_rma,
        tagged @ 56: *mut fi_ops_tagged,
        atomic @ 64: *mut fi_ops_atomic,
        collective @ 72: *mut fi_ops_collective,
    }
}

ops! {
    /// Calls for options and contexts of an endpoint.
    struct fi_ops_ep: 64 {
        cancel @ 8: fn(fid: *mut fid, context: *mut c_void) -> isize,
        getopt @ 16: fn(
            fid: *mut fid, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize,
        ) -> c_int,
        setopt @ 24: fn(
            fid: *mut fid, level: c_int, optname: c_int, optval: *const c_void, optlen: usize,
        ) -> c_int,
        tx_ctx @ 32: fn(
            sep: *mut fid_ep, index: c_int, attr: *mut fi_tx_attr, tx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        rx_ctx @ 40: fn(
            sep: *mut fid_ep, index: c_int, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        rx_size_left @ 48: fn(ep: *mut fid_ep) -> isize,
        tx_size_left @ 56: fn(ep: *mut fid_ep) -> isize,
    }
}

ops! {
    /// Calls for names and connections of an endpoint.
    struct fi_ops_cm: 80 {
        setname @ 8: fn(fid: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int,
        getname @ 16: fn(fid: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        getpeer @ 24: fn(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        connect @ 32: fn(
            ep: *mut fid_ep, addr: *const c_void, param: *const c_void, paramlen: usize,
        ) -> c_int,
        listen @ 40: fn(pep: *mut c_void) -> c_int,
        accept @ 48: fn(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int,
        reject @ 56: fn(
            pep: *mut c_void, handle: *mut fid, param: *const c_void, paramlen: usize,
        ) -> c_int,
        shutdown @ 64: fn(ep: *mut fid_ep, flags: u64) -> c_int,
        join @ 72: fn(
            ep: *mut fid_ep, addr: *const c_void, flags: u64, mc: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    }
}

/// Option level of the options of endpoints.
pub const FI_OPT_ENDPOINT: c_int = 0;
/// Option: free bytes that a multi-message buffer must have to stay in use.
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
