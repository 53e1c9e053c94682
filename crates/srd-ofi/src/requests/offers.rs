//! The offers: each service ([`Service`]) at each address of each interface.
//!
//! The machine's interfaces come in the kernel's order, loopback last. Loopback has
//! `FI_REMOTE_COMM` as well: without it Open MPI finds no provider on a machine that has only
//! loopback. IPv6 link-local addresses are left out: they are not valid on another link, and MPICH
//! hangs with them.

use srd_net::LocalAddress;

use crate::abi::bits::*;
use crate::abi::info::{fi_domain_attr, fi_ep_attr, fi_rx_attr, fi_tx_attr};
use crate::requests::address::Address;
use crate::requests::order;
use crate::requests::service::Service;
use crate::settings::Settings;

/// Largest number of interface addresses that are offered; a machine with more addresses offers the
/// first addresses.
pub const ADDRESSES_MAX: usize = 256;
/// Largest number of objects of one kind in a domain.
pub const OBJECTS_MAX: usize = 1024;
/// Largest number of memory regions in a domain.
pub const REGIONS_MAX: usize = 1 << 20;
/// Default number of operations that an endpoint may have outstanding in each direction.
pub const OPERATIONS: usize = 1024;
/// Largest number of pieces of a scattered buffer; [`Service::Direct`] accepts two.
pub const IOV_LIMIT: usize = 4;
const VERBS_IOV_LIMIT: usize = srd_efa::SGES_MAX;
/// Bytes of immediate data that a completion carries from the sender; [`Service::Direct`] carries
/// fewer.
const DATA_BYTES: usize = 8;
const VERBS_DATA_BYTES: usize = 4;
/// Largest number of bytes of an error's text.
pub const ERROR_TEXT_BYTES: usize = 256;
/// Bytes of an atomic operation that every interface supports; an endpoint may support more.
pub const ATOMIC_BYTES: usize = 512;
/// Bytes of each packet that are reserved for the headers of transport and messages, and the
/// seal.
const HEADERS_BYTES: usize = 128;
/// Bytes of the largest message: lengths have 64 bits on the wire, and differences of pointers are
/// signed.
const MESSAGE_BYTES_MAX: usize = isize::MAX as usize;
/// Largest number of bytes of an inject, whose buffer may be used again at once. The limit of an
/// interface is lower if its packets carry fewer bytes.
const INJECT_BYTES_MAX: usize = 4096;

/// Number of the first service's protocol; the numbers of the other services follow.
const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x5d00;

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
const DATAGRAM_CAPS: u64 = FI_MSG | FI_SEND | FI_RECV | FI_SOURCE;
const DIRECT_CAPS: u64 =
    DATAGRAM_CAPS | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Flags that can be defaults of transmit operations.
pub const TX_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;

/// An offer, as an `fi_info` without its pointers: a service at a local address.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Service of the endpoints.
    pub service: Service,
    /// Capabilities that are offered, as bits.
    pub caps: u64,
    /// Modes that the application must support.
    pub mode: u64,
    /// Transmit attributes (`tx_attr`).
    pub tx: fi_tx_attr,
    /// Receive attributes (`rx_attr`).
    pub rx: fi_rx_attr,
    /// Attributes of the endpoint. Their pointers are null.
    pub ep: fi_ep_attr,
    /// Attributes of the domain. Their pointers are null.
    pub domain: fi_domain_attr,
    /// The domain's name, which is the interface's name.
    pub domain_name: String,
    /// Name of the fabric.
    pub fabric_name: &'static str,
    /// Largest number of bytes of a message in one packet.
    pub packet_bytes: usize,
    /// Local address of the endpoint.
    pub source: Address,
    /// Address of the peer that the application requests; `None` if it requests no peer.
    pub destination: Option<Address>,
}

