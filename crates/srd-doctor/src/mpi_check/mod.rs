//! Will the MPI of this machine find SRD through libfabric and use it, will it
//! reach other machines with it, and what has to be typed.
//!
//! | module | what |
//! |---|---|
//! | `local` | this machine: MPI, libfabric, provider, interface |
//! | `key` | the key of a job |
//! | `hosts` | other machines: address, route, MTU, login |
//! | `remote` | commands on another machine |
//! | `exchange` | ranks here and there, over TCP and over SRD |
//! | `advice` | variables and words |
//!
//! Findings are those of [`crate::check`]. Nothing is changed; on other machines a
//! program lies in a directory of its own below `/tmp` for as long as ranks run.

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

/// Other machines that are looked at in one run.
const HOSTS_MAX: usize = 64;

/// Options of the checks.
#[derive(Clone, Debug)]
pub struct Options {
    /// Machines that jobs are to run on, beside this one.
    pub hosts: Vec<String>,
    /// The MPI's launcher; `None` for the first that is installed.
    pub mpirun: Option<PathBuf>,
    /// The provider or its directory; `None` to search for it.
    pub provider: Option<PathBuf>,
    /// The interface that packets leave by; `None` for that of the default route.
    pub interface: Option<String>,
    /// Command that runs a command on another machine, with its arguments: see [`SSH`].
    pub agent: String,
}

/// Findings of the checks.
pub struct Report {
    machine: local::Machine,
    findings: Vec<Finding>,
}

/// Checks this machine, and the others from here.
///
/// # Errors
/// There is no such interface or launcher, or too many machines were named.
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

/// Findings, numbered as they come.
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
    /// The report as a text, with what has to be typed.
    #[must_use]
    pub fn people(&self, paint: Paint) -> String {
        let Report { machine, findings } = self;
        let advice = advice::people(&machine.advice());
        format!("{}\n{}\n{advice}", show::list(findings, paint), show::verdict(findings))
    }

    /// The report for machines.
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

    /// Number of required checks that failed, up to the largest count that an exit code can
    /// represent.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        exit_code(&self.findings)
    }
}

/// A directory that only we can read, for as long as this lives.
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
        // What may be left are our own files below /tmp.
        let _ = fs::remove_dir_all(&self.0);
    }
}
