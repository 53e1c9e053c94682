//! Makes hosts of a fabric look like separate machines, for programs that look up their own host
//! name.
//!
//! Each program gets the name of its host, and an `/etc/hosts` that maps the names of all hosts to
//! addresses of the measured transport. Both are private to the program (`unshare`), so this
//! machine does not change. Dropping [`Machines`] ends the processes that programs have left
//! behind.

use crate::experiment::measure::programs::{self, Program};
use crate::experiment::{Stage, Variant};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use srd_lab::enter::host_name;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::{namespace, plan};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(in crate::experiment) const UNSHARE: Program =
    Program { name: "unshare", package: "util-linux" };
/// Time between SIGTERM and SIGKILL for processes that programs have left behind.
const LEAVE_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Shell script that sets the host name and mounts `/etc/hosts`, and then executes the program.
const BECOME: &str = "hostname \"$0\" && mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";

/// Hosts of a fabric in which programs can be started as on separate machines.
pub(in crate::experiment) struct Machines<'a> {
    stage: &'a Stage<'a>,
    names: PathBuf,
    /// Processes that were running before, such as daemons; they are not ended.
    before: HashSet<Pid>,
}

impl<'a> Machines<'a> {
    /// Prepares the hosts: writes the file with their names and addresses.
    ///
    /// # Errors
    /// If the programs do not support the measured transport, or the file cannot be written.
    pub(in crate::experiment) fn new(
        stage: &'a Stage<'a>,
        hosts: &[HostId],
    ) -> Result<Machines<'a>> {
        if stage.variant == Variant::Mptcp {
            bail!("not tried with Multipath TCP");
        }
        let mut text = "127.0.0.1 localhost\n".to_owned();
        for host in hosts {
            text += &format!("{} {}\n", stage.address(*host)?, host_name(*host));
        }
        let names = stage.directory.join("hosts");
        fs::write(&names, text).with_context(|| names.display().to_string())?;
        Ok(Machines { stage, names, before: inside(stage.fabric) })
    }

    /// Returns the stage in which the hosts are.
    pub(in crate::experiment) fn stage(&self) -> &'a Stage<'a> {
        self.stage
    }

    /// Returns the path of the file with the names of the hosts.
    pub(in crate::experiment) fn names(&self) -> &std::path::Path {
        &self.names
    }

    /// Returns a command that runs a program on one of the machines; the caller may append
    /// arguments.
    pub(in crate::experiment) fn command(
        &self,
        host: HostId,
        program: impl AsRef<OsStr>,
    ) -> Result<Command> {
        let mut command = programs::command(self.stage, UNSHARE)?;
        command.args(["--uts", "--mount", "sh", "-c", BECOME, &host_name(host)]);
        command.arg(&self.names).arg(program);
        command.current_dir(self.stage.directory);
        Ok(command)
    }
}

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        let deadline = Instant::now() + LEAVE_MAX;
        let mut signal = Signal::TERM;
        loop {
            let left: Vec<Pid> =
                inside(self.stage.fabric).difference(&self.before).copied().collect();
            if left.is_empty() {
                return;
            }
            for pid in left {
                // The process may have ended since it was listed.
                let _ = kill_process(pid, signal);
            }
            if signal == Signal::KILL {
                return;
            }
            if Instant::now() > deadline {
                signal = Signal::KILL;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn inside(fabric: &Fabric) -> HashSet<Pid> {
    let names = plan::namespace_names(fabric.config());
    namespace::processes(&names).into_iter().map(|(pid, _)| pid).collect()
}
