//! libfabric's types and functions for address vectors (`rdma/fi_domain.h`).

use std::ffi::{c_char, c_int, c_void};

use super::fid::{fi_addr_t, fid};

layout! {
    /// Requested attributes of an address vector.
    struct fi_av_attr: 48 {
        r#type @ 0: c_int,
        rx_ctx_bits @ 4: c_int,
        count @ 8: usize,
        ep_per_node @ 16: usize,
        name @ 24: *const c_char,
        map_addr @ 32: *mut c_void,
        flags @ 40: u64,
    }
}

layout! {
    /// An open address vector.
    struct fid_av: 32 {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_av,
    }
}

ops! {
    /// Operations of an address vector, up to release 1.17.
    struct fi_ops_av: 64 {
        insert @ 8: fn(
            av: *mut fid_av, addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t,
            flags: u64, context: *mut c_void,
        ) -> c_int,
        insertsvc @ 16: fn(
            av: *mut fid_av, node: *const c_char, service: *const c_char,
            fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void,
        ) -> c_int,
        insertsym @ 24: fn(
            av: *mut fid_av, node: *const c_char, nodecnt: usize, service: *const c_char,
            svccnt: usize, fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void,
        ) -> c_int,
        remove @ 32: fn(
            av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64,
        ) -> c_int,
        lookup @ 40: fn(
            av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize,
        ) -> c_int,
        straddr @ 48: fn(
            av: *mut fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize,
        ) -> *const c_char,
        av_set @ 56: fn(
            av: *mut fid_av, attr: *mut c_void, av_set: *mut *mut c_void, context: *mut c_void,
        ) -> c_int,
    }
}
