//! Parts (a), (b) and (c) of the demonstration in the simulator: a network like the fabric, the
//! real SRD core, and a model of Linux's TCP.

use super::story::{Contestant, Failover, Incast, IncastRun, Single, Story, size};
use super::{Options, Part, Say};
use anyhow::{Context, Result};
use srd_sim::run::{Job, RunResult, run};
use srd_sim::scenario::{Scenario, Transport};
use std::path::Path;

/// Length of an interval of the timelines.
const INTERVAL_MS: u64 = 5;
/// Lengths of the flows of parts (a) and (c), and times of the spine's failure and repair, in
/// milliseconds.
const SINGLE_MS: u64 = 1000;
const FAILOVER_MS: u64 = 6000;
const FAILED_MS: u64 = 1000;
const HEALED_MS: u64 = 3000;
/// Time after which a flow of part (b) counts as unfinished.
const LIMIT_MS: u64 = 20_000;
/// Number of rounds of part (b), each with its own seed.
const ROUNDS: u64 = 3;

const ONE_FLOW: [Contestant; 3] =
    [Contestant::Cubic { rto_min_ms: 200 }, Contestant::OnePath, Contestant::Srd];
const INCAST: [Contestant; 5] = [
    Contestant::Cubic { rto_min_ms: 200 },
    Contestant::Cubic { rto_min_ms: 50 },
    Contestant::Cubic { rto_min_ms: 5 },
    Contestant::OnePath,
    Contestant::Srd,
];

/// Returns the beginning of a scenario for the simulator: a network like the fabric, with links of
/// 1 Gb/s and a small delay per hop.
fn network(name: &str, core_gbps: f64, rto_min_ms: u32) -> String {
    format!(
        "name = \"{name}\"\npacket_bytes = 9014\n\
         topology = {{ kind = \"leaf-spine\", leaves = 2, spines = 4, leaf_hosts = 4, gbps = 1.0, \
         core_gbps = {core_gbps:?}, latency_ns = 5000 }}\nqueue = {{ bytes = 200000 }}\n\
         tcp = {{ rto_min_us = {} }}\n",
        rto_min_ms * 1000
    )
}

/// Runs those parts among (a), (b) and (c) that the user has selected.
pub(super) fn measure(options: &Options, say: Say<'_>) -> Result<Story> {
    let setting = "SIMULATED: 2 leaves x 4 hosts at 1000 Mb/s, 4 spines; uplinks at 250 Mb/s for \
                   (a) and (c), at 1000 Mb/s for (b); queues of 200000 bytes per port, drop-tail, \
                   no marks; MTU 9000. TCP is a model of Linux's, SRD is the production core. \
                   As root, this command uses real kernels and real sockets instead.";
    say(setting)?;
    let mut story = Story {
        simulated: true,
        setting: vec![setting.to_owned()],
        uplinks_mbps: 1000.0,
        ..Story::default()
    };
    if options.wants(Part::OneFlow) {
        say("(a) one flow")?;
        for contestant in ONE_FLOW {
            story.singles.push(single(contestant, say)?);
        }
    }
    if options.wants(Part::Failover) {
        say("(c) a spine dies")?;
        for contestant in ONE_FLOW {
            story.failovers.push(failover(contestant, say)?);
        }
    }
    if options.wants(Part::Incast) {
        for bytes in [2 << 20, 512 << 10] {
            story.incasts.push(incast(bytes, say)?);
        }
    }
    Ok(story)
}

fn transport(contestant: Contestant) -> Transport {
    match contestant {
        Contestant::Srd => Transport::Srd,
        Contestant::OnePath => Transport::SrdSingle,
        _ => Transport::Tcp,
    }
}

fn rto_min_ms(contestant: Contestant) -> u32 {
    match contestant {
        Contestant::Cubic { rto_min_ms } => rto_min_ms,
        _ => 200,
    }
}

fn simulate(text: &str, contestant: Contestant, seed: u64) -> Result<RunResult> {
    let scenario = Scenario::read("the demonstration's scenario", text, Path::new("."), &[])?;
    Ok(run(&Job { scenario, transport: transport(contestant), seed })?)
}

