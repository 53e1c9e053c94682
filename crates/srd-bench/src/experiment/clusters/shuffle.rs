//! The experiment `shuffle`: all hosts send to all hosts, as in the shuffle of a sort.

use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Experiment, Options, Stage, describe, hosts, size};
use crate::tcp::Barrier;
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;

/// Number of workers under each of the two leaves.
const WORKERS_PER_LEAF: u16 = 4;
const RATE_MBPS: u32 = 200;
const QUEUE_BYTES: u32 = 100_000;
/// Time in seconds after which a round has failed.
const ROUND_LIMIT_S: u64 = 60;

/// The experiment `shuffle`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "shuffle",
    summary: "When every worker sends a part to every other, when does the last one have all?",
    about: "8 workers, 4 under each leaf, all links at 200 Mb/s, as many uplinks as workers under \
            a leaf. In every round each worker sends one part to each of the 7 others over its own \
            connection, all at one moment; the round is complete when the last part is. The ideal \
            is what a worker's link needs for its seven parts.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let rounds = usize::try_from(options.seconds_or(8, 2)).unwrap_or(8);
    let sizes: [u64; 2] = [1 << 20, 4 << 20];
    let chosen = sizes.into_iter().take(options.quick_or(1, 2));
    chosen.map(|bytes| case(options, bytes, rounds)).collect()
}

fn case(options: &Options, bytes: u64, rounds: usize) -> Case {
    let fabric = FabricConfig {
        hosts_per_leaf: WORKERS_PER_LEAF,
        spines: options.spines.unwrap_or(WORKERS_PER_LEAF),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let workers: Vec<HostId> =
        hosts(0, WORKERS_PER_LEAF).chain(hosts(1, WORKERS_PER_LEAF)).collect();
    let pairs = everybody_to_everybody(&workers);
    Case {
        name: format!("{} a part", size(bytes)),
        setting: format!(
            "{} workers, 7 x {} each, {rounds} rounds; {}",
            workers.len(),
            size(bytes),
            describe(&fabric)
        ),
        fabric,
        hosts: workers,
        only: None,
        measure: Box::new(move |stage| measure(stage, &pairs, bytes, rounds)),
    }
}

fn everybody_to_everybody(workers: &[HostId]) -> Vec<(HostId, HostId)> {
    let from = |from: &HostId| workers.iter().map(|to| (*from, *to)).collect::<Vec<_>>();
    workers.iter().flat_map(from).filter(|(from, to)| from != to).collect()
}

fn measure(
    stage: &Stage<'_>,
    pairs: &[(HostId, HostId)],
    bytes: u64,
    rounds: usize,
) -> Result<Measured> {
    let barrier = Barrier {
        flows: stage.flows(pairs, 1),
        bytes,
        rounds,
        gap_ms: 50,
        round_limit_s: ROUND_LIMIT_S,
    };
    let seen = barrier.run(stage.fabric)?;
    let config = stage.fabric.config();
    let first = pairs.first().map(|pair| pair.0);
    let parts = pairs.iter().filter(|(from, _)| Some(*from) == first).count();
    let bits = bytes as f64 * parts as f64 * 8.0;
    let ideal_us = bits / config.goodput_mbps(config.host_rate_mbps);
    let limit = ROUND_LIMIT_S * 1_000_000;
    let ratio = |us: Option<u64>| us.unwrap_or(limit) as f64 / ideal_us;
    let rounds: Vec<f64> = seen.rounds.iter().map(|round| ratio(round.worst_us())).collect();
    let all = seen.rounds.iter().flat_map(|round| &round.fct_us);
    let unfinished = all.clone().filter(|fct| fct.is_none()).count();
    let parts = all.map(|fct| ratio(*fct)).collect();
    let mut sorted = rounds.clone();
    sorted.sort_by(f64::total_cmp);
    Ok(Measured {
        figures: vec![
            Figure::new(
                "median round",
                "x ideal",
                crate::experiment::measure::result::median(&sorted),
            )
            .beside(1.0, "ideal"),
            Figure::new("unfinished", "parts", unfinished as f64),
            Figure::new("dropped by ports", "packets", seen.dropped_packets as f64),
        ],
        samples: vec![
            Samples { name: "completion of a round", unit: "x ideal", values: rounds },
            Samples { name: "completion of a part", unit: "x ideal", values: parts },
        ],
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sends_to_itself_and_everybody_to_all_others() {
        let workers: Vec<HostId> = hosts(0, 3).collect();
        let pairs = everybody_to_everybody(&workers);
        assert_eq!(pairs.len(), 6);
        assert!(pairs.iter().all(|(from, to)| from != to));
    }
}
