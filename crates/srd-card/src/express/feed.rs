//! From the queues to the transport: frames are passed on in the order of the scheduler, over SRD
//! or without it, while the transport has free space.

use alloc::vec::Vec;

use bytes::Bytes;
use srd_proto::time::Instant;
use srd_proto::{Class, Datagram, Endpoint, Entropy, Qpn};

use super::peer::{Cut, Peer, Reach};
use super::stage::Express;
use crate::flow::table::FlowId;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::queue::scheduler::{Kind, Lane, QueueCounts, QueuedFrame, Rule, Turn};
use crate::rewrite::segment::{Segments, fitted};
use crate::rules::snapshot::PeerSlot;
use crate::wire::cloud::{TRAILER_BYTES, Trailer};
use crate::wire::frame::{CHUNKS_MAX, ChunkPosition, chunk_bytes};
use crate::wire::queue_pairs::{CLOUD_QPN, FRAME_QPN, FRESH_QPN};

/// Lower bound of the bytes for one peer that may wait in the transport for their first
/// transmission. Frames that wait in the card instead can still be marked, dropped, or overtaken by
/// a new flow. // Q1
const FEED_BYTES_MIN: u64 = 16 * 1024;
/// Upper bound of the bytes for one peer that may wait in the transport for their first
/// transmission.
const FEED_BYTES_MAX: u64 = 256 * 1024;
/// Time in nanoseconds. As many bytes as a peer receives in this time may wait in the transport for
/// their first transmission, within [`FEED_BYTES_MIN`] and [`FEED_BYTES_MAX`].
const FEED_NS: u64 = 1_000_000;
/// Largest number of packets outside of SRD that wait in the transport for one peer. // Q1
const FEED_PLAIN_MAX: usize = 128;
/// Size in bytes of the largest frame of a new flow that is sent before bulk data.
const FRESH_BYTES_MAX: usize = 9000;

/// Limits for the frames that may be passed to the transport for one peer at present.
#[derive(Clone, Copy)]
pub(super) struct Feed {
    pub(super) reach: Reach,
    /// Payload bytes of the largest chunk.
    chunk_bytes_max: usize,
    /// Largest number of bytes that may wait in the transport for their first transmission.
    bytes: u64,
    /// Whether the peer accepts frames of clouds.
    pub(super) cloud: bool,
    /// Whether the peer has a super-packet of which some packets were sent outside of SRD, and the
    /// other packets wait.
    is_cut: bool,
}

/// A frame that has left its queue and is passed to the transport.
pub(super) struct Outgoing {
    pub(super) peer: u32,
    pub(super) turn: Turn,
    pub(super) lane: Lane,
    pub(super) frame: Vec<u8>,
    pub(super) layout: Layout,
    pub(super) kind: Kind,
    pub(super) path: u8,
}

/// Number of packets that a frame or a bundle represents, and their bytes, for the counters.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Whether the packets count as eligible for SRD.
    pub(super) eligible: bool,
}

impl Express {
    /// Sends the offers that are due, and passes waiting frames to the transport, for each peer as
    /// many as the transport should hold. Returns the number of frames.
    pub fn pump(&mut self, now: Instant, endpoint: &mut Endpoint) -> usize {
        self.send_offers(now, endpoint);
        let mut handed = 0;
        for _ in 0..self.ready.len() {
            let Some(slot) = self.ready.pop_front() else { break };
            if self.pump_peer(now, slot, endpoint, &mut handed) {
                self.ready.push_back(slot);
            } else if let Some(peer) = self.peer_mut(slot) {
                peer.queued = false;
            }
        }
        handed
    }

