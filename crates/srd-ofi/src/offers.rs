//! What there is: for each address of each interface, reliable datagram endpoints (`FI_EP_RDM`) of
//! the fabric `srd`: messages of any size, in order, with tags, remote memory and atomics.
//!
//! The machine's interfaces come in the kernel's order, loopback last. Loopback claims
//! `FI_REMOTE_COMM`, too: without it Open MPI takes no provider on a machine that has nothing
//! else. IPv6 link-local addresses are left out: they mean nothing on another link, and MPICH hangs
//! with them.

use srd_net::LocalAddress;

use crate::abi::bits::*;
use crate::abi::info::{fi_domain_attr, fi_ep_attr, fi_rx_attr, fi_tx_attr};
use crate::address::Address;
use crate::settings::Settings;

/// The fabric's name.
pub const FABRIC: &str = "srd";
/// Interfaces' addresses that are offered at most; a machine with more shows the first ones.
pub const ADDRESSES_MAX: usize = 256;
/// Objects of a kind in one domain.
pub const OBJECTS_MAX: usize = 1024;
/// Memory regions in one domain.
pub const REGIONS_MAX: usize = 1 << 20;
/// Operations that one endpoint has outstanding in each direction.
pub const OPERATIONS: usize = 1024;
/// Pieces of a scattered buffer.
pub const IOV_LIMIT: usize = 4;
/// Bytes of data that a completion carries from the sender.
pub const DATA_BYTES: usize = 8;
/// Bytes of an error's text.
pub const ERROR_TEXT_BYTES: usize = 256;
/// Bytes that an atomic operation may name, whatever the interface; an endpoint may take more.
pub const ATOMIC_BYTES: usize = 512;
/// What is kept of each packet for the headers of transport and messages, and the seal.
const HEADERS_BYTES: usize = 128;
/// The largest message of all: lengths travel in 64 bits, and differences of pointers are signed.
const MESSAGE_BYTES_MAX: usize = isize::MAX as usize;
/// What may be sent from a buffer that is used again at once, if a packet holds so much.
const INJECT_BYTES_MAX: usize = 4096;

/// The protocol of messages over SRD, version 1.
pub const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x5d00;

const RDM_CAPS: u64 = FI_MSG
    | FI_SEND
    | FI_RECV
    | FI_SOURCE
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_READ
    | FI_WRITE
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_DIRECTED_RECV
    | FI_RMA_EVENT;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;
/// Flags that operations of the sending half may have by themselves.
pub const TX_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;

/// One way to communicate: an `fi_info` without its pointers.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Capabilities.
    pub caps: u64,
    /// What the application must do.
    pub mode: u64,
    /// The sending half.
    pub tx: fi_tx_attr,
    /// The receiving half.
    pub rx: fi_rx_attr,
    /// The endpoint. Its pointers are null.
    pub ep: fi_ep_attr,
    /// The domain. Its pointers are null.
    pub domain: fi_domain_attr,
    /// The domain's name: the interface's.
    pub domain_name: String,
    /// The fabric's name.
    pub fabric_name: &'static str,
    /// Where the endpoint will be.
    pub source: Address,
    /// Whom the application wants to reach.
    pub destination: Option<Address>,
}

/// Every way to communicate over `addresses`. `packet_bytes` tells how much UDP payload an address
/// passes.
#[must_use]
pub fn offers(
    addresses: &[LocalAddress],
    settings: &Settings,
    packet_bytes: impl Fn(&LocalAddress) -> Option<u16>,
) -> Vec<Offer> {
    let wanted = |address: &&LocalAddress| {
        let ip = address.ip.to_string();
        let is_this = |name: &str| name == address.interface || name == ip;
        settings.interface.as_ref().is_none_or(|names| names.split(',').any(is_this))
    };
    let usable = addresses.iter().filter(|a| !is_link_local(a)).filter(wanted);
    let (mut usable, last): (Vec<_>, Vec<_>) = usable.partition(|address| !address.loopback);
    usable.extend(last);
    usable.truncate(ADDRESSES_MAX);
    let mut offers = Vec::new();
    for address in usable {
        let Some(bytes) = settings.packet_bytes_max.or_else(|| packet_bytes(address)) else {
            continue;
        };
        offers.push(offer(address, usize::from(bytes).saturating_sub(HEADERS_BYTES)));
    }
    offers
}

fn is_link_local(address: &LocalAddress) -> bool {
    matches!(address.ip, std::net::IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// One offer. `room` is what a packet has for a message.
fn offer(address: &LocalAddress, room: usize) -> Offer {
    let (caps, order) = (RDM_CAPS, ORDER);
    Offer {
        caps: caps | DOMAIN_CAPS,
        mode: 0,
        tx: fi_tx_attr {
            caps: caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE),
            mode: 0,
            op_flags: TX_FLAGS,
            msg_order: order,
            comp_order: 0,
            inject_size: room.min(INJECT_BYTES_MAX),
            size: OPERATIONS,
            iov_limit: IOV_LIMIT,
            rma_iov_limit: IOV_LIMIT,
            tclass: 0,
        },
        rx: fi_rx_attr {
            caps: caps & !(FI_SEND | FI_READ | FI_WRITE),
            mode: 0,
            op_flags: FI_COMPLETION | (caps & FI_MULTI_RECV),
            msg_order: order,
            comp_order: 0,
            total_buffered_recv: 0,
            size: OPERATIONS,
            iov_limit: IOV_LIMIT,
        },
        ep: endpoint(room),
        domain: domain(),
        domain_name: address.interface.clone(),
        fabric_name: FABRIC,
        source: Address { ip: address.ip, port: 0, incarnation: 0 },
        destination: None,
    }
}

fn endpoint(room: usize) -> fi_ep_attr {
    fi_ep_attr {
        r#type: FI_EP_RDM,
        protocol: PROTOCOL,
        protocol_version: 1,
        max_msg_size: MESSAGE_BYTES_MAX,
        msg_prefix_size: 0,
        // Atomics keep their order within one packet.
        max_order_raw_size: room,
        max_order_war_size: room,
        max_order_waw_size: room,
        mem_tag_format: u64::MAX,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: std::ptr::null_mut(),
    }
}

fn domain() -> fi_domain_attr {
    fi_domain_attr {
        domain: std::ptr::null_mut(),
        name: std::ptr::null_mut(),
        threading: FI_THREAD_SAFE,
        control_progress: FI_PROGRESS_AUTO,
        data_progress: FI_PROGRESS_AUTO,
        resource_mgmt: FI_RM_ENABLED,
        av_type: FI_AV_UNSPEC,
        // Software needs nothing registered, so both of the old models suit it.
        mr_mode: FI_MR_BASIC | FI_MR_SCALABLE,
        mr_key_size: size_of::<u64>(),
        cq_data_size: DATA_BYTES,
        cq_cnt: OBJECTS_MAX,
        ep_cnt: OBJECTS_MAX,
        tx_ctx_cnt: OBJECTS_MAX,
        rx_ctx_cnt: OBJECTS_MAX,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: OBJECTS_MAX,
        mr_iov_limit: IOV_LIMIT,
        caps: DOMAIN_CAPS,
        mode: 0,
        auth_key: std::ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: ERROR_TEXT_BYTES,
        mr_cnt: REGIONS_MAX,
        tclass: 0,
    }
}

#[cfg(test)]
#[path = "offers_tests.rs"]
mod tests;
