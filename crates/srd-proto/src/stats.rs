//! Counters. Where EFA has a counter of the same meaning, ours has its name.

use crate::error::DropReason;

/// An endpoint's counters, since it was made.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// UDP payload bytes sent, every packet.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_pkts: u64,
    /// UDP payload bytes received, every packet that was accepted.
    pub rx_bytes: u64,
    /// Packets accepted.
    pub rx_pkts: u64,
    /// Packets dropped, for whatever reason.
    pub rx_drops: u64,
    /// Payload bytes of datagrams completed with success.
    pub send_bytes: u64,
    /// Datagrams completed with success.
    pub send_wrs: u64,
    /// Payload bytes delivered.
    pub recv_bytes: u64,
    /// Datagrams delivered.
    pub recv_wrs: u64,
    /// UDP payload bytes of data packets sent again.
    pub retrans_bytes: u64,
    /// Data packets sent again.
    pub retrans_pkts: u64,
    /// Times that the retransmission timer, not an acknowledgement, found the loss.
    pub retrans_timeout_events: u64,
    /// Times a peer was declared unreachable or unresponsive.
    pub unresponsive_remote_events: u64,
    /// Times more than half of a context's paths were bad for 10 ms.
    pub impaired_remote_conn_events: u64,
    /// Packets held for lost that arrived after all: no part of those sent again, since the
    /// acknowledgement of some comes before they are.
    pub spurious_losses: u64,
    /// Duplicates received: datagrams that had been delivered before.
    pub rx_duplicates: u64,
    /// Datagrams refused because there was no receive buffer.
    pub rx_rnr: u64,
    /// Data packets sent.
    pub data_pkts: u64,
    /// Unreliable datagrams sent.
    pub unreliable_tx_pkts: u64,
    /// Unreliable datagrams delivered.
    pub unreliable_rx_pkts: u64,
    /// Acknowledgements sent.
    pub ack_pkts: u64,
    /// Probes sent.
    pub probe_pkts: u64,
    /// Challenges sent to addresses that peers seemed to have moved to.
    pub challenge_pkts: u64,
    /// Times that a peer's address changed.
    pub address_moves: u64,
    /// Times that `now` ran backwards and was clamped.
    pub clock_clamped: u64,
    /// Pauses of this endpoint's own: calls that came much later than a timer was due.
    pub own_pauses: u64,
    /// ICMP errors that reported a peer as unreachable.
    pub unreachable_hints: u64,
    /// Dropped packets by reason, in the order of [`DropReason::ALL`].
    pub drops: [u64; DropReason::COUNT],
}

impl Stats {
    /// Counts a dropped packet.
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.rx_drops += 1;
        self.drops[reason as usize] += 1;
    }
}

/// The state of one context, for people and monitoring.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerStats {
    /// Base round trip, ns; 0 if none was measured.
    pub rtt_base_ns: u64,
    /// Smoothed round trip, ns; 0 if none was measured.
    pub rtt_smoothed_ns: u64,
    /// Median queueing delay over paths, ns.
    pub delay_median_ns: u64,
    /// Range of queueing delays over paths, ns.
    pub delay_spread_ns: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Datagrams waiting or in flight.
    pub queued_datagrams: usize,
    /// Bytes that the receiver's credit limit still allows beyond what is in flight; negative:
    /// none.
    pub credit_left_bytes: i64,
    /// Whether a credit limit of the receiver applies.
    pub credit_limited: bool,
    /// Delivery rate measured, bits per second.
    pub delivery_rate_bps: u64,
    /// Data packets sent again since this context began.
    pub retrans_pkts: u64,
    /// Paths in each state: good, skipped, assumed bad, denied.
    pub paths: [u16; 4],
    /// Paths that pass packets as far as is known: those good and skipped, if the peer has
    /// answered.
    pub paths_passing: u16,
}

/// One path, for people and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// Its entropy.
    pub entropy: u16,
    /// `good`: nothing speaks against it, whether or not anything was sent on it. `skip`: later
    /// than most, or in doubt, within the last second, and passed over for now. `assumed-bad`: what
    /// was sent on it did not arrive, and it carries probes only. `denied`: by the operator.
    pub state: &'static str,
    /// Its last queueing delay, ns.
    pub delay_ns: u32,
    /// Packets sent on it.
    pub sent_pkts: u64,
    /// Packets lost on it.
    pub lost_pkts: u64,
}
