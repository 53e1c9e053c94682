//! Runs an MPI job in the hosts of a fabric: compiles its program, launches it, and waits for its
//! end. Results are accepted only if every rank ran in the right host and all data was correct.

use super::ideal::Operation;
use crate::experiment::measure::programs::{complaint, start};
use crate::experiment::run::Unavailable;
use crate::experiment::{Options, Stage, Variant};
use anyhow::{Context, Result, bail};
use srd_doctor::mpi::launch::{Node, check_agent};
use srd_doctor::mpi::ranks::{self, Measurements};
use srd_doctor::mpi::{Launch, Mpi, Transport, key, offers, provider};
use srd_lab::enter::{host_name, quoted};
use srd_lab::express;
use srd_lab::id::{Family, HostId};
use srd_lab::plan::HOST_DEVICE;
use srd_lab::priority;
use srd_lab::running::Running;
use std::env;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Name of the launcher's process in the names of its output files.
pub(in crate::experiment) const NAME: &str = "mpirun";
/// File in which the ranks write their results.
const RESULTS: &str = "ranks.json";
/// Time that a job may take in addition to the measured time: for its launch, first connections and
/// last messages.
const GRACE: Duration = Duration::from_secs(60);
/// Longest wait until the ranks begin to count iterations.
const BEGIN_MAX: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Prefixes of environment variables that could change the transport of messages. They are not
/// passed to a job.
const FOREIGN: [&str; 6] = ["OMPI_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "I_MPI_", "UCX_", "FI_"];
/// Prefixes of variables that match [`FOREIGN`] but are harmless.
const HARMLESS: [&str; 2] = ["FI_LOG_", "FI_SRD_"];

/// The part of the user's options that MPI jobs need.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Setup {
    srd: PathBuf,
    mpirun: PathBuf,
    provider: Option<PathBuf>,
    encrypted: bool,
}

/// An MPI job: the operation, the size of messages, the duration, and the placement of ranks.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) setup: Setup,
    pub(super) operation: Operation,
    pub(super) bytes: u64,
    pub(super) seconds: u64,
    /// The hosts and their numbers of ranks. Ranks are numbered host by host, and the job is
    /// launched in the first host.
    pub(super) nodes: Vec<(HostId, u32)>,
    /// Whether there are more ranks than cores, so that waiting ranks must yield.
    pub(super) yields: bool,
}

/// A job that is running.
pub(super) struct Started<'a> {
    job: &'a Job,
    running: Running,
    root: HostId,
    results: PathBuf,
}

impl Setup {
    pub(in crate::experiment) fn of(options: &Options) -> Setup {
        Setup {
            srd: options.program.clone(),
            mpirun: options.mpirun.clone().unwrap_or_else(|| "mpirun".into()),
            provider: options.provider.clone(),
            encrypted: options.encrypted,
        }
    }

    /// Returns the MPI to which the launcher belongs.
    pub(in crate::experiment) fn mpi(&self) -> Result<Mpi> {
        Mpi::of(&self.mpirun)
    }

    /// Returns the settings for SRD as a libfabric provider. Returns [`Unavailable`] if the
    /// libfabric of this MPI does not offer it.
    fn srd(&self, mpi: &Mpi, stage: &Stage<'_>) -> Result<Transport> {
        let directory = stage.directory;
        let unavailable = |why: String| anyhow::Error::from(Unavailable(why));
        let who = format!("{} {}", mpi.name(), mpi.version);
        if let Err(why) = mpi.uses_libfabric() {
            return Err(unavailable(format!("{who} does not use libfabric: {why}")));
        }
        let found = provider::find(self.provider.as_deref(), &self.srd)
            .map_err(|error| unavailable(error.to_string()))?;
        let providers = provider::stage(&found, directory)?;
        let rate_mbps = stage.fabric.config().host_rate_mbps_at_most();
        let mut settings = vec![
            ("FI_SRD_IFACE".to_owned(), HOST_DEVICE.to_owned()),
            ("FI_SRD_LINK_RATE_MBPS".to_owned(), rate_mbps.to_string()),
        ];
        if self.encrypted {
            let file = job_key(directory)?;
            settings.push(("FI_SRD_KEY_FILE".to_owned(), file.display().to_string()));
        }
        // This check runs outside of the fabric, where the host's interface may not exist, so the
        // setting of the interface is left out.
        let (offered, log) =
            offers::of(&self.srd, &mpi.libfabric(), Some(&providers), &settings[1..])
                .with_context(|| format!("the libfabric of {who} with {}", found.display()))?;
        if offered.srd().next().is_none() {
            let why = log.into_iter().next().or(offered.error).unwrap_or_default();
            let found = found.display();
            return Err(unavailable(format!("{found} offers nothing to {who}: {why}")));
        }
        Ok(Transport::Srd { providers: Some(providers), settings })
    }
}

