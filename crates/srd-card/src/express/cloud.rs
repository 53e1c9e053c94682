//! Frames between interfaces of a cloud on different hosts. The card of instances has evaluated
//! each frame by the rules of the cloud, and names the host to which it is sent. The card of the
//! receiving host evaluates the frame once more.
//!
//! IP addresses do not select the host, because two clouds may use the same addresses. A flow is
//! identified by its 5-tuple together with the sending interface. The queue for a peer is shared
//! among tenants first, then among the flows of each tenant (Q5).

use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_proto::{Delivery, PeerId};

use super::egress::QueueId;
use super::ingress::Partner;
use super::peer::Peer;
use super::stage::Express;
use crate::counters::Counters;
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::{FRAME_BYTES_MAX, Meta};
use crate::order::{Admission, Near, Order, Sink, Source};
use crate::queue::scheduler::{Kind, QueuedFrame};
use crate::rewrite::ecn;
use crate::rewrite::segment;
use crate::rules::snapshot::PeerSlot;
use crate::wire::cloud::{BUNDLE_FRAMES_MAX, TRAILER_BYTES, Trailer, unbundle};
use crate::wire::frame::ChunkPosition;
use crate::wire::queue_pairs::CLOUD_QPN;

/// Data about a frame of a cloud that is sent to another host; the bytes of the frame are separate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// Host to which the frame is sent.
    pub to: PeerSlot,
    /// Number of the tenant that sends the frame; tenants share the queue for a host equally.
    /// Number zero is not that of an instance: it belongs to the guest's own packets.
    pub tenant: u32,
    /// Interface that sends the frame.
    pub interface: u64,
    /// Trailer that names sender and receiver of the frame.
    pub trailer: Trailer,
    /// Whether SRD carries the frame, because both interfaces have ENA Express for packets of this
    /// kind.
    pub express: bool,
}

/// Origin of a frame that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Host that has sent the frame.
    pub from: PeerSlot,
    /// Number of packets that the frame represents: more than one for a super-packet.
    pub packets: u64,
    /// Whether the frame was received over SRD.
    pub by_srd: bool,
}

/// Receiver of the frames of clouds that other hosts send.
pub trait Arrivals {
    /// Takes a frame of a peer, without its trailer.
    fn arrived(&mut self, how: Arrived, trailer: Trailer, frame: &[u8]);
}

/// Passes complete frames to the card of instances.
struct Inward<'a, A> {
    arrivals: &'a mut A,
    counters: &'a mut Counters,
    peers: &'a mut [Option<Peer>],
    by_srd: bool,
    /// Whether the network marked the frames (CE), and the transport does not react to the mark.
    marked: bool,
}

impl<A: Arrivals> Inward<'_, A> {
    fn count(&mut self, peer: u32, packets: u64, bytes: u64) {
        let peer = self.peers.get_mut(peer as usize).and_then(Option::as_mut);
        let own = peer.map(|peer| &mut peer.traffic);
        for traffic in own.into_iter().chain([&mut self.counters.traffic]) {
            traffic.count_received(packets, bytes, self.by_srd);
        }
    }
}

/// The frames of a bundle that has arrived, and the trailer of each of them. A single frame counts
/// as a bundle of one.
struct Opened<'a> {
    frames: [&'a [u8]; BUNDLE_FRAMES_MAX],
    count: usize,
    trailer: Trailer,
}

impl<'a> Opened<'a> {
    /// Splits a bundle. Returns `None` if it is too short, or if the lengths in it are wrong.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (rest, trailer) = Trailer::split(bytes)?;
        let (frames, count) = unbundle(rest, trailer.frames())?;
        Some(Self { frames, count, trailer: trailer.of_one() })
    }

    /// Reads the headers of the first frame; `None` if they are invalid.
    fn first(&self) -> Option<Meta> {
        Meta::parse(self.frames[0], Direction::Ingress)
    }
}

