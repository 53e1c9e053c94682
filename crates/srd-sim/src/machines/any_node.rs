//! Machines that a scenario can put on its hosts, as one enum.

use srd_card::Counters;
use srd_proto::time::Instant;

use crate::engine::nic::Totals;
use crate::engine::node::{FlowSpec, Node, Outcomes, Packet};
use crate::machines::blast::Blast;
use crate::machines::express::ExpressNode;
use crate::machines::rank::RankNode;
use crate::machines::roce::RoceNode;
use crate::machines::srd_node::SrdNode;
use crate::machines::tcp::TcpNode;

/// A machine on a host: the transport that a scenario selects.
#[allow(clippy::large_enum_variant)] // a world's nodes are of one kind and lie side by side
pub enum AnyNode {
    /// The production SRD endpoint.
    Srd(SrdNode),
    /// The TCP model.
    Tcp(TcpNode),
    /// The RoCE model, for lossless networks.
    Roce(RoceNode),
    /// A guest with the TCP model behind the production ENA Express card.
    Express(Box<ExpressNode>),
    /// A rank of a parallel program over the production Messaging Layer.
    Rank(Box<RankNode>),
    /// A load generator for tests of the engine.
    Blast(Blast),
}

impl AnyNode {
    /// Returns the packet counters of the node's transport. The load generator counts nothing.
    pub fn sent(&self) -> Totals {
        match self {
            Self::Srd(node) => node.totals(),
            Self::Express(node) => node.totals(),
            Self::Rank(node) => node.totals(),
            Self::Roce(node) => node.totals(),
            Self::Tcp(node) => {
                let stats = node.stats();
                Totals {
                    data: stats.segments,
                    again: stats.segments_resent,
                    acks: stats.acknowledgements,
                    timeouts: stats.timeouts,
                }
            }
            Self::Blast(_) => Totals::default(),
        }
    }

    /// Returns the counters of the node's card; `None` if the node has no card.
    pub fn card(&self) -> Option<Counters> {
        match self {
            Self::Express(node) => Some(node.counters()),
            _ => None,
        }
    }
}

macro_rules! each {
    ($self:ident, $node:ident => $call:expr) => {
        match $self {
            AnyNode::Srd($node) => $call,
            AnyNode::Tcp($node) => $call,
            AnyNode::Roce($node) => $call,
            AnyNode::Express($node) => $call,
            AnyNode::Rank($node) => $call,
            AnyNode::Blast($node) => $call,
        }
    };
}

impl Node for AnyNode {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes) {
        each!(self, node => node.start_flow(now, flow, out));
    }

    #[inline]
    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        each!(self, node => node.on_packet(now, packet, out));
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        each!(self, node => node.on_timer(now, out));
    }

    #[inline]
    fn next_timer(&self) -> Option<Instant> {
        each!(self, node => node.next_timer())
    }

    #[inline]
    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        each!(self, node => node.poll_packet(now, slot, out))
    }

    fn poll_unpaused(&mut self, now: Instant, slot: &mut Packet) -> bool {
        each!(self, node => node.poll_unpaused(now, slot))
    }

    #[inline]
    fn warm_for_packet(&self, packet: &Packet) -> u64 {
        each!(self, node => node.warm_for_packet(packet))
    }

    #[inline]
    fn warm_for_poll(&self) -> u64 {
        each!(self, node => node.warm_for_poll())
    }

    fn restart(&mut self, now: Instant, out: &mut Outcomes) {
        each!(self, node => node.restart(now, out));
    }
}
