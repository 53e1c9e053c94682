//! Symbols that NCCL looks up in the library: a table of functions for each version of the
//! interface.
//!
//! Null marks functions that the plugin does not support: memory of GPUs (`regMrDmaBuf`,
//! `getDeviceMr`, `irecvConsumed`), and merged devices (`makeVDevice`). NCCL does not call such
//! functions.

use super::{connection, network, transfer};
use crate::abi::{Calls, Net, NetV10, PropertiesV11, PropertiesV12};

/// Name of the plugin, by which `NCCL_NET` selects it.
const NAME: &[u8; 4] = b"SRD\0";

const CALLS: Calls = Calls {
    accept: Some(connection::accept),
    reg_mr: Some(transfer::reg_mr),
    reg_mr_dma_buf: None,
    dereg_mr: Some(transfer::dereg_mr),
    isend: Some(transfer::isend),
    irecv: Some(transfer::irecv),
    iflush: Some(transfer::iflush),
    test: Some(transfer::test),
    close_send: Some(connection::close_send),
    close_recv: Some(connection::close_recv),
    close_listen: Some(connection::close_listen),
    get_device_mr: None,
    irecv_consumed: None,
    make_v_device: None,
};

/// Table of version 12, for NCCL 2.30 and later.
#[allow(non_upper_case_globals, reason = "NCCL's name")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: Net<PropertiesV12> = Net {
    name: NAME,
    init: Some(network::init),
    devices: Some(network::devices),
    get_properties: Some(network::properties_v12),
    listen: Some(connection::listen),
    connect: Some(connection::connect),
    calls: CALLS,
    finalize: Some(network::finalize),
    set_net_attr: Some(network::set_net_attr),
};

/// Table of version 11, for NCCL 2.28 and 2.29.
#[allow(non_upper_case_globals, reason = "NCCL's name")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: Net<PropertiesV11> = Net {
    name: NAME,
    init: Some(network::init),
    devices: Some(network::devices),
    get_properties: Some(network::properties_v11),
    listen: Some(connection::listen),
    connect: Some(connection::connect),
    calls: CALLS,
    finalize: Some(network::finalize),
    set_net_attr: Some(network::set_net_attr),
};

/// Table of version 10, for NCCL 2.26 and 2.27.
#[allow(non_upper_case_globals, reason = "NCCL's name")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v10: NetV10 = NetV10 {
    name: NAME,
    init: Some(network::init_v10),
    devices: Some(network::devices),
    get_properties: Some(network::properties_v10),
    listen: Some(connection::listen_v10),
    connect: Some(connection::connect_v10),
    calls: CALLS,
};
