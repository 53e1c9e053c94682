//! Compilation of the rules of a [`World`](crate::object::World) into tables for one host. The
//! tables contain only the rules that the host's interfaces need.
//!
//! [`Rules::send`] evaluates a packet that an interface of the host sends, up to the receiving
//! interface. [`Rules::receive`] evaluates the packet at the receiver's host, and
//! [`Rules::from_internet`] evaluates a packet from outside. Together they return the verdict of
//! [`judge`](crate::judge::judge), without its steps.
//!
//! [`Rules::compile`] makes tables that hold every interface of the clouds that the host reaches,
//! which suits small clouds. Tables of a [`Directory`] hold the host's own interfaces and the
//! objects that its rules name. When a packet needs the location of another interface, these tables
//! *query* the directory ([`Question`]) and store the [`Answer`], up to a bound. For a list of
//! [`Edit`]s, the directory returns a [`Delta`] for each host that the edits concern;
//! [`Rules::apply`] applies the delta.
//!
//! | file | tables |
//! |---|---|
//! | `blocks` | values by blocks of addresses |
//! | `policy` | merged groups, access control lists |
//! | `index` | a world by host, address, group, instance and subnet |
//! | `build` | the parts of a world that a host needs |
//! | `decide` | verdicts on packets |
//! | `clouds` | the cloud to which an address belongs |
//! | `known` | answers that a host stores |
//! | `concern` | verdicts that a change affects |
//! | `edit` | changes of a world |
//! | `delta` | changes of a host's tables |
//! | `needs` | objects that a host's tables depend on |
//! | `directory` | deltas and answers for all hosts |
//! | `size`, `tree` | approximate bytes of tables, deltas and B-trees |

mod blocks;
mod build;
mod clouds;
mod concern;
mod decide;
mod delta;
mod directory;
mod edit;
mod index;
mod known;
mod needs;
mod policy;
mod size;
mod tree;

pub use concern::{Concern, Concerned};
pub use decide::{Arrival, EgressVerdict, Flow, Next, NoSender, SenderPlace};
pub use delta::Delta;
pub use directory::{Directory, HELD_MAX};
pub use edit::Edit;
pub use known::{Answer, Asker, KNOWN_MAX, NotLearned, Question, SHARE_MAX};

use crate::id::*;
use crate::judge::Reason;
use crate::object::{ExpressSpec, Target};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use blocks::Blocks;
use core::net::Ipv4Addr;
use known::AnswerCache;
use policy::{AclRules, Members, Policy};

/// The compiled tables of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    host: String,
    /// The interfaces of the host.
    ports: BTreeMap<EniId, Port>,
    /// Subnets of the host's interfaces, and of the NAT gateways to which routes of these subnets
    /// lead.
    subnets: BTreeMap<SubnetId, SubnetRules>,
    acls: BTreeMap<AclId, AclRules>,
    /// Addresses of each group that a rule names.
    members: Members,
    /// Whether the tables hold the host's own interfaces only, and query a directory about other
    /// interfaces.
    asks: bool,
    /// For each cloud that the host can reach, the locations of interfaces by address block. Tables
    /// that query a directory contain only the host's own interfaces here; other tables contain all
    /// interfaces.
    mapping: BTreeMap<VpcId, Blocks<Location>>,
    /// Interfaces in `mapping` that may send with any source address, because their source and
    /// destination check is off.
    unchecked: BTreeMap<EniId, (VpcId, Location)>,
    /// Stored answers of the directory about interfaces of other hosts.
    known: AnswerCache,
    /// Pairs of clouds: a cloud of the host's interfaces, and a cloud that an active peering
    /// connection joins to it.
    peered: BTreeSet<(VpcId, VpcId)>,
    /// Whether packets with private addresses may pass to and from the internet.
    internet_private: bool,
    /// The address blocks of all clouds.
    clouds: BTreeMap<VpcId, Blocks<()>>,
    gateways: Gateways,
}

/// An interface of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Port {
    subnet: SubnetId,
    source_dest_check: bool,
    own: Blocks<()>,
    policy: Arc<Policy>,
    place: Location,
}

