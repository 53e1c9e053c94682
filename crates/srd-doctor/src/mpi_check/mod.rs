//! Checks whether the MPI of this machine finds and uses SRD through libfabric, and reaches other
//! machines with it; and prints the command line for a job.
//!
//! | module | contents |
//! |---|---|
//! | `local` | this machine: MPI, libfabric, provider, interface |
//! | `key` | the key of a job |
//! | `hosts` | other machines: address, route, MTU, login |
//! | `remote` | commands on another machine |
//! | `exchange` | jobs with ranks on two machines, over TCP and over SRD |
//! | `advice` | command line and variables of a job over SRD |
//!
//! Findings have the same type as those of [`crate::check`]. The check changes nothing on any
//! machine, except that other machines have a program in a separate directory below `/tmp` while
//! ranks run.

mod advice;
mod exchange;
mod hosts;
mod key;
mod local;
mod remote;

pub use remote::SSH;

use crate::check::finding::{Finding, Outcome, Status, count};
use crate::check::system::System;
use crate::check::{Paint, exit_code, show};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Largest number of other machines that are checked in one run.
const HOSTS_MAX: usize = 64;

/// Options of `srd mpi-check`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Machines on which jobs shall run, in addition to this machine.
    pub hosts: Vec<String>,
    /// The MPI's launcher; `None` for the first MPI in `PATH`.
    pub mpirun: Option<PathBuf>,
    /// The provider or its directory; `None` to search for it.
    pub provider: Option<PathBuf>,
    /// The interface by which packets leave. `None` means the interface of the default route or,
    /// without a default route, the first interface that is up.
    pub interface: Option<String>,
    /// Command that runs a shell command on another machine, as in [`SSH`]. The host's name and the
    /// shell command are appended to it.
    pub agent: String,
}

/// Findings of `srd mpi-check`.
pub struct Report {
    machine: local::Machine,
    findings: Vec<Finding>,
}

/// Checks this machine, and checks the other machines of the options from here.
///
/// # Errors
/// A text for the user, if the interface or launcher does not exist, or there are too many
/// machines.
pub fn examine(options: &Options) -> Result<Report> {
    if options.hosts.len() > HOSTS_MAX {
        bail!("{} hosts: at most {HOSTS_MAX} in one run", options.hosts.len());
    }
    let system = System::below(Path::new("/"));
    let work = Work::new()?;
    let machine = local::look(options, &system, &work.0)?;
    let mut list = List::default();
    machine.check(&system, &mut list);
    key::check(&mut list);
    hosts::check(options, &system, &machine, &work.0, &mut list);
    Ok(Report { machine, findings: list.findings })
}

/// Findings, numbered from 1 in the order of the checks.
#[derive(Default)]
struct List {
    findings: Vec<Finding>,
}

impl List {
    fn add(&mut self, name: impl Into<String>, why: &'static str, outcome: Outcome) {
        let number = u8::try_from(self.findings.len() + 1).unwrap_or(u8::MAX);
        self.findings.push(Finding { number, name: name.into(), why, outcome });
    }
}

impl Report {
    /// Returns the report as text for the user, with the command line for a job.
    #[must_use]
    pub fn people(&self, paint: Paint) -> String {
        let Report { machine, findings } = self;
        let advice = advice::people(&machine.advice());
        format!("{}\n{}\n{advice}", show::list(findings, paint), show::verdict(findings))
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn machine(&self) -> Value {
        let Report { machine, findings } = self;
        json!({
            "mpi": machine.mpi,
            "others": machine.others,
            "interface": machine.subject.interface,
            "libfabric": machine.libfabric,
            "provider": machine.provider.as_ref().ok(),
            "advice": machine.advice(),
            "checks": findings.iter().map(show::check).collect::<Vec<Value>>(),
            "required_failed": count(findings, Status::Error),
            "warnings": count(findings, Status::Warn),
        })
    }

    /// Returns the number of required checks that failed, up to the largest count that an exit code
    /// can represent.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        exit_code(&self.findings)
    }
}

/// A directory that only this user can read; it is removed when this value is dropped.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Self> {
        let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = moment.map_or(0, |moment| moment.subsec_nanos());
        let name = format!("srd-mpi-check-{}-{nanos}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // If this fails, only our own files below /tmp remain.
        let _ = fs::remove_dir_all(&self.0);
    }
}
