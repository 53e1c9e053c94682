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
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// Interfaces that are logged.
    pub resource: Logged,
    /// Flows that are logged: accepted flows, refused flows, or both.
    pub traffic: LoggedTraffic,
    /// Fields of a record, in order; if empty, the fields of version 2.
    pub fields: Vec<LogField>,
    /// Longest time in seconds that one record covers (the aggregation interval): 60 or 600.
    pub interval: u16,
    /// Directory of the files.
    pub directory: String,
    /// Format of the files.
    pub format: LogFormat,
}

impl FlowLog {
    /// Returns the fields of a record.
    pub fn fields(&self) -> &[LogField] {
        if self.fields.is_empty() { &LogField::DEFAULT } else { &self.fields }
    }

    /// Whether the log covers an interface of this subnet and cloud.
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
    /// Lines of text after a header line with the names of the fields.
    Text,
    /// Lines of text as [`LogFormat::Text`], compressed with gzip.
    Gzip,
    /// Files of Apache Parquet.
    Parquet,
}

impl LogFormat {
    /// Returns the name of the format in `vpc.toml`, the file that describes clouds.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Gzip => "gzip",
            Self::Parquet => "parquet",
        }
    }
}

/// The interfaces that a flow log covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    /// All interfaces of a cloud.
    Vpc(VpcId),
    /// All interfaces of a subnet.
    Subnet(SubnetId),
    /// A single interface.
    Eni(EniId),
}

/// The flows that a flow log covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedTraffic {
    /// Flows that were accepted.
    Accept,
    /// Flows that were refused.
    Reject,
    /// All flows, accepted or refused.
    All,
}

impl LoggedTraffic {
    /// Returns the name of the value in `vpc.toml`, the file that describes clouds.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::All => "all",
        }
    }
}

/// A mirror filter: rules that select the packets to copy. A packet that no rule accepts is not
/// copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorFilter {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// Rules in both directions, in ascending order of their number within a direction.
    pub rules: Vec<MirrorRule>,
}

/// One numbered rule of a mirror filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorRule {
    /// Number from 1 to 32,766. The matching rule with the lowest number decides.
    pub number: u16,
    /// Direction of packets, seen from the mirrored instance: true for outbound.
    pub egress: bool,
    /// Whether matching packets are copied.
    pub accept: bool,
    /// Packets that the rule matches, by protocol and destination ports.
    pub traffic: Traffic,
    /// First and last source port; `None`: all ports.
    pub source_ports: Option<(u16, u16)>,
    /// Source addresses that the rule matches.
    pub source: IpNet,
    /// Destination addresses that the rule matches.
    pub destination: IpNet,
}

/// A mirror target: the interface that receives the copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorTarget {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The interface that receives the copies.
    pub eni: EniId,
}

/// A mirror session: copies the packets of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSession {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The interface whose packets are copied.
    pub source: EniId,
    /// Receiver of the copies.
    pub target: MirrorTargetId,
    /// Filter that selects the packets to copy.
    pub filter: MirrorFilterId,
    /// Number from 1 to 32,766. Of the sessions of one source whose filters accept a packet, the
    /// session with the lowest number copies it.
    pub number: u16,
    /// The VXLAN network identifier of the copies, 24 bits.
    pub vni: u32,
    /// Largest number of bytes that are copied of each packet; `None`: all.
    pub packet_length: Option<u16>,
}
