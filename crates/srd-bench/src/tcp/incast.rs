//! Barrier-synchronised incast: many flows to one host start at the same moment, in rounds as in
//! [`Barrier`].

use super::Congestion;
use super::barrier::{Barrier, Round};
use super::connection::Flows;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use srd_lab::fabric::Fabric;
use srd_lab::id::{HostId, Network};
use srd_lab::priority::CpuUse;

/// Parameters of an incast measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Incast {
    /// Hosts that send.
    pub senders: Vec<HostId>,
    /// Number of flows of each sender.
    pub flows_per_sender: usize,
    /// Host that receives all flows.
    pub receiver: HostId,
    /// Number of bytes that each flow sends in each round.
    pub bytes: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Congestion control of the kernel for all flows.
    pub congestion: Congestion,
    /// Number of extra MPTCP subflows per connection; zero for plain TCP.
    pub mptcp_subflows: u16,
    /// Network of the fabric whose addresses the flows use.
    pub network: Network,
    /// Pause between two rounds, in milliseconds.
    pub gap_ms: u64,
    /// Longest duration of a round, in seconds; the round then ends even if flows are unfinished.
    pub round_limit_s: u64,
}

impl Default for Incast {
    /// Four hosts of the first leaf send twelve flows each to the first host of the second leaf.
    fn default() -> Self {
        Incast {
            senders: (0..4).map(|host| HostId { leaf: 0, host }).collect(),
            flows_per_sender: 12,
            receiver: HostId { leaf: 1, host: 0 },
            bytes: 512 << 10,
            rounds: 20,
            congestion: Congestion::Cubic,
            mptcp_subflows: 0,
            network: Network::V4,
            gap_ms: 50,
            round_limit_s: 60,
        }
    }
}

/// Results of all rounds of an incast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncastResult {
    /// Parameters with which the incast was measured.
    pub incast: Incast,
    /// Time in microseconds in which the receiver's link transfers the payload of all flows of a
    /// round at its full rate.
    pub ideal_us: u64,
    /// Completion times of the flows in each round.
    pub rounds: Vec<Round>,
    /// Number of packets that all ports of the fabric dropped during the measurement.
    pub dropped_packets: u64,
    /// CPU time of the machine during the measurement.
    pub cpu: CpuUse,
}

/// Summary of an incast. Times are over all flows of all rounds, except where noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IncastSummary {
    /// Median completion time of the completed flows, in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the completion times of the completed flows, in microseconds.
    pub p99_us: u64,
    /// Completion time of the slowest completed flow, in microseconds.
    pub max_us: u64,
    /// Median over the rounds of the completion time of each round's slowest flow, in microseconds;
    /// an unfinished flow counts as `round_limit_s`.
    pub round_worst_p50_us: u64,
    /// `round_worst_p50_us` divided by `ideal_us`.
    pub round_worst_p50_ratio: f64,
    /// `p99_us` divided by `ideal_us`.
    pub p99_ratio: f64,
    /// Number of flows that were unfinished when their round ended.
    pub unfinished: usize,
}

impl IncastResult {
    /// Returns the summary of all rounds.
    #[must_use]
    pub fn summary(&self) -> IncastSummary {
        let flows = || self.rounds.iter().flat_map(|round| &round.fct_us);
        let mut fct: Vec<u64> = flows().flatten().copied().collect();
        let limit = self.incast.round_limit_s * 1_000_000;
        let mut worst: Vec<u64> =
            self.rounds.iter().map(|round| round.worst_us().unwrap_or(limit)).collect();
        fct.sort_unstable();
        worst.sort_unstable();
        let ratio = |us: u64| us as f64 / self.ideal_us.max(1) as f64;
        let (p99_us, round_worst_p50_us) = (percentile(&fct, 99), percentile(&worst, 50));
        IncastSummary {
            p50_us: percentile(&fct, 50),
            p99_us,
            max_us: percentile(&fct, 100),
            round_worst_p50_us,
            round_worst_p50_ratio: ratio(round_worst_p50_us),
            p99_ratio: ratio(p99_us),
            unfinished: flows().filter(|fct| fct.is_none()).count(),
        }
    }
}

/// Returns a percentile of sorted values by nearest rank; zero if there are no values.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Runs an incast. It takes about `rounds * (ideal + gap)`, and longer if the transport is slow.
pub fn barrier_incast(fabric: &Fabric, incast: &Incast) -> Result<IncastResult> {
    let pairs: Vec<_> = incast.senders.iter().map(|sender| (*sender, incast.receiver)).collect();
    let flows = Flows {
        pairs,
        flows_per_pair: incast.flows_per_sender,
        network: incast.network,
        congestion: incast.congestion,
        mptcp_subflows: incast.mptcp_subflows,
        first_port: None,
    };
    let barrier = Barrier {
        flows,
        bytes: incast.bytes,
        rounds: incast.rounds,
        gap_ms: incast.gap_ms,
        round_limit_s: incast.round_limit_s,
    };
    let seen = barrier.run(fabric)?;
    Ok(IncastResult {
        incast: incast.clone(),
        ideal_us: ideal_us(fabric, incast),
        rounds: seen.rounds,
        dropped_packets: seen.dropped_packets,
        cpu: seen.cpu,
    })
}

/// Returns the ideal completion time of a round in microseconds. The bottleneck is assumed to be
/// the receiver's link.
fn ideal_us(fabric: &Fabric, incast: &Incast) -> u64 {
    let goodput_mbps = fabric.config().goodput_mbps(fabric.config().host_rate_mbps);
    let flows = incast.senders.len() * incast.flows_per_sender;
    let bits = incast.bytes as f64 * flows as f64 * 8.0;
    #[allow(clippy::cast_possible_truncation)] // bounded by the checks of `barrier_incast`
    let us = (bits / goodput_mbps).round() as u64;
    us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rounds: Vec<Round>) -> IncastResult {
        IncastResult {
            incast: Incast { round_limit_s: 1, ..Incast::default() },
            ideal_us: 100,
            rounds,
            dropped_packets: 0,
            cpu: CpuUse::default(),
        }
    }

    #[test]
    fn worst_flow_of_the_median_round_is_the_headline() {
        let round = |worst| Round { fct_us: vec![Some(50), Some(worst)] };
        let summary = result(vec![round(900), round(430), round(100)]).summary();
        assert_eq!(summary.round_worst_p50_us, 430);
        assert!((summary.round_worst_p50_ratio - 4.3).abs() < 1e-9);
        assert_eq!((summary.p50_us, summary.max_us, summary.unfinished), (50, 900, 0));
    }

    #[test]
    fn unfinished_flow_counts_as_the_limit_and_is_reported() {
        let round = Round { fct_us: vec![Some(50), None] };
        assert_eq!(round.worst_us(), None);
        let summary = result(vec![round]).summary();
        assert_eq!((summary.round_worst_p50_us, summary.unfinished), (1_000_000, 1));
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 50), 50);
        assert_eq!(percentile(&sorted, 99), 99);
        assert_eq!(percentile(&sorted, 100), 100);
        assert_eq!(percentile(&[], 99), 0);
        assert_eq!(percentile(&[7], 1), 7);
    }
}
