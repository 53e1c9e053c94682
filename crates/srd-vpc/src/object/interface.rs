//! Instances, their interfaces, and where they are placed.

use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use ipnet::{Ipv4Net, Ipv6Net};

/// An elastic network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eni {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The subnet that it belongs to.
    pub subnet: SubnetId,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Private IPv4 addresses, the primary one first; never empty.
    pub ipv4: Vec<Ipv4Addr>,
    /// IPv6 addresses.
    pub ipv6: Vec<Ipv6Addr>,
    /// Delegated IPv4 prefixes of 28 bits.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Delegated IPv6 prefixes of 80 bits.
    pub ipv6_prefixes: Vec<Ipv6Net>,
    /// Security groups; their rules are merged.
    pub groups: Vec<GroupId>,
    /// Must packets be from or to an address of the interface? Middleboxes turn this off.
    pub source_dest_check: bool,
    /// The instance that it is attached to.
    pub attachment: Option<Attachment>,
    /// Idle times of connection tracking.
    pub tracking: TrackingSpec,
}

/// The attachment of an interface to an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The attachment's own identifier.
    pub id: AttachmentId,
    /// The instance.
    pub instance: InstanceId,
    /// The place among the instance's interfaces; 0 is the primary one.
    pub device_index: u8,
    /// ENA Express. It belongs to the attachment and ends with it.
    pub express: ExpressSpec,
}

/// `EnaSrdSpecification`: which packets may use SRD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpressSpec {
    /// TCP.
    pub enabled: bool,
    /// UDP as well; remembered, but without effect, while `enabled` is false.
    pub udp: bool,
}

/// `ConnectionTrackingSpecification`: idle times in seconds, the instance type's defaults if none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrackingSpec {
    /// An established TCP connection: 60 to 432,000.
    pub tcp_established: Option<u32>,
    /// A UDP flow with more than one request and response: 60 to 180.
    pub udp_stream: Option<u32>,
    /// A UDP flow in one direction, or with a single request and response: 30 to 60.
    pub udp: Option<u32>,
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The tag `Name`, or empty.
    pub name: String,
    /// The instance type, as `c7i.large`.
    pub instance_type: String,
    /// The availability zone.
    pub zone: String,
    /// The placement group.
    pub placement: Option<PlacementId>,
    /// The host that runs it, by name, once it is placed.
    pub host: Option<String>,
}

/// A placement group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The group's name.
    pub name: String,
    /// Placement of its instances relative to each other.
    pub strategy: Strategy,
}

/// Placement of the instances of a placement group relative to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Close together, in one zone.
    Cluster,
    /// In partitions that share no hardware.
    Partition(u8),
    /// Each on hardware of its own.
    Spread,
}
