//! Counters, with ENA's names where ENA has them: `ena_srd_*` count packets of the guest, a
//! super-packet as the packets that it represents.

use crate::order::OrderCounts;

/// Counters of packets and bytes for one peer, or for all peers together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Packets that left over SRD (`ena_srd_tx_pkts`).
    pub srd_tx_pkts: u64,
    /// Packets that left over SRD, and packets that were eligible for SRD but left without it
    /// (`ena_srd_eligible_tx_pkts`).
    pub eligible_tx_pkts: u64,
    /// Packets received over SRD (`ena_srd_rx_pkts`).
    pub srd_rx_pkts: u64,
    /// Bytes of packets that left over SRD.
    pub srd_tx_bytes: u64,
    /// Bytes of packets received over SRD.
    pub srd_rx_bytes: u64,
    /// Packets that left by plain encapsulation.
    pub plain_tx_pkts: u64,
    /// Packets that came by plain encapsulation.
    pub plain_rx_pkts: u64,
    /// Bytes of packets that left by plain encapsulation.
    pub plain_tx_bytes: u64,
    /// Bytes of packets that came by plain encapsulation.
    pub plain_rx_bytes: u64,
    /// Frames in which the queue for the peer set ECN's mark CE (congestion experienced). A
    /// super-packet or a bundle counts once.
    pub queue_marked: u64,
    /// Frames dropped because they waited too long in the queue, and are not ECN-capable.
    pub queue_dropped_late: u64,
    /// Frames dropped because the peer's queue was full, or, for a peer that has made no offer, the
    /// queues for all such peers.
    pub queue_dropped_full: u64,
    /// Packets that came from an inner address which the peer may not use.
    pub refused_pkts: u64,
}

impl Traffic {
    /// Counts packets that leave, over SRD or without it, eligible or not.
    #[inline]
    pub(crate) fn count_sent(
        &mut self,
        packets: u64,
        bytes: u64,
        (eligible, by_srd): (bool, bool),
    ) {
        self.eligible_tx_pkts += if eligible { packets } else { 0 };
        let (all, of_them) = if by_srd {
            (&mut self.srd_tx_pkts, &mut self.srd_tx_bytes)
        } else {
            (&mut self.plain_tx_pkts, &mut self.plain_tx_bytes)
        };
        *all += packets;
        *of_them += bytes;
    }

    /// Counts packets that have arrived, over SRD or without it.
    #[inline]
    pub(crate) fn count_received(&mut self, packets: u64, bytes: u64, by_srd: bool) {
        let (all, of_them) = if by_srd {
            (&mut self.srd_rx_pkts, &mut self.srd_rx_bytes)
        } else {
            (&mut self.plain_rx_pkts, &mut self.plain_rx_bytes)
        };
        *all += packets;
        *of_them += bytes;
    }
}

/// Counters of dropped packets, and all counters that do not belong to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets and bytes of all peers together.
    pub traffic: Traffic,
    /// Frames from the guest that contain no IP packet, or an offload header that contradicts the
    /// packet.
    pub guest_malformed: u64,
    /// Packets from the guest to an address that belongs to no peer.
    pub guest_no_peer: u64,
    /// Packets from the guest that fit no encapsulation and may not be fragmented. The guest got an
    /// ICMP error, within the rate limit.
    pub guest_too_big: u64,
    /// Packets from the guest that fit no encapsulation, and were sent as fragments.
    pub guest_cut: u64,
    /// Frames from a peer that contain no IP packet, or an offload header that contradicts the
    /// packet.
    pub peer_malformed: u64,
    /// Packets from a peer with an inner source address that the peer may not use.
    pub peer_bad_source: u64,
    /// TCP SYN packets, from or to the guest, whose MSS option was lowered.
    pub mss_clamped: u64,
    /// Packets that found the flow table full, and were sent without SRD.
    pub flows_full: u64,
    /// Datagrams that the transport refused to queue.
    pub send_refused: u64,
    /// Datagrams that the transport queued and later gave up; their frames are lost.
    pub send_failed: u64,
    /// Frames of clouds that contain no IP packet, or a packet that is too long for its trailer and
    /// cannot be divided.
    pub cloud_malformed: u64,
    /// Frames of clouds to a peer that was removed.
    pub cloud_no_peer: u64,
    /// Packets of clouds that fit no datagram. The sender got no ICMP error.
    pub cloud_too_big: u64,
    /// Frames of clouds that were dropped because their peer does not accept frames of clouds.
    pub cloud_refused: u64,
    /// Counters of the receiving side, which restores the order of flows.
    pub order: OrderCounts,
}

