//! Experiments with engines that sort and join records in a cluster: Spark and Dask.
//!
//! Each engine has a scheduler in host `h0.0`, and a worker in two hosts under each leaf. Most of
//! the records are sent between workers. A job is valid only if its output contains all records of
//! the input, and is in order.
//!
//! | module | contents |
//! |---|---|
//! | `spark`, `Records.java` | sort and join with Spark |
//! | `dask`, `dask_records.py` | sort and join with Dask |

pub(in crate::experiment) mod dask;
pub(in crate::experiment) mod spark;

use crate::experiment::measure::programs::Program;
use crate::experiment::measure::result::{Figure, Measured};
use crate::experiment::{Case, Options, Stage, describe, hosts};
use anyhow::{Context, Result, bail};
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Host of the cluster's scheduler.
const MASTER: HostId = HostId { leaf: 0, host: 0 };
/// Number of spines. The link to each has half the rate of a host's link. Therefore two hosts under
/// a leaf have sufficient capacity, and one TCP connection gets at most half of a host's link.
const SPINES: u16 = 4;
const QUEUE_BYTES: u32 = 100_000;
/// Number of bytes of a record.
const RECORD_BYTES: u64 = 100;
/// Number of records in a smoke test.
const QUICK_RECORDS: u64 = 100_000;
/// Longest wait until all workers of a cluster have registered.
const READY_MAX: Duration = Duration::from_secs(180);
/// Longest duration of a job.
const JOB_MAX: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Kinds of jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Sort,
    Join,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Sort => "sort",
            Work::Join => "join",
        }
    }
}

/// A job: its kind, the number of records, and the workers.
#[derive(Clone, Debug)]
struct Job {
    work: Work,
    records: u64,
    workers: Vec<HostId>,
}

impl Job {
    /// Returns all hosts of the cluster: the master first, and then the workers.
    fn hosts(&self) -> Vec<HostId> {
        [MASTER].into_iter().chain(self.workers.iter().copied()).collect()
    }

    /// Returns the number of partitions: two for each worker, so that they can be spread evenly.
    fn partitions(&self) -> usize {
        2 * self.workers.len()
    }
}

