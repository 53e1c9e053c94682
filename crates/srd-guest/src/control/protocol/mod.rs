//! Requests about instances at the control socket of a node, and their answers. Each is one line of
//! JSON.

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

/// A request to the card.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Begin requests about instances. This request comes before all others, and the node answers
    /// it in the form of its own answers.
    Instances,
    /// Report the status.
    Status,
    /// Report the flows of an instance.
    Flows {
        /// The name of the instance.
        instance: String,
        /// Maximum number of flows of each interface.
        most: u16,
    },
    /// Change the device of an interface, and report its settings.
    Device {
        /// The name of the instance.
        instance: String,
        /// The device in the instance, like `ens6`; the first device if this is missing.
        device: Option<String>,
        /// The change of the device; an empty change only reports the settings.
        change: DeviceChange,
    },
    /// Report the flow logs.
    Logs,
    /// Put the rules of this file in force, and add and remove instances according to it. The
    /// answer is sent when no packet is admitted by the old rules any more. After that, the card
    /// restores the parts of instances that other programs have changed.
    Apply {
        /// The absolute path of the file.
        file: PathBuf,
        /// Whether a file without instances may end all instances of the file in force. Otherwise
        /// the card refuses such a file. Programs of earlier versions send no such field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        removes_all: bool,
    },
    /// Wait until the parts of instances that other programs have changed are restored, after the
    /// last [`Request::Apply`] of this connection.
    Repaired,
    /// Add an instance. It is removed when this connection ends.
    Attach(Attach),
    /// Begin a trace of packets. The trace ends when this connection ends.
    Trace {
        /// The instance whose packets are traced, in both directions; `None`: the packets of all
        /// instances of this host.
        instance: Option<String>,
        /// Conditions that traced packets have to fulfil.
        filter: TraceFilter,
        /// Maximum number of packets that are traced.
        packets: u32,
        /// Number of bytes from the beginning of each packet that its record contains.
        head_bytes: u16,
    },
    /// Report the records of a trace since the last request for records of this trace.
    Traced {
        /// The number of the trace, which belongs to this connection.
        id: u64,
    },
}

/// An instance to be added.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The name of the instance; `None`: the card chooses one.
    pub name: Option<String>,
    /// The instance type, like `c7i.large`.
    pub instance_type: String,
    /// The instance whose subnet and security groups the new instance gets, unless `subnet` or
    /// `groups` names a subnet or groups.
    pub peer_of: Option<String>,
    /// The name of the subnet; `None`: the subnet of `peer_of`, otherwise the VPC's only subnet.
    pub subnet: Option<String>,
    /// The names of the security groups; if empty, the groups of `peer_of`, otherwise the VPC's
    /// default group.
    pub groups: Vec<String>,
}