/// Runs one endless flow from the first host to the last host. Returns the start of each interval
/// in milliseconds, and the bytes that arrived in it.
fn one_flow(contestant: Contestant, lasts_ms: u64, faults: &str) -> Result<Vec<(u64, u64)>> {
    let text = network("one flow", 0.25, rto_min_ms(contestant))
        + &format!(
            "horizon_us = {lasts_ms}000\nmeasure = {{ interval_us = {INTERVAL_MS}000, flows = true \
             }}\n[[workload]]\nkind = \"pairs\"\npairs = [[0, 7]]\nbytes = \"endless\"\n{faults}"
        );
    let series =
        simulate(&text, contestant, 1)?.series.context("the simulator recorded nothing")?;
    let bytes = series.flow_bytes.iter().map(|flows| flows.iter().sum::<u64>());
    Ok((0..).zip(bytes).map(|(n, bytes)| (n * INTERVAL_MS, bytes)).collect())
}

fn single(contestant: Contestant, say: Say<'_>) -> Result<Single> {
    let intervals = one_flow(contestant, SINGLE_MS, "")?;
    let counted = &intervals[intervals.len() / 5..];
    let bytes: u64 = counted.iter().map(|(_, bytes)| bytes).sum();
    let ms = (counted.len() as u64 * INTERVAL_MS).max(1);
    let mbps = bytes as f64 * 8.0 / 1e3 / ms as f64;
    say(&format!("    {:<24} {mbps:>6.0} Mb/s", contestant.to_string()))?;
    Ok(Single { contestant, mbps: vec![mbps] })
}

/// Measures a failover. A flow with one path is affected only by the failure of the spine that it
/// uses, so each spine fails in turn, and the run with the longest silence counts.
fn failover(contestant: Contestant, say: Say<'_>) -> Result<Failover> {
    let mut worst: Option<Failover> = None;
    let spines = if contestant == Contestant::Srd { 0..1 } else { 0..4 };
    for spine in spines {
        let fault = format!(
            "[[fault]]\nkind = \"link-down\"\nlinks = \"spine{spine}\"\nat_us = {FAILED_MS}000\n\
             until_us = {HEALED_MS}000\n"
        );
        let intervals = one_flow(contestant, FAILOVER_MS, &fault)?;
        let silence_ms = crate::tcp::silence_ms(&intervals, INTERVAL_MS, FAILED_MS);
        let run = Failover {
            contestant,
            failed_ms: FAILED_MS,
            healed_ms: HEALED_MS,
            silence_ms,
            interval_ms: INTERVAL_MS,
            intervals,
        };
        if worst.as_ref().is_none_or(|worst| worst.silence_ms < run.silence_ms) {
            worst = Some(run);
        }
    }
    let run = worst.context("a fabric has spines")?;
    let dead = run.mbps_between(FAILED_MS, HEALED_MS);
    say(&format!(
        "    {:<24} silent for {} ms, {dead:.0} Mb/s while the spine is dead",
        contestant.to_string(),
        run.silence()
    ))?;
    Ok(run)
}

fn incast(bytes: u64, say: Say<'_>) -> Result<Incast> {
    say(&format!("(b) incast, 48 x {} -> 1", size(bytes)))?;
    let mut runs = Vec::new();
    for contestant in INCAST {
        let text = network("incast", 1.0, rto_min_ms(contestant))
            + &format!(
                "horizon_us = {LIMIT_MS}000\n[[workload]]\nkind = \"incast\"\n\
                 senders = [0, 1, 2, 3]\nreceiver = 4\nflows_per_sender = 12\nbytes = {bytes}\n"
            );
        let (mut ideal_ms, mut rounds_ms) = (0.0, Vec::new());
        for seed in 1..=ROUNDS {
            let result = simulate(&text, contestant, seed)?;
            ideal_ms = result.ideal_wire_us / 1e3;
            let flows = result.flow_records.iter();
            rounds_ms.push(flows.map(|flow| flow.fct_us.map(|us| us / 1e3)).collect());
        }
        let run = IncastRun { contestant, ideal_ms, rounds_ms, limit_ms: LIMIT_MS as f64 };
        say(&format!(
            "    {:<24} slowest {:.2}x of the ideal",
            contestant.to_string(),
            run.median_ratio().unwrap_or(0.0)
        ))?;
        runs.push(run);
    }
    Ok(Incast { bytes, runs })
}
