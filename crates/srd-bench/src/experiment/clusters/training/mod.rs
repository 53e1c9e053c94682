//! Data-parallel training on four hosts: each host processes a part of every batch, and in every
//! step the gradients of all hosts are summed over the network.
//!
//! | module | contents |
//! |---|---|
//! | `jax`, `train_jax.py` | JAX with its Gloo collectives: processes with a coordinator |
//! | `mpi`, `train_mpi.py` | NumPy with MPI's all-reduce: ranks that a launcher starts |
//! | `seen` | output of the ranks, and whether they agree |

mod jax;
mod mpi;
mod seen;

pub(in crate::experiment) use jax::EXPERIMENT;
pub(in crate::experiment) use mpi::EXPERIMENT as MPI;

use crate::experiment::clusters::machines::Machines;
use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Options, Stage, describe, measure::result};
use anyhow::{Context, Result, bail};
use seen::TrainingResults;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Rate of each link in Mb/s. Two cores can handle it for ranks and daemons together; 200 Mb/s
/// would be too much.
const RATE_MBPS: u32 = 100;
const QUEUE_BYTES: u32 = 100_000;
/// Host of each rank. Neighbours in the ring are in different racks, so all traffic crosses the
/// spines.
const RANKS: [HostId; 4] = [host(0, 0), host(1, 0), host(0, 1), host(1, 1)];
/// Number of weights and biases of the neural network that is trained, 4 bytes each.
const PARAMETERS: u32 = 128 * 512 + 512 + 512 * 384 + 384 + 384 * 10 + 10;
/// Longest time from the start of the program until it counts steps.
const BEGIN_MAX: Duration = Duration::from_secs(90);
/// Longest duration of a training.
const TRAINING_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time from the first counted step until the spine fails.
const BEFORE: Duration = Duration::from_secs(3);
/// Time for which counters are watched to identify the busiest spine.
const WATCH: Duration = Duration::from_millis(300);

const fn host(leaf: u16, host: u16) -> HostId {
    HostId { leaf, host }
}

/// Parameters of a training run.
#[derive(Clone, Debug)]
struct Training {
    steps: u32,
    /// Duration of the failure of the busiest spine; `None` if no spine fails.
    dead: Option<Duration>,
}

/// The processes of a training run, after their start.
struct Started<'a> {
    running: Vec<Running>,
    /// Path of the result file of each rank.
    results: Vec<PathBuf>,
    /// Host and name of each program, to find the program's error output.
    names: Vec<(HostId, &'static str)>,
    /// Ends the remaining processes when dropped; `None` if a launcher does so.
    _machines: Option<Machines<'a>>,
}

type Start = for<'a> fn(&'a Stage<'a>, &Training, &Options) -> Result<Started<'a>>;

/// Returns the cases of `training` and `training-mpi`; `start` starts the processes of one case.
fn cases(options: &Options, start: Start) -> Vec<Case> {
    let steps = options.quick_or(20, 200);
    let mut all = vec![case(options, "collisions", 2, Training { steps, dead: None }, start)];
    if !options.quick {
        let dead = Some(Duration::from_secs(options.seconds_or(6, 1)));
        all.push(case(options, "dead spine", 4, Training { steps, dead }, start));
    }
    all
}

fn case(options: &Options, name: &str, spines: u16, training: Training, start: Start) -> Case {
    let fabric = FabricConfig {
        hosts_per_leaf: 2,
        spines: options.spines.unwrap_or(spines),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let dies = match training.dead {
        Some(dead) => format!("; the busiest spine is dead for {} s", dead.as_secs()),
        None => String::new(),
    };
    let setting = format!(
        "{} ranks, {PARAMETERS} parameters, {} steps{dies}; {}",
        RANKS.len(),
        training.steps,
        describe(&fabric)
    );
    let options = options.clone();
    Case {
        name: name.into(),
        setting,
        fabric,
        hosts: RANKS.to_vec(),
        only: None,
        measure: Box::new(move |stage| measure(stage, &training, &options, start)),
    }
}

fn measure<'a>(
    stage: &'a Stage<'a>,
    training: &Training,
    options: &Options,
    start: Start,
) -> Result<Measured> {
    let mut started = start(stage, training, options)?;
    let outage = match training.dead {
        Some(dead) => Some(break_and_heal(stage, &mut started, dead)?),
        None => None,
    };
    let ranks = started.finish(stage)?;
    let steps = usize::try_from(training.steps)?;
    let seen = seen::together(&ranks, steps)?;
    let mut measured = summarise(&seen, stage.fabric.config());
    if let Some((spine, healed_ns)) = outage {
        let begin_ns = ranks.iter().map(|rank| rank.begin_ns).min().unwrap_or_default();
        let (took_s, back_s) = (sum(&seen) / 1e6, healed_ns.saturating_sub(begin_ns) as f64 / 1e9);
        if took_s < back_s {
            bail!(
                "all steps took {took_s:.1} s, and the spine was back after {back_s:.1} s: choose \
                 a shorter outage with --seconds"
            );
        }
        measured.notes.push(format!("spine {spine} was the busiest"));
    }
    Ok(measured)
}

fn sum(seen: &TrainingResults) -> f64 {
    seen.us.iter().sum()
}

