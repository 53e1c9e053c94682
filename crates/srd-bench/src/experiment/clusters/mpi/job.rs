//! An MPI job in the hosts of a fabric: compiled, launched and awaited. Its results are accepted
//! only if every rank ran on the right host and all data was correct.

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

/// Name of the program in its output files.
pub(in crate::experiment) const NAME: &str = "mpirun";
/// File in which the ranks write their results.
const RESULTS: &str = "ranks.json";
/// Time that a job may take beyond the measured time: for launching, first contact and the last
/// messages.
const GRACE: Duration = Duration::from_secs(60);
/// Longest time until counting begins.
const BEGIN_MAX: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Prefixes of the caller's variables that would change the transport of messages.
const FOREIGN: [&str; 6] = ["OMPI_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "I_MPI_", "UCX_", "FI_"];
/// Prefixes of variables among these that are harmless.
const HARMLESS: [&str; 2] = ["FI_LOG_", "FI_SRD_"];

/// Options that a job needs.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Setup {
    srd: PathBuf,
    mpirun: PathBuf,
    provider: Option<PathBuf>,
    encrypted: bool,
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) setup: Setup,
    pub(super) operation: Operation,
    pub(super) bytes: u64,
    pub(super) seconds: u64,
    /// Ranks are numbered host by host; the first host launches.
    pub(super) nodes: Vec<(HostId, u32)>,
    /// Whether there are more ranks than cores.
    pub(super) yields: bool,
}

/// A job that runs.
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

    /// Returns the MPI of the launcher.
    pub(in crate::experiment) fn mpi(&self) -> Result<Mpi> {
        Mpi::of(&self.mpirun)
    }

    /// Returns SRD as a libfabric provider, if this MPI's libfabric offers it.
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
        // This check runs outside of the fabric, where the interface may not exist, so its setting
        // is omitted.
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

/// Returns a file with a key for the job; creates it if necessary.
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

/// Removes the results of an earlier run, so that they cannot be mistaken for those of this run.
fn forget(results: &Path) -> Result<()> {
    match fs::remove_file(results) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", results.display()))
        }
        _ => Ok(()),
    }
}

/// Ranks of a program in the hosts of a fabric.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Ranks {
    pub(in crate::experiment) setup: Setup,
    /// Ranks are numbered host by host; the first host launches.
    pub(in crate::experiment) nodes: Vec<(HostId, u32)>,
    /// Whether there are more ranks than cores.
    pub(in crate::experiment) yields: bool,
}

impl Ranks {
    /// Launches a program, given with its arguments.
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
    /// Launches the job.
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

    /// Returns the expected host name of each rank.
    fn placement(&self) -> Vec<String> {
        let names = |(host, ranks): &(HostId, u32)| vec![host_name(*host); *ranks as usize];
        self.nodes.iter().flat_map(names).collect()
    }
}

impl Started<'_> {
    /// Waits until counting begins; returns the time in ns of the monotonic clock.
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

    /// Waits for the end of the job; returns its results.
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

/// Reads the output of the ranks so far, which is empty until the first rank runs.
fn read(results: &Path) -> Result<String> {
    match fs::read_to_string(results) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.with_context(|| results.display().to_string()),
    }
}

/// Returns the variables that must not reach a job.
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