    /// Whether frames may wait in the queue of any peer.
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Passes the frames of one peer to the transport, from each lane (SRD, and plain
    /// encapsulation) while the transport's queue for the lane has free space. Returns whether more
    /// frames wait for the peer.
    fn pump_peer(
        &mut self,
        now: Instant,
        slot: u32,
        endpoint: &mut Endpoint,
        handed: &mut usize,
    ) -> bool {
        let Some(feed) = self.feed(slot, endpoint) else { return false };
        let mut counts = QueueCounts::default();
        let mut full = [false; 2];
        if feed.is_cut {
            self.resume_cut(now, slot, endpoint);
        }
        let more = loop {
            let Some(peer) = self.peers.get_mut(slot as usize).and_then(Option::as_mut) else {
                break false;
            };
            let open = |lane: &Lane| !full[*lane as usize] && peer.scheduler.has(*lane);
            let Some(lane) = Lane::ALL.into_iter().find(open) else {
                break !peer.scheduler.is_empty() || peer.cut.is_some();
            };
            let queues = &mut self.table.queues;
            let Some(turn) = peer.scheduler.next(queues, lane) else { continue };
            if !has_room(peer, lane, turn, feed, endpoint) {
                full[lane as usize] = true;
                continue;
            }
            let taken = peer.scheduler.take(queues, turn, lane, now, &self.aqm, &mut counts);
            let Some(QueuedFrame { frame, layout, kind, path, .. }) = taken else { continue };
            *handed += 1;
            let outgoing = Outgoing { peer: slot, turn, lane, frame, layout, kind, path };
            self.send(now, outgoing, feed, endpoint);
        };
        if let Some(peer) = self.peers.get_mut(slot as usize).and_then(Option::as_mut) {
            self.absent.count(peer);
        }
        self.count_queue(slot, counts);
        more
    }

    /// Returns the limits for frames to a peer by the present rules, and applies the rules to the
    /// peer's queue (X4). Returns `None` if there is no peer, or if frames have to wait for its
    /// offer (C4).
    fn feed(&mut self, slot: u32, endpoint: &Endpoint) -> Option<Feed> {
        let enabled = self.rules.enabled_for(PeerSlot(slot));
        let peer = self.peers.get_mut(slot as usize).and_then(Option::as_mut)?;
        let cloud = peer.offer.map(|offer| offer.cloud);
        if self.config.cloud && cloud.is_none() {
            return None; // C4
        }
        let reach = peer.reach(enabled);
        let chunk_bytes_max = endpoint.payload_bytes_max_to(peer.id).max(1); // G2a
        let chunks_max = CHUNKS_MAX.min(endpoint.config().send_queue_datagrams_max as usize);
        let frame_bytes_max = chunks_max * chunk_bytes_max;
        let rule = Rule { cloud: cloud == Some(true), frame_bytes_max, ..Rule::default() };
        let rule = match reach {
            Reach::Express { udp, tunnels } => Rule { tcp: true, udp, tunnels, ..rule },
            Reach::Off | Reach::Waiting => rule,
        };
        peer.scheduler.set_rule(&self.table.queues, rule);
        let rate_bps = endpoint.delivery_rate_bps(peer.id);
        let bytes = (rate_bps / 8 * FEED_NS / 1_000_000_000).clamp(FEED_BYTES_MIN, FEED_BYTES_MAX);
        Some(Feed { reach, chunk_bytes_max, bytes, cloud: rule.cloud, is_cut: peer.cut.is_some() })
    }

    /// Sends one frame, over SRD or without it.
    fn send(&mut self, now: Instant, outgoing: Outgoing, feed: Feed, endpoint: &mut Endpoint) {
        if outgoing.kind.is_of_cloud() {
            return self.send_of_cloud(now, outgoing, feed, endpoint);
        }
        let layout = &outgoing.layout;
        let (packets, bytes) = (layout.packets(), layout.packet_bytes() as u64);
        let amount = Amount { packets, bytes, eligible: eligible(layout, feed.reach) };
        self.count(&outgoing, amount);
        match outgoing.lane {
            Lane::Srd => self.send_srd(now, outgoing, FRAME_QPN, feed, endpoint),
            Lane::Plain => {
                let paths = u64::from(endpoint.config().paths.max(1));
                let path = self.table.hash(outgoing.turn.slot) % paths; // X3
                let path = Entropy(u16::try_from(path).unwrap_or(0));
                self.send_plain(now, outgoing, (path, None), endpoint);
            }
        }
    }

    #[inline]
    pub(super) fn count(&mut self, outgoing: &Outgoing, amount: Amount) {
        let Outgoing { peer, turn, lane, .. } = outgoing;
        let Amount { packets, bytes, eligible } = amount;
        let by_srd = *lane == Lane::Srd;
        let flow = FlowId::new(turn.slot, Direction::Egress);
        self.table.count(flow, packets, bytes, by_srd);
        let Some(peer) = self.peers.get_mut(*peer as usize).and_then(Option::as_mut) else {
            return;
        };
        for traffic in [&mut peer.traffic, &mut self.counters.traffic] {
            traffic.count_sent(packets, bytes, (eligible, by_srd));
        }
    }

    /// Sends a frame outside of SRD on a path, in packets that fit one datagram each. If there is a
    /// trailer, each packet is followed by it.
    pub(super) fn send_plain(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        (path, trailer): (Entropy, Option<Trailer>),
        endpoint: &mut Endpoint,
    ) {
        let Outgoing { peer: slot, frame, layout, .. } = outgoing;
        let Some(peer) = self.peer_mut(slot) else { return };
        let beside = OFFLOAD_BYTES + trailer.map_or(0, |_| TRAILER_BYTES);
        let fits = endpoint.unreliable_bytes_max_to(peer.id).saturating_sub(beside);
        let layout = fitted(&layout, fits); // G2a
        peer.cut = Some(Cut { frame, layout, path, trailer, next: 0 });
        self.resume_cut(now, slot, endpoint);
    }

    /// Sends a frame over SRD, to the queue pair `dst_qpn`.
    pub(super) fn send_srd(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        dst_qpn: Qpn,
        feed: Feed,
        endpoint: &mut Endpoint,
    ) {
        let Outgoing { peer, turn: Turn { slot, fresh, .. }, frame, .. } = outgoing;
        let Some(peer) = self.peers.get(peer as usize).and_then(Option::as_ref) else { return };
        let Some(size) = chunk_bytes(frame.len(), feed.chunk_bytes_max) else {
            self.counters.send_refused += 1;
            return;
        };
        let numbering = &mut self.table.numbering[slot as usize];
        let (flow, sequence) = numbering.next(now, peer.generation, &mut self.numbers);
        let first = fresh && frame.len() <= FRESH_BYTES_MAX;
        let (src_qpn, class) =
            if first { (FRESH_QPN, Class::LowLatency) } else { (FRAME_QPN, Class::Bulk) };
        let frame = Bytes::from(frame);
        let frame_bytes = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        let mut rest = frame;
        let mut chunk = 0;
        loop {
            let last = rest.len() <= size;
            let place = ChunkPosition { flow, sequence, chunk, last, frame_bytes }; // F2
            let payload = if last { core::mem::take(&mut rest) } else { rest.split_to(size) };
            let datagram = Datagram {
                src_qpn,
                dst_qpn,
                imm: place.encode(),
                payload,
                class,
                user: u64::from(slot),
            };
            if endpoint.send(now, peer.id, datagram).is_err() {
                // The receiver would wait for the other chunks of this frame.
                self.counters.send_refused += 1;
                numbering.renumber();
                return;
            }
            if last {
                return;
            }
            chunk += 1;
        }
    }

    /// Sends further packets of the peer's frame that is being sent outside of SRD, while the
    /// transport has free space. // X3
    fn resume_cut(&mut self, now: Instant, slot: u32, endpoint: &mut Endpoint) {
        let Some(peer) = self.peers.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some(mut cut) = peer.cut.take() else { return };
        let mut segments = Segments::new(&cut.frame, &cut.layout);
        while cut.next < segments.count() {
            if plain_room(peer, endpoint) == 0 {
                peer.cut = Some(cut);
                return;
            }
            let packet = segments.write(cut.next); // F5
            let (dst_qpn, payload) = match &cut.trailer {
                Some(trailer) => (CLOUD_QPN, trailer.behind(packet)),
                None => (FRAME_QPN, Bytes::copy_from_slice(packet)),
            };
            let datagram = Datagram {
                src_qpn: FRAME_QPN,
                dst_qpn,
                imm: 0,
                payload,
                class: Class::Bulk,
                user: 0,
            };
            if endpoint.send_unreliable(now, peer.id, cut.path, datagram).is_err() {
                self.counters.send_refused += 1;
            }
            cut.next += 1;
        }
    }
}

/// Whether the transport has free space for the next frame of a lane (SRD or plain encapsulation).
fn has_room(peer: &Peer, lane: Lane, turn: Turn, feed: Feed, endpoint: &Endpoint) -> bool {
    match lane {
        Lane::Srd => {
            endpoint.unsent_bytes(peer.id) < feed.bytes
                && endpoint.send_room(peer.id) >= turn.frame_bytes.div_ceil(feed.chunk_bytes_max)
        }
        Lane::Plain => peer.cut.is_none() && plain_room(peer, endpoint) > 0,
    }
}

/// Number of packets outside of SRD for which the transport has free space for a peer.
fn plain_room(peer: &Peer, endpoint: &Endpoint) -> usize {
    let most = endpoint.config().unreliable_queue_datagrams_max as usize;
    most.min(FEED_PLAIN_MAX).saturating_sub(endpoint.unreliable_waiting(peer.id))
}

/// Whether SRD carries packets of this kind to the peer, whatever their size. // X1
fn eligible(layout: &Layout, reach: Reach) -> bool {
    match reach {
        Reach::Express { tunnels, .. } if layout.is_tunnel() => tunnels, // X6
        Reach::Express { udp, .. } => {
            layout.has_ports() && (layout.protocol == protocol::TCP || udp)
        }
        Reach::Off | Reach::Waiting => false,
    }
}