/// Returns the path of a file with a key for the job, and creates the file if it does not exist.
fn job_key(directory: &Path) -> Result<PathBuf> {
    let file = directory.join("job.key");
    if !file.exists() {
        let mut options = fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&file);
        let what = || file.display().to_string();
        opened.with_context(what)?.write_all(key::draw()?.as_bytes()).with_context(what)?;
    }
    Ok(file)
}

/// Removes the results of an earlier run, which could be mistaken for those of this run.
fn forget(results: &Path) -> Result<()> {
    match fs::remove_file(results) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", results.display()))
        }
        _ => Ok(()),
    }
}

/// Placement of the ranks of any MPI program in the hosts of a fabric.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Ranks {
    pub(in crate::experiment) setup: Setup,
    /// The hosts and their numbers of ranks. Ranks are numbered host by host, and the program is
    /// launched in the first host.
    pub(in crate::experiment) nodes: Vec<(HostId, u32)>,
    /// Whether there are more ranks than cores, so that waiting ranks must yield.
    pub(in crate::experiment) yields: bool,
}

impl Ranks {
    /// Launches a program on all ranks; `words` are the program and its arguments.
    pub(in crate::experiment) fn start(
        &self,
        stage: &Stage<'_>,
        mpi: &Mpi,
        words: &[String],
    ) -> Result<Running> {
        let started = self.launch(stage, mpi)?.started(mpi, words);
        let line: Vec<String> = started.words.iter().map(|word| quoted(word)).collect();
        let root = self.nodes[0].0;
        let mut command = Command::new(&self.setup.srd);
        command.args(["lab", "enter", "--name", stage.fabric.name(), &root.to_string()]);
        command.arg("exec").args(line);
        for name in foreign(env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
            command.env_remove(name);
        }
        command.envs(started.environment);
        priority::in_own_session_as_others(&mut command);
        start(stage, root, NAME, &mut command)
    }

    fn launch(&self, stage: &Stage<'_>, mpi: &Mpi) -> Result<Launch> {
        check_agent(&self.setup.srd).map_err(anyhow::Error::msg)?;
        let agent = self.setup.srd.display().to_string();
        let words = ["lab", "enter", "--name", stage.fabric.name()].map(str::to_owned);
        let device = |name: &str| Transport::Tcp { device: Some(name.to_owned()) };
        let transport = match stage.variant {
            Variant::Srd => self.setup.srd(mpi, stage)?,
            Variant::Express => device(express::DEVICE),
            Variant::Mptcp => bail!("MPIs do not use Multipath TCP"),
            _ => device(HOST_DEVICE),
        };
        let node = |(host, ranks): &(HostId, u32)| -> Result<Node> {
            let address = stage.fabric.host_address(*host, Family::V4)?.to_string();
            Ok(Node { address, ranks: *ranks })
        };
        Ok(Launch {
            nodes: self.nodes.iter().map(node).collect::<Result<_>>()?,
            agent: [agent].into_iter().chain(words).collect(),
            control: Some(HOST_DEVICE.to_owned()),
            transport,
            yields: self.yields,
        })
    }
}

