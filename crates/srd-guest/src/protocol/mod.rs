//! What the service is asked and answers: one line of JSON each.

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

/// Bytes of one line.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// What the service is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What there is.
    Status,
    /// The flows of an instance.
    Flows {
        /// The instance.
        instance: String,
        /// At most so many of each interface.
        most: u16,
    },
    /// Change the device of an interface, and say what it is set to.
    Device {
        /// The instance.
        instance: String,
        /// The device in it, as `ens6`; the first if none is given.
        device: Option<String>,
        /// The change: nothing to only ask.
        change: DeviceChange,
    },
    /// The flow logs.
    Logs,
    /// Hand everything over to this process, which goes on with it. What follows is no JSON.
    TakeOver {
        /// The version of the form that it reads.
        version: u32,
    },
    /// Take the rules of this file, whose instances and interfaces are those that are there. The
    /// answer comes when no packet is judged by the old ones any more.
    Apply {
        /// The file, an absolute path.
        file: PathBuf,
    },
    /// Add an instance. It goes when this connection ends.
    Attach(Attach),
    /// Follow packets. It ends when this connection ends.
    Trace {
        /// The instance whose packets are followed, those that it sends and those for it; those of
        /// all instances of this host, if none is given.
        instance: Option<String>,
        /// Which of them.
        filter: TraceFilter,
        /// How many.
        packets: u32,
        /// How many of the first bytes of each are kept.
        head_bytes: u16,
    },
    /// What happened to the packets of a trace since this was last asked.
    Traced {
        /// The trace, of this connection.
        id: u64,
    },
}

/// An instance to be added.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Its name; the service picks one if none is given.
    pub name: Option<String>,
    /// Its type, as `c7i.large`.
    pub instance_type: String,
    /// The instance whose subnet and groups it has, unless they are given.
    pub peer_of: Option<String>,
    /// Its subnet, by name.
    pub subnet: Option<String>,
    /// Its groups, by name; the VPC's default group if there are none.
    pub groups: Vec<String>,
}

/// What the service answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Status),
    /// To [`Request::Flows`].
    Flows {
        /// The flows.
        flows: Vec<Flow>,
    },
    /// To [`Request::Device`].
    Device(Box<DeviceReport>),
    /// To [`Request::Logs`].
    Logs {
        /// The logs.
        logs: Vec<FlowLog>,
    },
    /// To [`Request::Apply`].
    Applied {
        /// Time from the reading of the file to the end of the old rules, microseconds.
        microseconds: u64,
    },
    /// To [`Request::Attach`].
    Attached(Instance),
    /// To [`Request::Trace`].
    Tracing {
        /// The trace.
        id: u64,
    },
    /// To [`Request::Traced`].
    Traced {
        /// In the order of their times.
        records: Vec<TraceRecord>,
        /// Packets that could not be followed, since too many records waited to be asked for.
        lost: u64,
        /// Whether no other record comes.
        is_over: bool,
    },
    /// It could not be done.
    Failed {
        /// What went wrong, and what to do.
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
    /// The state of the connection; none if it is not tracked.
    pub connection: Option<String>,
    /// Whether the interface sent the first packet.
    pub local_first: bool,
    /// What the card keeps of packets that the interface sends: pending, complete, or the reason
    /// why they are refused.
    pub sent: String,
    /// The same of packets that it receives.
    pub received: String,
    /// Whether packets that the interface sends ride SRD; none if the rules are still to be asked.
    #[serde(default)]
    pub rides_srd: Option<bool>,
    /// Why they go plainly.
    #[serde(default)]
    pub plainly: Option<String>,
}

/// A flow log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowLog {
    /// Its name in the VPC's file.
    pub name: String,
    /// Its identifier.
    pub id: String,
    /// The cloud, subnet or interface that it is about.
    pub resource: String,
    /// accept, reject or all.
    pub traffic: String,
    /// Where its files are.
    pub directory: String,
    /// text, gzip or parquet.
    pub files: String,
    /// How many interfaces of this host it is about.
    pub interfaces: usize,
    /// Records that were written.
    pub records_written: u64,
    /// Records that were not: the disk is full or too slow.
    pub records_dropped: u64,
    /// Why the last write failed, unless one worked since.
    pub failure: Option<String>,
}

