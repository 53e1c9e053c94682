//! The experiment `spark`: Spark in the hosts of a fabric, with a master, workers, and a job whose
//! executors run on them.

use super::{Job, MASTER, RoundReport};
use crate::experiment::clusters::fetched::SPARK;
use crate::experiment::clusters::machines::Machines;
use crate::experiment::measure::programs::{self, Program, logged};
use crate::experiment::measure::result::Measured;
use crate::experiment::{Case, Experiment, Options, Stage, variant};
use anyhow::{Context, Result};
use srd_lab::command::{find_program, run};
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const JAVA: Program = Program { name: "java", package: "default-jdk-headless" };
const JAVAC: Program = Program { name: "javac", package: "default-jdk-headless" };
const SOURCE: &str = include_str!("Records.java");
const CLASS: &str = "Records";
const MASTER_CLASS: &str = "org.apache.spark.deploy.master.Master";
const WORKER_CLASS: &str = "org.apache.spark.deploy.worker.Worker";
const PORT: u16 = 7077;
const HEAP_MB: u32 = 256;
const HEAP_DRIVER_MB: u32 = 512;
const EXECUTOR_MB: u32 = 1200;
const WORKER_MB: u32 = 1600;
/// Options of each JVM that save CPU time.
const JVM: &str = "-XX:+UseSerialGC -XX:-UsePerfData -Djava.net.preferIPv4Stack=true \
                   -Djdk.reflect.useDirectMethodHandle=false";
const OPENS: [&str; 13] = [
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
];
/// Divisor for the number of records in the first round, which is not counted. Code is compiled in
/// this round.
const WARM_UP_SHARE: u64 = 5;

/// The experiment `spark`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "spark",
    summary: "How much faster does Spark sort and join if each connection has all paths?",
    about: "Spark, a master, four workers with an executor each: the records are made in memory, \
            range-partitioned and sorted, or two tables are joined by a merge join, and nothing is \
            written. A record is a key of 8 bytes and 92 more; blocks are not compressed. A \
            smaller round before, in which the JVMs compile, does not count. `stages that fetch` \
            are the times of the stages that read other workers' blocks; what makes those blocks \
            needs no network. The run counts only if as many records come out as went in, with the \
            same checksum and, sorted, in order.",
    repetitions: 3,
    variants: variant::USUAL,
    programs: |_| super::programs(&[JAVA, JAVAC]),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    super::cases(options, measure)
}

fn measure(stage: &Stage<'_>, job: &Job, cache: &Path) -> Result<Measured> {
    let jars = SPARK.require(cache)?;
    let spark = Spark { machines: Machines::new(stage, &job.hosts())?, jars, job };
    spark.compile()?;
    let _cluster = spark.up()?;
    let mut command = spark.driver()?;
    let printed = programs::run_to_end(stage, MASTER, "driver", &mut command, super::JOB_MAX)?;
    Ok(RoundReport::of(&printed, job)?.measured(job, stage.fabric.config()))
}

struct Spark<'a> {
    machines: Machines<'a>,
    jars: PathBuf,
    job: &'a Job,
}

