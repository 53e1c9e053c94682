//! From the guest to the queues: packets are read and classified, then queued for their peer, or
//! answered with an ICMP error.

use alloc::vec::Vec;

use srd_proto::time::Instant;

use super::stage::{Express, Guest};
use crate::flow::table::PeerFlow;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::meta::{FRAME_BYTES_MAX, Meta};
use crate::queue::scheduler::{Kind, Lane, QueueCounts, QueuedFrame};
use crate::rewrite::segment::{self, fitted};
use crate::rewrite::{fragment, mss, too_big};

/// Number of the tenant to which the guest's own packets belong (the overlay), and the packets of
/// all flows without an entry of their own.
pub(super) const OVERLAY: u32 = 0;

/// Queue in which a packet waits.
#[derive(Clone, Copy)]
pub(super) struct QueueId {
    /// Slot of the peer to which the queue belongs.
    pub(super) peer: u32,
    /// Slot of the packet's flow, or of its path, in the flow table.
    pub(super) slot: u32,
    /// Tenant that sends the packet.
    pub(super) tenant: u32,
}

impl Express {
    /// Takes a frame from the guest: queues the frame for its peer, or answers a frame that is too
    /// large with an ICMP error.
    pub fn from_guest(&mut self, now: Instant, frame: Vec<u8>, guest: &mut impl Guest) {
        // G5: Super-packets beyond 64 KB
        if frame.len() > FRAME_BYTES_MAX {
            return self.longest_from_guest(now, frame, guest);
        }
        self.one_from_guest(now, frame, guest);
    }

    /// Takes a frame of more than [`FRAME_BYTES_MAX`] bytes. If its packet can be segmented, the
    /// frame is divided into two.
    #[cold]
    #[inline(never)]
    fn longest_from_guest(&mut self, now: Instant, frame: Vec<u8>, guest: &mut impl Guest) {
        match segment::halves(&frame) {
            Some(halves) => {
                halves.into_iter().for_each(|half| self.one_from_guest(now, half, guest));
            }
            None => self.one_from_guest(now, frame, guest),
        }
    }

    fn one_from_guest(&mut self, now: Instant, mut frame: Vec<u8>, guest: &mut impl Guest) {
        let Some(meta) = Meta::parse(&frame, Direction::Egress) else {
            self.counters.guest_malformed += 1;
            return;
        };
        let clamped = mss::clamp(&mut frame[OFFLOAD_BYTES..], &meta.layout, self.config.mtu); // G2
        self.counters.mss_clamped += u64::from(clamped);
        let Some(line) = self.line(now, &meta) else { return };
        let Some(peer) = self.peer(line.peer) else { return };
        let layout = meta.layout;
        let kind = self.kind(line.slot, &layout);
        // Largest packet that one datagram carries without SRD; SRD divides any frame into chunks.
        let fits = self.plain_bytes_max.saturating_sub(OFFLOAD_BYTES + peer.bytes_lost);
        let lane = peer.scheduler.lane(kind, frame.len());
        if lane == Lane::Srd || segment::largest(&fitted(&layout, fits)) <= fits {
            self.enqueue(line, QueuedFrame { frame, layout, at: now, kind, path: 0 });
        } else {
            self.too_big(now, &frame, &meta, fits, guest);
        }
    }

    /// Returns the queue for a packet of the guest. Returns `None`, and counts the packet, if its
    /// destination belongs to no peer.
    fn line(&mut self, now: Instant, meta: &Meta) -> Option<QueueId> {
        let Some(found) = self.table.classify(now, meta, &self.rules, None, None) else {
            self.counters.guest_no_peer += 1;
            return None;
        };
        let PeerFlow { peer, flow } = found;
        let Some(flow) = flow else {
            self.counters.flows_full += 1; // X2
            return Some(QueueId { peer, slot: self.peer(peer)?.overflow?, tenant: OVERLAY });
        };
        let peer = self.table.queue_of(flow, peer);
        Some(QueueId { peer, slot: flow.slot(), tenant: OVERLAY })
    }

    /// Returns the kind of a frame, from which the rule derives the lane (SRD or plain
    /// encapsulation). // X1, X2
    fn kind(&self, slot: u32, layout: &Layout) -> Kind {
        let fits =
            layout.offload.gso.is_some() || layout.packet_bytes() <= usize::from(self.config.mtu);
        match layout.protocol {
            _ if !fits || self.table.is_overflow(slot) => Kind::Other,
            _ if layout.is_tunnel() => Kind::Tunnel, // X6
            _ if !layout.has_ports() => Kind::Other,
            protocol::TCP => Kind::Tcp,
            _ => Kind::Udp,
        }
    }

    /// Appends a frame to the queue of its flow and peer.
    pub(super) fn enqueue(&mut self, line: QueueId, waiting: QueuedFrame) {
        let Some(peer) = self.peers.get_mut(line.peer as usize).and_then(Option::as_mut) else {
            return;
        };
        let mut counts = QueueCounts::default();
        let aqm = self.absent.limit(peer, &self.aqm);
        let (queues, flow) = (&mut self.table.queues, (line.tenant, line.slot));
        peer.scheduler.push(queues, flow, waiting, &aqm, &mut counts);
        self.absent.count(peer);
        if !peer.queued {
            peer.queued = true;
            self.ready.push_back(line.peer);
        }
        self.count_queue(line.peer, counts);
    }

    /// Handles a packet that fits no datagram. If fragmentation is permitted, the fragments are
    /// queued; otherwise an ICMP error answers the packet, within the rate limit.
    fn too_big(
        &mut self,
        now: Instant,
        frame: &[u8],
        meta: &Meta,
        fits: usize,
        guest: &mut impl Guest,
    ) {
        // G4: IPv4 fragments
        if let Some(parts) = fragment::parts_of_frame(frame, &meta.layout, fits) {
            self.counters.guest_cut += 1;
            let Some(line) = self.line(now, &meta.of_parts()) else { return };
            for part in parts {
                let (at, kind, layout) = (now, Kind::Other, meta.layout.of_part(part.len()));
                let frame = framed(&part);
                self.enqueue(line, QueuedFrame { frame, layout, at, kind, path: 0 });
            }
            return;
        }
        self.counters.guest_too_big += 1;
        let mtu = u16::try_from(fits).unwrap_or(u16::MAX).min(self.config.mtu);
        // G3: ICMP for large packets
        if let Some(answer) = too_big::answer(&frame[OFFLOAD_BYTES..], meta, mtu)
            && self.answers.allows(now)
        {
            guest.deliver(&framed(&answer));
        }
    }

    pub(super) fn count_queue(&mut self, peer: u32, counts: QueueCounts) {
        if counts == QueueCounts::default() {
            return;
        }
        let peer = self.peers.get_mut(peer as usize).and_then(Option::as_mut);
        let peer = peer.map(|p| &mut p.traffic);
        for traffic in peer.into_iter().chain([&mut self.counters.traffic]) {
            traffic.queue_marked += counts.marked;
            traffic.queue_dropped_late += counts.dropped_late;
            traffic.queue_dropped_full += counts.dropped_full;
        }
    }
}

/// Puts an offload header that leaves no work to hardware before a packet.
fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(OFFLOAD_BYTES + packet.len());
    frame.extend_from_slice(&[0; OFFLOAD_BYTES]);
    frame.extend_from_slice(packet);
    frame
}