/// What there is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The name of this host in the VPC's file.
    pub host: String,
    /// By what all rates are divided.
    pub scale: u32,
    /// Whether the network of this machine stands for the internet.
    pub internet: bool,
    /// The version of the card.
    pub version: String,
    /// Seconds since it began to move packets.
    pub uptime_s: f64,
    /// What the card's tables hold, and what it has asked.
    pub tables: Tables,
    /// The other hosts that it was told of, by name.
    #[serde(default)]
    pub hosts: Vec<PeerHost>,
    /// The instances of this host, by name.
    pub instances: Vec<Instance>,
    /// Packets that were dropped and belong to no interface, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Why the device of the internet's side is not there; none if it is.
    #[serde(default)]
    pub internet_gone: Option<String>,
    /// Number of times that the card's packet rules were put back after another program had
    /// removed or changed them.
    #[serde(default)]
    pub rules_restored: u64,
    /// Changes by other programs to the set-up of the card; sentences with remedies.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Seconds since these figures were written, if the thread that moves packets has not written
    /// newer ones since it was asked for them; none if it has.
    #[serde(default)]
    pub stale_s: Option<f64>,
}

/// Another host: packets of instances that were sent to it and that came from it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerHost {
    /// Its name in the VPC's file.
    pub name: String,
    /// Its address and the first of its ports.
    pub address: SocketAddr,
    /// Whether a session with it is up.
    pub up: bool,
    /// Frames for it: packets, or super-packets that are cut on the way.
    pub sent_frames: u64,
    /// Their bytes, from the IP header of the instance's packet on.
    pub sent_bytes: u64,
    /// Those of them that ride SRD; the others go plainly.
    pub sent_by_srd_frames: u64,
    /// Frames that came from it.
    pub received_frames: u64,
    /// Their bytes, counted alike.
    pub received_bytes: u64,
    /// Those of them that came by SRD.
    pub received_by_srd_frames: u64,
    /// Seconds since a frame came, or the session began; none if neither happened yet.
    pub heard_s: Option<f64>,
    /// Seconds since the session ended, or since one is missing; none while one is up.
    pub down_s: Option<f64>,
    /// Whether it has not answered for five seconds or more.
    pub silent: bool,
    /// The obstacle to a session with it, with a remedy, if one is known.
    #[serde(default)]
    pub problem: Option<String>,
}

/// The tables by which the card judges: those of its own interfaces, what their rules name, and
/// what was answered of others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Tables {
    /// Interfaces of this host.
    pub interfaces: u64,
    /// Blocks of addresses whose interface is on this host.
    pub mapped: u64,
    /// Blocks of addresses of the groups that rules of this host name.
    pub members: u64,
    /// Answers about interfaces of other hosts that are remembered.
    pub answers: u64,
    /// About how many bytes all of that takes.
    pub bytes: u64,
    /// Questions that were asked.
    pub asked: u64,
    /// Of these, those that were answered.
    pub answered: u64,
    /// Of these, those without an answer: this host holds as many as it may.
    pub refused: u64,
    /// Questions that were not asked, since too many were on the way.
    pub not_asked: u64,
}

/// An instance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub id: String,
    /// Its type.
    pub instance_type: String,
    /// Its network namespace, unless it is a virtual machine or a DPDK program.
    pub namespace: Option<NamespaceName>,
    /// Its interfaces, the primary one first.
    pub interfaces: Vec<Interface>,
    /// Connections that are tracked.
    pub tracked: u32,
    /// Flows that are remembered without being tracked.
    pub untracked: u32,
    /// Credits left, in bits, to the guest and from it.
    pub credits_bits: [u64; 2],
    /// Peak and baseline bandwidth of each direction, bits a second.
    pub bandwidth_bps: [u64; 2],
    /// Packets a second.
    pub packets_per_second: u64,
    /// Fragments that the limit of an interface has dropped. They are among those that
    /// `pps_allowance_exceeded` counts.
    #[serde(default)]
    pub fragments_dropped: u64,
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// Its name in the VPC's file.
    pub name: String,
    /// Its identifier.
    pub id: String,
    /// Its device in the instance.
    pub device: String,
    /// Its hardware address, which guests that see Ethernet have to use.
    pub mac: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The counters, in the order of `ethtool -S`: allowances first, then packets.
    pub counters: Vec<(String, u64)>,
    /// Packets that were dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Its socket, if it is no device in a namespace.
    pub vhost_user: Option<VhostUser>,
    /// Why the device is not there; none if it is.
    #[serde(default)]
    pub gone: Option<String>,
}

/// An interface of a virtual machine or a DPDK program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VhostUser {
    /// Where front ends connect.
    pub path: String,
    /// Whether one is connected.
    pub connected: bool,
    /// Whether its driver takes frames.
    pub running: bool,
    /// Pairs of rings that its driver uses.
    pub pairs: usize,
}

impl Interface {
    /// A counter by its name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value)
    }
}
