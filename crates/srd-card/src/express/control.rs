//! Changes of the rules, and their effects on the peers. The new rules apply to frames that wait
//! (X4); each flow is evaluated again at its next packet.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::PeerId;
use srd_proto::time::{Duration, Instant};

use super::peer::Peer;
use super::stage::Express;
use crate::rules::prefix::Prefix;
use crate::rules::snapshot::{PeerSettings, PeerSlot, Rules};

impl Express {
    /// Returns the present rules.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Replaces all rules by a snapshot, which must be a changed copy of the present rules.
    ///
    /// # Panics
    /// If the epoch of the snapshot is not greater than the epoch of the present rules.
    pub fn set_rules(&mut self, now: Instant, rules: Arc<Rules>) {
        assert!(rules.epoch() > self.rules.epoch(), "a snapshot that is not later");
        let before = core::mem::replace(&mut self.rules, rules);
        for slot in before.slots() {
            let old = before.peer(slot).map(|peer| peer.id);
            let new = self.rules.peer(slot).map(|peer| peer.id);
            if old.is_some() && old != new {
                self.leave(slot.0);
            }
        }
        for slot in self.rules.slots() {
            let Some(id) = self.rules.peer(slot).map(|peer| peer.id) else { continue };
            if self.peer(slot.0).is_none() {
                self.join(now, slot.0, id);
            } else if before.enabled_for(slot) != self.rules.enabled_for(slot) {
                self.offer_anew(now, slot.0);
            }
        }
    }

    /// Adds a peer, and offers SRD to it at once.
    pub fn add_peer(&mut self, now: Instant, settings: PeerSettings) -> PeerSlot {
        let id = settings.id;
        let slot = Arc::make_mut(&mut self.rules).add_peer(settings);
        self.join(now, slot.0, id);
        slot
    }

    /// Removes a peer. Waiting frames for this peer and from it are lost. A later peer may get the
    /// same slot, but inherits no state.
    pub fn remove_peer(&mut self, slot: PeerSlot) {
        Arc::make_mut(&mut self.rules).remove_peer(slot);
        self.leave(slot.0);
    }

    /// Replaces the inner addresses of a peer: packets to these addresses are sent to the peer, and
    /// the peer may send from no other address.
    pub fn set_allowed(&mut self, slot: PeerSlot, allowed: Vec<Prefix>) {
        Arc::make_mut(&mut self.rules).set_allowed(slot, allowed);
    }

    /// Turns SRD towards a peer on or off (`express`), and SRD for UDP (`udp`). The new rule also
    /// applies to frames that wait.
    pub fn set_express(&mut self, now: Instant, slot: PeerSlot, express: bool, udp: bool) {
        Arc::make_mut(&mut self.rules).set_express(slot, express, udp);
        self.offer_anew(now, slot.0);
    }

    /// Turns SRD on or off for all peers (`express`), and SRD for UDP (`udp`).
    pub fn set_enabled(&mut self, now: Instant, express: bool, udp: bool) {
        Arc::make_mut(&mut self.rules).set_enabled(express, udp);
        for slot in self.rules.slots() {
            self.offer_anew(now, slot.0);
        }
    }

    /// Turns SRD on or off for tunnels without ports: GRE, ESP, IP in IP.
    pub fn set_tunnels(&mut self, now: Instant, tunnels: bool) {
        Arc::make_mut(&mut self.rules).set_tunnels(tunnels);
        for slot in self.rules.slots() {
            self.offer_anew(now, slot.0);
        }
    }

    /// Sets whether UDP packets are delivered in order of arrival, and the longest time for which a
    /// flow waits for a missing frame.
    pub fn set_order(&mut self, udp_bypass: bool, wait: Duration) {
        self.config.udp_bypass = udp_bypass;
        self.config.order_wait = wait;
        self.order.set_wait(wait);
        self.cloud_order.set_wait(wait);
    }

    /// Sets the queueing delay above which a queue counts as too long.
    pub fn set_queue_target(&mut self, target: Duration) {
        self.config.queue_target = target;
        self.aqm.target = target;
    }

    /// Returns the peer to which packets for an inner address are sent.
    pub fn peer_of(&self, address: IpAddr) -> Option<PeerSlot> {
        self.rules.peer_of(address)
    }

    fn join(&mut self, now: Instant, slot: u32, id: PeerId) {
        let generation = self.next_generation();
        let overflow = self.table.open_overflow(now, slot);
        let index = slot as usize;
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        self.peers[index] = Some(Peer::new(now, id, generation, overflow));
        self.by_id.insert(id, slot);
        self.offer_at = now;
        self.share();
    }

    fn leave(&mut self, slot: u32) {
        self.order.forget_peer(slot); // O6
        self.cloud_order.forget_peer(slot);
        if let Some(mut peer) = self.peers.get_mut(slot as usize).and_then(Option::take) {
            self.by_id.remove(&peer.id);
            self.absent.forget(&peer);
            peer.scheduler.clear(&mut self.table.queues);
            if let Some(overflow) = peer.overflow {
                self.table.close_overflow(overflow);
            }
        }
        self.ready.retain(|other| *other != slot);
        self.share();
    }

    /// Updates the number of peers that share the limits. // O5
    fn share(&mut self) {
        let peers = self.by_id.len();
        self.order.set_peers(peers);
        self.cloud_order.set_peers(peers);
        self.table.set_peers(peers);
    }

    /// Schedules an offer to a peer at once, because the rules for the peer have changed. // X5
    fn offer_anew(&mut self, now: Instant, slot: u32) {
        if let Some(peer) = self.peer_mut(slot) {
            peer.offer_at = now;
            self.offer_at = now;
        }
    }
}
