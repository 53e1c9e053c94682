//! From the guest to the transport: classify, queue, and hand over by SRD or plainly.

use alloc::vec::Vec;

use bytes::Bytes;
use srd_proto::time::Instant;
use srd_proto::{Class, Datagram, Endpoint, Entropy};

use super::flows::Found;
use super::{Express, Guest, Peer, Reach};
use crate::meta::Meta;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::queue::scheduler::{Kind, Lane, QueueCounts, Rule, Turn, Waiting};
use crate::rewrite::segment::{self, Segments, fitted};
use crate::rewrite::{checksum, fragment, mss, too_big};
use crate::wire::frame::{CHUNKS_MAX, Place, chunk_bytes};
use crate::{FRAME_QPN, FRESH_QPN};

/// Bytes that may wait in the transport for their first sending, before more is handed to it:
/// within these bounds, what a peer takes in the given time. What waits here instead can still
/// be marked, dropped, or overtaken by a flow that has just begun.
const FEED_BYTES_MIN: u64 = 16 * 1024;
const FEED_BYTES_MAX: u64 = 256 * 1024;
const FEED_NS: u64 = 1_000_000;
/// Plain packets that may wait in the transport.
const FEED_PLAIN_MAX: usize = 128;
/// A frame up to this size of a flow that has just begun goes before bulk.
const FRESH_BYTES_MAX: usize = 9000;

/// A super-packet of which some packets have gone plainly, and the rest waits for room.
#[derive(Debug)]
pub(super) struct Cut {
    frame: Vec<u8>,
    /// What it is, and how it is cut.
    layout: Layout,
    /// The hash of its flow.
    hash: u64,
    /// The packet that goes next.
    next: usize,
}

/// One frame's whole context.
struct Leaving {
    /// Its peer.
    index: u32,
    turn: Turn,
    lane: Lane,
    reach: Reach,
    frame: Vec<u8>,
    layout: Layout,
}

impl Express {
    /// Takes a frame from the guest: queues it for its peer, or answers it.
    pub fn from_guest(&mut self, now: Instant, mut frame: Vec<u8>, guest: &mut impl Guest) {
        let Some(meta) = Meta::parse(&frame, Direction::Egress) else {
            self.counters.guest_malformed += 1;
            return;
        };
        let clamped = mss::clamp(&mut frame[OFFLOAD_BYTES..], &meta.layout, self.config.mtu); // G2
        self.counters.mss_clamped += u64::from(clamped);
        let Some((index, slot)) = self.slot_for(now, &meta) else { return };
        let Some(peer) = self.peers.get(index as usize).and_then(Option::as_ref) else {
            self.counters.guest_no_peer += 1;
            return;
        };
        let layout = meta.layout;
        let kind = self.kind(slot, &layout);
        // The most that one datagram carries, if the packet goes plainly; SRD cuts any frame.
        let fits = self.plain_bytes_max.saturating_sub(OFFLOAD_BYTES + peer.bytes_lost);
        let lane = peer.scheduler.lane(kind, frame.len());
        if lane == Lane::Srd || segment::largest(&fitted(&layout, fits)) <= fits {
            self.enqueue(index, slot, Waiting { frame, layout, at: now, kind });
        } else {
            self.too_big(now, &frame, &meta, fits, guest);
        }
    }

    /// The peer that a packet goes to, and the entry of its flow.
    fn slot_for(&mut self, now: Instant, meta: &Meta) -> Option<(u32, u32)> {
        let slot = match self.flows.find(now, &meta.key) {
            Found::Slot(slot) => slot,
            Found::Unknown => {
                let Some(peer) = self.routes.find(meta.key.destination) else {
                    self.counters.guest_no_peer += 1;
                    return None;
                };
                let carriable = meta.layout.has_ports();
                let entry = self.flows.insert(now, meta.key, peer, carriable);
                self.counters.flows_full += u64::from(entry.is_none());
                entry.or_else(|| self.peer(peer)?.overflow)?
            }
        };
        Some((self.flows.flow(slot).peer, slot))
    }

    /// What a frame is to the rule that decides how it is carried.
    fn kind(&self, slot: u32, layout: &Layout) -> Kind {
        let fits =
            layout.offload.gso.is_some() || layout.packet_bytes() <= usize::from(self.config.mtu);
        match layout.protocol {
            _ if !(fits && layout.has_ports() && self.flows.flow(slot).carriable) => Kind::Other,
            protocol::TCP => Kind::Tcp,
            _ => Kind::Udp,
        }
    }

    /// Puts a frame in line.
    fn enqueue(&mut self, index: u32, slot: u32, waiting: Waiting) {
        let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        let mut counts = QueueCounts::default();
        peer.scheduler.push(&mut self.flows.queues, slot, waiting, &self.aqm, &mut counts);
        if !peer.queued {
            peer.queued = true;
            self.ready.push_back(index);
        }
        self.count_queue(index, counts);
    }

