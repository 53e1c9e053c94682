//! What is kept with a flow: the verdict of each direction, under the number of the last change.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use srd_proto::time::Instant;
use srd_vpc::compile;
use srd_vpc::express::Plainly;
use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::{Exit, Reach, Reason, Service};

use super::port::{PortId, Ride};
use crate::limits::{FlowKind, FlowMeter};
use crate::observe::Path;
use crate::store::{stored, stored_values};
use crate::track::TrackId;

/// A verdict of one direction of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// The last change before it, as flows keep it; 0: there is none.
    pub(super) epoch: u32,
    pub(super) verdict: Verdict,
}

impl Side {
    const NONE: Self = Self { epoch: 0, verdict: Verdict::Take };
}

/// What the rules say of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// Packets are dropped.
    Refuse(Reason),
    /// Packets of the guest go to this target.
    Go(u32),
    /// The guest takes packets.
    Take,
}

/// What is kept with a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) out: Side,
    pub(super) into: Side,
    /// What the guest sends of it.
    pub(super) meter: FlowMeter,
    /// The other end that may send its packets; [`NOBODY`] until one has.
    pub(super) sender: u32,
    /// Where the instance of this host that takes its packets has its entry, as a hint.
    pub(super) beside: TrackId,
}

/// No sender.
pub(super) const NOBODY: u32 = u32::MAX;

impl Flow {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            out: Side::NONE,
            into: Side::NONE,
            meter: FlowMeter::new(now),
            sender: NOBODY,
            beside: TrackId::NONE,
        }
    }

    /// Forgets the verdicts of both directions.
    pub(super) fn forget(&mut self) {
        (self.out, self.into) = (Side::NONE, Side::NONE);
    }
}

/// Where packets of the guest go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Target {
    pub(super) to: To,
    pub(super) kind: FlowKind,
    /// How flow logs call the way.
    pub(super) path: Path,
}

/// The next stop.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum To {
    /// An interface of this host.
    Port(PortId),
    /// An interface of another host.
    Host { host: Arc<str>, eni: EniId, ride: Ride },
    /// The edge of a gateway. `public`: the source that stands for the guest's outside.
    Edge { exit: Exit, edge: Arc<str>, public: Option<Ipv4Addr>, nat: Option<NatGatewayId> },
    /// A NAT gateway, which writes its private address as the source; then an interface of a host,
    /// or of this one.
    ByNat { nat: NatGatewayId, private: Ipv4Addr, host: Option<Arc<str>>, eni: EniId },
    /// A NAT gateway: an answer.
    BackByNat(NatGatewayId),
    /// A service of the network's own.
    Service(Service),
}

impl Target {
    /// Whether packets that go there ride SRD; none if a service of the network's own answers.
    pub(super) fn ride(&self) -> Option<Ride> {
        match &self.to {
            To::Host { ride, .. } => Some(*ride),
            To::Port(_) => Some(Err(Plainly::OneHost)),
            To::Edge { .. } | To::ByNat { .. } | To::BackByNat(_) => Some(Err(Plainly::Gateway)),
            To::Service(_) => None,
        }
    }

    /// The ceiling of a flow that rides SRD, or goes so far.
    pub(super) fn kind(express: bool, reach: Reach) -> FlowKind {
        match reach {
            _ if express => FlowKind::Express,
            Reach::Cluster => FlowKind::ClusterPlacementGroup,
            _ => FlowKind::Exterior,
        }
    }
}

/// The other end of packets that arrive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Sender {
    /// The host that has sent them; none if it is this one.
    pub(super) host: Option<Arc<str>>,
    /// The interface that they are from; none if they are from the internet.
    pub(super) eni: Option<EniId>,
    /// The NAT gateway that they have passed, if any.
    pub(super) via: Via,
}

/// The way of packets from an interface to another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Via {
    /// By no NAT gateway.
    Direct,
    /// By a NAT gateway, whose address is their source.
    Nat,
    /// Back by a NAT gateway, as answers.
    NatBack,
}

stored!(Sender { host, eni, via });
stored_values!(Via: [Via::Direct], [Via::Nat], [Via::NatBack]);

/// The most targets, and the most senders, that are kept over a change of rules.
pub(super) const ENDS_MAX: usize = 1 << 16;

/// The targets and the senders of flows, each once. Bound: [`ENDS_MAX`], and as many as interfaces,
/// public addresses and gateways that the rules know; beyond that all are forgotten with the next
/// change, and all verdicts with them.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) targets: Numbered<Target>,
    pub(super) senders: Numbered<Sender>,
}

impl Ends {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.targets.all.len() > ENDS_MAX || self.senders.all.len() > ENDS_MAX
    }
}

/// Values by number, and numbers by value.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    all: Vec<T>,
    numbers: BTreeMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Numbered<T> {
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.all.get(number as usize)
    }

    pub(super) fn number_of(&mut self, one: &T) -> u32 {
        if let Some(number) = self.numbers.get(one) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(NOBODY);
        self.all.push(one.clone());
        self.numbers.insert(one.clone(), number);
        number
    }
}

/// What is known of a packet's flow before the rules are asked.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// Its entry, if it has one.
    pub(super) id: Option<TrackId>,
    /// Whether the interface tracks it, or the connection that an ICMP error quotes.
    pub(super) tracked: bool,
    /// Whether its first packet went the way of this one.
    pub(super) first_way: bool,
}

impl Known {
    pub(super) const NOTHING: Self = Self { id: None, tracked: false, first_way: true };

    pub(super) fn flow(self) -> compile::Flow {
        if self.tracked { compile::Flow::Established } else { compile::Flow::New }
    }
}