/// Lets the busiest spine fail for the duration `dead`, and heals it; returns the spine, and the
/// time of the repair in ns of the monotonic clock.
fn break_and_heal(
    stage: &Stage<'_>,
    started: &mut Started<'_>,
    dead: Duration,
) -> Result<(u16, u64)> {
    started.wait_for_steps(stage)?;
    thread::sleep(BEFORE.saturating_sub(WATCH));
    let spine = stage.fabric.busiest_spine(RANKS[0].leaf, WATCH)?.busiest;
    stage.fabric.fail_spine(spine)?;
    thread::sleep(dead);
    stage.fabric.heal_spine(spine)?;
    Ok((spine, now_ns()))
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Returns the ideal time of a step in ms: in a ring of N hosts, each host sends 2(N - 1)/N times
/// the bytes of the gradients over its link.
fn ideal_ms(config: &FabricConfig) -> f64 {
    let ranks = RANKS.len() as f64;
    let bits = 2.0 * (ranks - 1.0) / ranks * f64::from(PARAMETERS) * 4.0 * 8.0;
    bits / (config.goodput_mbps(config.host_rate_mbps) * 1e3)
}

fn summarise(seen: &TrainingResults, config: &FabricConfig) -> Measured {
    let ms: Vec<f64> = seen.us.iter().map(|us| us / 1e3).collect();
    let mut sorted = ms.clone();
    sorted.sort_by(f64::total_cmp);
    let median = result::median(&sorted);
    let total_s = sum(seen) / 1e6;
    let at_the_median_s = median * ms.len() as f64 / 1e3;
    Measured {
        figures: vec![
            Figure::new("step, median", "ms", median)
                .beside(ideal_ms(config), "ring over the hosts' links"),
            Figure::new("longest step", "ms", sorted.last().copied().unwrap_or_default()),
            Figure::new("all steps", "s", total_s),
            Figure::new("longer than steps of the median", "%", percent(total_s, at_the_median_s)),
            Figure::new("loss at first", "", seen.first_loss),
            Figure::new("loss in the end", "", seen.last_loss),
        ],
        samples: vec![Samples { name: "step", unit: "ms", values: ms }],
        notes: vec![seen.by.clone()],
        ..Measured::default()
    }
}

fn percent(value: f64, base: f64) -> f64 {
    if base > 0.0 { 100.0 * (value / base - 1.0) } else { 0.0 }
}

impl Started<'_> {
    /// Waits until the first rank has begun its first counted step.
    fn wait_for_steps(&mut self, stage: &Stage<'_>) -> Result<()> {
        let begun = self.results[0].with_extension("begun");
        let deadline = Instant::now() + BEGIN_MAX;
        while !begun.exists() {
            for one in &mut self.running {
                if let Some(status) = one.ended()? {
                    bail!("training ended with {status}: {}", complaints(stage, &self.names));
                }
            }
            if Instant::now() > deadline {
                let why = complaints(stage, &self.names);
                bail!("no step was made within {} s: {why}", BEGIN_MAX.as_secs());
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits for the end of all processes; returns the results of the ranks.
    fn finish(self, stage: &Stage<'_>) -> Result<Vec<seen::Rank>> {
        let Started { running, results, names, _machines } = self;
        let deadline = Instant::now() + TRAINING_MAX;
        for one in running {
            let left = deadline.saturating_duration_since(Instant::now());
            let status = one.wait(left).with_context(|| complaints(stage, &names))?;
            if !status.success() {
                bail!("training ended with {status}: {}", complaints(stage, &names));
            }
        }
        results.iter().map(|file| seen::read(file)).collect()
    }
}

fn complaints(stage: &Stage<'_>, names: &[(HostId, &'static str)]) -> String {
    let all = names
        .iter()
        .map(|(host, name)| crate::experiment::measure::programs::complaint(stage, *host, name));
    all.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns a path of a result file for each rank; removes the files of an earlier run.
fn results(stage: &Stage<'_>) -> Result<Vec<PathBuf>> {
    let file = |rank: usize| stage.directory.join(format!("trained-{rank}"));
    let all: Vec<PathBuf> = (0..RANKS.len()).map(file).collect();
    for file in &all {
        for name in [file.clone(), file.with_extension("begun")] {
            match fs::remove_file(&name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| name.display().to_string());
                }
                _ => {}
            }
        }
    }
    Ok(all)
}

/// Writes the source of a program to a file in the stage's directory; returns the path.
fn script(stage: &Stage<'_>, name: &str, source: &str) -> Result<PathBuf> {
    let file = stage.directory.join(name);
    fs::write(&file, source).with_context(|| file.display().to_string())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::options;

    #[test]
    fn neighbours_in_the_ring_are_in_different_racks() {
        for (number, rank) in RANKS.iter().enumerate() {
            assert_ne!(rank.leaf, RANKS[(number + 1) % RANKS.len()].leaf);
        }
        // A host sends 1.5 times the 1.07 MB of the gradients at 100 Mb/s.
        let case = &cases(&options(), |_, _, _| bail!("not started"))[0];
        let ms = ideal_ms(&case.fabric);
        assert!((128.0..132.0).contains(&ms), "{ms}");
    }

    #[test]
    fn a_silence_makes_a_training_longer_than_its_median_steps() {
        let us = vec![100_000.0, 100_000.0, 100_000.0, 100_000.0, 600_000.0];
        let seen = TrainingResults { us, first_loss: 2.0, last_loss: 1.0, by: "x".into() };
        let measured = summarise(&seen, &FabricConfig::default());
        let value = |name: &str| {
            measured.figures.iter().find(|figure| figure.name == name).expect(name).value
        };
        assert!((value("step, median") - 100.0).abs() < 1e-9);
        assert!((value("all steps") - 1.0).abs() < 1e-9);
        assert!((value("longer than steps of the median") - 100.0).abs() < 1e-9);
        assert!((value("longest step") - 600.0).abs() < 1e-9);
    }
}