/// An answer of the card.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Answer to [`Request::Status`].
    Status(Status),
    /// Answer to [`Request::Flows`].
    Flows {
        /// The flows of the instance.
        flows: Vec<Flow>,
    },
    /// Answer to [`Request::Device`].
    Device(Box<DeviceReport>),
    /// Answer to [`Request::Logs`].
    Logs {
        /// The flow logs of the card.
        logs: Vec<FlowLog>,
    },
    /// Answer to [`Request::Apply`].
    Applied {
        /// Time from the request until no packet was admitted by the old rules any more, in
        /// microseconds.
        microseconds: u64,
        /// Whether the file describes other objects than the file that was applied before. Cards
        /// of earlier versions send no such field.
        #[serde(default)]
        is_new: bool,
        /// Names of the instances that the change has removed from this host. Cards of earlier
        /// versions send no such field.
        #[serde(default)]
        removed: Vec<String>,
    },
    /// Answer to [`Request::Repaired`].
    Repaired {
        /// Changes by other programs to objects of the card that are left, as sentences with
        /// remedies.
        warnings: Vec<String>,
        /// Seconds after which the answer was sent although the repair had not ended; `None` if it
        /// has ended.
        unfinished_s: Option<u64>,
    },
    /// Answer to [`Request::Attach`].
    Attached(Instance),
    /// Answer to [`Request::Trace`].
    Tracing {
        /// The number of the trace.
        id: u64,
    },
    /// Answer to [`Request::Traced`].
    Traced {
        /// Records in the order of their times.
        records: Vec<TraceRecord>,
        /// Number of packets that could not be recorded, because too many records waited to be
        /// read.
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
    /// The transport protocol: tcp, udp, icmp, icmpv6, or a number.
    pub protocol: String,
    /// The address and port of the interface, as text.
    pub local: String,
    /// The address and port of the other end, as text.
    pub remote: String,
    /// The state of the connection; `None` if it is not tracked.
    pub connection: Option<String>,
    /// Whether the interface sent the first packet.
    pub local_first: bool,
    /// Cached verdict on packets that the interface sends: `pending` (not evaluated yet),
    /// `complete` (allowed), or the reason why they are refused.
    pub sent: String,
    /// Cached verdict on packets that the interface receives: `pending`, `complete`, or the reason
    /// why they are refused.
    pub received: String,
    /// Whether packets that the interface sends use SRD; `None` while the rules have not been
    /// evaluated for them.
    #[serde(default)]
    pub rides_srd: Option<bool>,
    /// Reason why packets that the interface sends do not use SRD; `None` if they use it, or if
    /// that is not known yet.
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
    /// The flows that are logged: accept, reject or all.
    pub traffic: String,
    /// The directory of the log's files.
    pub directory: String,
    /// The format of the files: text, gzip or parquet.
    pub files: String,
    /// Number of interfaces of this host that the log covers.
    pub interfaces: usize,
    /// Number of records that were written.
    pub records_written: u64,
    /// Number of records that were dropped, because the disk is full or too slow.
    pub records_dropped: u64,
    /// Error of the last write; `None` if the last write was successful.
    pub failure: Option<String>,
}

/// The status of the card.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The name of this host in the VPC's file.
    pub host: String,
    /// The number by which all rates of instance types are divided.
    pub scale: u32,
    /// Whether the network of this machine plays the role of the internet.
    pub internet: bool,
    /// The version of the card.
    pub version: String,
    /// Seconds since the card began to move packets.
    pub uptime_s: f64,
    /// Time at which the card began to move packets, in seconds since 1970. The value does not
    /// follow later changes of the wall clock. A card of an earlier version sends 0.
    #[serde(default)]
    pub began_unix_s: f64,
    /// Seconds of processor time that the card has used since its process started. The time of its
    /// helper process is not included.
    #[serde(default)]
    pub cpu_s: f64,
    /// Sizes of the card's tables, and counters of its queries to the directory.
    pub tables: Tables,
    /// The other hosts in the card's settings, sorted by name.
    #[serde(default)]
    pub hosts: Vec<PeerHost>,
    /// Number of workers, the threads that move packets. A card of an earlier version sends 0.
    #[serde(default)]
    pub workers: u8,
    /// The instances of this host, sorted by name.
    pub instances: Vec<Instance>,
    /// Numbers of dropped packets that belong to no interface, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Reason why the device of the internet's side is missing; `None` if it exists.
    #[serde(default)]
    pub internet_gone: Option<String>,
    /// Number of times that the card's packet rules were restored after another program had removed
    /// or changed them.
    #[serde(default)]
    pub rules_restored: u64,
    /// Changes by other programs to objects and settings of the card, or the end of its helper, as
    /// sentences with remedies.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Age of the figures in seconds, if the thread that moves packets has written no new figures
    /// after the request; `None` if the figures are newer than the request.
    #[serde(default)]
    pub stale_s: Option<f64>,
}

