//! From the guest to the transport: classify, queue, and hand over by SRD or plainly.

use alloc::vec::Vec;

use bytes::Bytes;
use srd_proto::time::Instant;
use srd_proto::{Class, Datagram, Endpoint, Entropy};

use super::flows::Found;
use super::{Express, Guest, Reach};
use crate::flow::FlowKey;
use crate::frame::{FRAME_BYTES_MAX, Place, chunk_bytes};
use crate::offload::{OFFLOAD_BYTES, Offload};
use crate::packet::{Packet, protocol};
use crate::queue::{QueueCounts, Waiting};
use crate::segment::each_segment;
use crate::{FRAME_QPN, FRESH_QPN, mss, too_big};

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

/// How a frame is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carriage {
    Srd,
    /// One datagram per packet; `eligible`: SRD could have carried it.
    Plain {
        eligible: bool,
    },
}

impl Express {
    /// Takes a frame from the guest: queues it for its peer, or answers it.
    pub fn from_guest(&mut self, now: Instant, mut frame: Vec<u8>, guest: &mut impl Guest) {
        let Some((packet, offload)) = read(&frame) else {
            self.counters.guest_malformed += 1;
            return;
        };
        if packet.protocol == protocol::TCP {
            let left = offload.checksum.is_some();
            let bytes = &mut frame[OFFLOAD_BYTES..];
            let clamped = mss::clamp(bytes, &packet, self.config.mtu, left);
            self.counters.mss_clamped += u64::from(clamped);
        }
        let key = FlowKey::of(&packet);
        let slot = match self.flows.find(now, &key) {
            Found::Slot(slot) => slot,
            Found::Unknown => {
                let Some(peer) = self.routes.find(packet.destination) else {
                    self.counters.guest_no_peer += 1;
                    return;
                };
                let carriable = key.is_tcp_or_udp(&packet);
                let entry = self.flows.insert(now, key, peer, carriable);
                self.counters.flows_full += u64::from(entry.is_none());
                let Some(slot) = entry.or_else(|| self.peer(peer)?.overflow) else { return };
                slot
            }
        };
        let index = self.flows.flow(slot).peer;
        let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
            self.counters.guest_no_peer += 1;
            return;
        };
        let bytes = frame.len() - OFFLOAD_BYTES;
        let whole = self.plain_bytes_max.saturating_sub(OFFLOAD_BYTES + peer.bytes_lost);
        if offload.gso.is_none() && bytes > whole {
            self.counters.guest_too_big += 1;
            let mtu = u16::try_from(whole).unwrap_or(u16::MAX).min(self.config.mtu);
            if let Some(answer) = too_big::answer(&frame[OFFLOAD_BYTES..], &packet, mtu) {
                let mut out = Vec::with_capacity(OFFLOAD_BYTES + answer.len());
                out.extend_from_slice(&[0; OFFLOAD_BYTES]);
                out.extend_from_slice(&answer);
                guest.deliver(&out);
            }
            return;
        }
        let mut counts = QueueCounts::default();
        let waiting = Waiting { frame, at: now };
        peer.scheduler.push(&mut self.flows.queues, slot, waiting, &self.aqm, &mut counts);
        if !peer.queued {
            peer.queued = true;
            self.ready.push_back(index);
        }
        self.count_queue(index, counts);
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

