//! Requests of an application: libfabric's hints, without their pointers.

use crate::abi::info::{fi_domain_attr, fi_ep_attr, fi_rx_attr, fi_tx_attr};
use crate::requests::address::Address;

/// A copy of the hints. Absent attributes set no condition. The pointers within the attributes
/// are not followed.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Capabilities; zero for all that are offered.
    pub caps: u64,
    /// Modes that the application supports (`FI_CONTEXT` and others).
    pub mode: u64,
    /// Format of addresses, such as `FI_SOCKADDR_IN`; zero for any format.
    pub addr_format: u32,
    /// Transmit attributes (`tx_attr`).
    pub tx: Option<fi_tx_attr>,
    /// Receive attributes (`rx_attr`).
    pub rx: Option<fi_rx_attr>,
    /// Attributes of the endpoint.
    pub ep: Option<fi_ep_attr>,
    /// Attributes of the domain.
    pub domain: Option<fi_domain_attr>,
    /// Name of the requested domain.
    pub domain_name: Option<String>,
    /// Name of the requested fabric.
    pub fabric_name: Option<String>,
    /// Local address that is requested.
    pub source: Option<Address>,
    /// Requested address of the peer.
    pub destination: Option<Address>,
}

/// Addresses that the call itself names: its node and service, resolved.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Requested local addresses; the IP address may be unspecified if only a port is requested.
    pub source: Vec<Address>,
    /// Requested addresses of the peer; the first address with a route is used.
    pub destination: Vec<Address>,
}
