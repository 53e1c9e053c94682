//! The figures of one worker that belong to no single peer.

use srd_card::Counters;
use srd_proto::Stats;

use super::figure::{Drops, Sum, counters, figures};

/// Counters of the transport, for the pages of figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Transport {
    pub(crate) tx_pkts: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_pkts: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) retrans_pkts: u64,
    pub(crate) retrans_timeout_events: u64,
    pub(crate) spurious_losses: u64,
    pub(crate) drops: Drops,
}

counters!(Transport {
    tx_pkts: u64,
    tx_bytes: u64,
    rx_pkts: u64,
    rx_bytes: u64,
    retrans_pkts: u64,
    retrans_timeout_events: u64,
    spurious_losses: u64,
    drops: Drops,
});

impl From<&Stats> for Transport {
    /// The pattern names every counter, so that a new one is published here, or left out on
    /// purpose.
    fn from(stats: &Stats) -> Self {
        let &Stats {
            tx_pkts,
            tx_bytes,
            rx_pkts,
            rx_bytes,
            retrans_pkts,
            retrans_timeout_events,
            spurious_losses,
            drops,
            rx_drops: _,
            send_bytes: _,
            send_wrs: _,
            recv_bytes: _,
            recv_wrs: _,
            retrans_bytes: _,
            unresponsive_remote_events: _,
            impaired_remote_conn_events: _,
            rx_duplicates: _,
            rx_rnr: _,
            data_pkts: _,
            unreliable_tx_pkts: _,
            unreliable_rx_pkts: _,
            ack_pkts: _,
            probe_pkts: _,
            challenge_pkts: _,
            address_moves: _,
            clock_clamped: _,
            own_pauses: _,
            unreachable_hints: _,
        } = stats;
        Self {
            tx_pkts,
            tx_bytes,
            rx_pkts,
            rx_bytes,
            retrans_pkts,
            retrans_timeout_events,
            spurious_losses,
            drops,
        }
    }
}

/// Counters of the work of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Work {
    /// Number of times that a context came up: handshakes that ended with a session.
    pub(crate) ups: u64,
    /// Number of times that a context went down.
    pub(crate) downs: u64,
    /// Number of frames that the interface refused.
    pub(crate) refused: u64,
    /// Number of orders of the control thread and of readers that the worker has begun to carry
    /// out.
    pub(crate) orders: u64,
    /// Number of times that the worker wrote a peer's row.
    pub(crate) rows: u64,
    /// Number of reports that were lost because the queue to the control thread was full.
    pub(crate) reports_lost: u64,
}

counters!(Work { ups: u64, downs: u64, refused: u64, orders: u64, rows: u64, reports_lost: u64 });

/// All figures of one worker that belong to no single peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) transport: Transport,
    pub(crate) card: Counters,
    pub(crate) work: Work,
    /// The counter `ena_srd_mode`; all workers have the same value.
    pub(crate) mode: u64,
    /// Use of the fullest table or buffer, in percent.
    pub(crate) utilization: u64,
    /// Number of flows in memory, in both directions.
    pub(crate) flows: u64,
}

figures!(Totals {
    transport: Transport,
    card: Counters,
    work: Work,
    mode: u64,
    utilization: u64,
    flows: u64,
});

impl Totals {
    /// Combines the figures of all workers.
    pub(crate) fn together(all: impl Iterator<Item = Self>) -> Self {
        all.reduce(|mut sum, one| {
            sum.transport.add(&one.transport);
            sum.card.add(&one.card);
            sum.work.add(&one.work);
            sum.utilization = sum.utilization.max(one.utilization);
            sum.flows += one.flows;
            sum
        })
        .unwrap_or_default()
    }
}
