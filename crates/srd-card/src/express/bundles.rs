//! Frames of clouds outside of SRD: several small frames share a datagram, as a bundle. This file
//! also contains the function that passes all frames of clouds to the transport. It is separate
//! from the function for a guest's frames, so that a frame of a guest does not bear its cost.
//!
//! Packets of an interface outside of SRD use a few paths to a host (C5). The small frames of a
//! path wait in one queue, whatever their flows. A new frame joins the last frame of this queue if
//! both are for the same interface. So a datagram fills while it waits for its turn, without an
//! additional wait (C6). A larger frame waits in the queue of its flow (Q1). At any time, all
//! frames of a flow outside of SRD are either in the queue of the path or in that of the flow, so
//! that they leave in order (C7):
//!
//! - A small frame waits in the path's queue, with two exceptions: it waits in the flow's queue if
//!   that queue has frames, or if the path's queue has a large frame and no frame of the flow.
//! - A larger frame waits in the flow's queue, with one exception: it waits in the path's queue if
//!   that queue has frames of the flow.
//!
//! Bound: as many queues as the flow table has entries.

use alloc::vec::Vec;

use bytes::Bytes;
use srd_proto::time::Instant;
use srd_proto::{Class, Datagram, Endpoint, Entropy, PeerId};

use super::cloud::Parcel;
use super::egress::{OVERLAY, QueueId};
use super::feed::{Amount, Feed, Outgoing};
use super::paths::Choice;
use super::stage::Express;
use crate::meta::Meta;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::queue::scheduler::{Kind, Lane, QueueCounts, QueuedFrame};
use crate::rewrite::segment::{self, Segments, fitted};
use crate::rules::snapshot::PeerSlot;
use crate::wire::cloud::{TRAILER_BYTES, Trailer, bundle_overhead, unbundle};
use crate::wire::queue_pairs::{CLOUD_QPN, FRAME_QPN};

/// Steps from the card of instances to the queues.
impl Express {
    /// Queues a frame of a cloud that is sent outside of SRD. A frame that fits no datagram is
    /// counted and dropped.
    pub(super) fn plainly_from_cloud(
        &mut self,
        now: Instant,
        parcel: Parcel,
        (meta, choice): (&Meta, Choice),
        frame: Vec<u8>,
    ) {
        let (layout, bytes) = (meta.layout, frame.len() - OFFLOAD_BYTES);
        let half = self.bundle_bytes_max(parcel.to.0) / 2;
        let is_small = layout.offload.gso.is_none() && frame.len() + TRAILER_BYTES <= half;
        if !is_small && !self.goes_plainly(parcel.to, &layout, bytes) {
            return;
        }
        let Some(line) = self.line_of_path(now, parcel, (meta, choice), is_small) else { return };
        let (kind, path) = (Kind::PlainCloud, choice.path);
        self.put_in_line(line, &parcel.trailer, QueuedFrame { frame, layout, at: now, kind, path });
    }

    /// Returns the queue for a frame of a cloud outside of SRD: the queue of its path or of its
    /// flow. Returns `None` if the peer was removed. // C7
    fn line_of_path(
        &mut self,
        now: Instant,
        parcel: Parcel,
        (meta, Choice { path, bit }): (&Meta, Choice),
        is_small: bool,
    ) -> Option<QueueId> {
        let Parcel { to: PeerSlot(to), tenant, interface, .. } = parcel;
        let peer = self.peers.get_mut(to as usize).and_then(Option::as_mut)?;
        if peer.scheduler.is_empty() {
            // All queues are empty.
            peer.drained += 1;
        }
        let drained = peer.drained;
        let place = (to, interface, path);
        let near = self.paths.near(place);
        let Some(slot) = self.table.of_path(now, place, *near) else {
            return self.line_of_many(to);
        };
        *near = slot;
        let members = self.table.queues[slot as usize].members();
        if !is_small || members.has_large || members.apart == drained {
            let is_member = members.bits & bit != 0;
            let joins = is_member || is_small && !members.has_large;
            let own = self.line_of_cloud(now, meta, parcel)?;
            let waits = self.table.queues[own.slot as usize].has_frames();
            let members = self.table.queues[slot as usize].members();
            if waits || !joins {
                members.apart = drained;
                return Some(own);
            }
            members.has_large |= !is_small;
        }
        self.table.queues[slot as usize].members().bits |= bit;
        Some(QueueId { peer: to, slot, tenant })
    }

    /// Returns the queue that all flows to a peer share if the full table has no entry for them,
    /// and counts the packet.
    #[cold]
    pub(super) fn line_of_many(&mut self, peer: u32) -> Option<QueueId> {
        self.counters.flows_full += 1; // X2
        Some(QueueId { peer, slot: self.peer(peer)?.overflow?, tenant: OVERLAY })
    }

    /// Whether a packet of `bytes` bytes, or each of its segments, fits one datagram outside of
    /// SRD. If not, the packet is counted as too big. // C3
    pub(super) fn goes_plainly(&mut self, to: PeerSlot, layout: &Layout, bytes: usize) -> bool {
        let fits = self.cloud_bytes_max(to);
        let goes = bytes <= fits || segment::largest(&fitted(layout, fits)) <= fits;
        self.counters.cloud_too_big += u64::from(!goes);
        goes
    }