    /// One peer's share. Returns whether it has more.
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
        let id = peer.id;
        let reach = peer.reach(&self.config);
        let rate_bps = endpoint.delivery_rate_bps(id);
        let feed = (rate_bps / 8 * FEED_NS / 1_000_000_000).clamp(FEED_BYTES_MIN, FEED_BYTES_MAX);
        let mut counts = QueueCounts::default();
        let more = loop {
            let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
                break false;
            };
            let Some((slot, fresh)) = peer.scheduler.next(&mut self.flows.queues) else {
                break false;
            };
            let carriable = self.flows.flow(slot).carriable;
            let by_srd = carriable && matches!(reach, Reach::Express { .. });
            let full = if by_srd {
                endpoint.unsent_bytes(id) >= feed
            } else {
                endpoint.unreliable_waiting(id) >= FEED_PLAIN_MAX
            };
            if full {
                break true;
            }
            let queues = &mut self.flows.queues;
            let taken = peer.scheduler.take(queues, slot, now, &self.aqm, &mut counts);
            let Some(waiting) = taken else { continue };
            *handed += 1;
            self.send(now, index, slot, fresh, reach, waiting.frame, endpoint);
        };
        self.count_queue(index, counts);
        more
    }

    /// Sends one frame, by SRD or plainly.
    #[allow(clippy::too_many_arguments)] // one frame's whole context, used once
    fn send(
        &mut self,
        now: Instant,
        index: u32,
        slot: u32,
        fresh: bool,
        reach: Reach,
        frame: Vec<u8>,
        endpoint: &mut Endpoint,
    ) {
        let Some((packet, offload)) = read(&frame) else { return };
        let flow = self.flows.flow(slot);
        let bytes = frame.len() - OFFLOAD_BYTES;
        let fits = offload.gso.is_some() || bytes <= usize::from(self.config.mtu);
        let fits = fits && flow.carriable;
        let carriable = FlowKey::of(&packet).is_tcp_or_udp(&packet);
        let carriage = carriage(carriable, packet.protocol, reach, fits);
        let packets = offload.packets(&frame[OFFLOAD_BYTES..], &packet);
        let hash = flow.hash;
        self.flows.count(slot, packets, bytes as u64, carriage == Carriage::Srd);
        let Some(peer) = self.peers.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        for traffic in [&mut peer.traffic, &mut self.counters.traffic] {
            match carriage {
                Carriage::Srd => {
                    traffic.srd_tx_pkts += packets;
                    traffic.eligible_tx_pkts += packets;
                    traffic.srd_tx_bytes += bytes as u64;
                }
                Carriage::Plain { eligible } => {
                    traffic.eligible_tx_pkts += if eligible { packets } else { 0 };
                    traffic.plain_tx_pkts += packets;
                    traffic.plain_tx_bytes += bytes as u64;
                }
            }
        }
        match carriage {
            Carriage::Srd => self.send_srd(now, index, slot, fresh, frame, endpoint),
            Carriage::Plain { .. } => {
                self.send_plain(now, index, hash, &frame, &packet, &offload, endpoint);
            }
        }
    }

    fn send_srd(
        &mut self,
        now: Instant,
        index: u32,
        slot: u32,
        fresh: bool,
        frame: Vec<u8>,
        endpoint: &mut Endpoint,
    ) {
        let Some(peer) = self.peers.get(index as usize).and_then(Option::as_ref) else { return };
        let (id, generation) = (peer.id, peer.generation);
        let chunk_bytes_max = endpoint.payload_bytes_max().saturating_sub(peer.bytes_lost).max(1);
        let (number, sequence) = self.flows.number(slot, generation);
        let first = fresh && frame.len() <= FRESH_BYTES_MAX;
        let (src_qpn, class) =
            if first { (FRESH_QPN, Class::LowLatency) } else { (FRAME_QPN, Class::Bulk) };
        let frame = Bytes::from(frame);
        let frame_bytes = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        let size = chunk_bytes(frame.len(), chunk_bytes_max);
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

    #[allow(clippy::too_many_arguments)] // one frame's whole context, used once
    fn send_plain(
        &mut self,
        now: Instant,
        index: u32,
        hash: u64,
        frame: &[u8],
        packet: &Packet,
        offload: &Offload,
        endpoint: &mut Endpoint,
    ) {
        let Some(id) = self.peer(index).map(|p| p.id) else { return };
        let paths = u64::from(endpoint.config().paths.max(1));
        let entropy = Entropy(u16::try_from(hash % paths).unwrap_or(0));
        each_segment(frame, packet, offload, |segment| {
            let datagram = Datagram {
                src_qpn: FRAME_QPN,
                dst_qpn: FRAME_QPN,
                imm: 0,
                payload: Bytes::copy_from_slice(segment),
                class: Class::Bulk,
                user: 0,
            };
            if endpoint.send_unreliable(now, id, entropy, datagram).is_err() {
                self.counters.send_refused += 1;
            }
        });
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

/// A frame's headers; `None` if it is no packet, or no frame.
pub(super) fn read(frame: &[u8]) -> Option<(Packet, Offload)> {
    if frame.len() > FRAME_BYTES_MAX {
        return None;
    }
    let (header, bytes) = frame.split_first_chunk::<OFFLOAD_BYTES>()?;
    let packet = Packet::read(bytes)?;
    let offload = Offload::read(header, bytes, &packet)?;
    Some((packet, offload))
}

/// The rule: what rides SRD, and what counts as if it could have.
fn carriage(carriable: bool, kind: u8, reach: Reach, fits: bool) -> Carriage {
    let eligible = match reach {
        Reach::Express { udp } => carriable && (kind == protocol::TCP || udp),
        Reach::Off | Reach::Waiting => false,
    };
    if eligible && fits { Carriage::Srd } else { Carriage::Plain { eligible } }
}
