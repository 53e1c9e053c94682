//! The experiment `incast`: many flows to one host start at one moment.

use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Experiment, Options, Stage, describe, hosts, size};
use crate::tcp::{Incast, barrier_incast};
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;

const RECEIVER: HostId = HostId { leaf: 1, host: 0 };
const SENDERS: u16 = 4;
const FLOWS_PER_SENDER: usize = 12;
/// Time in seconds after which a round has failed.
const ROUND_LIMIT_S: u64 = 30;

/// The experiment `incast`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "incast",
    summary: "When 48 flows start at one moment towards one host, when is the last one done?",
    about: "4 hosts x 12 established TCP connections towards one host. In every round all start \
            to send at one moment; a flow is complete when its sender has read the receiver's \
            answer to the last byte. Everything is shown over the ideal: the time the receiver's \
            link needs for the payload of all flows.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let scale = options.seconds.map_or(1.0, |seconds| seconds as f64 / 5.0);
    let all = [(64 << 10, 20), (512 << 10, 8), (2 << 20, 4)];
    let (count, rounds_of) = options.quick_or((1, 5), (3, 0));
    let chosen = all.into_iter().take(count);
    chosen
        .map(|(bytes, rounds)| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small
            let scaled = (f64::from(rounds) * scale).round().max(1.0) as usize;
            case(options, bytes, if options.quick { rounds_of } else { scaled })
        })
        .collect()
}

fn case(options: &Options, bytes: u64, rounds: usize) -> Case {
    let fabric = FabricConfig::default();
    let spines = options.spines.unwrap_or(fabric.spines);
    let fabric = FabricConfig { uplink_rate_mbps: fabric.host_rate_mbps, spines, ..fabric };
    let senders: Vec<HostId> = hosts(0, SENDERS).collect();
    let mut taking_part = senders.clone();
    taking_part.push(RECEIVER);
    Case {
        name: size(bytes),
        setting: format!(
            "{SENDERS} x {FLOWS_PER_SENDER} flows of {} -> 1, {rounds} rounds; {}",
            size(bytes),
            describe(&fabric)
        ),
        fabric,
        hosts: taking_part,
        only: None,
        measure: Box::new(move |stage| measure(stage, &senders, bytes, rounds)),
    }
}

fn measure(stage: &Stage<'_>, senders: &[HostId], bytes: u64, rounds: usize) -> Result<Measured> {
    let incast = Incast {
        senders: senders.to_vec(),
        flows_per_sender: FLOWS_PER_SENDER,
        receiver: RECEIVER,
        bytes,
        rounds,
        congestion: stage.variant.congestion(),
        mptcp_subflows: stage.variant.mptcp_subflows(),
        network: stage.network(),
        round_limit_s: ROUND_LIMIT_S,
        ..Incast::default()
    };
    let mut taking_part = senders.to_vec();
    taking_part.push(RECEIVER);
    let before = stage.fabric.tcp_counters(&taking_part)?;
    let seen = barrier_incast(stage.fabric, &incast)?;
    let tcp = stage.fabric.tcp_counters(&taking_part)?.since(&before);
    let ratio = |us: u64| us as f64 / seen.ideal_us.max(1) as f64;
    let limit = ROUND_LIMIT_S * 1_000_000;
    let worst = seen.rounds.iter().map(|round| ratio(round.worst_us().unwrap_or(limit)));
    let all = seen.rounds.iter().flat_map(|round| &round.fct_us);
    let flows = all.map(|fct| ratio(fct.unwrap_or(limit)));
    let summary = seen.summary();
    Ok(Measured {
        figures: vec![
            Figure::new("slowest flow, median round", "x ideal", summary.round_worst_p50_ratio)
                .beside(1.0, "ideal"),
            Figure::new("unfinished", "flows", summary.unfinished as f64),
            Figure::new("TCP timeouts", "", tcp.timeouts as f64),
            Figure::new("TCP sent again", "segments", tcp.segments_again as f64),
            Figure::new("dropped by ports", "packets", seen.dropped_packets as f64),
        ],
        samples: vec![
            Samples { name: "slowest flow of a round", unit: "x ideal", values: worst.collect() },
            Samples { name: "flow completion time", unit: "x ideal", values: flows.collect() },
        ],
        ..Measured::default()
    })
}
