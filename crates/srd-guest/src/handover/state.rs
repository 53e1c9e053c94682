//! What a card tells the next one besides the state of its data plane.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::adapter::QueueCounts;
use crate::hosts::Contact;
use crate::protocol::{DeviceRule, DeviceSettings, NamespaceName};

/// What there is. The descriptors come in this order: the file with the state, an
/// heir's end of the helper, the edge, the sockets to other hosts (first the one that receives,
/// then those that packets leave by, in the order of their ports); then of each instance its
/// devices.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// The name of the host.
    pub(super) host: String,
    /// When the card began to move packets, nanoseconds of the machine's clock.
    pub(super) began_ns: u64,
    pub(super) edge: Option<Edge>,
    /// Sockets to other hosts.
    pub(super) transport: usize,
    /// What was sent to other hosts and received from them.
    pub(super) hosts: BTreeMap<String, Contact>,
    pub(super) lost: BTreeMap<String, u64>,
    pub(super) logs: Vec<Log>,
    pub(super) instances: Vec<Instance>,
    /// The key of tokens of instance metadata.
    pub(super) tokens: [u8; 32],
}

/// The device of the internet's side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edge {
    pub(super) udp_segmentation: bool,
    pub(super) routed: Vec<Ipv4Addr>,
}

/// The counters of a flow log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    pub(super) id: u64,
    pub(super) written: u64,
    pub(super) dropped: u64,
}

/// An instance.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) instance_type: String,
    /// None, if its interfaces are sockets.
    pub(super) namespace: Option<NamespaceName>,
    pub(super) interfaces: Vec<Interface>,
}

/// An interface.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interface {
    pub(super) eni: u64,
    pub(super) device: String,
    pub(super) addresses: Vec<(IpAddr, u8)>,
    pub(super) is_primary: bool,
    /// Of a device of the kernel; none, if it is a socket or gone.
    pub(super) device_state: Option<DeviceState>,
}

/// A device of the kernel. Of each queue there is a descriptor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceState {
    pub(super) udp_segmentation: bool,
    pub(super) settings: DeviceSettings,
    pub(super) counts: Vec<QueueCounts>,
    /// Rules that steer its packets.
    pub(super) rules: Vec<DeviceRule>,
}
