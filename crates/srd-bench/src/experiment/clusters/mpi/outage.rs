//! The case `dead spine` of the experiment `mpi`: a spine fails in the middle of a job, and
//! recovers.
//!
//! The spine that carries most traffic fails; it is determined while the job runs. The job has to
//! complete nevertheless.

use super::ideal;
use super::job::{Job, Setup};
use super::{Operation, RankPlacement, cores, describe};
use crate::experiment::measure::result::{Figure, Measured, Timeline};
use crate::experiment::{Case, Options, Stage};
use anyhow::{Context, Result, bail};
use srd_doctor::mpi::ranks::Measurements;
use std::thread;
use std::time::Duration;

/// Size of each message in bytes: small, so that an iteration is short compared with a silence.
const BYTES: u64 = 32 << 10;
/// Time of the failure, in seconds after the ranks began to count iterations.
const BEFORE_S: u64 = 2;
/// Time in seconds for which the job continues after the spine has recovered.
const AFTER_S: u64 = 4;
/// Time for which the leaf's counters are observed to find the busiest spine.
const WATCH: Duration = Duration::from_millis(300);
/// Length of a step in the chart.
const STEP_MS: u64 = 50;

/// Times of the failure and the repair, in milliseconds since the ranks began to count iterations.
struct Happened {
    spine: u16,
    broken_ms: u64,
    healed_ms: u64,
}

impl Happened {
    /// Returns an error if the job ended before the repair, because its results do not show the
    /// whole outage.
    fn check_within(&self, seen: &Measurements) -> Result<()> {
        let &Happened { broken_ms, healed_ms, .. } = self;
        let ended_ms = seen.at_ms.last().copied().unwrap_or_default();
        if ended_ms < healed_ms as f64 {
            bail!(
                "the spine was dead from {broken_ms} to {healed_ms} ms, but the job was over after \
                 {ended_ms:.0} ms: is this machine busy with something else?"
            );
        }
        Ok(())
    }
}

/// Creates the case `dead spine`.
pub(super) fn case(options: &Options, place: RankPlacement) -> Case {
    let RankPlacement { fabric, nodes } = place;
    let outage_s = options.seconds_or(6, 1);
    let ranks: u32 = nodes.iter().map(|(_, ranks)| ranks).sum();
    let job = Job {
        setup: Setup::of(options),
        operation: Operation::Across,
        bytes: BYTES,
        seconds: BEFORE_S + outage_s + AFTER_S,
        nodes,
        yields: ranks > cores(),
    };
    Case {
        name: "dead spine".into(),
        setting: format!(
            "{ranks} ranks exchange 32 KB between racks for {} s; the busiest spine is dead for \
             {outage_s} s; {}",
            job.seconds,
            describe(&fabric)
        ),
        hosts: job.hosts(),
        fabric,
        only: None,
        measure: Box::new(move |stage| measure(stage, &job, outage_s)),
    }
}

fn measure(stage: &Stage<'_>, job: &Job, outage_s: u64) -> Result<Measured> {
    let mut started = job.start(stage)?;
    let begin_ns = started.begun(stage)?;
    let happened = break_and_heal(stage, job, begin_ns, outage_s)?;
    let seen = started.finish(stage).context("the job with a dead spine")?;
    happened.check_within(&seen)?;
    Ok(summarise(&seen, job, &happened))
}

fn break_and_heal(stage: &Stage<'_>, job: &Job, begin_ns: u64, outage_s: u64) -> Result<Happened> {
    let fabric = stage.fabric;
    sleep_until(begin_ns, Duration::from_secs(BEFORE_S).saturating_sub(WATCH));
    let spine = fabric.busiest_spine(job.nodes[0].0.leaf, WATCH)?.busiest;
    fabric.fail_spine(spine)?;
    let broken_ms = since_ms(begin_ns);
    sleep_until(begin_ns, Duration::from_millis(broken_ms) + Duration::from_secs(outage_s));
    fabric.heal_spine(spine)?;
    Ok(Happened { spine, broken_ms, healed_ms: since_ms(begin_ns) })
}

