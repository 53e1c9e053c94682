//! The state of a card that is handed over, in addition to the state of its data plane.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::control::protocol::{DeviceRule, DeviceSettings, NamespaceName};
use crate::interfaces::adapter::QueueCounts;
use crate::traffic::hosts::Contact;

/// The state of a card in a hand-over. The descriptors come in this order: the file with the state,
/// the device of the internet's side, then the queues of the devices of each instance. The node
/// itself hands over the sockets to other hosts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// Time at which the card began to move packets, in nanoseconds of the machine's clock.
    pub(crate) began_ns: u64,
    pub(crate) edge: Option<Edge>,
    /// Counters and session states of the other hosts, by name.
    pub(crate) hosts: BTreeMap<String, Contact>,
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) logs: Vec<Log>,
    pub(crate) instances: Vec<Instance>,
    /// The key of tokens of instance metadata.
    pub(crate) tokens: [u8; 32],
}

/// The device of the internet's side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    pub(crate) udp_segmentation: bool,
    pub(crate) routed: Vec<Ipv4Addr>,
}

/// The counters of a flow log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) id: u64,
    pub(crate) written: u64,
    pub(crate) dropped: u64,
}

/// An instance in a hand-over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) instance_type: String,
    /// The namespace of the instance; `None` if its interfaces are vhost-user sockets.
    pub(crate) namespace: Option<NamespaceName>,
    pub(crate) interfaces: Vec<Interface>,
}

/// An interface in a hand-over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interface {
    pub(crate) eni: u64,
    pub(crate) device: String,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) is_primary: bool,
    /// State of the TUN device; `None` if the interface is a vhost-user socket, or its device was
    /// deleted.
    pub(crate) device_state: Option<DeviceState>,
}

/// A TUN device in a hand-over. One descriptor belongs to each of its queues.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceState {
    pub(crate) udp_segmentation: bool,
    pub(crate) settings: DeviceSettings,
    pub(crate) counts: Vec<QueueCounts>,
    /// N-tuple rules of this device, which select the queues of packets.
    pub(crate) rules: Vec<DeviceRule>,
}
