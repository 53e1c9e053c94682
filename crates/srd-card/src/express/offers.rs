//! Agreement between cards on the packets that SRD carries, and events of the transport.

use alloc::vec::Vec;
use core::iter::once;

use bytes::Bytes;
use srd_proto::time::{Duration, Instant};
use srd_proto::{Class, Datagram, Endpoint, Event, PeerId, SHARDS_MAX, Status};

use super::stage::Express;
use crate::queue::scheduler::QueueCounts;
use crate::rules::snapshot::{Carried, PeerSlot};
use crate::wire::offer::Offer;
use crate::wire::queue_pairs::OFFER_QPN;

/// Time between two offers to a peer that has not answered.
const OFFER_INTERVAL: Duration = Duration::from_secs(1);
/// Value of `user` that marks the completion of an offer. For a frame over SRD, `user` is the slot
/// of its flow.
const OFFER_USER: u64 = u64::MAX;
/// Largest number of contexts with further shards of a node, in addition to the context that the
/// rules name.
const PARTNERS_MAX: usize = SHARDS_MAX as usize - 1;

fn datagram(offer: Offer) -> Datagram {
    Datagram {
        src_qpn: OFFER_QPN,
        dst_qpn: OFFER_QPN,
        imm: 0,
        payload: Bytes::copy_from_slice(&offer.encode()),
        class: Class::LowLatency,
        user: OFFER_USER,
    }
}

impl Express {
    /// Handles an event of the transport.
    pub fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Completed { status: Status::Ok, user, .. } if *user != OFFER_USER => {}
            Event::Completed { peer, user, status, .. } => {
                self.on_completed(now, *peer, *user, *status);
            }
            Event::PeerUp { peer } => {
                if let Some(peer) = self.slot_of(*peer).and_then(|slot| self.peer_mut(slot)) {
                    peer.offer_at = now;
                }
                self.offer_at = now;
            }
            Event::PeerDown { peer, .. } => self.on_down(now, *peer),
            Event::PathMtu { peer, works_bytes, configured_bytes } => {
                let lost = usize::from(configured_bytes.saturating_sub(*works_bytes));
                if let Some(peer) = self.slot_of(*peer).and_then(|slot| self.peer_mut(slot)) {
                    peer.bytes_lost = lost;
                }
            }
            Event::Writable { .. } | Event::Diagnosis { .. } => {}
        }
    }

    fn on_down(&mut self, now: Instant, id: PeerId) {
        for partners in self.partners.values_mut() {
            partners.retain(|partner| *partner != id);
        }
        let generation = self.next_generation();
        self.offer_at = self.offer_at.min(now + OFFER_INTERVAL);
        let Some(slot) = self.slot_of(id) else { return };
        let Some(peer) = self.peers.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        (peer.offer, peer.offered) = (None, None);
        peer.offer_at = peer.offer_at.min(now + OFFER_INTERVAL);
        peer.generation = generation; // F4
        peer.bytes_lost = 0;
        // The common limit of absent peers applies to the queue from now on. // Q4
        let mut counts = QueueCounts::default();
        let aqm = self.absent.limit(peer, &self.aqm);
        peer.scheduler.shorten(&mut self.table.queues, &aqm, &mut counts);
        self.absent.count(peer);
        self.count_queue(slot, counts);
    }

    /// Handles the completion of an offer, or of another datagram that failed.
    fn on_completed(&mut self, now: Instant, id: PeerId, user: u64, status: Status) {
        let Some(peer) = self.slot_of(id).and_then(|slot| self.peer_mut(slot)) else { return };
        if user == OFFER_USER {
            peer.offering = false;
            if status != Status::Ok {
                peer.offered = None;
                peer.offer_at = now + OFFER_INTERVAL;
            }
            let at = peer.offer_at;
            self.offer_at = self.offer_at.min(at);
            return;
        }
        self.counters.send_failed += 1;
        if let Ok(slot) = u32::try_from(user) {
            self.table.renumber(slot);
        }
    }

    /// Handles an offer of a peer, which has arrived through `context`.
    pub(super) fn on_offer(&mut self, now: Instant, slot: u32, context: PeerId, bytes: &[u8]) {
        let ours = self.rules.enabled_for(PeerSlot(slot));
        let peer = self.peers.get_mut(slot as usize).and_then(Option::as_mut);
        let (Some(offer), Some(peer)) = (Offer::decode(bytes), peer) else { return };
        peer.offer = Some(offer);
        self.absent.count(peer);
        if !peer.queued && !peer.scheduler.is_empty() {
            // Frames have waited for the offer. // C4
            peer.queued = true;
            self.ready.push_back(slot);
        }
        let Some(peer) = self.peer_mut(slot) else { return };
        if context != peer.id {
            let partners = self.partners.entry(slot).or_default();
            if !partners.contains(&context) {
                if partners.len() == PARTNERS_MAX {
                    partners.remove(0);
                }
                partners.push(context);
            }
        }
        let Some(peer) = self.peer_mut(slot) else { return };
        if offer.asks {
            peer.offer_at = now;
            self.offer_at = now;
        } else if !peer.offering && peer.offered == Some(ours) {
            // The peer has our offer, or will request it.
            peer.offer_at = Instant::FAR_FUTURE;
        }
    }

    /// Sends the offers that are due. // X5
    pub(super) fn send_offers(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if now >= self.offer_at {
            self.make_offers(now, endpoint);
        }
    }

    #[cold]
    fn make_offers(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.offer_at = Instant::FAR_FUTURE;
        for (slot, peer) in (0..).zip(&mut self.peers) {
            let Some(peer) = peer.as_mut().filter(|peer| !peer.offering) else { continue };
            if peer.offer_at > now {
                self.offer_at = self.offer_at.min(peer.offer_at);
                continue;
            }
            let ours = self.rules.enabled_for(PeerSlot(slot));
            let Carried { express, udp, tunnels } = ours;
            let (cloud, asks) = (self.config.cloud, peer.offer.is_none());
            let offer = Offer { express, udp, tunnels, cloud, asks };
            // Further shards of the peer's node repeat their request until they have an answer. The
            // flag that requests an offer is sent only to the context in the rules.
            let partners = self.partners.get(&slot).map_or(&[][..], Vec::as_slice);
            for to in once(&peer.id).chain(partners) {
                let asks = offer.asks && *to == peer.id;
                let went = endpoint.send(now, *to, datagram(Offer { asks, ..offer })).is_ok();
                peer.offering = if *to == peer.id { went } else { peer.offering };
            }
            peer.offered = Some(ours).filter(|_| peer.offering);
            let answered = peer.offer.is_some() && peer.offering;
            peer.offer_at = if answered { Instant::FAR_FUTURE } else { now + OFFER_INTERVAL };
            if !peer.offering {
                self.offer_at = self.offer_at.min(peer.offer_at);
            }
        }
    }
}
