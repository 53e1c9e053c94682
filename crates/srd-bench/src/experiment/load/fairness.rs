//! The experiment `fairness`: whether each of many long flows to one host gets its share all the
//! time.

use crate::experiment::measure::distribution::Distribution;
use crate::experiment::measure::result::{Figure, Measured, Timeline, jain, median};
use crate::experiment::{Case, Experiment, Options, Stage, describe, hosts};
use crate::tcp::{LongFlows, Timelines};
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use std::thread;
use std::time::Duration;

const RECEIVER: HostId = HostId { leaf: 1, host: 0 };
const SENDERS: u16 = 4;
const FLOWS_PER_SENDER: usize = 12;
/// Length of an interval in which the bytes of each flow are counted.
const SAMPLE_MS: u64 = 1000;

/// The experiment `fairness`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "fairness",
    summary: "When 48 flows share one host's link, does each get its share in every second?",
    about: "4 hosts x 12 TCP connections send to one host without end. Every second the bytes of \
            each flow at the receiving application are counted; Jain's index over the 48 flows of \
            a second is 1 if all got the same and 1/48 if one got everything. The first second is \
            not counted.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let fabric = FabricConfig::default();
    let spines = options.spines.unwrap_or(fabric.spines);
    let fabric = FabricConfig { uplink_rate_mbps: fabric.host_rate_mbps, spines, ..fabric };
    let seconds = options.seconds_or(15, 3);
    let senders: Vec<HostId> = hosts(0, SENDERS).collect();
    let pairs: Vec<_> = senders.iter().map(|sender| (*sender, RECEIVER)).collect();
    vec![Case {
        name: "48 flows".into(),
        setting: format!(
            "{SENDERS} x {FLOWS_PER_SENDER} flows, {seconds} s; {}",
            describe(&fabric)
        ),
        fabric,
        hosts: senders.into_iter().chain([RECEIVER]).collect(),
        only: None,
        measure: Box::new(move |stage| measure(stage, &pairs, seconds)),
    }]
}

fn measure(stage: &Stage<'_>, pairs: &[(HostId, HostId)], seconds: u64) -> Result<Measured> {
    let flows = LongFlows { flows: stage.flows(pairs, FLOWS_PER_SENDER), interval_ms: SAMPLE_MS };
    let lasts = Duration::from_millis((seconds + 1) * SAMPLE_MS + SAMPLE_MS / 10);
    let (seen, ()) = flows.run(stage.fabric, |_| {
        thread::sleep(lasts);
        Ok(())
    })?;
    Ok(summarise(&seen))
}

fn summarise(seen: &Timelines) -> Measured {
    let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e3 / seen.interval_ms as f64;
    let count = seen.flows.first().map_or(0, Vec::len);
    let second = |at: usize| seen.flows.iter().map(|flow| mbps(flow[at])).collect::<Vec<_>>();
    let seconds: Vec<Vec<f64>> = (1..count).map(second).collect();
    let indices: Vec<f64> = seconds.iter().map(|shares| jain(shares)).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let flow_mean = |flow: &Vec<u64>| mean(&flow[1..].iter().map(|b| mbps(*b)).collect::<Vec<_>>());
    let mut means: Vec<f64> = seen.flows.iter().map(flow_mean).collect();
    means.sort_by(f64::total_cmp);
    let total = means.iter().sum();
    let all = Distribution::new("", "Mb/s", seconds.into_iter().flatten().collect());
    let percentile = |percent| all.percentile(percent).unwrap_or(0.0);
    Measured {
        figures: vec![
            Figure::new("Jain, mean second", "", mean(&indices)).beside(1.0, "all equal"),
            Figure::new("Jain, whole run", "", jain(&means)),
            Figure::new("total", "Mb/s", total),
            Figure::new("slowest flow", "Mb/s", means.first().copied().unwrap_or(0.0)),
            Figure::new("median flow", "Mb/s", median(&means)),
            Figure::new("fastest flow", "Mb/s", means.last().copied().unwrap_or(0.0)),
            Figure::new("a flow's second, p1", "Mb/s", percentile(1.0)),
            Figure::new("a flow's second, p50", "Mb/s", percentile(50.0)),
            Figure::new("a flow's second, p100", "Mb/s", percentile(100.0)),
        ],
        timelines: vec![Timeline {
            name: "Jain of each second",
            unit: "1 = all equal",
            step_ms: seen.interval_ms,
            values: indices,
            marks: Vec::new(),
        }],
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_second_is_not_counted() {
        // Two flows: the first second is unfair and not counted. After it, each flow gets
        // everything in every other second.
        let seen = Timelines {
            interval_ms: 1000,
            flows: vec![vec![9_000_000, 250_000, 0], vec![0, 0, 250_000]],
            ended: vec![None, None],
        };
        let measured = summarise(&seen);
        let value = |name: &str| {
            measured.figures.iter().find(|figure| figure.name == name).expect(name).value
        };
        assert!((value("Jain, mean second") - 0.5).abs() < 1e-9);
        assert!((value("Jain, whole run") - 1.0).abs() < 1e-9);
        assert!((value("total") - 2.0).abs() < 1e-9);
        assert!((value("a flow's second, p100") - 2.0).abs() < 1e-9);
        assert_eq!(measured.timelines[0].values, [0.5, 0.5]);
    }
}
