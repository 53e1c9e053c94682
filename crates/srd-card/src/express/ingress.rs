//! From the transport to the guest: order by flow, and nobody sends from another's address.

use alloc::vec::Vec;

use srd_proto::Delivery;
use srd_proto::time::Instant;

use super::egress::read;
use super::{Express, Guest};
use crate::counters::{Counters, Traffic};
use crate::frame::Place;
use crate::offer::Offer;
use crate::offload::OFFLOAD_BYTES;
use crate::order::Sink;
use crate::packet::protocol;
use crate::prefix::Routes;
use crate::{FRAME_QPN, OFFER_QPN, mss};

/// Hands whole frames to the guest: checks, counts, clamps.
struct Up<'a, G> {
    guest: &'a mut G,
    routes: &'a Routes<u32>,
    counters: &'a mut Counters,
    traffic: Option<&'a mut Traffic>,
    /// Whose frames these are; unknown when time ends the wait of several.
    peer: Option<u32>,
    mtu: u16,
    udp_bypass: bool,
    reliable: bool,
}

impl<G: Guest> Sink for Up<'_, G> {
    fn take(&mut self, frame: &[u8]) {
        let Some((packet, offload)) = read(frame) else {
            self.counters.peer_malformed += 1;
            return;
        };
        let from = self.routes.find(packet.source);
        if from.is_none() || self.peer.is_some_and(|peer| from != Some(peer)) {
            self.counters.peer_bad_source += 1;
            return;
        }
        let packets = offload.packets(&frame[OFFLOAD_BYTES..], &packet);
        let bytes = (frame.len() - OFFLOAD_BYTES) as u64;
        for traffic in self.traffic.iter_mut().map(|t| &mut **t).chain([&mut self.counters.traffic])
        {
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

    fn bypasses(&self, frame: &[u8]) -> bool {
        self.udp_bypass && read(frame).is_some_and(|(p, _)| p.protocol == protocol::UDP)
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
            traffic: self.peers[slot as usize].as_mut().map(|p| &mut p.traffic),
            peer: Some(slot),
            mtu: self.config.mtu,
            udp_bypass: self.config.udp_bypass,
            reliable: delivery.reliable,
        };
        if delivery.reliable {
            let place = Place::decode(delivery.imm);
            self.order.chunk(now, slot, place, delivery.payload, &mut up);
        } else {
            up.take(delivery.payload);
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
            traffic: None,
            peer: None,
            mtu: self.config.mtu,
            udp_bypass: self.config.udp_bypass,
            reliable: true,
        };
        self.order.handle_timeout(now, &mut up);
    }
}
