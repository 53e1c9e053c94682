//! The state of a card that is handed over, in addition to the state of its data plane.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::control::protocol::{DeviceRule, DeviceSettings, NamespaceName};
use crate::interfaces::adapter::QueueCounts;
use crate::traffic::hosts::Contact;

/// The state of a card in a hand-over. The descriptors come in this order: the file with the state,
/// the connection to the helper for the card that takes over, the device of the internet's side,
/// the sockets to other hosts (first the receiving one, then the sending ones in the order of their
/// ports), then the queues of the devices of each instance.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// The name of the host on which the card runs.
    pub(super) host: String,
    /// Time at which the card began to move packets, in nanoseconds of the machine's clock.
    pub(super) began_ns: u64,
    pub(super) edge: Option<Edge>,
    /// Number of sockets to other hosts.
    pub(super) transport: usize,
    /// Counters and session states of the other hosts, by name.
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

/// An instance in a hand-over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) instance_type: String,
    /// The namespace of the instance; `None` if its interfaces are vhost-user sockets.
    pub(super) namespace: Option<NamespaceName>,
    pub(super) interfaces: Vec<Interface>,
}

/// An interface in a hand-over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interface {
    pub(super) eni: u64,
    pub(super) device: String,
    pub(super) addresses: Vec<(IpAddr, u8)>,
    pub(super) is_primary: bool,
    /// State of the TUN device; `None` if the interface is a vhost-user socket, or its device was
    /// deleted.
    pub(super) device_state: Option<DeviceState>,
}

/// A TUN device in a hand-over. One descriptor belongs to each of its queues.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceState {
    pub(super) udp_segmentation: bool,
    pub(super) settings: DeviceSettings,
    pub(super) counts: Vec<QueueCounts>,
    /// N-tuple rules of this device, which select the queues of packets.
    pub(super) rules: Vec<DeviceRule>,
}
