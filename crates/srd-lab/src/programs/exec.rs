//! Running programs inside of hosts.

use crate::build::fabric::Fabric;
use crate::build::id::HostId;
use crate::{programs::command, programs::priority, programs::signals};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

impl Fabric {
    /// Runs a program in a host to its end, with this process's standard input and output. SIGINT,
    /// SIGTERM, SIGHUP and SIGQUIT are forwarded to the program; a second signal also ends this
    /// process (and a guarded fabric). Returns the exit code, or 128 plus the signal that ended it.
    pub fn exec(&self, host: HostId, argv: &[OsString]) -> Result<i32> {
        self.run_to_end(host, argv, false)
    }

    /// Works like [`Fabric::exec`], but with priority over the machine's other load: the program
    /// runs in a new session at nice level -19. It then has no controlling terminal.
    pub fn exec_at_high_priority(&self, host: HostId, argv: &[OsString]) -> Result<i32> {
        self.run_to_end(host, argv, true)
    }

    /// Starts a command in a host and returns at once. The caller has to wait for the child. If the
    /// child still runs when the fabric is removed, it is ended.
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
        // `ip netns exec` instead of only setns: it also mounts the /sys/class/net of the host.
        let mut command = Command::new(command::program("ip")?);
        command.args(["netns", "exec", &namespace]).arg(name).args(arguments);
        if high_priority {
            priority::in_own_session(&mut command);
        }
        to_end(&mut command, high_priority).with_context(|| format!("{}", name.display()))
    }
}

/// Runs a program to its end and forwards the signals of this process to it. `own_session` states
/// whether the program runs in a new session.
pub(crate) fn to_end(command: &mut Command, own_session: bool) -> Result<i32> {
    let mut child = signals::spawn(command, own_session)?;
    let pid = Pid::from_child(&child);
    // Waits without reaping, so that the process id belongs to the child until forwarding has
    // stopped.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(WaitId::Pid(pid), options) {}
    signals::forget_child(pid);
    let status = child.wait()?;
    let signal = || status.signal().map(|number| 128 + number);
    Ok(status.code().or_else(signal).unwrap_or(-1))
}