/// Names of the counters that count lost packets.
const DROPS: [&str; 16] = [
    "queue_dropped_late",
    "queue_dropped_full",
    "order_given_up",
    "order_bad_chunks",
    "order_full",
    "guest_malformed",
    "guest_no_peer",
    "guest_too_big",
    "peer_malformed",
    "peer_bad_source",
    "send_refused",
    "send_failed",
    "cloud_malformed",
    "cloud_no_peer",
    "cloud_too_big",
    "cloud_refused",
];
/// Names of those counters of lost packets that count packets of the interface (the guest) only.
const OF_INTERFACE: [&str; 4] =
    ["guest_malformed", "guest_no_peer", "guest_too_big", "peer_bad_source"];

impl Counters {
    /// Returns each counter that is a plain number, with the name that tools show.
    pub fn named(&self) -> [(&'static str, u64); 28] {
        let t = &self.traffic;
        let o = &self.order;
        [
            ("srd_tx_bytes", t.srd_tx_bytes),
            ("srd_rx_bytes", t.srd_rx_bytes),
            ("plain_tx_pkts", t.plain_tx_pkts),
            ("plain_rx_pkts", t.plain_rx_pkts),
            ("plain_tx_bytes", t.plain_tx_bytes),
            ("plain_rx_bytes", t.plain_rx_bytes),
            ("queue_marked", t.queue_marked),
            ("queue_dropped_late", t.queue_dropped_late),
            ("queue_dropped_full", t.queue_dropped_full),
            ("order_waited", o.waited),
            ("order_wait_timeouts", o.wait_timeouts),
            ("order_given_up", o.given_up),
            ("order_bad_chunks", o.bad_chunks),
            ("order_full", o.full),
            ("guest_malformed", self.guest_malformed),
            ("guest_no_peer", self.guest_no_peer),
            ("guest_too_big", self.guest_too_big),
            ("guest_cut", self.guest_cut),
            ("peer_malformed", self.peer_malformed),
            ("peer_bad_source", self.peer_bad_source),
            ("mss_clamped", self.mss_clamped),
            ("flows_full", self.flows_full),
            ("send_refused", self.send_refused),
            ("send_failed", self.send_failed),
            ("cloud_malformed", self.cloud_malformed),
            ("cloud_no_peer", self.cloud_no_peer),
            ("cloud_too_big", self.cloud_too_big),
            ("cloud_refused", self.cloud_refused),
        ]
    }

    /// Returns the counters of packets that were lost in the card, each with its name.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        self.named().into_iter().filter(|(name, _)| DROPS.contains(name))
    }

    /// Whether a counter of lost packets counts packets of the interface only. The others also
    /// count, or count only, frames of clouds.
    pub fn is_of_interface(name: &str) -> bool {
        OF_INTERFACE.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_for_a_drop_is_a_counter() {
        assert_eq!(Counters::default().drops().count(), DROPS.len());
        assert!(OF_INTERFACE.iter().all(|name| DROPS.contains(name)));
        let of_interface = DROPS.iter().filter(|name| Counters::is_of_interface(name));
        assert_eq!(of_interface.count(), OF_INTERFACE.len());
    }
}