impl Spark<'_> {
    fn directory(&self) -> PathBuf {
        self.machines.stage().directory.join("spark")
    }

    /// Compiles the class of the jobs. The driver and all executors use the same files.
    fn compile(&self) -> Result<()> {
        let directory = self.directory();
        if directory.join(format!("{CLASS}.class")).exists() {
            return Ok(());
        }
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let source = directory.join(format!("{CLASS}.java"));
        fs::write(&source, SOURCE).with_context(|| source.display().to_string())?;
        let compiler = find_program(JAVAC.name).context("javac")?;
        let mut command = Command::new(compiler);
        command.args(["-proc:none", "-cp"]).arg(format!("{}/*", self.jars.display()));
        command.arg("-d").arg(&directory).arg(&source);
        run(&mut command, "").map(drop)
    }

    fn options(&self) -> Vec<String> {
        let mut all: Vec<String> = JVM.split(' ').map(str::to_owned).collect();
        all.extend(OPENS.map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")));
        all.push(format!("-Djdk.net.hosts.file={}", self.machines.names().display()));
        all
    }

    fn java(&self, host: HostId, heap_mb: u32) -> Result<Command> {
        let address = self.machines.stage().address(host)?.to_string();
        let local = self.directory().join(format!("local-{host}"));
        let mut command = self.machines.command(host, JAVA.name)?;
        command.arg(format!("-Xmx{heap_mb}m")).args(self.options());
        let (own, jars) = (self.directory(), self.jars.display());
        command.arg("-cp").arg(format!("{}:{jars}/*", own.display()));
        command.env("SPARK_HOME", self.directory()).env("SPARK_SCALA_VERSION", "2.13");
        command.env("SPARK_LOCAL_IP", &address).env("SPARK_LOCAL_HOSTNAME", &address);
        command.env("SPARK_LOCAL_DIRS", local);
        Ok(command)
    }

    /// Starts the master and the workers, and waits until all workers have registered. In the
    /// returned list the workers are before the master, so that they end first.
    fn up(&self) -> Result<Vec<Running>> {
        let stage = self.machines.stage();
        let home = self.directory().join("jars");
        if !home.exists() {
            std::os::unix::fs::symlink(&self.jars, &home).context("the home of Spark")?;
        }
        let address = stage.address(MASTER)?.to_string();
        let port = PORT.to_string();
        let mut command = self.java(MASTER, HEAP_MB)?;
        command.arg(MASTER_CLASS).args(["--host", &address, "--port", &port]);
        let mut master = programs::start(stage, MASTER, "master", &mut command)?;
        programs::wait_for_listener(stage, MASTER, PORT, &mut master, "master")?;
        let mut running = Vec::new();
        for host in &self.job.workers {
            let mut command = self.java(*host, HEAP_MB)?;
            command.arg(WORKER_CLASS).args(["--host", &stage.address(*host)?.to_string()]);
            command.args(["--cores", "1", "--memory", &format!("{WORKER_MB}m")]);
            command.arg("--work-dir").arg(self.directory().join(format!("work-{host}")));
            command.arg(format!("spark://{address}:{PORT}"));
            running.push(programs::start(stage, *host, "worker", &mut command)?);
        }
        running.push(master);
        let wanted = self.job.workers.len();
        super::wait_until("workers of Spark register", &mut running, || {
            let log = logged(stage, MASTER, "master")?;
            Ok(log.lines().filter(|line| line.contains("Registering worker")).count() >= wanted)
        })?;
        Ok(running)
    }

    fn driver(&self) -> Result<Command> {
        let stage = self.machines.stage();
        let address = stage.address(MASTER)?;
        let own = self.directory().display().to_string();
        let partitions = self.job.partitions().to_string();
        let mut command = self.java(MASTER, HEAP_DRIVER_MB)?;
        for (name, value) in [
            ("master", format!("spark://{address}:{PORT}")),
            ("app.name", "records".into()),
            ("driver.host", address.to_string()),
            ("driver.bindAddress", "0.0.0.0".into()),
            ("ui.enabled", "false".into()),
            ("ui.showConsoleProgress", "false".into()),
            ("cores.max", self.job.workers.len().to_string()),
            ("executor.cores", "1".into()),
            ("executor.memory", format!("{EXECUTOR_MB}m")),
            ("executor.extraClassPath", own),
            ("executor.extraJavaOptions", self.options().join(" ")),
            // The job waits for all executors before its first task.
            ("scheduler.minRegisteredResourcesRatio", "1.0".into()),
            ("scheduler.maxRegisteredResourcesWaitingTime", "60s".into()),
            ("locality.wait", "0".into()),
            ("sql.adaptive.enabled", "false".into()),
            ("sql.autoBroadcastJoinThreshold", "-1".into()),
            ("sql.shuffle.partitions", partitions.clone()),
            ("shuffle.compress", "false".into()),
            ("shuffle.spill.compress", "false".into()),
        ] {
            command.arg(format!("-Dspark.{name}={value}"));
        }
        let records = self.job.records;
        let warm_up = (records / WARM_UP_SHARE).to_string();
        command.args([CLASS, self.job.work.name(), &records.to_string(), &partitions, &warm_up]);
        Ok(command)
    }
}
