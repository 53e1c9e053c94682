//! From the transport to the guest: packets are ordered by flow, and accepted only from the peer's
//! own addresses.

use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_proto::{Delivery, PeerId};

use super::peer::Peer;
use super::stage::{Express, Guest};
use crate::counters::Counters;
use crate::flow::table::{FlowId, FlowTable};
use crate::meta::Meta;
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::order::{Admission, Near, Order, Sink, Source};
use crate::rewrite::{ecn, mss};
use crate::rules::snapshot::Rules;
use crate::wire::frame::ChunkPosition;
use crate::wire::queue_pairs::{FRAME_QPN, OFFER_QPN};

/// Context through which a datagram arrived. The node of a peer may have several shards, each with
/// a context of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partner {
    /// Identifier of the context in the transport.
    pub context: PeerId,
    /// Shard of the peer's node. Each shard assigns its flow numbers independently (F4).
    pub shard: u8,
}

/// Passes complete frames to the guest: checks their source address, counts them, and lowers the
/// MSS of TCP connections.
struct Upward<'a, G> {
    now: Instant,
    guest: &'a mut G,
    rules: &'a Rules,
    table: &'a mut FlowTable,
    counters: &'a mut Counters,
    peers: &'a mut [Option<Peer>],
    mtu: u16,
    udp_bypass: bool,
    by_srd: bool,
    /// Whether the network marked the packets (CE), and the transport does not react to the mark.
    marked: bool,
}

impl<G: Guest> Upward<'_, G> {
    /// Reads a frame. Returns `None`, and counts the frame, if it is invalid.
    fn parse(&mut self, frame: &[u8]) -> Option<Meta> {
        let meta = Meta::parse(frame, Direction::Ingress);
        self.counters.peer_malformed += u64::from(meta.is_none()); // F1
        meta
    }

    /// Returns the flow of a packet from a peer: `Some(None)` if the flow table has no entry for
    /// it. Returns `None`, and counts the packet, if the peer may not send the packet. // G1
    #[allow(clippy::option_option)] // the outer: refused; the inner: without an entry
    fn classify(&mut self, peer: u32, near: &mut Near, meta: &Meta) -> Option<Option<FlowId>> {
        let found = self.table.classify(self.now, meta, self.rules, Some(peer), *near);
        let Some(found) = found else {
            self.refuse(peer, meta);
            return None;
        };
        *near = found.flow.map(FlowId::slot);
        Some(found.flow)
    }

    #[cold]
    fn refuse(&mut self, peer: u32, meta: &Meta) {
        self.counters.peer_bad_source += 1;
        let packets = meta.layout.packets();
        self.counters.traffic.refused_pkts += packets;
        if let Some(peer) = self.peers.get_mut(peer as usize).and_then(Option::as_mut) {
            peer.traffic.refused_pkts += packets;
            // The key is that of packets from the guest, so its destination is the peer's address.
            peer.refused_from = Some(meta.key.destination);
        }
    }

    fn count(&mut self, peer: u32, flow: Option<FlowId>, meta: &Meta) {
        let (packets, bytes) = (meta.layout.packets(), meta.layout.packet_bytes() as u64);
        if let Some(flow) = flow {
            self.table.count(flow, packets, bytes, self.by_srd);
        }
        let peer = self.peers.get_mut(peer as usize).and_then(Option::as_mut);
        let own = peer.map(|peer| &mut peer.traffic);
        for traffic in own.into_iter().chain([&mut self.counters.traffic]) {
            traffic.count_received(packets, bytes, self.by_srd);
        }
    }
}

impl<G: Guest> Sink for Upward<'_, G> {
    fn admit(&mut self, peer: u32, near: &mut Near, frame: &[u8]) -> Option<Admission> {
        let meta = self.parse(frame)?;
        self.classify(peer, near, &meta)?;
        let at_once = self.udp_bypass && meta.layout.protocol == protocol::UDP; // O1
        Some(Admission { meta, source: 0, at_once })
    }

    fn take(&mut self, peer: u32, near: &mut Near, frame: &[u8]) -> Source {
        if let Some(meta) = self.parse(frame) {
            self.release(peer, near, &meta, frame);
        }
        0
    }

    fn release(&mut self, peer: u32, near: &mut Near, meta: &Meta, frame: &[u8]) {
        let Some(flow) = self.classify(peer, near, meta) else { return };
        self.count(peer, flow, meta);
        if !meta.layout.is_syn() && !self.marked {
            self.guest.deliver(frame);
            return;
        }
        let mut copy = Vec::from(frame);
        if self.marked {
            ecn::mark(&mut copy[OFFLOAD_BYTES..]); // G6
        }
        let clamped = mss::clamp(&mut copy[OFFLOAD_BYTES..], &meta.layout, self.mtu); // G2
        self.counters.mss_clamped += u64::from(clamped);
        self.guest.deliver(&copy);
    }
}

impl Express {
    /// Takes a datagram for one of the stage's queue pairs, from a node with one shard.
    pub fn delivered(&mut self, now: Instant, delivery: &Delivery<'_>, guest: &mut impl Guest) {
        let by = Partner { context: delivery.peer, shard: 0 };
        self.delivered_by(now, by, delivery, guest);
    }

    /// Takes a datagram for one of the stage's queue pairs, from one of the shards of a node.
    /// `delivery.peer` is the peer that represents the node in the rules.
    pub fn delivered_by(
        &mut self,
        now: Instant,
        by: Partner,
        delivery: &Delivery<'_>,
        guest: &mut impl Guest,
    ) {
        let Some(slot) = self.slot_of(delivery.peer) else { return };
        if delivery.dst_qpn == OFFER_QPN {
            if delivery.reliable {
                self.on_offer(now, slot, by.context, delivery.payload);
            }
            return;
        }
        if delivery.dst_qpn != FRAME_QPN {
            return;
        }
        let (order, mut upward) = self.upward(now, guest, delivery.reliable);
        upward.marked = delivery.ce && !delivery.reliable;
        if delivery.reliable {
            let place = ChunkPosition::decode(delivery.imm);
            order.chunk(now, (slot, by.shard), place, delivery.payload, &mut upward);
        } else {
            upward.take(slot, &mut None, delivery.payload);
        }
    }

    /// Ends waits for missing frames that have lasted too long, and delivers the frames behind
    /// them.
    pub fn handle_timeout(&mut self, now: Instant, guest: &mut impl Guest) {
        if self.order.poll_timeout().is_none_or(|at| at > now) && !self.order.sweep_is_due(now) {
            return;
        }
        let (order, mut upward) = self.upward(now, guest, true);
        order.handle_timeout(now, &mut upward);
    }

    /// Returns the state that restores the order of flows, and the receiver of the frames that
    /// leave it.
    fn upward<'a, G: Guest>(
        &'a mut self,
        now: Instant,
        guest: &'a mut G,
        by_srd: bool,
    ) -> (&'a mut Order, Upward<'a, G>) {
        let upward = Upward {
            now,
            guest,
            rules: &self.rules,
            table: &mut self.table,
            counters: &mut self.counters,
            peers: &mut self.peers,
            mtu: self.config.mtu,
            udp_bypass: self.config.udp_bypass,
            by_srd,
            marked: false,
        };
        (&mut self.order, upward)
    }
}