impl<A: Arrivals> Sink for Inward<'_, A> {
    fn admit(&mut self, _: u32, _: &mut Near, bytes: &[u8]) -> Option<Admission> {
        let opened = Opened::of(bytes);
        let read = opened.as_ref().and_then(|of| Some((of.first()?, of.trailer.interface())));
        self.counters.peer_malformed += u64::from(read.is_none()); // F1
        read.map(|(meta, source)| Admission { meta, source, at_once: false })
    }

    fn take(&mut self, peer: u32, _: &mut Near, bytes: &[u8]) -> Source {
        let opened = Opened::of(bytes);
        let Some((opened, meta)) = opened.and_then(|of| of.first().map(|meta| (of, meta))) else {
            self.counters.peer_malformed += 1; // F1
            return 0;
        };
        self.hand_all(peer, &meta, &opened);
        opened.trailer.interface()
    }

    fn release(&mut self, peer: u32, _: &mut Near, meta: &Meta, bytes: &[u8]) {
        if let Some(opened) = Opened::of(bytes) {
            self.hand_all(peer, meta, &opened);
        }
    }
}

impl<A: Arrivals> Inward<'_, A> {
    /// Passes all frames of a bundle to the card of instances. The first frame was read already.
    fn hand_all(&mut self, peer: u32, first: &Meta, opened: &Opened<'_>) {
        let Opened { frames, count, trailer } = opened;
        let (mut packets, mut bytes) = (0, 0);
        for (at, frame) in frames[..*count].iter().enumerate() {
            let read = if at > 0 { Meta::parse(frame, Direction::Ingress) } else { Some(*first) };
            let Some(Meta { layout, .. }) = read else {
                self.counters.peer_malformed += 1;
                continue;
            };
            packets += layout.packets();
            bytes += layout.packet_bytes() as u64;
            self.hand(peer, layout.packets(), frame, *trailer);
        }
        self.count(peer, packets, bytes);
    }

    /// Passes one frame to the card of instances.
    fn hand(&mut self, peer: u32, packets: u64, frame: &[u8], trailer: Trailer) {
        let how = Arrived { from: PeerSlot(peer), packets, by_srd: self.by_srd };
        if self.marked {
            let mut copy = Vec::from(frame);
            ecn::mark(&mut copy[OFFLOAD_BYTES..]); // G6
            return self.arrivals.arrived(how, trailer, &copy);
        }
        self.arrivals.arrived(how, trailer, frame);
    }
}

impl Express {
    /// Returns the slot of a peer by its identifier in the transport.
    pub fn slot(&self, id: PeerId) -> Option<PeerSlot> {
        self.slot_of(id).map(PeerSlot)
    }

    /// Largest packet of a cloud that goes to a peer outside of SRD, in bytes.
    pub fn cloud_bytes_max(&self, to: PeerSlot) -> usize {
        let lost = self.peer(to.0).map_or(0, |peer| peer.bytes_lost);
        self.plain_bytes_max.saturating_sub(OFFLOAD_BYTES + TRAILER_BYTES + lost)
    }

    /// Queues a frame of a cloud for the host of its receiver. The frame is counted and dropped if
    /// it contains no IP packet, if there is no peer in the slot or the peer accepts no frames of
    /// clouds, or if SRD does not carry the frame and it is too large for plain encapsulation.
    pub fn from_cloud(&mut self, now: Instant, parcel: Parcel, frame: Vec<u8>) {
        let Some(peer) = self.peer(parcel.to.0) else {
            self.counters.cloud_no_peer += 1;
            return;
        };
        if peer.offer.is_some_and(|offer| !offer.cloud) {
            self.counters.cloud_refused += 1; // C4
            return;
        }
        if frame.len() + TRAILER_BYTES > FRAME_BYTES_MAX {
            return self.longest_of_cloud(now, parcel, &frame); // G5
        }
        let Some(meta) = Meta::parse(&frame, Direction::Egress) else {
            self.counters.cloud_malformed += 1;
            return;
        };
        let choice = self.paths.choose(&meta.key);
        if !parcel.express {
            return self.plainly_from_cloud(now, parcel, (&meta, choice), frame);
        }
        let Some(line) = self.line_of_cloud(now, &meta, parcel) else { return };
        let kind = if self.table.is_overflow(line.slot) { Kind::PlainCloud } else { Kind::Cloud };
        let bytes = frame.len() - OFFLOAD_BYTES;
        if kind == Kind::PlainCloud && !self.goes_plainly(PeerSlot(line.peer), &meta.layout, bytes)
        {
            return;
        }
        let waiting = QueuedFrame { frame, layout: meta.layout, at: now, kind, path: choice.path };
        self.put_in_line(line, &parcel.trailer, waiting);
    }

