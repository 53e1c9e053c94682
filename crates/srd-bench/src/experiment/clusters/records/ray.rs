//! The experiment `ray`: Ray in the hosts of a fabric, with a head that runs no tasks, nodes, and a
//! driver.

use super::{Job, MASTER, RoundReport, Work};
use crate::experiment::clusters::fetched::RAY;
use crate::experiment::clusters::machines::Machines;
use crate::experiment::measure::programs::{self, complaint};
use crate::experiment::measure::result::Measured;
use crate::experiment::{Case, Experiment, Options, Stage, variant};
use anyhow::{Context, Result};
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("ray_records.py");
const PORT: u16 = 6379;
/// Bytes of shared memory of the head (`HEAD_STORE`), and of each other node (`NODE_STORE`).
const HEAD_STORE: &str = "200000000";
const NODE_STORE: &str = "700000000";
/// Options with fixed ports for a node's agents. Otherwise the agents choose ports, and Ray waits
/// for them for only 15 s, which is too short on a busy machine.
const AGENTS: [&str; 8] = [
    "--metrics-export-port",
    "20101",
    "--dashboard-agent-grpc-port",
    "20102",
    "--dashboard-agent-listen-port",
    "20103",
    "--runtime-env-agent-port",
    "20104",
];
/// Text that Ray prints when a node has registered.
const STARTED: &str = "Ray runtime started";
/// Divisor for the number of records in the first round, which is not counted. Ray starts its
/// workers in it.
const WARM_UP_SHARE: u64 = 10;
/// Environment variables of all processes. Usage reports are off, and a node may take long to start
/// on a busy machine. Authentication is disabled: if the user has a token in `~/.ray`, the head
/// would require it and the nodes would not send it. This is safe because the fabric is confined to
/// this machine.
const SETTINGS: [(&str, &str); 7] = [
    ("RAY_AUTH_MODE", "disabled"),
    ("RAY_USAGE_STATS_ENABLED", "0"),
    ("RAY_enable_metrics_collection", "0"),
    ("RAY_DISABLE_IMPORT_WARNING", "1"),
    ("RAY_raylet_start_wait_time_s", "150"),
    ("OMP_NUM_THREADS", "1"),
    ("PYTHONWARNINGS", "ignore"),
];

/// The experiment `ray`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "ray",
    summary: "How much faster does Ray sort if each connection has all paths?",
    about: "Ray, a head and four nodes: records of 100 bytes are made in memory and sorted by Ray \
            Data. A smaller round before, in which Ray starts its workers, does not count. The run \
            counts only if as many records come out as went in, with the same checksum and in \
            order.",
    repetitions: 3,
    variants: variant::USUAL,
    programs: |_| super::programs(&[]),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    vec![super::case(options, Work::Sort, 100, 2_500_000, measure)]
}

fn measure(stage: &Stage<'_>, job: &Job, cache: &Path) -> Result<Measured> {
    let python = RAY.python(cache)?;
    // Paths of Unix sockets must be short, so the sockets are not in the stage's directory.
    let files = directory()?;
    let ray = Ray { machines: Machines::new(stage, &job.hosts())?, python, job, files };
    let _cluster = ray.up()?;
    let mut command = ray.driver()?;
    let printed = programs::run_to_end(stage, MASTER, "driver", &mut command, super::JOB_MAX)?;
    Ok(RoundReport::of(&printed, job)?.measured(job, stage.fabric.config()))
}

/// Largest number of directory names that are tried, if directories of earlier runs exist.
const DIRECTORIES_MAX: u32 = 100;

/// Creates a private directory, which is necessary because all users can write to /tmp.
fn directory() -> Result<PathBuf> {
    for number in 0..DIRECTORIES_MAX {
        let path = PathBuf::from(format!("/tmp/ray-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    anyhow::bail!("/tmp is full of directories of earlier runs: remove /tmp/ray-*")
}

struct Ray<'a> {
    machines: Machines<'a>,
    python: PathBuf,
    job: &'a Job,
    files: PathBuf,
}

impl Ray<'_> {
    fn python(&self, host: HostId) -> Result<Command> {
        let mut command = self.machines.command(host, &self.python)?;
        command.envs(SETTINGS).env("RAY_TMPDIR", &self.files);
        Ok(command)
    }

    fn head(&self) -> Result<String> {
        Ok(format!("{}:{PORT}", self.machines.stage().address(MASTER)?))
    }

    /// Starts the head and the nodes one after the other, because on a busy machine Ray loses nodes
    /// that start at the same time. In the returned list the nodes are before the head, so that
    /// they end first.
    fn up(&self) -> Result<Vec<Running>> {
        let stage = self.machines.stage();
        let mut running = Vec::new();
        for host in self.job.hosts() {
            let address = stage.address(host)?.to_string();
            let mut command = self.python(host)?;
            command.args(["-m", "ray.scripts.scripts", "start", "--block"]);
            command.args(["--node-ip-address", &address, "--disable-usage-stats"]);
            command.args(AGENTS);
            if host == MASTER {
                command.args(["--head", "--port", &PORT.to_string(), "--num-cpus", "0"]);
                command.args(["--include-dashboard", "false"]);
                command.args(["--object-store-memory", HEAD_STORE]);
                command.arg("--temp-dir").arg(&self.files);
            } else {
                command.args(["--address", &self.head()?, "--num-cpus", "1"]);
                command.args(["--object-store-memory", NODE_STORE]);
            }
            running.insert(0, programs::start(stage, host, "node", &mut command)?);
            super::wait_until("a node of Ray registers", &mut running, || {
                let out = programs::printed(stage, host, "node")?;
                Ok(out.contains(STARTED))
            })
            .with_context(|| complaint(stage, host, "node"))?;
        }
        Ok(running)
    }

    fn driver(&self) -> Result<Command> {
        let source = self.machines.stage().directory.join("ray_records.py");
        fs::write(&source, SOURCE).with_context(|| source.display().to_string())?;
        let Job { records, ref workers, .. } = *self.job;
        let mut command = self.python(MASTER)?;
        command.arg(source).args([self.head()?, records.to_string()]);
        command.arg(self.job.partitions().to_string());
        command.args([(records / WARM_UP_SHARE).to_string(), workers.len().to_string()]);
        Ok(command)
    }
}

impl Drop for Ray<'_> {
    fn drop(&mut self) {
        // The directory contains only logs of Ray.
        let _ = fs::remove_dir_all(&self.files);
    }
}