    /// A packet fits no datagram: it goes in parts, if it may be cut, or is answered.
    fn too_big(
        &mut self,
        now: Instant,
        frame: &[u8],
        meta: &Meta,
        fits: usize,
        guest: &mut impl Guest,
    ) {
        let parts = parts(frame, &meta.layout, fits); // G4
        if !parts.is_empty() {
            self.counters.guest_cut += 1;
            let Some((index, slot)) = self.slot_for(now, &meta.of_parts()) else { return };
            for (frame, layout) in parts {
                self.enqueue(index, slot, Waiting { frame, layout, at: now, kind: Kind::Other });
            }
            return;
        }
        self.counters.guest_too_big += 1;
        let mtu = u16::try_from(fits).unwrap_or(u16::MAX).min(self.config.mtu);
        // G3
        if let Some(answer) = too_big::answer(&frame[OFFLOAD_BYTES..], meta, mtu)
            && self.answers.allows(now)
        {
            guest.deliver(&framed(&answer));
        }
    }

    /// Hands frames over to the transport, as many as it should have. Returns how many.
    pub fn pump(&mut self, now: Instant, endpoint: &mut Endpoint) -> usize {
        self.offer(now, endpoint);
        let mut handed = 0;
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            if self.pump_peer(now, index, endpoint, &mut handed) {
                self.ready.push_back(index);
            } else if let Some(peer) = self.peer_mut(index) {
                peer.queued = false;
            }
        }
        handed
    }

    /// Whether any frame waits.
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// One peer's share: from each lane, while its queue in the transport has room. Returns
    /// whether the peer has more.
    fn pump_peer(
        &mut self,
        now: Instant,
        index: u32,
        endpoint: &mut Endpoint,
        handed: &mut usize,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
            return false;
        };
        let (id, reach) = (peer.id, peer.reach(&self.config));
        let chunk_max = chunk_bytes_max(peer, endpoint);
        let chunks_max = CHUNKS_MAX.min(endpoint.config().send_queue_datagrams_max as usize);
        let frame_bytes_max = chunks_max * chunk_max;
        let (tcp, udp) = match reach {
            Reach::Express { udp } => (true, udp),
            Reach::Off | Reach::Waiting => (false, false),
        };
        peer.scheduler.set_rule(&self.flows.queues, Rule { tcp, udp, frame_bytes_max });
        let rate_bps = endpoint.delivery_rate_bps(id);
        let feed = (rate_bps / 8 * FEED_NS / 1_000_000_000).clamp(FEED_BYTES_MIN, FEED_BYTES_MAX);
        let mut counts = QueueCounts::default();
        let mut full = [false; 2];
        self.go_on(now, index, endpoint);
        let more = loop {
            let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
                break false;
            };
            let open = |lane: &Lane| !full[*lane as usize] && peer.scheduler.has(*lane);
            let Some(lane) = Lane::ALL.into_iter().find(open) else {
                break !peer.scheduler.is_empty() || peer.cut.is_some();
            };
            let Some(turn) = peer.scheduler.next(&mut self.flows.queues, lane) else { continue };
            full[lane as usize] = match lane {
                Lane::Srd => {
                    endpoint.unsent_bytes(id) >= feed
                        || endpoint.send_room(id) < turn.frame_bytes.div_ceil(chunk_max)
                }
                Lane::Plain => peer.cut.is_some() || plain_room(peer, endpoint) == 0,
            };
            if full[lane as usize] {
                continue;
            }
            let queues = &mut self.flows.queues;
            let taken = peer.scheduler.take(queues, turn, lane, now, &self.aqm, &mut counts);
            let Some(Waiting { frame, layout, .. }) = taken else { continue };
            *handed += 1;
            self.send(now, Leaving { index, turn, lane, reach, frame, layout }, endpoint);
        };
        self.count_queue(index, counts);
        more
    }

    /// Sends one frame, by SRD or plainly.
    fn send(&mut self, now: Instant, leaving: Leaving, endpoint: &mut Endpoint) {
        let Leaving { index, turn, lane, reach, layout, .. } = leaving;
        let (packets, bytes) = (layout.packets(), layout.packet_bytes() as u64);
        let hash = self.flows.flow(turn.slot).hash;
        self.flows.count(turn.slot, packets, bytes, lane == Lane::Srd);
        let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        for traffic in [&mut peer.traffic, &mut self.counters.traffic] {
            traffic.eligible_tx_pkts += if eligible(&layout, reach) { packets } else { 0 };
            match lane {
                Lane::Srd => {
                    traffic.srd_tx_pkts += packets;
                    traffic.srd_tx_bytes += bytes;
                }
                Lane::Plain => {
                    traffic.plain_tx_pkts += packets;
                    traffic.plain_tx_bytes += bytes;
                }
            }
        }
        match lane {
            Lane::Srd => self.send_srd(now, leaving, endpoint),
            Lane::Plain => {
                let fits = endpoint.unreliable_bytes_max_to(peer.id).saturating_sub(OFFLOAD_BYTES);
                let layout = fitted(&layout, fits); // G2a
                peer.cut = Some(Cut { frame: leaving.frame, layout, hash, next: 0 });
                self.go_on(now, index, endpoint);
            }
        }
    }

    fn send_srd(&mut self, now: Instant, leaving: Leaving, endpoint: &mut Endpoint) {
        let Leaving { index, turn: Turn { slot, fresh, .. }, frame, .. } = leaving;
        let Some(peer) = self.peers.get(index as usize).and_then(Option::as_ref) else { return };
        let (id, generation) = (peer.id, peer.generation);
        let chunk_bytes = chunk_bytes(frame.len(), chunk_bytes_max(peer, endpoint));
        let Some(size) = chunk_bytes else {
            self.counters.send_refused += 1;
            return;
        };
        let (number, sequence) = self.flows.number(slot, generation);
        let first = fresh && frame.len() <= FRESH_BYTES_MAX;
        let (src_qpn, class) =
            if first { (FRESH_QPN, Class::LowLatency) } else { (FRAME_QPN, Class::Bulk) };
        let frame = Bytes::from(frame);
        let frame_bytes = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        let mut at = 0;
        let mut chunk = 0;
        while at < frame.len() {
            let end = (at + size).min(frame.len());
            let last = end == frame.len();
            let place = Place { flow: number, sequence, chunk, last, frame_bytes };
            let datagram = Datagram {
                src_qpn,
                dst_qpn: FRAME_QPN,
                imm: place.encode(),
                payload: frame.slice(at..end),
                class,
                user: u64::from(slot),
            };
            if endpoint.send(now, id, datagram).is_err() {
                // The receiver would wait for the rest of this frame.
                self.counters.send_refused += 1;
                self.flows.renumber(slot);
                return;
            }
            (at, chunk) = (end, chunk + 1);
        }
    }

    /// Sends packets of the frame that is going plainly, as many as there is room for.
    fn go_on(&mut self, now: Instant, index: u32, endpoint: &mut Endpoint) {
        let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some(mut cut) = peer.cut.take() else { return };
        let paths = u64::from(endpoint.config().paths.max(1));
        let entropy = Entropy(u16::try_from(cut.hash % paths).unwrap_or(0));
        let mut segments = Segments::new(&cut.frame, &cut.layout);
        while cut.next < segments.count() {
            if plain_room(peer, endpoint) == 0 {
                peer.cut = Some(cut);
                return;
            }
            let datagram = Datagram {
                src_qpn: FRAME_QPN,
                dst_qpn: FRAME_QPN,
                imm: 0,
                payload: Bytes::copy_from_slice(segments.write(cut.next)),
                class: Class::Bulk,
                user: 0,
            };
            if endpoint.send_unreliable(now, peer.id, entropy, datagram).is_err() {
                self.counters.send_refused += 1;
            }
            cut.next += 1;
        }
    }

    fn count_queue(&mut self, index: u32, counts: QueueCounts) {
        if counts == QueueCounts::default() {
            return;
        }
        let peer = self.peers.get_mut(index as usize).and_then(Option::as_mut);
        let peer = peer.map(|p| &mut p.traffic);
        for traffic in peer.into_iter().chain([&mut self.counters.traffic]) {
            traffic.queue_marked += counts.marked;
            traffic.queue_dropped_late += counts.dropped_late;
            traffic.queue_dropped_full += counts.dropped_full;
        }
    }
}