fn summarise(seen: &Measurements, job: &Job, happened: &Happened) -> Measured {
    let Happened { spine, broken_ms, healed_ms } = *happened;
    let bytes = ideal::bytes_between_hosts(job.operation, job.bytes, &job.nodes);
    let mbps = mbps_by_step(&seen.at_ms, bytes);
    let mean = |from_ms: u64, to_ms: u64| {
        let (from, to) = (index(from_ms), index(to_ms).min(mbps.len()));
        let part = mbps.get(from..to).unwrap_or_default();
        part.iter().sum::<f64>() / part.len().max(1) as f64
    };
    Measured {
        figures: vec![
            Figure::new("longest silence", "ms", seen.silence_ms()).beside(0.0, "none"),
            Figure::new("before", "Mb/s", mean(0, broken_ms)),
            Figure::new("meanwhile", "Mb/s", mean(broken_ms, healed_ms)),
            Figure::new("iterations", "", seen.us.len() as f64),
        ],
        timelines: vec![Timeline {
            name: "exchanged",
            unit: "Mb/s",
            step_ms: STEP_MS,
            values: mbps,
            marks: vec![(broken_ms, "dies".into()), (healed_ms, "is back".into())],
        }],
        notes: vec![seen.mpi.clone(), format!("spine {spine} was the busiest")],
        ..Measured::default()
    }
}

/// Returns the rate in Mb/s in each step, computed from the times at which iterations ended.
fn mbps_by_step(at_ms: &[f64], bytes_each: u64) -> Vec<f64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a run is not that long
    let step = |at: &f64| index(*at as u64);
    let mut steps = vec![0.0; at_ms.last().map_or(0, |at| step(at) + 1)];
    for at in at_ms {
        steps[step(at)] += bytes_each as f64 * 8.0 / (STEP_MS as f64 * 1e3);
    }
    steps
}

fn index(ms: u64) -> usize {
    usize::try_from(ms / STEP_MS).unwrap_or(usize::MAX)
}

fn sleep_until(begin_ns: u64, after: Duration) {
    thread::sleep(after.saturating_sub(Duration::from_millis(since_ms(begin_ns))));
}

fn since_ms(begin_ns: u64) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_ns = u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(now.tv_nsec).unwrap_or(0);
    now_ns.saturating_sub(begin_ns) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::clusters::mpi::two_racks;
    use crate::experiment::tests::options;

    #[test]
    fn silence_and_rates_come_from_the_ends_of_iterations() {
        let RankPlacement { nodes, .. } = two_racks(&options());
        let job = Job {
            setup: Setup::of(&options()),
            operation: Operation::Across,
            bytes: BYTES,
            seconds: 2,
            nodes,
            yields: true,
        };
        // In this data an iteration ends every 10 ms, except between 500 and 800 ms.
        let at_ms: Vec<f64> = (1..150)
            .map(|n| f64::from(n) * 10.0)
            .filter(|at| !(500.0..800.0).contains(at))
            .collect();
        let us = vec![10_000.0; at_ms.len()];
        let seen = Measurements { begin_ns: 0, mpi: "MPI".into(), hosts: Vec::new(), us, at_ms };
        let happened = Happened { spine: 3, broken_ms: 500, healed_ms: 800 };
        happened.check_within(&seen).unwrap();
        let late = Happened { healed_ms: 1_500, ..happened };
        let refused = late.check_within(&seen).unwrap_err().to_string();
        assert!(refused.contains("dead from 500 to 1500 ms"), "{refused}");
        assert!(refused.contains("after 1490 ms"), "{refused}");
        let happened = Happened { healed_ms: 800, ..late };
        let measured = summarise(&seen, &job, &happened);
        let value = |name: &str| {
            measured.figures.iter().find(|figure| figure.name == name).expect(name).value
        };
        assert_eq!(value("longest silence"), 310.0);
        assert_eq!(value("meanwhile"), 0.0);
        // In 10 ms, eight messages of 32 KB are sent between the racks: four in each direction.
        let mbps = 8.0 * BYTES as f64 * 8.0 / 10_000.0;
        assert!((value("before") - mbps).abs() < 0.05 * mbps, "{}", value("before"));
        assert_eq!(measured.timelines[0].marks.len(), 2);
        assert_eq!(measured.notes[1], "spine 3 was the busiest");
    }
}
