//! The experiment `loss`: random loss of packets at half of the spines.

use crate::experiment::measure::result::{Figure, Measured, Timeline};
use crate::experiment::{Case, Experiment, Options, Stage, describe};
use crate::tcp::{LongFlows, Timelines};
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::counters::TcpCounters;
use srd_lab::id::HostId;
use std::thread;
use std::time::{Duration, Instant};

const FROM: HostId = HostId { leaf: 0, host: 0 };
const TO: HostId = HostId { leaf: 1, host: 0 };
const INTERVAL_MS: u64 = 50;
/// Time for which the leaf's counters are observed to find the busiest spine.
const WATCH: Duration = Duration::from_millis(300);
/// Number of lost packets per thousand at a spine with loss.
const LOSS_PERMILLE: u16 = 10;
/// Time in milliseconds at the start of each phase that is not counted.
const SETTLE_MS: u64 = 1000;

/// The experiment `loss`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "loss",
    summary: "Half of the spines lose 1 % of their packets: who notices?",
    about: "Long TCP flows over four paths of a quarter of the host's link, first without loss, \
            then with 1 % of all packets lost, in both directions, at half of the spines; the one \
            that carries most of the flows is among these. Segments that TCP sends again are \
            counted by the sending host's kernel; with Express these are the program's own \
            connections, for what SRD sends again is UDP to the kernel.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let phase = Duration::from_secs(options.seconds_or(8, 2));
    let flows = [1, 16];
    flows.into_iter().take(options.quick_or(1, 2)).map(|n| case(options, n, phase)).collect()
}

fn case(options: &Options, flows: usize, phase: Duration) -> Case {
    let fabric = FabricConfig { hosts_per_leaf: 1, ..FabricConfig::default() };
    let spines = options.spines.unwrap_or(fabric.spines);
    let uplink_rate_mbps = (fabric.host_rate_mbps / u32::from(spines)).max(1);
    let fabric = FabricConfig { spines, uplink_rate_mbps, ..fabric };
    let name = if flows == 1 { "1 flow".into() } else { format!("{flows} flows") };
    Case {
        setting: format!(
            "{name}, {} s without loss and then with it; {}",
            phase.as_secs(),
            describe(&fabric)
        ),
        name,
        fabric,
        hosts: vec![FROM, TO],
        only: None,
        measure: Box::new(move |stage| measure(stage, flows, phase)),
    }
}

/// TCP counters of the sending host in the phases without and with loss, and the times of the phase
/// with loss.
struct Phases {
    lossless: TcpCounters,
    lossy: TcpCounters,
    lossy_from_ms: u64,
    lossy_to_ms: u64,
    spines: Vec<u16>,
}

fn measure(stage: &Stage<'_>, flows: usize, phase: Duration) -> Result<Measured> {
    let flows = LongFlows { flows: stage.flows(&[(FROM, TO)], flows), interval_ms: INTERVAL_MS };
    let (seen, phases) = flows.run(stage.fabric, |start| both_phases(stage, phase, start))?;
    Ok(summarise(&seen, &phases))
}

fn both_phases(stage: &Stage<'_>, phase: Duration, start: Instant) -> Result<Phases> {
    let fabric = stage.fabric;
    let now_ms = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let begin = fabric.tcp_counters(&[FROM])?;
    thread::sleep(phase.saturating_sub(WATCH));
    let busiest = fabric.busiest_spine(FROM.leaf, WATCH)?.busiest;
    let all = fabric.config().spines;
    let spines: Vec<u16> = (0..all.div_ceil(2)).map(|n| (busiest + n) % all).collect();
    let middle = fabric.tcp_counters(&[FROM])?;
    for spine in &spines {
        fabric.loss(*spine, LOSS_PERMILLE)?;
    }
    let lossy_from_ms = now_ms();
    thread::sleep(phase);
    let lossy_to_ms = now_ms();
    let end = fabric.tcp_counters(&[FROM])?;
    for spine in &spines {
        fabric.loss(*spine, 0)?;
    }
    let (lossless, lossy) = (middle.since(&begin), end.since(&middle));
    Ok(Phases { lossless, lossy, lossy_from_ms, lossy_to_ms, spines })
}

fn summarise(seen: &Timelines, phases: &Phases) -> Measured {
    let before = seen.mbps_between(SETTLE_MS, phases.lossy_from_ms);
    let with = seen.mbps_between(phases.lossy_from_ms + SETTLE_MS, phases.lossy_to_ms);
    let kept = if before > 0.0 { with / before } else { 0.0 };
    let spines: Vec<_> = phases.spines.iter().map(ToString::to_string).collect();
    Measured {
        figures: vec![
            Figure::new("kept", "of lossless", kept).beside(1.0, "as without loss"),
            Figure::new("with loss", "Mb/s", with),
            Figure::new("without", "Mb/s", before),
            Figure::new("TCP sent again with loss", "segments", phases.lossy.segments_again as f64),
            Figure::new(
                "TCP sent again without",
                "segments",
                phases.lossless.segments_again as f64,
            ),
            Figure::new("TCP timeouts with loss", "", phases.lossy.timeouts as f64),
        ],
        timelines: vec![Timeline {
            name: "arrived",
            unit: "Mb/s",
            step_ms: INTERVAL_MS,
            values: seen.total_mbps(),
            marks: vec![(phases.lossy_from_ms, "1 % loss begins".into())],
        }],
        notes: vec![format!("lossy spines: {}", spines.join(", "))],
        ..Measured::default()
    }
}
