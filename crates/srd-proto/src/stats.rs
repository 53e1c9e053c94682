//! Counters. A counter that has the same meaning as one of EFA has its name.
//!
//! To add a counter, change these files. `srd up`, EFA and Python do not compile until they name a
//! new field: each of them publishes the field, or lists it as `_`.
//!
//! | file | change |
//! |---|---|
//! | this file | the field of [`Stats`], with its meaning |
//! | the module that finds the event | the count, for example in `peer/acked.rs` |
//! | `srd up`: `pages/totals.rs` of `srd-daemon` | three places: the struct `Transport`, its list in `counters!`, and `From<&Stats>` |
//! | `srd up`: `snapshot.rs` of `srd-daemon` | name, help and kind in the list of `Counters` |
//! | `srd up`: `pages/read.rs` of `srd-daemon` | the value under this name, in `counters` |
//! | EFA: `counters.rs` of `srd-efa` | `hw_counters`, if EFA's driver has the counter; then also section 7 of `docs/spec/efa.md` |
//! | Python: `src/endpoint/report.rs` of `srd-python` | the key, in `counters` |
//! | Python: `python/opensrd/statistics.py` of `srd-python` | the field of `Statistics` with the name of the key |
//! | simulator: `engine/nic.rs` of `srd-sim` | `Totals`, its `of` and its `Add`, if results of runs show the counter |
//!
//! `srd stats`, `srd status --json`, OpenMetrics and srd-metrics(7) show the list of `Counters`
//! without further changes.
//!
//! A new reason for dropped packets is a variant of [`DropReason`] in `error.rs`, and a call of
//! `Stats::drop`. All outlets that name reasons read [`DropReason::ALL`]; `srd up` writes
//! `UnknownContext` as `unknown_context`.
//!
//! A figure of one peer is a field of [`PeerStats`], which `peer/mod.rs` fills in. Its outlets are
//! `pages/figure.rs` and `pages/read.rs` of `srd-daemon` (with `PeerSnapshot` in `snapshot.rs` and
//! `PEER_FAMILIES` in `metrics/exposition.rs`), and `peer` in `report.rs` of `srd-python`.

use crate::error::DropReason;

/// Counters of an endpoint, since its creation.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// UDP payload bytes of all packets sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_pkts: u64,
    /// UDP payload bytes of all accepted packets.
    pub rx_bytes: u64,
    /// Packets accepted.
    pub rx_pkts: u64,
    /// Packets dropped, for any of the reasons in `drops`.
    pub rx_drops: u64,
    /// Payload bytes of datagrams completed with success.
    pub send_bytes: u64,
    /// Datagrams completed with success.
    pub send_wrs: u64,
    /// Payload bytes of datagrams that were delivered.
    pub recv_bytes: u64,
    /// Datagrams delivered.
    pub recv_wrs: u64,
    /// UDP payload bytes of data packets sent again.
    pub retrans_bytes: u64,
    /// Data packets sent again.
    pub retrans_pkts: u64,
    /// Times that a retransmission timeout, not an acknowledgement, detected a loss.
    pub retrans_timeout_events: u64,
    /// Times a peer was declared unreachable or unresponsive.
    pub unresponsive_remote_events: u64,
    /// Times that half of a context's paths or more were bad for 10 ms.
    pub impaired_remote_conn_events: u64,
    /// Packets that were declared lost and were acknowledged later. Not all of their datagrams were
    /// sent again: some were acknowledged before the retransmission left.
    pub spurious_losses: u64,
    /// Data packets received whose datagram had already been delivered.
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
    /// Times that a call passed an earlier `now` than before. The endpoint then keeps the former
    /// time.
    pub clock_clamped: u64,
    /// Pauses of this endpoint: calls that came much later than a timer was due.
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

/// The state of one context, for users and monitoring.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerStats {
    /// Base round trip, ns; 0 before the first measurement.
    pub rtt_base_ns: u64,
    /// Smoothed round trip, ns; 0 before the first measurement.
    pub rtt_smoothed_ns: u64,
    /// Median queueing delay of the last sixteen observations on all paths, ns.
    pub delay_median_ns: u64,
    /// Difference between the delays of paths (C4): four times the smoothed difference between one
    /// observation and the next, ns.
    pub delay_spread_ns: u64,
    /// Congestion window of the context, in bytes.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Datagrams that wait or are in flight.
    pub queued_datagrams: usize,
    /// Bytes that the receiver's credit limit allows in addition to the bytes in flight. Negative
    /// if more bytes are in flight than the limit allows.
    pub credit_left_bytes: i64,
    /// Whether a credit limit of the receiver applies.
    pub credit_limited: bool,
    /// Delivery rate in the last complete measuring period of about a round trip, in bits per
    /// second.
    pub delivery_rate_bps: u64,
    /// Data packets sent again since this context began.
    pub retrans_pkts: u64,
    /// Number of paths in each state: good; skipped, because of a penalty (P5); assumed bad, after
    /// a loss or an unanswered probe (P7); denied by the operator (P12).
    pub paths: [u16; 4],
    /// Number of paths that are assumed to pass packets: the good and the skipped paths. Zero if
    /// the peer has never answered in this context.
    pub paths_passing: u16,
}

/// The state of one path, for users and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// Entropy of the path.
    pub entropy: u16,
    /// State of the path. `good`: there is no indication of a problem; the path may be unused so
    /// far. `skip`: the path was later than most, or in doubt, within the last second, and is
    /// passed over for now. `assumed-bad`: packets on the path were lost; it carries probes only.
    /// `denied`: the operator has excluded it.
    pub state: &'static str,
    /// Queueing delay of the newest observation on the path, ns.
    pub delay_ns: u32,
    /// Number of packets sent on the path.
    pub sent_pkts: u64,
    /// Number of packets on the path that were declared lost.
    pub lost_pkts: u64,
}