    /// Takes a frame that would be longer than [`FRAME_BYTES_MAX`] with its trailer. If its packet
    /// can be segmented, the frame is divided into two; otherwise it is counted and dropped.
    #[cold]
    #[inline(never)]
    fn longest_of_cloud(&mut self, now: Instant, parcel: Parcel, frame: &[u8]) {
        match segment::halves(frame) {
            Some(halves) => {
                halves.into_iter().for_each(|half| self.from_cloud(now, parcel, half));
            }
            None => self.counters.cloud_malformed += 1,
        }
    }

    /// Returns the queue for a frame of a cloud, by its flow; `None` if the peer was removed.
    pub(super) fn line_of_cloud(
        &mut self,
        now: Instant,
        meta: &Meta,
        parcel: Parcel,
    ) -> Option<QueueId> {
        let Parcel { to: PeerSlot(peer), tenant, interface, .. } = parcel;
        match self.table.of_cloud(now, meta.key, interface, peer) {
            Some(flow) => {
                let peer = self.table.queue_of(flow, peer);
                Some(QueueId { peer, slot: flow.slot(), tenant })
            }
            None => self.line_of_many(peer),
        }
    }

    /// Takes a datagram that may contain a frame of a cloud, from one of a node's shards.
    /// `delivery.peer` is the peer that represents the node. Returns whether the datagram was for
    /// the queue pair of clouds; otherwise it is for [`Express::delivered_by`].
    pub fn delivered_of_cloud(
        &mut self,
        now: Instant,
        by: Partner,
        delivery: &Delivery<'_>,
        arrivals: &mut impl Arrivals,
    ) -> bool {
        if delivery.dst_qpn != CLOUD_QPN {
            return false;
        }
        let Some(slot) = self.slot_of(delivery.peer) else { return true };
        let (order, mut inward) = self.inward(arrivals, delivery.reliable);
        if delivery.reliable {
            let place = ChunkPosition::decode(delivery.imm);
            order.chunk(now, (slot, by.shard), place, delivery.payload, &mut inward);
        } else {
            inward.marked = delivery.ce;
            inward.take(slot, &mut None, delivery.payload);
        }
        true
    }

    /// Ends waits for missing frames in flows of clouds that have lasted too long.
    pub fn handle_cloud_timeout(&mut self, now: Instant, arrivals: &mut impl Arrivals) {
        let order = &self.cloud_order;
        if order.poll_timeout().is_none_or(|at| at > now) && !order.sweep_is_due(now) {
            return;
        }
        let (order, mut inward) = self.inward(arrivals, true);
        order.handle_timeout(now, &mut inward);
    }

    /// Returns the state that restores the order of flows of clouds, and the receiver of the frames
    /// that leave it.
    fn inward<'a, A: Arrivals>(
        &'a mut self,
        arrivals: &'a mut A,
        by_srd: bool,
    ) -> (&'a mut Order, Inward<'a, A>) {
        let Self { cloud_order, counters, peers, .. } = self;
        (cloud_order, Inward { arrivals, counters, peers, by_srd, marked: false })
    }
}
