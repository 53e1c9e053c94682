//! The rules of a [`World`](crate::object::World) as tables for one host: the rules that its
//! interfaces need, and nothing else.
//!
//! [`Rules::send`] judges a packet that an interface of the host sends, up to the receiving
//! interface; [`Rules::receive`] judges it at the receiver's host, and [`Rules::from_internet`] a
//! packet from outside. Together they return the verdict of [`judge`](crate::judge::judge),
//! without its steps.
//!
//! [`Rules::compile`] makes tables that hold every interface of the clouds that the host reaches:
//! right for small clouds. Tables of a [`Directory`] hold the host's own interfaces and the
//! objects that its rules name. They *query* the location of another interface ([`Question`])
//! when a packet needs it, and store the [`Answer`] up to a bound. For a list of [`Edit`]s, the
//! directory returns a [`Delta`] for each host that is concerned; [`Rules::apply`] applies it.
//!
//! | file | tables |
//! |---|---|
//! | `blocks` | values by blocks of addresses |
//! | `policy` | merged groups, access control lists |
//! | `index` | a world by host, address, group, instance and subnet |
//! | `build` | what of a world a host needs |
//! | `decide` | packets |
//! | `known` | answers that a host remembers |
//! | `concern` | whose verdicts a change concerns |
//! | `edit` | changes of a world |
//! | `delta` | what a host has to change |
//! | `needs` | what the tables of a host rest on |
//! | `directory` | which hosts need which delta, and answers |
//! | `size`, `tree` | about how many bytes tables and deltas take, and a B-tree |

mod blocks;
mod build;
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
pub use decide::{Arrival, EgressVerdict, Flow, Next, NoSender};
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

/// The tables of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    host: String,
    /// The interfaces of the host.
    ports: BTreeMap<EniId, Port>,
    /// Subnets of these interfaces, and of the NAT gateways that they use.
    subnets: BTreeMap<SubnetId, SubnetRules>,
    acls: BTreeMap<AclId, AclRules>,
    /// Addresses of each group that a rule names.
    members: Members,
    /// Whether the tables hold the host's own interfaces only, and query others.
    asks: bool,
    /// The clouds that can be reached, with their interfaces: only the host's own if the tables
    /// query others, otherwise all.
    mapping: BTreeMap<VpcId, Blocks<Location>>,
    /// Interfaces of these clouds whose source and destination check is off: their packets may
    /// have any source address.
    unchecked: BTreeMap<EniId, (VpcId, Location)>,
    /// Answers about other interfaces.
    known: AnswerCache,
    /// Clouds of the host's interfaces, and clouds that an active connection joins them to.
    peered: BTreeSet<(VpcId, VpcId)>,
    /// Whether the internet carries private addresses.
    internet_private: bool,
    /// The blocks of all clouds.
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
    /// `None` if the table does not exist.
    routes: Option<Arc<Blocks<(u8, Target)>>>,
    /// The resolver's address in the cloud, and whether it answers.
    services: Option<(Ipv4Addr, bool)>,
}

/// Location of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The interface.
    pub eni: EniId,
    /// Its subnet.
    pub subnet: SubnetId,
    /// The host that its instance is placed on.
    pub host: Option<Arc<str>>,
    /// Traffic of the interface that may use SRD.
    pub express: ExpressSpec,
    /// Its zone.
    zone: Arc<str>,
    /// The cluster placement group of its instance.
    cluster: Option<PlacementId>,
}

/// Targets of the host's routes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Gateways {
    /// Internet gateways and the clouds that they are attached to.
    internet: BTreeMap<InternetGatewayId, Option<VpcId>>,
    /// The clouds that have an internet gateway.
    attached: BTreeSet<VpcId>,
    egress_only: BTreeMap<EgressOnlyGatewayId, VpcId>,
    nat: BTreeMap<NatGatewayId, Nat>,
    /// NAT gateways of the clouds that can be reached, by their private addresses, and the subnets
    /// that they stand in.
    nats: BTreeMap<(VpcId, Ipv4Addr), (NatGatewayId, SubnetId)>,
    /// The two ends of a connection, if it is active.
    peerings: BTreeMap<PeeringId, Option<[VpcId; 2]>>,
    /// Endpoints: the cloud, and whether flows are always tracked.
    endpoints: BTreeMap<EndpointId, (VpcId, bool)>,
    middleboxes: BTreeMap<EniId, Remote>,
    /// Public addresses of private ones: those of the host's interfaces, and those of others whose
    /// packets it may send.
    elastic: BTreeMap<(VpcId, Ipv4Addr), Ipv4Addr>,
    /// Public addresses of private ones: those of NAT gateways.
    of_nat: BTreeMap<(VpcId, Ipv4Addr), Result<Ipv4Addr, Reason>>,
    /// Elastic addresses of the host's interfaces: what a packet from the internet finds.
    arrivals: BTreeMap<Ipv4Addr, (EniId, Ipv4Addr)>,
}

/// A NAT gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nat {
    subnet: SubnetId,
    vpc: Option<VpcId>,
    private: Ipv4Addr,
}

/// An interface of another host, or one that routes lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    vpc: Option<VpcId>,
    source_dest_check: bool,
    own: Blocks<()>,
    place: Location,
}

impl Rules {
    /// The interfaces of the host.
    pub fn enis(&self) -> impl Iterator<Item = EniId> + '_ {
        self.ports.keys().copied()
    }

    /// Location of an interface of the host.
    pub fn port(&self, eni: EniId) -> Option<&Location> {
        self.ports.get(&eni).map(|port| &port.place)
    }

    /// The cloud of an interface of the host.
    pub fn vpc_of(&self, eni: EniId) -> Option<VpcId> {
        Some(self.subnets.get(&self.ports.get(&eni)?.subnet)?.vpc)
    }

    /// Number of entries of the tables: interfaces, addresses of the mapping, and addresses of
    /// groups, in this order.
    pub fn sizes(&self) -> [usize; 3] {
        let mapping = self.mapping.values().map(Blocks::len).sum();
        [self.ports.len(), mapping, self.members.values().map(Blocks::len).sum()]
    }

    /// Number of stored answers about other interfaces.
    pub fn answers(&self) -> usize {
        self.known.len()
    }

    /// The clouds whose interfaces the host may reach.
    pub fn vpcs(&self) -> Vec<VpcId> {
        self.mapping.keys().copied().collect()
    }
}
