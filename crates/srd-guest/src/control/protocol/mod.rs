//! Requests to the service and its answers: one line of JSON each.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

mod device;
mod namespace;
mod trace;

pub use device::{DeviceChange, DeviceReport, DeviceRule, DeviceSettings, RssTable};
pub use namespace::{NamespaceName, NoNamespace};
pub(crate) use namespace::{PREFIX, is_name};
pub use trace::{
    TraceArrived, TraceEvent, TraceFilter, TraceFlow, TraceHop, TraceJudged, TraceLimit,
    TraceRecord, TraceRefusal,
};

/// Maximum size of one line in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A request to the service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Report the status.
    Status,
    /// Report the flows of an instance.
    Flows {
        /// The instance.
        instance: String,
        /// Maximum number of flows of each interface.
        most: u16,
    },
    /// Change the device of an interface, and report its settings.
    Device {
        /// The instance.
        instance: String,
        /// The device in the instance, like `ens6`; the first device if this is missing.
        device: Option<String>,
        /// The change; empty for a report only.
        change: DeviceChange,
    },
    /// Report the flow logs.
    Logs,
    /// Hand everything over to this process, which continues with it. The following data is not
    /// JSON.
    TakeOver {
        /// The version of the format that the process reads.
        version: u32,
    },
    /// Put the rules of this file in force, and make or remove instances to match it. The answer is
    /// sent when no packet is admitted by the old rules any more.
    Apply {
        /// The file, an absolute path.
        file: PathBuf,
    },
    /// Add an instance. It is removed when this connection ends.
    Attach(Attach),
    /// Follow packets. The trace ends when this connection ends.
    Trace {
        /// The instance whose packets are followed, in both directions; without it, the packets of
        /// all instances of this host.
        instance: Option<String>,
        /// Conditions for packets.
        filter: TraceFilter,
        /// Maximum number of packets.
        packets: u32,
        /// Bytes of each packet that are kept, from its beginning.
        head_bytes: u16,
    },
    /// Report the records of a trace since the last request for records of this trace.
    Traced {
        /// The trace, which belongs to this connection.
        id: u64,
    },
}

/// An instance to be added.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The name; without it the service chooses one.
    pub name: Option<String>,
    /// The instance type, like `c7i.large`.
    pub instance_type: String,
    /// The instance that defines subnet and groups, unless these are given.
    pub peer_of: Option<String>,
    /// The name of the subnet.
    pub subnet: Option<String>,
    /// The names of the groups; without them, the VPC's default group.
    pub groups: Vec<String>,
}

/// An answer of the service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Answer to [`Request::Status`].
    Status(Status),
    /// Answer to [`Request::Flows`].
    Flows {
        /// The flows.
        flows: Vec<Flow>,
    },
    /// Answer to [`Request::Device`].
    Device(Box<DeviceReport>),
    /// Answer to [`Request::Logs`].
    Logs {
        /// The logs.
        logs: Vec<FlowLog>,
    },
    /// Answer to [`Request::Apply`].
    Applied {
        /// Time from the reading of the file to the end of the old rules, microseconds.
        microseconds: u64,
    },
    /// Answer to [`Request::Attach`].
    Attached(Instance),
    /// Answer to [`Request::Trace`].
    Tracing {
        /// The trace.
        id: u64,
    },
    /// Answer to [`Request::Traced`].
    Traced {
        /// Records in the order of their times.
        records: Vec<TraceRecord>,
        /// Packets that could not be followed, because too many records waited to be read.
        lost: u64,
        /// Whether no other record follows.
        is_over: bool,
    },
    /// The request failed.
    Failed {
        /// The error, with a remedy.
        what: String,
    },
}

/// A flow of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// The device in the instance.
    pub device: String,
    /// tcp, udp, icmp, or a number.
    pub protocol: String,
    /// The interface's end, as address and port.
    pub local: String,
    /// The other end.
    pub remote: String,
    /// The state of the connection; `None` if it is not tracked.
    pub connection: Option<String>,
    /// Whether the interface sent the first packet.
    pub local_first: bool,
    /// State of packets that the interface sends: pending, complete, or the reason of their
    /// refusal.
    pub sent: String,
    /// State of packets that the interface receives, in the same form.
    pub received: String,
    /// Whether packets that the interface sends use SRD; `None` while the rules are still unknown.
    #[serde(default)]
    pub rides_srd: Option<bool>,
    /// Reason why they are sent plainly.
    #[serde(default)]
    pub plainly: Option<String>,
}

/// A flow log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowLog {
    /// The name of the log in the VPC's file.
    pub name: String,
    /// The identifier of the log.
    pub id: String,
    /// The cloud, subnet or interface of the log.
    pub resource: String,
    /// accept, reject or all.
    pub traffic: String,
    /// The directory of its files.
    pub directory: String,
    /// text, gzip or parquet.
    pub files: String,
    /// Interfaces of this host that the log covers.
    pub interfaces: usize,
    /// Written records.
    pub records_written: u64,
    /// Dropped records: the disk is full or too slow.
    pub records_dropped: u64,
    /// Error of the last write, unless a later one succeeded.
    pub failure: Option<String>,
}