/// A subnet that packets leave or enter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SubnetRules {
    vpc: VpcId,
    acl: AclId,
    /// The routes; `None` if the route table does not exist.
    routes: Option<Arc<Blocks<(u8, Target)>>>,
    /// The address of the cloud's resolver, and whether the resolver answers; `None` if the cloud
    /// does not exist or has no IPv4 block.
    services: Option<(Ipv4Addr, bool)>,
}

/// Location of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The interface that has this location.
    pub eni: EniId,
    /// Subnet of the interface.
    pub subnet: SubnetId,
    /// Host that runs the interface's instance, once the instance is placed.
    pub host: Option<Arc<str>>,
    /// ENA Express settings of the interface: traffic that may use SRD.
    pub express: ExpressSpec,
    /// Availability zone of the interface.
    zone: Arc<str>,
    /// Cluster placement group of the interface's instance, if the instance belongs to such a
    /// group.
    cluster: Option<PlacementId>,
}

/// Gateways and other targets of the host's routes, and the public addresses that gateways
/// translate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Gateways {
    /// Internet gateways and the clouds that they are attached to; `None`: a detached gateway.
    internet: BTreeMap<InternetGatewayId, Option<VpcId>>,
    /// The clouds that have an internet gateway.
    attached: BTreeSet<VpcId>,
    egress_only: BTreeMap<EgressOnlyGatewayId, VpcId>,
    nat: BTreeMap<NatGatewayId, Nat>,
    /// NAT gateways of the clouds that can be reached, by cloud and private address, and the
    /// subnets of the gateways.
    nats: BTreeMap<(VpcId, Ipv4Addr), (NatGatewayId, SubnetId)>,
    /// The two clouds of each peering connection; `None` if the connection is not active.
    peerings: BTreeMap<PeeringId, Option<[VpcId; 2]>>,
    /// Gateway endpoints: the cloud of each, and whether its flows are always tracked.
    endpoints: BTreeMap<EndpointId, (VpcId, bool)>,
    middleboxes: BTreeMap<EniId, Remote>,
    /// Public addresses by cloud and private address: of the host's interfaces, and of other
    /// interfaces whose packets the host may send.
    elastic: BTreeMap<(VpcId, Ipv4Addr), Ipv4Addr>,
    /// Public addresses of NAT gateways, by cloud and private address of the gateway; an error if
    /// the gateway has no public address.
    of_nat: BTreeMap<(VpcId, Ipv4Addr), Result<Ipv4Addr, Reason>>,
    /// Elastic addresses of the host's interfaces, by which packets from the internet are
    /// delivered.
    arrivals: BTreeMap<Ipv4Addr, (EniId, Ipv4Addr)>,
}

/// A NAT gateway that is the target of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nat {
    subnet: SubnetId,
    vpc: Option<VpcId>,
    private: Ipv4Addr,
}

/// An interface of another host, or an interface that is the target of routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    vpc: Option<VpcId>,
    source_dest_check: bool,
    own: Blocks<()>,
    place: Location,
}

impl Rules {
    /// Returns the interfaces of the host.
    pub fn enis(&self) -> impl Iterator<Item = EniId> + '_ {
        self.ports.keys().copied()
    }

    /// Returns the location of an interface of the host.
    pub fn port(&self, eni: EniId) -> Option<&Location> {
        self.ports.get(&eni).map(|port| &port.place)
    }

    /// Returns the cloud of an interface of the host.
    pub fn vpc_of(&self, eni: EniId) -> Option<VpcId> {
        Some(self.subnets.get(&self.ports.get(&eni)?.subnet)?.vpc)
    }

    /// Returns the number of entries of the tables: interfaces, address blocks of interfaces, and
    /// address blocks of group members, in this order.
    pub fn sizes(&self) -> [usize; 3] {
        let mapping = self.mapping.values().map(Blocks::len).sum();
        [self.ports.len(), mapping, self.members.values().map(Blocks::len).sum()]
    }

    /// Returns the number of the directory's stored answers, which are about interfaces of other
    /// hosts.
    pub fn answers(&self) -> usize {
        self.known.len()
    }

    /// Returns the clouds whose interfaces the host may reach.
    pub fn vpcs(&self) -> Vec<VpcId> {
        self.mapping.keys().copied().collect()
    }
}
