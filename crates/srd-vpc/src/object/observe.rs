//! What watches packets: flow logs and traffic mirroring.

use super::Traffic;
use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use ipnet::IpNet;

/// A flow log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowLog {
    /// The tag `Name`, or empty.
    pub name: String,
    /// Which interfaces it is about.
    pub resource: Logged,
    /// Which flows.
    pub traffic: LoggedTraffic,
    /// Names of the fields of a record, in order; the default format if empty.
    pub fields: Vec<String>,
    /// The longest window of one record, in seconds: 60 or 600.
    pub interval: u16,
}

/// The interfaces that a flow log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    /// All of a cloud.
    Vpc(VpcId),
    /// All of a subnet.
    Subnet(SubnetId),
    /// One.
    Eni(EniId),
}

/// The flows that a log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedTraffic {
    /// Those that passed.
    Accept,
    /// Those that were refused.
    Reject,
    /// All.
    All,
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
    /// Which way packets go, seen from the source's instance.
    pub egress: bool,
    /// Copy, or do not.
    pub accept: bool,
    /// Which packets, by protocol and destination ports.
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
    /// Where copies go.
    pub target: MirrorTargetId,
    /// Which packets are copied.
    pub filter: MirrorFilterId,
    /// 1 to 32,766: of several sessions of a source the lowest number whose filter accepts copies.
    pub number: u16,
    /// The VXLAN network identifier of the copies, 24 bits.
    pub vni: u32,
    /// How many bytes of a packet are copied; all if none.
    pub packet_length: Option<u16>,
}