/// The status of the card.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The name of this host in the VPC's file.
    pub host: String,
    /// The divisor of all rates.
    pub scale: u32,
    /// Whether the network of this machine plays the role of the internet.
    pub internet: bool,
    /// The version of the card.
    pub version: String,
    /// Seconds since the card began to move packets.
    pub uptime_s: f64,
    /// Sizes of the card's tables, and its queries.
    pub tables: Tables,
    /// The other hosts of its settings, by name.
    #[serde(default)]
    pub hosts: Vec<PeerHost>,
    /// The instances of this host, by name.
    pub instances: Vec<Instance>,
    /// Packets that were dropped and belong to no interface, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Reason why the device of the internet's side is missing; `None` if it exists.
    #[serde(default)]
    pub internet_gone: Option<String>,
    /// Number of times that the card's packet rules were restored after another program had removed
    /// or changed them.
    #[serde(default)]
    pub rules_restored: u64,
    /// Changes by other programs to the set-up of the card, as sentences with remedies.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Age of these figures in seconds, if the thread that moves packets has not written newer ones
    /// after this request; `None` if it has.
    #[serde(default)]
    pub stale_s: Option<f64>,
}

/// Another host, and the packets of instances that were sent to it and received from it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerHost {
    /// The name of the host in the VPC's file.
    pub name: String,
    /// The address of the host, and the first of its ports.
    pub address: SocketAddr,
    /// Whether a session with the host is up.
    pub up: bool,
    /// Frames sent to the host: packets, or super-packets that are segmented on the way.
    pub sent_frames: u64,
    /// Bytes of the sent frames, from the IP header of the instance's packet on.
    pub sent_bytes: u64,
    /// Sent frames that use SRD. All others are sent plainly.
    pub sent_by_srd_frames: u64,
    /// Frames received from the host.
    pub received_frames: u64,
    /// Bytes of the received frames, from the IP header of the instance's packet on.
    pub received_bytes: u64,
    /// Received frames that used SRD.
    pub received_by_srd_frames: u64,
    /// Seconds since the last frame, or since the start of the session; `None` before both.
    pub heard_s: Option<f64>,
    /// Seconds since the session ended, or since one is missing; `None` while one is up.
    pub down_s: Option<f64>,
    /// Whether the host has not answered for five seconds or more.
    pub silent: bool,
    /// The obstacle to a session with the host, with a remedy, if one is known.
    #[serde(default)]
    pub problem: Option<String>,
}

/// The tables that admit packets: those of the card's own interfaces, the groups in their rules,
/// and answers about other interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Tables {
    /// Interfaces of this host.
    pub interfaces: u64,
    /// Blocks of addresses whose interface is on this host.
    pub mapped: u64,
    /// Blocks of addresses of groups in the rules of this host.
    pub members: u64,
    /// Cached answers about interfaces of other hosts.
    pub answers: u64,
    /// Approximate size of all tables in bytes.
    pub bytes: u64,
    /// Queries that were sent.
    pub asked: u64,
    /// Queries that were answered.
    pub answered: u64,
    /// Queries without an answer, because this host holds the maximum number of answers.
    pub refused: u64,
    /// Queries that were not sent, because too many were under way.
    pub not_asked: u64,
}

/// An instance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// The name of the instance.
    pub name: String,
    /// The identifier of the instance.
    pub id: String,
    /// The type of the instance.
    pub instance_type: String,
    /// The network namespace, unless the instance is a virtual machine or a DPDK program.
    pub namespace: Option<NamespaceName>,
    /// The interfaces, the primary one first.
    pub interfaces: Vec<Interface>,
    /// Tracked connections.
    pub tracked: u32,
    /// Flows that are stored without being tracked.
    pub untracked: u32,
    /// Credits left, in bits, to the guest and from it.
    pub credits_bits: [u64; 2],
    /// Peak and baseline bandwidth of each direction, bits per second.
    pub bandwidth_bps: [u64; 2],
    /// Packets a second.
    pub packets_per_second: u64,
    /// Fragments that the limit of an interface has dropped. They are part of
    /// `pps_allowance_exceeded`.
    #[serde(default)]
    pub fragments_dropped: u64,
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// The name of the interface in the VPC's file.
    pub name: String,
    /// The identifier of the interface.
    pub id: String,
    /// The device of the interface in the instance.
    pub device: String,
    /// The hardware address, which guests on Ethernet have to use.
    pub mac: String,
    /// The addresses of the interface.
    pub addresses: Vec<String>,
    /// The counters, in the order of `ethtool -S`: allowances first, then packets.
    pub counters: Vec<(String, u64)>,
    /// Dropped packets, by cause.
    pub drops: BTreeMap<String, u64>,
    /// The socket, if the interface has no device in a namespace.
    pub vhost_user: Option<VhostUser>,
    /// Reason why the device is missing; `None` if it exists.
    #[serde(default)]
    pub gone: Option<String>,
}

/// An interface of a virtual machine or a DPDK program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VhostUser {
    /// The path to which front ends connect.
    pub path: String,
    /// Whether a front end is connected.
    pub connected: bool,
    /// Whether the driver of the front end takes frames.
    pub running: bool,
    /// Pairs of rings that the driver uses.
    pub pairs: usize,
}

impl Interface {
    /// Returns a counter by its name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value)
    }
}
