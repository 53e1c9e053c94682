//! State of a flow: the verdict of each direction, with the number of the last change of rules.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use srd_proto::time::Instant;
use srd_vpc::compile;
use srd_vpc::express::Plainly;
use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::{Exit, Reach, Reason, Service};

use crate::limits::{FlowKind, FlowMeter};
use crate::observe::Path;
use crate::store::{stored, stored_values};
use crate::track::TrackId;
use crate::vpc::port::{PortId, Ride};

/// Verdict about one direction of a flow, with the number that shows whether it is still valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::vpc) struct Side {
    /// Low half of the number of the last change of rules before the verdict; 0 if there is no
    /// verdict.
    pub(in crate::vpc) epoch: u32,
    pub(in crate::vpc) verdict: Verdict,
}

impl Side {
    const NONE: Self = Self { epoch: 0, verdict: Verdict::Take };
}

/// Verdict of the rules for one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::vpc) enum Verdict {
    /// Packets are dropped for this reason.
    Refuse(Reason),
    /// Packets of the guest go to the target (interface, gateway or service) with this number in
    /// the table of targets.
    Go(u32),
    /// Packets go to the guest.
    Take,
}

/// State of a flow at an interface of this host. Its size is 40 bytes: so the entry of the flow is
/// one line of memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::vpc) struct Flow {
    /// Bandwidth meter of the packets that the guest sends.
    pub(in crate::vpc) meter: FlowMeter,
    /// Numbers of the last changes of rules before the verdicts, as in [`Side`].
    out_epoch: u32,
    into_epoch: u32,
    /// Number of the target of packets that the guest sends; [`NOBODY`] if there is no target.
    target: u32,
    /// Number of the sender from which packets of the flow have arrived and were evaluated;
    /// [`NOBODY`] if there is no such sender.
    pub(in crate::vpc) sender: u32,
    /// Entry of the flow at the instance of this host that receives its packets. This is a hint,
    /// which is checked before use.
    pub(in crate::vpc) beside: TrackId,
    /// Reasons for which the packets of the two directions are dropped.
    out_refusal: Option<Reason>,
    into_refusal: Option<Reason>,
}

/// Number that stands for no sender and for no target.
pub(in crate::vpc) const NOBODY: u32 = u32::MAX;

impl Flow {
    pub(in crate::vpc) fn new(now: Instant) -> Self {
        Self {
            meter: FlowMeter::new(now),
            out_epoch: 0,
            into_epoch: 0,
            target: NOBODY,
            sender: NOBODY,
            beside: TrackId::NONE,
            out_refusal: None,
            into_refusal: None,
        }
    }

    /// Verdict about packets that the guest sends.
    #[inline]
    pub(in crate::vpc) fn sent(&self) -> Side {
        let verdict = match self.out_refusal {
            Some(reason) => Verdict::Refuse(reason),
            None if self.target == NOBODY => Verdict::Take,
            None => Verdict::Go(self.target),
        };
        Side { epoch: self.out_epoch, verdict }
    }

    /// Verdict about packets for the guest, which have no target.
    #[inline]
    pub(in crate::vpc) fn received(&self) -> Side {
        let verdict = self.into_refusal.map_or(Verdict::Take, Verdict::Refuse);
        Side { epoch: self.into_epoch, verdict }
    }

    /// Stores the verdict about packets that the guest sends.
    pub(in crate::vpc) fn set_out(&mut self, Side { epoch, verdict }: Side) {
        self.out_epoch = epoch;
        (self.target, self.out_refusal) = match verdict {
            Verdict::Refuse(reason) => (NOBODY, Some(reason)),
            Verdict::Go(target) => (target, None),
            Verdict::Take => (NOBODY, None),
        };
    }

    /// Stores the verdict about packets for the guest.
    pub(in crate::vpc) fn set_into(&mut self, Side { epoch, verdict }: Side) {
        self.into_epoch = epoch;
        self.into_refusal = match verdict {
            Verdict::Refuse(reason) => Some(reason),
            Verdict::Go(_) | Verdict::Take => None,
        };
    }

    /// Removes the verdicts of both directions.
    pub(in crate::vpc) fn forget(&mut self) {
        self.set_out(Side::NONE);
        self.set_into(Side::NONE);
    }
}

/// Target of packets that a guest sends, with the properties that follow from it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::vpc) struct Target {
    pub(in crate::vpc) to: To,
    pub(in crate::vpc) kind: FlowKind,
    /// Path of the packets, as flow logs name it.
    pub(in crate::vpc) path: Path,
}

/// Next destination of a packet that a guest sends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::vpc) enum To {
    /// An interface of this host.
    Port(PortId),
    /// An interface of another host.
    Host { host: Arc<str>, eni: EniId, ride: Ride },
    /// The edge of a gateway out of the cloud. `public` is the guest's source address outside of
    /// the cloud, if it differs; `nat` is the NAT gateway that translates the packet there, if any.
    Edge { exit: Exit, edge: Arc<str>, public: Option<Ipv4Addr>, nat: Option<NatGatewayId> },
    /// An interface that is reached through a NAT gateway. The gateway replaces the source by its
    /// private address. `host` is `None` for an interface of this host.
    ByNat { nat: NatGatewayId, private: Ipv4Addr, host: Option<Arc<str>>, eni: EniId },
    /// A NAT gateway, for an answer to a packet that the gateway has translated.
    BackByNat(NatGatewayId),
    /// A service of the network itself.
    Service(Service),
}

