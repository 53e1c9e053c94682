//! Instances, their interfaces, and their placement.

use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use ipnet::{Ipv4Net, Ipv6Net};

/// An elastic network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eni {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The subnet that the interface belongs to.
    pub subnet: SubnetId,
    /// Hardware (MAC) address of the interface.
    pub mac: [u8; 6],
    /// Private IPv4 addresses, the primary address first; never empty.
    pub ipv4: Vec<Ipv4Addr>,
    /// IPv6 addresses of the interface.
    pub ipv6: Vec<Ipv6Addr>,
    /// Delegated IPv4 prefixes of 28 bits.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Delegated IPv6 prefixes of 80 bits.
    pub ipv6_prefixes: Vec<Ipv6Net>,
    /// Security groups; their rules are merged.
    pub groups: Vec<GroupId>,
    /// Whether each packet must have an address of the interface as its source or destination.
    /// Middleboxes turn this check off.
    pub source_dest_check: bool,
    /// Attachment to an instance, if there is one.
    pub attachment: Option<Attachment>,
    /// Idle timeouts of connection tracking.
    pub tracking: TrackingSpec,
}

/// The attachment of an interface to an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Identifier of the attachment.
    pub id: AttachmentId,
    /// The instance that the interface is attached to.
    pub instance: InstanceId,
    /// Index of the interface in its instance; 0 is the primary interface.
    pub device_index: u8,
    /// ENA Express settings. They belong to the attachment and end with it.
    pub express: ExpressSpec,
}

/// ENA Express settings of an interface (EC2's `EnaSrdSpecification`): packets that may use SRD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpressSpec {
    /// Whether TCP packets may use SRD.
    pub enabled: bool,
    /// Whether UDP packets may use SRD as well. The value is stored, but has no effect, while
    /// `enabled` is false.
    pub udp: bool,
}

/// Idle timeouts of tracked connections (EC2's `ConnectionTrackingSpecification`), in seconds.
/// `None` means the default of the instance type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrackingSpec {
    /// Idle timeout of an established TCP connection, 60 to 432,000 s; `None`: the instance type's
    /// default.
    pub tcp_established: Option<u32>,
    /// Idle timeout of a UDP flow with more than one request and response, 60 to 180 s; `None`: the
    /// instance type's default.
    pub udp_stream: Option<u32>,
    /// Idle timeout of a UDP flow in one direction, or with a single request and response, 30 to 60
    /// s; `None`: the instance type's default.
    pub udp: Option<u32>,
}

/// An instance of a virtual private cloud, without its interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The value of the tag `Name`; empty if the object has no such tag.
    pub name: String,
    /// The instance type, for example `c7i.large`.
    pub instance_type: String,
    /// The availability zone of the instance.
    pub zone: String,
    /// The placement group of the instance, if it belongs to one.
    pub placement: Option<PlacementId>,
    /// Name of the host that runs the instance, once the instance is placed.
    pub host: Option<String>,
    /// Name of the pod of its host whose network namespace the instance has; `None` if the host
    /// makes a namespace for the instance.
    pub pod: Option<String>,
}

/// A placement group of instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The group's name.
    pub name: String,
    /// Rule for the placement of its instances.
    pub strategy: Strategy,
}

/// Rule for the placement of a placement group's instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The instances are close together, in one zone.
    Cluster,
    /// The instances are divided among this number of partitions. Partitions share no hardware.
    Partition(u8),
    /// Each instance is on separate hardware.
    Spread,
}