/// A packet behind an offload header that leaves nothing to hardware.
fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(OFFLOAD_BYTES + packet.len());
    frame.extend_from_slice(&[0; OFFLOAD_BYTES]);
    frame.extend_from_slice(packet);
    frame
}

/// The parts of the packets that a frame stands for, each of which fits; none if they may not
/// be cut.
fn parts(frame: &[u8], layout: &Layout, fits: usize) -> Vec<(Vec<u8>, Layout)> {
    let mut out = Vec::new();
    if layout.dont_fragment() {
        return out;
    }
    let mut segments = Segments::new(frame, layout);
    for index in 0..segments.count() {
        let mut segment = segments.write(index).to_vec();
        let bytes = &mut segment[OFFLOAD_BYTES..];
        // The checksum covers all parts, so it cannot be added up later.
        checksum::complete(bytes, &segments.layout());
        let parts = fragment::parts(bytes, layout, fits).unwrap_or_default();
        out.extend(parts.iter().map(|part| (framed(part), layout.of_part(part.len()))));
    }
    out
}

/// Payload bytes of the largest chunk that passes to a peer.
fn chunk_bytes_max(peer: &Peer, endpoint: &Endpoint) -> usize {
    endpoint.payload_bytes_max_to(peer.id).max(1)
}

/// Plain packets for a peer that the transport should take now.
fn plain_room(peer: &Peer, endpoint: &Endpoint) -> usize {
    let most = endpoint.config().unreliable_queue_datagrams_max as usize;
    most.min(FEED_PLAIN_MAX).saturating_sub(endpoint.unreliable_waiting(peer.id))
}

/// Whether SRD carries packets of this kind to the peer, whatever their size. // X1
fn eligible(layout: &Layout, reach: Reach) -> bool {
    match reach {
        Reach::Express { udp } => layout.has_ports() && (layout.protocol == protocol::TCP || udp),
        Reach::Off | Reach::Waiting => false,
    }
}
