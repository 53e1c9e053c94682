//! Running programs inside of hosts.

use crate::fabric::Fabric;
use crate::id::HostId;
use crate::{command, priority, signals};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

impl Fabric {
    /// Runs a program in a host to its end, on this process's standard input and output. SIGINT,
    /// SIGTERM, SIGHUP and SIGQUIT go to the program; a second one ends this process too (and
    /// with it a guarded fabric). Returns the exit code, or 128 plus the signal that ended it.
    pub fn exec(&self, host: HostId, argv: &[OsString]) -> Result<i32> {
        self.run_to_end(host, argv, false)
    }

    /// Like [`Fabric::exec`], but above the machine's other load: in a session of its own, with
    /// that session at the highest nice level. It has no controlling terminal then.
    pub fn exec_at_high_priority(&self, host: HostId, argv: &[OsString]) -> Result<i32> {
        self.run_to_end(host, argv, true)
    }

    /// Starts a command in a host and returns at once. The caller waits for the child; if it is
    /// still there when the fabric goes down, it is ended.
    pub fn spawn(&self, host: HostId, command: &mut Command) -> Result<Child> {
        let what = format!("{command:?} in {host}");
        self.within(host, || command.spawn())?.context(what)
    }

    fn run_to_end(&self, host: HostId, argv: &[OsString], high_priority: bool) -> Result<i32> {
        let Some((name, arguments)) = argv.split_first() else { bail!("no program to run") };
        if command::find_program(&name.to_string_lossy()).is_none() {
            bail!("{}: no such program", name.display());
        }
        let namespace = self.host_namespace(host)?;
        // `ip netns exec` rather than setns alone: it also shows the host's own /sys/class/net.
        let mut command = Command::new(command::program("ip")?);
        command.args(["netns", "exec", &namespace]).arg(name).args(arguments);
        if high_priority {
            priority::in_own_session(&mut command);
        }
        to_end(&mut command, high_priority).with_context(|| format!("{}", name.display()))
    }
}

/// Runs a program to its end, with the signals of this process. `own_session`: it was given one.
pub(crate) fn to_end(command: &mut Command, own_session: bool) -> Result<i32> {
    let mut child = signals::spawn(command, own_session)?;
    let pid = Pid::from_child(&child);
    // Wait without reaping: the id stays the child's until forwarding has stopped.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(WaitId::Pid(pid), options) {}
    signals::forget_child(pid);
    let status = child.wait()?;
    let signal = || status.signal().map(|number| 128 + number);
    Ok(status.code().or_else(signal).unwrap_or(-1))
}
