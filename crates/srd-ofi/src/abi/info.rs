//! Arguments and results of `fi_getinfo` (`rdma/fabric.h`).
//!
//! In C, some of these structures point to an open fabric or domain, whose type is defined in
//! another header. Here they point to a [`fid`], the head with which each object
//! begins. The provider does not use these pointers.

use std::ffi::{c_char, c_int, c_void};

use super::fid::fid;

layout! {
    /// Attributes of a fabric, and of the provider that offers it.
    struct fi_fabric_attr: 32 {
        fabric @ 0: *mut fid,
        name @ 8: *mut c_char,
        prov_name @ 16: *mut c_char,
        prov_version @ 24: u32,
        api_version @ 28: u32,
    }
}

layout! {
    /// Attributes of a domain, with only the fields that all releases share. Later releases append
    /// fields, so only libfabric's core allocates this structure.
    struct fi_domain_attr: 192 {
        domain @ 0: *mut fid,
        name @ 8: *mut c_char,
        threading @ 16: c_int,
        control_progress @ 20: c_int,
        data_progress @ 24: c_int,
        resource_mgmt @ 28: c_int,
        av_type @ 32: c_int,
        mr_mode @ 36: c_int,
        mr_key_size @ 40: usize,
        cq_data_size @ 48: usize,
        cq_cnt @ 56: usize,
        ep_cnt @ 64: usize,
        tx_ctx_cnt @ 72: usize,
        rx_ctx_cnt @ 80: usize,
        max_ep_tx_ctx @ 88: usize,
        max_ep_rx_ctx @ 96: usize,
        max_ep_stx_ctx @ 104: usize,
        max_ep_srx_ctx @ 112: usize,
        cntr_cnt @ 120: usize,
        mr_iov_limit @ 128: usize,
        caps @ 136: u64,
        mode @ 144: u64,
        auth_key @ 152: *mut u8,
        auth_key_size @ 160: usize,
        max_err_data @ 168: usize,
        mr_cnt @ 176: usize,
        tclass @ 184: u32,
    }
}

layout! {
    /// Attributes of an endpoint.
    struct fi_ep_attr: 96 {
        r#type @ 0: c_int,
        protocol @ 4: u32,
        protocol_version @ 8: u32,
        max_msg_size @ 16: usize,
        msg_prefix_size @ 24: usize,
        max_order_raw_size @ 32: usize,
        max_order_war_size @ 40: usize,
        max_order_waw_size @ 48: usize,
        mem_tag_format @ 56: u64,
        tx_ctx_cnt @ 64: usize,
        rx_ctx_cnt @ 72: usize,
        auth_key_size @ 80: usize,
        auth_key @ 88: *mut u8,
    }
}

layout! {
    /// Attributes of the sending half of an endpoint.
    struct fi_tx_attr: 80 {
        caps @ 0: u64,
        mode @ 8: u64,
        op_flags @ 16: u64,
        msg_order @ 24: u64,
        comp_order @ 32: u64,
        inject_size @ 40: usize,
        size @ 48: usize,
        iov_limit @ 56: usize,
        rma_iov_limit @ 64: usize,
        tclass @ 72: u32,
    }
}

layout! {
    /// Attributes of the receiving half of an endpoint.
    struct fi_rx_attr: 64 {
        caps @ 0: u64,
        mode @ 8: u64,
        op_flags @ 16: u64,
        msg_order @ 24: u64,
        comp_order @ 32: u64,
        total_buffered_recv @ 40: usize,
        size @ 48: usize,
        iov_limit @ 56: usize,
    }
}

layout! {
    /// An offer of a provider, or the hints of an application: a kind of endpoint on an interface.
    struct fi_info: 120 {
        next @ 0: *mut fi_info,
        caps @ 8: u64,
        mode @ 16: u64,
        addr_format @ 24: u32,
        src_addrlen @ 32: usize,
        dest_addrlen @ 40: usize,
        src_addr @ 48: *mut c_void,
        dest_addr @ 56: *mut c_void,
        handle @ 64: *mut fid,
        tx_attr @ 72: *mut fi_tx_attr,
        rx_attr @ 80: *mut fi_rx_attr,
        ep_attr @ 88: *mut fi_ep_attr,
        domain_attr @ 96: *mut fi_domain_attr,
        fabric_attr @ 104: *mut fi_fabric_attr,
        nic @ 112: *mut c_void,
    }
}
