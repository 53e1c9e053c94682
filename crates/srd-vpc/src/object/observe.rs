//! Observation of packets: flow logs and traffic mirroring.

use super::Traffic;
use super::log_field::LogField;
use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use ipnet::IpNet;

/// A flow log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowLog {
    /// The tag `Name`, or empty.
    pub name: String,
    /// Interfaces that are logged.
    pub resource: Logged,
    /// Flows that are logged.
    pub traffic: LoggedTraffic,
    /// The fields of a record, in order; those of version 2 if empty.
    pub fields: Vec<LogField>,
    /// The longest window of one record, in seconds: 60 or 600.
    pub interval: u16,
    /// The directory that files are written to.
    pub directory: String,
    /// Format of the files.
    pub format: LogFormat,
}

impl FlowLog {
    /// The fields of a record.
    pub fn fields(&self) -> &[LogField] {
        if self.fields.is_empty() { &LogField::DEFAULT } else { &self.fields }
    }

    /// Whether it is about an interface of this subnet.
    pub fn covers(&self, eni: EniId, subnet: SubnetId, vpc: VpcId) -> bool {
        match self.resource {
            Logged::Vpc(of) => of == vpc,
            Logged::Subnet(of) => of == subnet,
            Logged::Eni(of) => of == eni,
        }
    }
}

/// Format of the files of a flow log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text behind a line with the names of the fields.
    Text,
    /// Lines of text as [`LogFormat::Text`], compressed with gzip.
    Gzip,
    /// Apache Parquet.
    Parquet,
}

impl LogFormat {
    /// Its name in files of clouds.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Gzip => "gzip",
            Self::Parquet => "parquet",
        }
    }
}

/// The interfaces that a flow log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    /// All of a cloud.
    Vpc(VpcId),
    /// All of a subnet.
    Subnet(SubnetId),
    /// A single interface.
    Eni(EniId),
}

/// The flows that a log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedTraffic {
    /// Flows that were accepted.
    Accept,
    /// Flows that were refused.
    Reject,
    /// All.
    All,
}

impl LoggedTraffic {
    /// Its name in files of clouds.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::All => "all",
        }
    }
}

/// A mirror filter: which packets are copied. A packet that no rule accepts is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorFilter {
    /// The tag `Name`, or empty.
    pub name: String,
    /// Rules in both directions, in ascending order of their number within a direction.
    pub rules: Vec<MirrorRule>,
}

/// One numbered rule of a mirror filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorRule {
    /// 1 to 32,766; the lowest number that matches decides.
    pub number: u16,
    /// Direction of packets, seen from the source's instance: true for outbound.
    pub egress: bool,
    /// Copy, or do not.
    pub accept: bool,
    /// Matched packets, by protocol and destination ports.
    pub traffic: Traffic,
    /// Source ports from the first to the second; all if none.
    pub source_ports: Option<(u16, u16)>,
    /// Source addresses.
    pub source: IpNet,
    /// Destination addresses.
    pub destination: IpNet,
}

/// A mirror target: the interface that copies go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorTarget {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The interface.
    pub eni: EniId,
}

/// A mirror session: copies of one interface's packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSession {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The interface whose packets are copied.
    pub source: EniId,
    /// Target of copies.
    pub target: MirrorTargetId,
    /// Filter that selects the packets to copy.
    pub filter: MirrorFilterId,
    /// 1 to 32,766: of several sessions of a source the lowest number whose filter accepts copies.
    pub number: u16,
    /// The VXLAN network identifier of the copies, 24 bits.
    pub vni: u32,
    /// Largest number of bytes of a packet that are copied; `None`: all.
    pub packet_length: Option<u16>,
}