/// Creates a case: a job in a fabric whose hosts have links of the given rate.
fn case(
    options: &Options,
    work: Work,
    rate_mbps: u32,
    records: u64,
    measure: impl Fn(&Stage<'_>, &Job, &Path) -> Result<Measured> + 'static,
) -> Case {
    let fabric = FabricConfig {
        hosts_per_leaf: 3,
        spines: options.spines.unwrap_or(SPINES),
        host_rate_mbps: rate_mbps,
        uplink_rate_mbps: rate_mbps / 2,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let each = options.quick_or(1, 2);
    let workers = |leaf| hosts(leaf, 1 + each).skip(1);
    let workers: Vec<HostId> = workers(0).chain(workers(1)).collect();
    let job = Job { work, records: options.quick_or(QUICK_RECORDS, records), workers };
    let (mb, count) = (job.records * RECORD_BYTES / 1_000_000, job.workers.len());
    let cache = options.cache.clone();
    Case {
        name: format!("{} {rate_mbps} Mb/s", work.name()),
        setting: format!("{mb} MB of records, {count} workers; {}", describe(&fabric)),
        hosts: job.hosts(),
        fabric,
        only: None,
        measure: Box::new(move |stage| measure(stage, &job, &cache)),
    }
}

/// Creates the cases of an engine: two sorts and a join; only the first in a smoke test.
fn cases(options: &Options, measure: fn(&Stage<'_>, &Job, &Path) -> Result<Measured>) -> Vec<Case> {
    let case = |work, rate_mbps, records| case(options, work, rate_mbps, records, measure);
    let mut all = vec![
        case(Work::Sort, 100, 5_000_000),
        case(Work::Join, 100, 2_500_000),
        case(Work::Sort, 50, 5_000_000),
    ];
    all.truncate(options.quick_or(1, all.len()));
    all
}

/// Figures that a job has printed about its last round.
#[derive(Clone, Copy, PartialEq, Debug)]
struct RoundReport {
    seconds: f64,
    /// Seconds of the stages that fetch data from other workers; `None` if the job does not report
    /// them.
    shuffle_s: Option<f64>,
    /// Number of bytes fetched from other workers; `None` if the job does not report it.
    fetched: Option<f64>,
}

impl RoundReport {
    /// Reads the last line that begins with RESULT, and checks that the output of the job was
    /// correct.
    fn of(printed: &str, job: &Job) -> Result<RoundReport> {
        let line = printed.lines().rev().find_map(|line| line.strip_prefix("RESULT "));
        let line = line.with_context(|| format!("no result in {printed:?}"))?;
        let word = |name: &str| {
            line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let needed = |name: &str| word(name).with_context(|| format!("no {name} in {line:?}"));
        let rows: u64 = needed("rows")?.parse().context("rows")?;
        if rows != job.records {
            bail!("{rows} records came out in place of {}", job.records);
        }
        let (sum, wanted) = (needed("sum")?, needed("wanted")?);
        if sum != wanted {
            bail!("the checksum of the output is {sum}, of the input {wanted}");
        }
        if needed("ordered")? != "true" {
            bail!("the output is not in order");
        }
        let number = |name: &str| word(name).and_then(|word| word.parse().ok());
        let seconds = number("seconds").with_context(|| format!("no seconds in {line:?}"))?;
        Ok(RoundReport { seconds, shuffle_s: number("shuffle"), fetched: number("fetched") })
    }

    fn measured(self, job: &Job, config: &FabricConfig) -> Measured {
        let mut figures = vec![Figure::new(job.work.name(), "s", self.seconds)];
        if let Some(seconds) = self.shuffle_s {
            let mut figure = Figure::new("stages that fetch", "s", seconds);
            if let Some(bytes) = self.fetched {
                let mbps = config.goodput_mbps(config.host_rate_mbps) * job.workers.len() as f64;
                let ideal = bytes * 8.0 / 1e6 / mbps;
                figure = figure.beside(ideal, "line rate of the workers");
            }
            figures.push(figure);
        }
        if let Some(bytes) = self.fetched {
            figures.push(Figure::new("fetched from other workers", "MB", bytes / 1e6));
        }
        Measured { figures, ..Measured::default() }
    }
}

/// Waits until a condition is true. Returns an error if one of the programs ends first.
fn wait_until(
    what: &str,
    running: &mut [srd_lab::running::Running],
    mut happened: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + READY_MAX;
    while !happened()? {
        for one in &mut *running {
            if let Some(status) = one.ended()? {
                bail!("{what}: a program ended with {status}; `--keep` leaves the logs behind");
            }
        }
        if Instant::now() > deadline {
            let wait = READY_MAX.as_secs();
            bail!("{what}: not within {wait} s; `--keep` leaves the logs behind");
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Returns the programs that must be installed: those that all engines need, and `more`.
fn programs(more: &[Program]) -> Vec<Program> {
    [crate::experiment::clusters::machines::UNSHARE].iter().chain(more).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job { work: Work::Sort, records: 7, workers: vec![HostId { leaf: 1, host: 1 }] }
    }

    const GOOD: &str = "RESULT seconds=9 rows=1 sum=1 wanted=1 ordered=true\nRESULT seconds=2.5 \
                        shuffle=1.5 fetched=80 rows=7 sum=-5 wanted=-5 ordered=true\nbye\n";

    #[test]
    fn the_last_round_counts_if_all_came_out_in_order() {
        let said = RoundReport::of(GOOD, &job()).unwrap();
        let expected = RoundReport { seconds: 2.5, shuffle_s: Some(1.5), fetched: Some(80.0) };
        assert_eq!(said, expected);
        let figures = said.measured(&job(), &FabricConfig::default()).figures;
        assert_eq!(figures.len(), 3);
        assert!(figures[1].ideal.is_some());
    }

    #[test]
    fn output_that_is_not_the_input_in_order_is_refused() {
        for (from, to, why) in [
            ("rows=7", "rows=6", "6 records came out in place of 7"),
            ("sum=-5", "sum=-4", "the checksum of the output is -4, of the input -5"),
            ("wanted=-5 ordered=true", "wanted=-5 ordered=false", "not in order"),
            ("wanted=-5 ordered=true", "wanted=-5", "no ordered"),
            ("RESULT seconds=2.5", "RESULT seconds=x", "no seconds"),
        ] {
            let error = RoundReport::of(&GOOD.replacen(from, to, 1), &job()).expect_err(why);
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(RoundReport::of("nothing", &job()).is_err());
    }
}
