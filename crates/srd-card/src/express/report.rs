//! Reports for people and monitoring, and the next time-out.

use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::{Duration, Instant};

use super::peer::Reach;
use super::stage::Express;
use crate::counters::{Counters, Traffic};
use crate::meta::key::{Direction, FlowKey};
use crate::rules::snapshot::{Carried, PeerSlot};
use crate::wire::offer::Offer;

/// One peer, for people and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct PeerReport {
    /// How packets reach it.
    pub reach: Reach,
    /// Its offer, if it has made one.
    pub offer: Option<Offer>,
    /// Its share of the counters.
    pub traffic: Traffic,
    /// Bytes that wait in its queue.
    pub queued_bytes: usize,
    /// The inner source address, which it is not allowed, of its packet that was refused last.
    pub refused_from: Option<IpAddr>,
}

/// One flow that the guest sends, for people and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct FlowReport {
    /// The fields that its packets have in common.
    pub key: FlowKey,
    /// The peer that they go to.
    pub peer: PeerSlot,
    /// Whether they ride SRD.
    pub rides_srd: bool,
    /// Bits per second when rates were last taken.
    pub bps: u64,
    /// Packets sent.
    pub pkts: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets received of the other direction.
    pub rx_pkts: u64,
    /// Bytes received of the other direction.
    pub rx_bytes: u64,
}

impl Express {
    /// When [`Express::handle_timeout`] (or [`Express::pump`], for offers) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let offer = Some(self.offer_at).filter(|at| *at != Instant::FAR_FUTURE);
        let orders = [self.order.poll_timeout(), self.cloud_order.poll_timeout()];
        offer.into_iter().chain(orders.into_iter().flatten()).min()
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let order = self.order.counts() + self.cloud_order.counts();
        Counters { order, ..self.counters }
    }

    /// `ena_srd_mode`: bit 0 SRD, bit 1 for UDP, bit 2 UDP in any order.
    pub fn mode(&self) -> u64 {
        let Carried { express, udp, .. } = self.rules.enabled();
        u64::from(express) | u64::from(udp) << 1 | u64::from(self.config.udp_bypass) << 2
    }

    /// `ena_srd_resource_utilization`: the fullest table or buffer, in percent.
    pub fn resource_utilization(&self) -> u64 {
        let orders = self.order.utilization().max(self.cloud_order.utilization());
        orders.max(self.table.utilization())
    }

    /// Takes the rates of flows, which were last taken `elapsed` ago.
    pub fn take_rates(&mut self, elapsed: Duration) {
        self.table.take_rates(elapsed);
    }

    /// The flows that the guest sends with the highest rates, busiest first.
    pub fn busiest(&self, most: usize) -> Vec<FlowReport> {
        let report = |(key, peer, counts): (FlowKey, u32, crate::flow::counts::Counts)| {
            let (tx, rx) = (counts.of(Direction::Egress), counts.of(Direction::Ingress));
            FlowReport {
                key,
                peer: PeerSlot(peer),
                rides_srd: counts.rides_srd,
                bps: counts.bps,
                pkts: tx.pkts,
                bytes: tx.bytes,
                rx_pkts: rx.pkts,
                rx_bytes: rx.bytes,
            }
        };
        self.table.busiest(most).into_iter().map(report).collect()
    }

    /// Flows known, and flows of peers whose order is kept.
    pub fn flow_counts(&self) -> (usize, usize) {
        (self.table.len(), self.order.flows() + self.cloud_order.flows())
    }

    /// One peer's state.
    pub fn report(&self, slot: PeerSlot) -> Option<PeerReport> {
        let peer = self.peer(slot.0)?;
        Some(PeerReport {
            reach: peer.reach(self.rules.enabled_for(slot)),
            offer: peer.offer,
            traffic: peer.traffic,
            queued_bytes: peer.scheduler.bytes(),
            refused_from: peer.refused_from,
        })
    }
}