impl Target {
    /// Returns whether SRD carries packets to this target, or the reason why not; `None` for a
    /// service of the network itself.
    pub(in crate::vpc) fn ride(&self) -> Option<Ride> {
        match &self.to {
            To::Host { ride, .. } => Some(*ride),
            To::Port(_) => Some(Err(Plainly::OneHost)),
            To::Edge { .. } | To::ByNat { .. } | To::BackByNat(_) => Some(Err(Plainly::Gateway)),
            To::Service(_) => None,
        }
    }

    /// Returns the kind of a flow, which determines its ceiling. `express` states whether SRD
    /// carries the flow.
    pub(in crate::vpc) fn kind(express: bool, reach: Reach) -> FlowKind {
        match reach {
            _ if express => FlowKind::Express,
            Reach::Cluster => FlowKind::ClusterPlacementGroup,
            _ => FlowKind::Exterior,
        }
    }
}

/// Sender of packets that arrive for an interface of this host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::vpc) struct Sender {
    /// Host that has sent the packets; `None` for this host.
    pub(in crate::vpc) host: Option<Arc<str>>,
    /// Interface that has sent the packets; `None` if they come from the internet.
    pub(in crate::vpc) eni: Option<EniId>,
    /// NAT gateway that the packets have passed, if any.
    pub(in crate::vpc) via: Via,
}

/// Path of packets from one interface to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::vpc) enum Via {
    /// The packets pass no NAT gateway.
    Direct,
    /// The packets pass a NAT gateway, whose address is the packets' source.
    Nat,
    /// The packets are answers, which return through a NAT gateway.
    NatBack,
}

stored!(Sender { host, eni, via });
stored_values!(Via: [Via::Direct], [Via::Nat], [Via::NatBack]);

/// Largest number of targets, and of senders, that are kept over a change of rules.
pub(in crate::vpc) const ENDS_MAX: usize = 1 << 16;

/// Targets and senders of flows, each stored once. Bound: [`ENDS_MAX`], and one more for each
/// interface, public address and gateway of the rules. Beyond this bound, the next change removes
/// all targets and senders, and all verdicts.
#[derive(Debug, Default)]
pub(in crate::vpc) struct Endpoints {
    pub(in crate::vpc) targets: Numbered<Target>,
    pub(in crate::vpc) senders: Numbered<Sender>,
}

impl Endpoints {
    pub(in crate::vpc) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(in crate::vpc) fn are_too_many(&self) -> bool {
        self.targets.all.len() > ENDS_MAX || self.senders.all.len() > ENDS_MAX
    }
}

/// A set of values, each with a number: finds the value of a number, and the number of a value.
#[derive(Debug)]
pub(in crate::vpc) struct Numbered<T> {
    all: Vec<T>,
    numbers: BTreeMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Numbered<T> {
    pub(in crate::vpc) fn get(&self, number: u32) -> Option<&T> {
        self.all.get(number as usize)
    }

    pub(in crate::vpc) fn number_of(&mut self, one: &T) -> u32 {
        if let Some(number) = self.numbers.get(one) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(NOBODY);
        self.all.push(one.clone());
        self.numbers.insert(one.clone(), number);
        number
    }
}

/// State of a packet's flow before the rules evaluate the packet.
#[derive(Clone, Copy)]
pub(in crate::vpc) struct FlowLookup {
    /// Entry of the flow, if there is one.
    pub(in crate::vpc) id: Option<TrackId>,
    /// Whether the interface tracks the flow, or the connection that an ICMP error quotes.
    pub(in crate::vpc) tracked: bool,
    /// Whether the first packet of the flow had the same direction as this packet.
    pub(in crate::vpc) first_way: bool,
}

impl FlowLookup {
    pub(in crate::vpc) const NOTHING: Self = Self { id: None, tracked: false, first_way: true };

    pub(in crate::vpc) fn flow(self) -> compile::Flow {
        if self.tracked { compile::Flow::Established } else { compile::Flow::New }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of the flow table is one line of memory for values of up to 40 bytes.
    #[test]
    fn a_flow_and_its_entry_are_one_line_of_memory() {
        assert_eq!(size_of::<Flow>(), 40);
    }

    #[test]
    fn a_flow_returns_the_verdicts_that_were_stored() {
        let mut flow = Flow::new(Instant::ZERO);
        assert_eq!((flow.sent(), flow.received()), (Side::NONE, Side::NONE));
        let of = |epoch, verdict| Side { epoch, verdict };
        let [refused, goes] = [of(3, Verdict::Refuse(Reason::AclOut)), of(4, Verdict::Go(0))];
        let [dropped, taken] = [of(5, Verdict::Refuse(Reason::GroupsIn)), of(6, Verdict::Take)];
        for (out, into) in [(refused, dropped), (goes, taken), (goes, dropped), (refused, taken)] {
            flow.set_out(out);
            flow.set_into(into);
            assert_eq!((flow.sent(), flow.received()), (out, into));
        }
        flow.forget();
        assert_eq!((flow.sent(), flow.received()), (Side::NONE, Side::NONE));
    }
}