impl Job {
    /// Compiles the test program, and launches it on all ranks.
    pub(super) fn start(&self, stage: &Stage<'_>) -> Result<Started<'_>> {
        let mpi = self.setup.mpi()?;
        let program = ranks::compile(&mpi, stage.directory)?;
        let results = stage.directory.join(RESULTS);
        forget(&results)?;
        let words = [
            program.display().to_string(),
            self.operation.name().to_owned(),
            self.bytes.to_string(),
            self.seconds.to_string(),
            results.display().to_string(),
        ];
        let Job { setup, nodes, yields, .. } = self.clone();
        let running = Ranks { setup, nodes, yields }.start(stage, &mpi, &words)?;
        Ok(Started { job: self, running, root: self.nodes[0].0, results })
    }

    /// Returns the name of the host in which each rank is expected to run.
    fn placement(&self) -> Vec<String> {
        let names = |(host, ranks): &(HostId, u32)| vec![host_name(*host); *ranks as usize];
        self.nodes.iter().flat_map(names).collect()
    }
}

impl Started<'_> {
    /// Waits until the ranks begin to count iterations. Returns that time in nanoseconds of the
    /// monotonic clock.
    pub(super) fn begun(&mut self, stage: &Stage<'_>) -> Result<u64> {
        let deadline = Instant::now() + BEGIN_MAX;
        loop {
            if let Some(begin_ns) = ranks::begun(&read(&self.results)?) {
                return Ok(begin_ns);
            }
            if let Some(status) = self.running.ended()? {
                bail!("it ended with {status}: {}", complaint(stage, self.root, NAME));
            }
            if Instant::now() > deadline {
                let said = complaint(stage, self.root, NAME);
                bail!("the ranks did not begin within {} s: {said}", BEGIN_MAX.as_secs());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the job has ended. Returns its results.
    pub(super) fn finish(self, stage: &Stage<'_>) -> Result<Measurements> {
        let Started { job, running, root, results } = self;
        let at_most = Duration::from_secs(job.seconds) + GRACE;
        let status = running.wait(at_most).with_context(|| complaint(stage, root, NAME))?;
        if !status.success() {
            bail!("{NAME} ended with {status}: {}", complaint(stage, root, NAME));
        }
        let seen = ranks::parse(&read(&results)?)?;
        let expected = job.placement();
        if seen.hosts != expected {
            bail!("ranks ran on {:?}, not on {expected:?}", seen.hosts);
        }
        Ok(seen)
    }
}

/// Reads the results that the ranks have written so far; empty if they have written nothing.
fn read(results: &Path) -> Result<String> {
    match fs::read_to_string(results) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.with_context(|| results.display().to_string()),
    }
}

/// Returns the names of the environment variables that are not passed to a job.
fn foreign(names: impl Iterator<Item = String>) -> Vec<String> {
    let begins = |name: &str, with: &[&str]| with.iter().any(|prefix| name.starts_with(prefix));
    names.filter(|name| begins(name, &FOREIGN) && !begins(name, &HARMLESS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_that_choose_another_way_are_taken_away() {
        let all = ["PATH", "FI_PROVIDER", "FI_LOG_LEVEL", "FI_SRD_PATHS", "OMPI_MCA_pml", "HOME"];
        let taken = foreign(all.iter().map(ToString::to_string));
        assert_eq!(taken, ["FI_PROVIDER", "OMPI_MCA_pml"]);
    }

    #[test]
    fn ranks_are_placed_host_by_host() {
        let host = |leaf| HostId { leaf, host: 0 };
        let job = Job {
            setup: Setup {
                srd: "srd".into(),
                mpirun: "mpirun".into(),
                provider: None,
                encrypted: true,
            },
            operation: Operation::Incast,
            bytes: 8,
            seconds: 1,
            nodes: vec![(host(1), 1), (host(0), 2)],
            yields: false,
        };
        assert_eq!(job.placement(), ["h1-0", "h0-0", "h0-0"]);
    }
}
