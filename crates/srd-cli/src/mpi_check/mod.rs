//! `srd mpi-check`: will the MPI of this machine find SRD through libfabric and use it, will it
//! reach other machines with it, and what has to be typed.
//!
//! | module | what |
//! |---|---|
//! | [`local`] | this machine: MPI, libfabric, provider, interface |
//! | [`key`] | the key of a job |
//! | [`hosts`] | other machines: address, route, MTU, login |
//! | [`exchange`] | ranks here and there, over TCP and over SRD |
//! | [`advice`] | variables and words |
//!
//! Findings and exit codes are those of `srd check`. Nothing is changed; on other machines a
//! program lies in a directory of its own below `/tmp` for as long as ranks run.

mod advice;
mod exchange;
mod hosts;
mod key;
mod local;

use crate::check::finding::{Finding, Judgement, Status, count};
use crate::check::system::System;
use crate::check::{UNCHECKED, exit_code, show};
use crate::failure::Usage;
use crate::output::{JsonOutput, is_broken_pipe};
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use srd_doctor::mpi::offers;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Other machines that are looked at in one run.
const HOSTS_MAX: usize = 64;

const NOTES: &str = "\
EXIT CODES
  0       every required check is as wanted; there may be warnings
  1..250  so many required checks failed
  255     nothing was checked: bad usage, no such interface or launcher

EXAMPLES
  srd mpi-check
  srd mpi-check node2 node3
  srd mpi-check --mpirun /opt/openmpi/bin/mpirun --interface eth1 node2
  srd mpi-check --json | jq '.checks[] | select(.status == \"error\")'

For each HOST it is looked at whether it has an address, by which interface it is reached, and
which packets pass. If a launcher's agent can log in there without a password, ranks exchange
messages with it, over TCP and then over SRD: the same MPI must be installed there.";

/// Arguments of `srd mpi-check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct MpiCheckArgs {
    /// Machines that jobs are to run on, beside this one.
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    /// The MPI's launcher [default: mpirun].
    #[arg(long, value_name = "FILE")]
    mpirun: Option<PathBuf>,
    /// The provider libsrd-fi.so, or its directory [default: FI_PROVIDER_PATH, beside this
    /// program, where packages put it].
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
    /// The interface that packets leave by [default: that of the default route].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// What runs a command on another machine, with its arguments.
    #[arg(long, value_name = "COMMAND", default_value = hosts::SSH)]
    agent: String,
    /// The result as JSON, to FILE or to standard output, which then carries nothing else.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<OsString>,
    /// Load this libfabric, print what it offers, and end: what this program starts itself for.
    #[arg(long, value_name = "LIBRARY", hide = true, exclusive = true)]
    probe: Option<PathBuf>,
}

/// Runs `srd mpi-check`. Returns the exit code.
pub(crate) fn run(args: &MpiCheckArgs) -> Result<u8> {
    if let Some(library) = &args.probe {
        return probe(library);
    }
    match check(args) {
        Err(error) if !is_broken_pipe(&error) => {
            eprintln!("srd: {error:#}");
            Ok(UNCHECKED)
        }
        result => result,
    }
}

fn probe(library: &Path) -> Result<u8> {
    match offers::probe(library) {
        Ok(offers) => {
            let text = serde_json::to_string(&offers).context("what is offered, as JSON")?;
            crate::output::say(text)?;
            Ok(0)
        }
        Err(why) => {
            eprintln!("{why}");
            Ok(1)
        }
    }
}

fn check(args: &MpiCheckArgs) -> Result<u8> {
    let json = JsonOutput { json: args.json.clone() };
    json.check()?;
    if args.hosts.len() > HOSTS_MAX {
        let (given, most) = (args.hosts.len(), HOSTS_MAX);
        return Err(Usage(format!("{given} hosts: at most {most} in one run")).into());
    }
    let system = System::below(Path::new("/"));
    let work = Work::new()?;
    let machine = local::look(args, &system, &work.0)?;
    let mut list = List::default();
    machine.judge(&system, &mut list);
    key::judge(&mut list);
    hosts::judge(args, &system, &machine, &work.0, &mut list);
    let report = Report { machine, findings: list.findings };
    json.say(people(&report, show::Paint::of_terminal()))?;
    json.write(&machine_readable(&report))?;
    Ok(exit_code(&report.findings))
}

/// Findings, numbered as they come.
#[derive(Default)]
struct List {
    findings: Vec<Finding>,
}

impl List {
    fn add(&mut self, name: impl Into<String>, why: &'static str, judgement: Judgement) {
        let number = u8::try_from(self.findings.len() + 1).unwrap_or(u8::MAX);
        self.findings.push(Finding { number, name: name.into(), why, judgement });
    }
}

struct Report {
    machine: local::Machine,
    findings: Vec<Finding>,
}

fn people(report: &Report, paint: show::Paint) -> String {
    let Report { machine, findings } = report;
    let advice = advice::people(&machine.advice());
    format!("{}\n{}\n{advice}", show::list(findings, paint), show::verdict(findings))
}

fn machine_readable(report: &Report) -> Value {
    let Report { machine, findings } = report;
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