/// Another host, and the packets of instances that were sent to it and received from it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerHost {
    /// The name of the host in the VPC's file.
    pub name: String,
    /// The address of the host, and the first of its consecutive UDP ports.
    pub address: SocketAddr,
    /// Whether a session with the host is up.
    pub up: bool,
    /// Number of frames sent to the host. A frame is a packet, or a super-packet that is segmented
    /// later.
    pub sent_frames: u64,
    /// Number of bytes of the sent frames, from the IP header of the instance's packet on.
    pub sent_bytes: u64,
    /// Number of sent frames that used SRD. All other frames were sent plainly.
    pub sent_by_srd_frames: u64,
    /// Number of frames received from the host.
    pub received_frames: u64,
    /// Number of bytes of the received frames, from the IP header of the instance's packet on.
    pub received_bytes: u64,
    /// Number of received frames that used SRD.
    pub received_by_srd_frames: u64,
    /// Seconds since the last frame arrived from the host, or since the session began if that is
    /// later; `None` before either has happened.
    pub heard_s: Option<f64>,
    /// Seconds since the session with the host ended, or since the card noticed that there is no
    /// session; `None` while a session is up.
    pub down_s: Option<f64>,
    /// Whether the host has not answered for five seconds or more.
    pub silent: bool,
    /// The obstacle to a session with the host, with a remedy; `None` if no obstacle is known.
    #[serde(default)]
    pub problem: Option<String>,
}

/// Sizes of the tables by which the card admits packets, and counters of its queries to the
/// directory about interfaces of other hosts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Tables {
    /// Number of interfaces of this host.
    pub interfaces: u64,
    /// Number of addresses and prefixes that belong to interfaces of this host.
    pub mapped: u64,
    /// Number of address blocks in the security groups that rules of this host name.
    pub members: u64,
    /// Number of cached answers about interfaces of other hosts.
    pub answers: u64,
    /// Approximate size of all tables in bytes.
    pub bytes: u64,
    /// Number of queries that were sent to the directory.
    pub asked: u64,
    /// Number of queries that were answered.
    pub answered: u64,
    /// Number of queries without an answer, because this host holds the maximum number of answers.
    pub refused: u64,
    /// Number of queries that were not sent, because too many were under way.
    pub not_asked: u64,
}

/// An instance of this host, with its interfaces and counters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// The name of the instance.
    pub name: String,
    /// The identifier of the instance.
    pub id: String,
    /// The type of the instance.
    pub instance_type: String,
    /// The network namespace; `None` if the interfaces are vhost-user sockets, of a virtual machine
    /// or a DPDK program.
    pub namespace: Option<NamespaceName>,
    /// Number of the worker that moves the packets of the instance, from 0 on. A card of an earlier
    /// version sends 0.
    #[serde(default)]
    pub worker: u8,
    /// The interfaces, the primary interface first.
    pub interfaces: Vec<Interface>,
    /// Number of tracked connections.
    pub tracked: u32,
    /// Number of flows that are stored without being tracked.
    pub untracked: u32,
    /// Remaining bandwidth credits in bits: for packets to the guest, and for packets from it.
    pub credits_bits: [u64; 2],
    /// Peak and baseline bandwidth of each direction, bits per second.
    pub bandwidth_bps: [u64; 2],
    /// Packets per second that the instance type allows, both directions together.
    pub packets_per_second: u64,
    /// Number of fragments that the limit of an interface has dropped. They are included in
    /// `pps_allowance_exceeded`.
    #[serde(default)]
    pub fragments_dropped: u64,
}

/// An interface of an instance, with its counters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// The name of the interface in the VPC's file.
    pub name: String,
    /// The identifier of the interface.
    pub id: String,
    /// The device of the interface in the instance.
    pub device: String,
    /// The MAC address, which guests at vhost-user sockets have to use.
    pub mac: String,
    /// The addresses of the interface.
    pub addresses: Vec<String>,
    /// The counters by name, in the order of `ethtool -S`: allowances first, then packets.
    pub counters: Vec<(String, u64)>,
    /// Numbers of dropped packets, by cause.
    pub drops: BTreeMap<String, u64>,
    /// The vhost-user socket; `None` if the interface has a device in a namespace.
    pub vhost_user: Option<VhostUser>,
    /// Reason why the device is missing; `None` if it exists.
    #[serde(default)]
    pub gone: Option<String>,
}

/// The vhost-user socket of an interface, for a virtual machine or a DPDK program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VhostUser {
    /// The path of the socket.
    pub path: String,
    /// Whether a front end is connected.
    pub connected: bool,
    /// Whether the driver of the front end has started its rings, so that it takes frames.
    pub running: bool,
    /// Number of pairs of rings that the driver uses.
    pub pairs: usize,
}

impl Interface {
    /// Returns the value of the counter with this name; 0 if there is no such counter.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value)
    }
}
