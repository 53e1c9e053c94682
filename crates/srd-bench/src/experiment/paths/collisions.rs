//! The experiment `collisions`: flows between pairs of hosts that share only the spines, which have
//! twice the necessary capacity.

use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Experiment, Options, Stage, describe, hosts, size};
use crate::tcp::{ClosedLoop, ClosedLoopResult};
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;

/// Number of pairs of hosts.
const PAIRS: u16 = 8;
const SPINES: u16 = 16;
const RATE_MBPS: u32 = 200;
const QUEUE_BYTES: u32 = 100_000;

/// The experiment `collisions`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "collisions",
    summary: "With every second uplink idle, how much longer do flows take that meet on one?",
    about: "8 hosts send to 8 peers across 16 spines, twice as many as they need; every link runs \
            at 200 Mb/s, so that two flows of different hosts on one uplink have half each. Each \
            connection sends message after message; a message is complete when its sender has \
            read the receiver's answer. Times are shown over the ideal: what the host's link \
            needs for the messages of all its connections. Hash seed and source ports are the \
            same for all variants and change with the repetition.",
    repetitions: 5,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let all = [(1, 1 << 20), (1, 64 << 10), (4, 1 << 20), (16, 256 << 10)];
    let chosen = all.into_iter().take(options.quick_or(1, all.len()));
    chosen.map(|(flows, bytes)| case(options, flows, bytes)).collect()
}

fn case(options: &Options, flows_per_pair: usize, bytes: u64) -> Case {
    let fabric = FabricConfig {
        hosts_per_leaf: PAIRS,
        spines: options.spines.unwrap_or(SPINES),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let seconds = options.seconds_or(6, 2);
    let pairs: Vec<_> = hosts(0, PAIRS).zip(hosts(1, PAIRS)).collect();
    Case {
        name: format!("{flows_per_pair} x {}", size(bytes)),
        setting: format!(
            "8 pairs x {flows_per_pair} connections, {} at a time, {seconds} s; {}",
            size(bytes),
            describe(&fabric)
        ),
        fabric,
        hosts: hosts(0, PAIRS).chain(hosts(1, PAIRS)).collect(),
        only: None,
        measure: Box::new(move |stage| measure(stage, &pairs, flows_per_pair, bytes, seconds)),
    }
}

/// Returns the goodput of all pairs in the time in which messages begin. The messages that complete
/// later, or never, do not count.
fn mbps(seen: &ClosedLoopResult, bytes: u64, seconds: u64) -> f64 {
    seen.in_time as f64 * bytes as f64 * 8.0 / 1e6 / seconds as f64
}

fn measure(
    stage: &Stage<'_>,
    pairs: &[(HostId, HostId)],
    flows_per_pair: usize,
    bytes: u64,
    seconds: u64,
) -> Result<Measured> {
    let closed = ClosedLoop { flows: stage.flows(pairs, flows_per_pair), bytes, seconds };
    let dropped = stage.fabric.dropped_packets()?;
    let seen = closed.run(stage.fabric)?;
    let dropped = stage.fabric.dropped_packets()?.saturating_sub(dropped);
    let config = stage.fabric.config();
    let bits = bytes as f64 * flows_per_pair as f64 * 8.0;
    let ideal_us = bits / config.goodput_mbps(config.host_rate_mbps);
    let ratios: Vec<f64> = seen.fct_us.iter().map(|us| *us as f64 / ideal_us).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    let mbps = mbps(&seen, bytes, seconds);
    Ok(Measured {
        figures: vec![
            Figure::new("mean", "x ideal", mean).beside(1.0, "ideal"),
            Figure::new("all pairs", "Mb/s", mbps),
            Figure::new("dropped by ports", "packets", dropped as f64),
        ],
        samples: vec![Samples { name: "flow completion time", unit: "x ideal", values: ratios }],
        notes: (seen.unfinished > 0)
            .then(|| format!("{} messages were unfinished at the end", seen.unfinished))
            .into_iter()
            .collect(),
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In an earlier version, messages that completed after the time, or never, counted for the
    /// goodput within the time.
    #[test]
    fn regression_goodput_is_that_of_the_messages_in_time() {
        let fct_us = vec![1; 14];
        let seen = ClosedLoopResult { fct_us, unfinished: 1, in_time: 10 };
        assert_eq!(mbps(&seen, 125_000, 2), 5.0);
    }
}
