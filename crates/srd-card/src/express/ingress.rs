//! From the transport to the guest: order by flow, and nobody sends from another's address.

use alloc::vec::Vec;

use srd_proto::Delivery;
use srd_proto::time::Instant;

use super::egress::read;
use super::{Express, Guest, Peer};
use crate::counters::Counters;
use crate::frame::Place;
use crate::offer::Offer;
use crate::offload::{OFFLOAD_BYTES, Offload};
use crate::order::{Admission, Sink};
use crate::packet::{Packet, protocol};
use crate::prefix::Routes;
use crate::{FRAME_QPN, OFFER_QPN, mss};

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
    fn check(&mut self, peer: u32, frame: &[u8]) -> Option<(Packet, Offload)> {
        let Some((packet, offload)) = read(frame) else {
            self.counters.peer_malformed += 1;
            return None;
        };
        if self.routes.find(packet.source) != Some(peer) {
            self.counters.peer_bad_source += 1;
            return None;
        }
        Some((packet, offload))
    }
}

impl<G: Guest> Sink for Up<'_, G> {
    fn admit(&mut self, peer: u32, frame: &[u8]) -> Admission {
        match self.check(peer, frame) {
            None => Admission::Never,
            Some((packet, _)) if self.udp_bypass && packet.protocol == protocol::UDP => {
                Admission::AtOnce
            }
            Some(_) => Admission::InTurn,
        }
    }

    fn take(&mut self, peer: u32, frame: &[u8]) {
        let Some((packet, offload)) = self.check(peer, frame) else { return };
        let packets = offload.packets(&frame[OFFLOAD_BYTES..], &packet);
        let bytes = (frame.len() - OFFLOAD_BYTES) as u64;
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
        let syn = packet.protocol == protocol::TCP
            && frame.get(OFFLOAD_BYTES + packet.transport_at + 13).is_some_and(|f| f & 2 != 0);
        if syn {
            let mut copy = Vec::from(frame);
            let left = offload.checksum.is_some();
            let clamped = mss::clamp(&mut copy[OFFLOAD_BYTES..], &packet, self.mtu, left);
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
