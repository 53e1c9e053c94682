//! Reports for users and monitoring, and the next timeout.

use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::{Duration, Instant};

use super::peer::Reach;
use super::stage::Express;
use crate::counters::{Counters, Traffic};
use crate::meta::key::{Direction, FlowKey};
use crate::rules::snapshot::{Carried, PeerSlot};
use crate::wire::offer::Offer;

/// Report of one peer, for users and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct PeerReport {
    /// Encapsulation of packets to the peer.
    pub reach: Reach,
    /// Offer of the peer, if the peer has made an offer.
    pub offer: Option<Offer>,
    /// Counters of the peer.
    pub traffic: Traffic,
    /// Bytes of the frames that wait in the queue for the peer.
    pub queued_bytes: usize,
    /// Inner source address of the peer's packet that was refused last, because the peer may not
    /// use this address; `None` if no packet was refused.
    pub refused_from: Option<IpAddr>,
}

/// Report of one flow that the guest sends, for users and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct FlowReport {
    /// Fields that all packets of the flow have in common.
    pub key: FlowKey,
    /// Peer to which the packets go.
    pub peer: PeerSlot,
    /// Whether SRD carried the last packet that the guest sent.
    pub rides_srd: bool,
    /// Rate at which the guest sends, in bits per second, as the last call of
    /// [`Express::take_rates`] computed it.
    pub bps: u64,
    /// Packets that the guest has sent.
    pub pkts: u64,
    /// Bytes that the guest has sent.
    pub bytes: u64,
    /// Packets that the guest has received in the other direction of the flow.
    pub rx_pkts: u64,
    /// Bytes that the guest has received in the other direction of the flow.
    pub rx_bytes: u64,
}

impl Express {
    /// Time of the next call of [`Express::handle_timeout`] and
    /// [`Express::handle_cloud_timeout`], or, if an offer is due, of [`Express::pump`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let offer = Some(self.offer_at).filter(|at| *at != Instant::FAR_FUTURE);
        let orders = [self.order.poll_timeout(), self.cloud_order.poll_timeout()];
        offer.into_iter().chain(orders.into_iter().flatten()).min()
    }

    /// Returns the counters of the stage, summed over all peers.
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

    /// Computes the average rate of each flow since the last call, which was `elapsed` ago.
    pub fn take_rates(&mut self, elapsed: Duration) {
        self.table.take_rates(elapsed);
    }

    /// Returns at most `most` flows: those in which the guest sends at the highest rates, the
    /// busiest first.
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

    /// Number of flows in the flow table, and number of received flows whose order is restored.
    pub fn flow_counts(&self) -> (usize, usize) {
        (self.table.len(), self.order.flows() + self.cloud_order.flows())
    }

    /// Returns the report of the peer in a slot; `None` if the slot is free.
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
