//! The experiment `dask`: Dask in the hosts of a fabric, with a scheduler, workers of one thread
//! each, and a client.

use super::{Job, MASTER, RoundReport};
use crate::experiment::clusters::fetched::DASK;
use crate::experiment::clusters::machines::Machines;
use crate::experiment::measure::programs::{self, logged};
use crate::experiment::measure::result::Measured;
use crate::experiment::{Case, Experiment, Options, Stage, variant};
use anyhow::{Context, Result};
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("dask_records.py");
const SCHEDULER: &str = "distributed.cli.dask_scheduler";
const WORKER: &str = "distributed.cli.dask_worker";
const PORT: u16 = 8786;
const WORKER_MEMORY: &str = "2GB";
/// Divisor for the number of records in the first round, which is not counted. Modules are loaded
/// in this round.
const WARM_UP_SHARE: u64 = 10;
/// Environment variables of all processes. Data stays in memory, because disks are not to be
/// measured. Libraries use one thread.
const SETTINGS: [(&str, &str); 6] = [
    ("DASK_DISTRIBUTED__WORKER__MEMORY__TARGET", "False"),
    ("DASK_DISTRIBUTED__WORKER__MEMORY__SPILL", "False"),
    ("DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE", "False"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("PYTHONWARNINGS", "ignore"),
];

/// The experiment `dask`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "dask",
    summary: "How much faster does Dask sort and join if each connection has all paths?",
    about: "Dask, a scheduler and four workers of one thread: data frames of records of 100 bytes \
            (a key, 12 columns of numbers) are made in memory, and sorted by their key, or two \
            tables are joined, by its peer-to-peer shuffle. A smaller round before does not count. \
            The run counts only if as many records come out as went in, with the same checksum \
            and, sorted, in order.",
    repetitions: 3,
    variants: variant::USUAL,
    programs: |_| super::programs(&[]),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    super::cases(options, measure)
}

fn measure(stage: &Stage<'_>, job: &Job, cache: &Path) -> Result<Measured> {
    let python = DASK.python(cache)?;
    let dask = Dask { machines: Machines::new(stage, &job.hosts())?, python, job };
    let _cluster = dask.up()?;
    let mut command = dask.client()?;
    let printed = programs::run_to_end(stage, MASTER, "client", &mut command, super::JOB_MAX)?;
    Ok(RoundReport::of(&printed, job)?.measured(job, stage.fabric.config()))
}

struct Dask<'a> {
    machines: Machines<'a>,
    python: PathBuf,
    job: &'a Job,
}

impl Dask<'_> {
    fn python(&self, host: HostId) -> Result<Command> {
        let mut command = self.machines.command(host, &self.python)?;
        command.envs(SETTINGS);
        Ok(command)
    }

    fn scheduler(&self) -> Result<String> {
        Ok(format!("tcp://{}:{PORT}", self.machines.stage().address(MASTER)?))
    }

    /// Starts the scheduler and the workers, and waits until all workers have registered. In the
    /// returned list the workers are before the scheduler, so that they end first.
    fn up(&self) -> Result<Vec<Running>> {
        let stage = self.machines.stage();
        let mut command = self.python(MASTER)?;
        let address = stage.address(MASTER)?.to_string();
        command.args(["-m", SCHEDULER, "--no-dashboard", "--no-show"]);
        command.args(["--host", &address, "--port", &PORT.to_string()]);
        let mut scheduler = programs::start(stage, MASTER, "scheduler", &mut command)?;
        programs::wait_for_listener(stage, MASTER, PORT, &mut scheduler, "scheduler")?;
        let mut running = Vec::new();
        for host in &self.job.workers {
            let mut command = self.python(*host)?;
            let own = stage.directory.join(format!("dask-{host}"));
            command.args(["-m", WORKER, &self.scheduler()?, "--no-dashboard"]);
            command.args(["--host", &stage.address(*host)?.to_string(), "--no-nanny"]);
            command.args(["--name", &host.to_string(), "--nthreads", "1"]);
            command.args(["--memory-limit", WORKER_MEMORY, "--local-directory"]).arg(own);
            running.push(programs::start(stage, *host, "worker", &mut command)?);
        }
        running.push(scheduler);
        let wanted = self.job.workers.len();
        super::wait_until("workers of Dask register", &mut running, || {
            let log = logged(stage, MASTER, "scheduler")?;
            Ok(log.lines().filter(|line| line.contains("Register worker")).count() >= wanted)
        })?;
        Ok(running)
    }

    fn client(&self) -> Result<Command> {
        let source = self.machines.stage().directory.join("dask_records.py");
        fs::write(&source, SOURCE).with_context(|| source.display().to_string())?;
        let Job { work, records, ref workers } = *self.job;
        let mut command = self.python(MASTER)?;
        command.arg(source).args([&self.scheduler()?, work.name(), &records.to_string()]);
        command.arg(self.job.partitions().to_string());
        command.args([(records / WARM_UP_SHARE).to_string(), workers.len().to_string()]);
        Ok(command)
    }
}
