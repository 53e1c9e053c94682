//! `srd mpi-check`: the arguments. The checks are in `srd_doctor::mpi_check`.

use crate::check::or_unchecked;
use crate::output::{self, JsonOutput, tell, unless_closed};
use anyhow::{Context, Result};
use clap::Args;
use srd_doctor::check::Paint;
use srd_doctor::mpi::offers;
use srd_doctor::mpi_check::{self, Options, SSH};
use std::path::{Path, PathBuf};

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
    /// Machines that jobs will run on, in addition to this machine.
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    /// The MPI's launcher [default: mpirun].
    #[arg(long, value_name = "FILE")]
    mpirun: Option<PathBuf>,
    /// The provider libsrd-fi.so, or its directory [default: from FI_PROVIDER_PATH, beside this
    /// program, or where packages install it].
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
    /// The interface that packets leave by [default: the interface of the default route].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Program that runs a command on another machine, with its arguments.
    #[arg(long, value_name = "COMMAND", default_value = SSH)]
    agent: String,
    #[command(flatten)]
    json: JsonOutput,
    /// Load this libfabric, print what it offers, and exit. This program calls itself with it.
    #[arg(long, value_name = "LIBRARY", hide = true, exclusive = true)]
    probe: Option<PathBuf>,
}

/// Runs `srd mpi-check`. Returns the exit code.
pub(crate) fn run(args: &MpiCheckArgs) -> Result<u8> {
    match &args.probe {
        Some(library) => probe(library),
        None => or_unchecked(examine(args)),
    }
}

fn probe(library: &Path) -> Result<u8> {
    match offers::probe(library) {
        Ok(offers) => {
            let text = serde_json::to_string(&offers).context("what is offered, as JSON")?;
            output::say(text)?;
            Ok(0)
        }
        Err(why) => {
            tell!("{why}");
            Ok(1)
        }
    }
}

fn examine(args: &MpiCheckArgs) -> Result<u8> {
    let json = &args.json;
    json.check()?;
    let report = mpi_check::examine(&Options {
        hosts: args.hosts.clone(),
        mpirun: args.mpirun.clone(),
        provider: args.provider.clone(),
        interface: args.interface.clone(),
        agent: args.agent.clone(),
    })?;
    // The exit code counts the failed checks, even if the text has no reader.
    unless_closed(json.say(report.people(Paint::of_terminal())))?;
    json.write(&report.machine())?;
    Ok(report.exit_code())
}
