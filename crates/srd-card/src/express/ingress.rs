//! From the transport to the guest: order by flow, and nobody sends from another's address.

use alloc::vec::Vec;

use srd_proto::Delivery;
use srd_proto::time::Instant;

use super::{Express, Guest, Peer};
use crate::counters::Counters;
use crate::meta::Meta;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::order::{Admission, Sink};
use crate::rewrite::mss;
use crate::rules::prefix::Routes;
use crate::wire::frame::Place;
use crate::wire::offer::Offer;
use crate::{FRAME_QPN, OFFER_QPN};

/// Hands whole frames to the guest: checks, counts, clamps.
struct Up<'a, G> {
    guest: &'a mut G,
    routes: &'a Routes<u32>,
    counters: &'a mut Counters,
    peers: &'a mut [Option<Peer>],
    mtu: u16,
    udp_bypass: bool,
    reliable: bool,
}

impl<G> Up<'_, G> {
    /// A frame's headers, if it is one that this peer may send. What is not, is counted.
    fn check(&mut self, peer: u32, frame: &[u8]) -> Option<Layout> {
        let Some(meta) = Meta::parse(frame, Direction::Ingress) else {
            self.counters.peer_malformed += 1;
            return None;
        };
        if self.routes.find(meta.key.destination) != Some(peer) {
            self.counters.peer_bad_source += 1;
            return None;
        }
        Some(meta.layout)
    }
}

impl<G: Guest> Sink for Up<'_, G> {
    fn admit(&mut self, peer: u32, frame: &[u8]) -> Admission {
        match self.check(peer, frame) {
            None => Admission::Never,
            Some(layout) if self.udp_bypass && layout.protocol == protocol::UDP => {
                Admission::AtOnce
            }
            Some(_) => Admission::InTurn,
        }
    }

    fn take(&mut self, peer: u32, frame: &[u8]) {
        let Some(layout) = self.check(peer, frame) else { return };
        let (packets, bytes) = (layout.packets(), layout.packet_bytes() as u64);
        let peer = self.peers.get_mut(peer as usize).and_then(Option::as_mut);
        let own = peer.map(|peer| &mut peer.traffic);
        for traffic in own.into_iter().chain([&mut self.counters.traffic]) {
            if self.reliable {
                traffic.srd_rx_pkts += packets;
                traffic.srd_rx_bytes += bytes;
            } else {
                traffic.plain_rx_pkts += packets;
                traffic.plain_rx_bytes += bytes;
            }
        }
        if layout.is_syn() {
            let mut copy = Vec::from(frame);
            let clamped = mss::clamp(&mut copy[OFFLOAD_BYTES..], &layout, self.mtu);
            self.counters.mss_clamped += u64::from(clamped);
            self.guest.deliver(&copy);
        } else {
            self.guest.deliver(frame);
        }
    }
}

impl Express {
    /// A datagram has arrived for one of the stage's queue pairs.
    pub fn delivered(&mut self, now: Instant, delivery: &Delivery<'_>, guest: &mut impl Guest) {
        let Some(slot) = self.slot_of(delivery.peer) else { return };
        if delivery.dst_qpn == OFFER_QPN {
            if delivery.reliable {
                self.on_offer(now, slot, delivery.payload);
            }
            return;
        }
        if delivery.dst_qpn != FRAME_QPN {
            return;
        }
        let mut up = Up {
            guest,
            routes: &self.routes,
            counters: &mut self.counters,
            peers: &mut self.peers,
            mtu: self.config.mtu,
            udp_bypass: self.config.udp_bypass,
            reliable: delivery.reliable,
        };
        if delivery.reliable {
            let place = Place::decode(delivery.imm);
            self.order.chunk(now, slot, place, delivery.payload, &mut up);
        } else {
            up.take(slot, delivery.payload);
        }
    }

    fn on_offer(&mut self, now: Instant, slot: u32, bytes: &[u8]) {
        let (Some(offer), Some(peer)) = (Offer::decode(bytes), self.peer_mut(slot)) else { return };
        peer.offer = Some(offer);
        if offer.asks {
            peer.offer_at = now;
            self.offer_at = now;
        } else if !peer.offering {
            // It knows ours, or will ask.
            peer.offer_at = Instant::FAR_FUTURE;
        }
    }

    /// Ends waits for holes that have lasted too long.
    pub fn handle_timeout(&mut self, now: Instant, guest: &mut impl Guest) {
        if self.order.poll_timeout().is_none_or(|at| at > now) && !self.order.sweep_is_due(now) {
            return;
        }
        let mut up = Up {
            guest,
            routes: &self.routes,
            counters: &mut self.counters,
            peers: &mut self.peers,
            mtu: self.config.mtu,
            udp_bypass: self.config.udp_bypass,
            reliable: true,
        };
        self.order.handle_timeout(now, &mut up);
    }
}