/// Returns the offers of every service at `addresses`. `packet_bytes` returns the largest UDP
/// payload at an address.
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
    let room = |address: &LocalAddress| {
        let bytes = settings.packet_bytes_max.or_else(|| packet_bytes(address))?;
        Some(usize::from(bytes).saturating_sub(HEADERS_BYTES))
    };
    let usable: Vec<_> =
        usable.into_iter().filter_map(|address| Some((address, room(address)?))).collect();
    let of = |service| usable.iter().map(move |(address, room)| offer(service, address, *room));
    Service::ALL.into_iter().flat_map(of).collect()
}

fn is_link_local(address: &LocalAddress) -> bool {
    matches!(address.ip, std::net::IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Returns one offer. `room` is the number of bytes that a packet has for a message.
fn offer(service: Service, address: &LocalAddress, room: usize) -> Offer {
    let messages = service == Service::Messages;
    let caps = match service {
        Service::Messages => RDM_CAPS,
        Service::Datagrams => DATAGRAM_CAPS,
        Service::Direct => DIRECT_CAPS,
    };
    let order = if messages { order::ALWAYS | order::ON_DEMAND } else { 0 };
    let iov_limit = if messages { IOV_LIMIT } else { VERBS_IOV_LIMIT };
    // The modes that EFA's fabric of this kind requires of programs. This provider does not need
    // them, but a program that runs with it shall also run with EFA.
    let mode = if service == Service::Direct { FI_CONTEXT2 } else { 0 };
    Offer {
        service,
        caps: caps | DOMAIN_CAPS,
        mode,
        tx: fi_tx_attr {
            caps: caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE),
            mode,
            op_flags: TX_FLAGS,
            msg_order: order,
            comp_order: 0,
            inject_size: room.min(INJECT_BYTES_MAX),
            size: OPERATIONS,
            iov_limit,
            rma_iov_limit: match service {
                Service::Messages => IOV_LIMIT,
                Service::Datagrams => 0,
                Service::Direct => 1,
            },
            tclass: 0,
        },
        rx: fi_rx_attr {
            caps: caps & !(FI_SEND | FI_READ | FI_WRITE),
            mode,
            op_flags: FI_COMPLETION | (caps & FI_MULTI_RECV),
            msg_order: order,
            comp_order: 0,
            total_buffered_recv: 0,
            size: OPERATIONS,
            iov_limit,
        },
        ep: endpoint(service, room),
        domain: domain(service),
        domain_name: address.interface.clone(),
        fabric_name: service.fabric(),
        packet_bytes: room,
        source: Address { ip: address.ip, port: 0, incarnation: 0 },
        destination: None,
    }
}

fn endpoint(service: Service, room: usize) -> fi_ep_attr {
    let messages = service == Service::Messages;
    // The offered order holds for operations of any size.
    let max_order_size = if messages { MESSAGE_BYTES_MAX } else { 0 };
    fi_ep_attr {
        r#type: service.kind(),
        protocol: PROTOCOL + service as u32,
        protocol_version: 1,
        max_msg_size: match service {
            Service::Messages => MESSAGE_BYTES_MAX,
            Service::Datagrams => room,
            Service::Direct => srd_efa::RDMA_BYTES_MAX as usize,
        },
        msg_prefix_size: 0,
        max_order_raw_size: max_order_size,
        max_order_war_size: max_order_size,
        max_order_waw_size: max_order_size,
        mem_tag_format: if messages { u64::MAX } else { 0 },
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: std::ptr::null_mut(),
    }
}

fn domain(service: Service) -> fi_domain_attr {
    fi_domain_attr {
        domain: std::ptr::null_mut(),
        name: std::ptr::null_mut(),
        threading: FI_THREAD_SAFE,
        control_progress: FI_PROGRESS_AUTO,
        data_progress: FI_PROGRESS_AUTO,
        resource_mgmt: FI_RM_ENABLED,
        av_type: FI_AV_UNSPEC,
        // This software needs no registration of local memory, so both old models fit.
        mr_mode: match service {
            Service::Messages | Service::Datagrams => FI_MR_BASIC | FI_MR_SCALABLE,
            Service::Direct => FI_MR_LOCAL,
        },
        mr_key_size: size_of::<u64>(),
        cq_data_size: if service == Service::Messages { DATA_BYTES } else { VERBS_DATA_BYTES },
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