    /// Queues a frame of a cloud. If permitted, the frame joins the last frame of the queue in one
    /// datagram. // C6
    pub(super) fn put_in_line(
        &mut self,
        line: QueueId,
        trailer: &Trailer,
        mut waiting: QueuedFrame,
    ) {
        let bytes_max = self.bundle_bytes_max(line.peer);
        if let Some(peer) = self.peers.get_mut(line.peer as usize).and_then(Option::as_mut) {
            let mut counts = QueueCounts::default();
            let (queues, one) = (&mut self.table.queues, (&waiting, trailer));
            let aqm = self.absent.limit(peer, &self.aqm);
            if peer.scheduler.join(queues, line.slot, one, bytes_max, &aqm, &mut counts) {
                self.absent.count(peer);
                return self.count_queue(line.peer, counts);
            }
        }
        waiting.frame.extend_from_slice(&trailer.0);
        self.enqueue(line, waiting);
    }

    /// Largest datagram to a peer outside of SRD, in bytes.
    fn bundle_bytes_max(&self, peer: u32) -> usize {
        self.plain_bytes_max.saturating_sub(self.peer(peer).map_or(0, |peer| peer.bytes_lost))
    }
}

/// Steps from the queues to the transport.
impl Express {
    /// Sends one frame of a cloud, or a bundle of frames, over SRD or without it.
    #[inline(never)]
    pub(super) fn send_of_cloud(
        &mut self,
        now: Instant,
        mut outgoing: Outgoing,
        feed: Feed,
        endpoint: &mut Endpoint,
    ) {
        let Some((_, trailer)) = Trailer::split(&outgoing.frame) else { return };
        if !feed.cloud {
            self.counters.cloud_refused += trailer.frames() as u64; // C4
            return;
        }
        let amount = amount(&outgoing, &trailer);
        self.count(&outgoing, amount);
        if outgoing.lane == Lane::Srd {
            return self.send_srd(now, outgoing, CLOUD_QPN, feed, endpoint);
        }
        let Some(id) = self.peer(outgoing.peer).map(|peer| peer.id) else { return };
        let paths = u64::from(endpoint.config().paths.max(1));
        let path = trailer.first_path().wrapping_add(outgoing.path.into()) % paths; // C5
        let path = Entropy(u16::try_from(path).unwrap_or(0));
        let fits = endpoint.unreliable_bytes_max_to(id);
        let is_whole = outgoing.layout.offload.gso.is_none() && outgoing.frame.len() <= fits;
        if is_whole {
            self.send_datagram(now, (id, path), outgoing.frame.into(), endpoint);
        } else if trailer.frames() > 1 {
            self.send_apart(now, (id, path), &outgoing.frame, endpoint);
        } else {
            outgoing.frame.truncate(outgoing.frame.len() - TRAILER_BYTES);
            self.send_plain(now, outgoing, (path, Some(trailer)), endpoint);
        }
    }

    /// Sends the frames of a bundle one by one, after the path MTU has become smaller. // G2a
    #[cold]
    #[inline(never)]
    fn send_apart(
        &mut self,
        now: Instant,
        (id, path): (PeerId, Entropy),
        bytes: &[u8],
        endpoint: &mut Endpoint,
    ) {
        let Some((rest, trailer)) = Trailer::split(bytes) else { return };
        let Some((frames, count)) = unbundle(rest, trailer.frames()) else { return };
        let beside = OFFLOAD_BYTES + TRAILER_BYTES;
        let fits = endpoint.unreliable_bytes_max_to(id).saturating_sub(beside);
        for frame in &frames[..count] {
            let Some(meta) = Meta::parse(frame, Direction::Egress) else { continue };
            let layout = fitted(&meta.layout, fits);
            let mut segments = Segments::new(frame, &layout);
            for index in 0..segments.count() {
                let payload = trailer.of_one().behind(segments.write(index));
                self.send_datagram(now, (id, path), payload, endpoint);
            }
        }
    }

    fn send_datagram(
        &mut self,
        now: Instant,
        (id, path): (PeerId, Entropy),
        payload: Bytes,
        endpoint: &mut Endpoint,
    ) {
        let (src_qpn, dst_qpn) = (FRAME_QPN, CLOUD_QPN);
        let datagram = Datagram { src_qpn, dst_qpn, imm: 0, payload, class: Class::Bulk, user: 0 };
        if endpoint.send_unreliable(now, id, path, datagram).is_err() {
            self.counters.send_refused += 1;
        }
    }
}

/// Returns the packets and bytes of a frame, or of all frames of a bundle, for the counters.
fn amount(outgoing: &Outgoing, trailer: &Trailer) -> Amount {
    let Outgoing { frame, layout, kind, .. } = outgoing;
    let eligible = *kind == Kind::Cloud; // C2
    let (packets, bytes) = match trailer.frames() {
        1 => (layout.packets(), layout.packet_bytes()),
        // Offload headers and lengths do not count.
        frames => (frames as u64, frame.len() - TRAILER_BYTES - bundle_overhead(frames)),
    };
    Amount { packets, bytes: bytes as u64, eligible }
}
