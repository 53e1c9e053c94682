//! The operator's commands before and after the interface comes up and goes down.
//!
//! ```text
//!   srd up (privileges of the start)                 srd hooks (keeps them)
//!     the commands for the end, one line  ------>    remembers them
//!     pre_up ... interface ... post_up
//!     gives up its privileges
//!     packets
//!     "down"                              ------>    pre_down
//!                                         <------    "done"
//!     the interface is deleted
//!     ends for any reason                 ------>    pre_down (if not run yet), post_down
//! ```
//!
//! The daemon runs the commands of `pre_up` and `post_up` before it gives up its privileges. For
//! `pre_down` and `post_down` it starts a second process, `srd hooks`, which keeps these
//! privileges. That process receives all commands in its first line. Afterwards the daemon can only
//! send the notice of its end, so an attacker who controls the daemon can choose the time of the
//! end and nothing else. The process survives `kill -9` of the daemon.
//!
//! Commands come from a file that only root can change ([`check_owner`]). They are run by `sh -c`,
//! with `%i` replaced by the interface's name, and with the user and the privileges that `srd up`
//! was started with: root if it was started by hand, the user `srd` under the package's unit.
//!
//! The process `srd hooks` also removes the file of the control socket, which the daemon may have
//! lost the right to remove. It is started for this purpose alone if root starts the daemon and the
//! directory of the socket belongs to another user. In this case it keeps only the capability that
//! the removal needs.
//!
//! Bounds: [`HOOKS_MAX`] commands at each of the four points, of [`HOOK_BYTES_MAX`] each. A command
//! that runs longer than [`HOOK_WAIT_MAX`] is killed with its children.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use srd_trust::{privileges, socket};

use crate::handover::owner::{Owner, Pipes};

/// Largest number of commands at one of the four points.
pub const HOOKS_MAX: usize = 16;
/// Largest number of bytes of one command.
pub const HOOK_BYTES_MAX: usize = 4096;
/// Longest time that one command may run before it is killed.
pub const HOOK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Largest number of bytes of the first line that `srd hooks` reads: the interface and all
/// commands.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Interval at which a running command is polled.
const LOOK: Duration = Duration::from_millis(10);
/// Largest number of attempts to remove the control socket, with a pause of [`LOOK`] after each.
const REMOVALS_MAX: u32 = 100;

/// The operator's commands for one interface, at each of the four points.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Hooks {
    /// Commands that run before the interface is created.
    pub pre_up: Vec<String>,
    /// Commands that run after the interface was set up with its addresses and routes, before
    /// packets are sent.
    pub post_up: Vec<String>,
    /// Commands that run at the end, while the interface is still up.
    pub pre_down: Vec<String>,
    /// Commands that run at the end, after the interface was deleted.
    pub post_down: Vec<String>,
}

impl Hooks {
    /// Whether the operator has configured no commands.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there are commands for the end.
    fn has_end(&self) -> bool {
        !self.pre_down.is_empty() || !self.post_down.is_empty()
    }
}

/// Checks that only root can have written the file with the commands. `facts` must be the metadata
/// of the open file from which the commands were read: its path could refer to another file by now.
///
/// # Errors
/// A description of the problem, and how to correct it.
pub fn check_owner(path: &Path, facts: &Metadata) -> Result<(), (String, String)> {
    let shown = path.display();
    if facts.uid() != 0 {
        let what = format!("{shown} has commands to run and belongs to user {}", facts.uid());
        return Err((what, format!("chown root {shown}, or take the commands out")));
    }
    if facts.mode() & 0o022 != 0 {
        let what = format!("{shown} has commands to run, and others than root may change it");
        return Err((what, format!("chmod go-w {shown}, or take the commands out")));
    }
    Ok(())
}

/// The hooks of an interface while the daemon runs.
#[derive(Debug)]
pub(crate) struct Running {
    interface: String,
    post_up: Vec<String>,
    /// The process `srd hooks`, if there are commands for `pre_down` or `post_down`, or a socket
    /// that this process may not be able to remove.
    end: Option<End>,
}

#[derive(Debug)]
struct End {
    owner: Owner,
    to: Option<Arc<File>>,
    from: BufReader<File>,
}

impl Running {
    /// Starts the process `srd hooks`, if it is needed. `socket`: the file of the control socket;
    /// `None` if another process removes it.
    ///
    /// # Errors
    /// If the process cannot start.
    pub(crate) fn start(interface: &str, hooks: &Hooks, socket: Option<&Path>) -> Result<Self> {
        let is_needed = hooks.has_end() || socket.is_some_and(needs_remover);
        let work = || Work {
            interface: interface.to_owned(),
            hooks: hooks.clone(),
            socket: socket.map(Path::to_owned),
        };
        let end = is_needed.then(|| End::start(&work())).transpose()?;
        Ok(Self { interface: interface.to_owned(), post_up: hooks.post_up.clone(), end })
    }

    /// The hooks of another daemon, with the descriptors of the pipes to and from `srd hooks`.
    /// Dropping the result has no effect before [`Running::begin`].
    pub(crate) fn adopt(interface: &str, end: Option<[OwnedFd; 2]>) -> Self {
        let end = end.map(|[to, from]| End::over(Owner::Other, to, from));
        Self { interface: interface.to_owned(), post_up: Vec::new(), end }
    }

    /// Takes the hooks over from another daemon, which has ended: from now on the commands for the
    /// end run when this process ends.
    pub(crate) fn begin(&mut self) {
        if let Some(end) = &mut self.end {
            end.owner = Owner::Heir;
        }
    }

    /// Returns the pipes to and from the process `srd hooks`, for another daemon.
    ///
    /// # Errors
    /// An error of the operating system, if there is no free descriptor.
    pub(crate) fn pipes(&self) -> io::Result<Pipes> {
        match &self.end {
            Some(End { to: Some(to), from, .. }) => Pipes::of(to, from.get_ref()),
            _ => Ok(Pipes::default()),
        }
    }

    /// Whether there is a process `srd hooks`, which also removes the control socket.
    pub(crate) fn has_process(&self) -> bool {
        self.end.is_some()
    }

    /// Runs the commands of `pre_up`.
    ///
    /// # Errors
    /// If a command failed. The commands of `pre_down` and `post_down` are run in this case as
    /// well.
    pub(crate) fn pre_up(&self, commands: &[String]) -> Result<()> {
        run_all("pre_up", commands, &self.interface)
    }

    /// Runs the commands of `post_up`.
    ///
    /// # Errors
    /// If a command failed.
    pub(crate) fn post_up(&self) -> Result<()> {
        run_all("post_up", &self.post_up, &self.interface)
    }

    /// Requests the process `srd hooks` to run the commands of `pre_down`, and waits until they
    /// have ended.
    pub(crate) fn pre_down(&mut self) {
        let Some(end) = &mut self.end else { return };
        let mut answer = String::new();
        let asked = end.to.as_deref().is_some_and(|mut to| writeln!(to, "down").is_ok());
        if !asked || !end.from.read_line(&mut answer).is_ok_and(|bytes| bytes > 0) {
            tracing::warn!("the process with the hooks for the end is gone");
        }
    }
}

impl End {
    fn start(work: &Work) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program")?;
        let mut child = Command::new(program)
            .arg("hooks")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process for the end of the daemon")?;
        let mut to = child.stdin.take().context("the process for the hooks has no input")?;
        let from = child.stdout.take().context("the process for the hooks has no output")?;
        let line = serde_json::to_string(work).context("the hooks")?;
        writeln!(to, "{line}").context("the process for the hooks has ended")?;
        Ok(Self::over(Owner::Parent(child), to.into(), from.into()))
    }

    fn over(owner: Owner, to: OwnedFd, from: OwnedFd) -> Self {
        Self { owner, to: Some(Arc::new(to.into())), from: BufReader::new(from.into()) }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.to = None;
        match &mut self.owner {
            Owner::Parent(child) => drop(child.wait()),
            Owner::Heir => drop(io::copy(&mut self.from, &mut io::sink())),
            Owner::Other => {}
        }
    }
}

/// Whether root has started this process, and the directory of a socket belongs to another user.
/// The user to which this process changes, or root without capabilities, may not be able to remove
/// the socket.
fn needs_remover(socket: &Path) -> bool {
    let facts = socket.parent().and_then(|directory| std::fs::metadata(directory).ok());
    geteuid().is_root() && facts.is_some_and(|facts| facts.uid() != 0)
}

/// First line that `srd hooks` reads.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    interface: String,
    hooks: Hooks,
    /// File of the control socket, which is removed at the end.
    socket: Option<PathBuf>,
}

/// Work of the process `srd hooks`: waits until the daemon stops or ends, then runs the commands of
/// `pre_down` and `post_down`, and removes the control socket.
///
/// # Errors
/// If the first line was not written by a daemon, or privileges cannot be dropped.
pub fn serve() -> Result<()> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    // The signals stay blocked: this process ends when its standard input ends.
    let _ = set.thread_block();
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let work = Work::read(&mut from)?;
    if !work.hooks.has_end() {
        privileges::keep_removal_only().context("cannot drop privileges")?;
    }
    work.carry_out(&mut from, &mut to);
    Ok(())
}

impl Work {
    fn read(from: &mut impl BufRead) -> Result<Self> {
        let mut line = String::new();
        from.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).context("no hooks")?;
        serde_json::from_str(&line).context("no hooks")
    }

    fn carry_out(&self, from: &mut impl BufRead, to: &mut impl io::Write) {
        let Self { interface, hooks, socket } = self;
        let mut word = [0; 1];
        let is_asked = from.read(&mut word).is_ok_and(|n| n == 1);
        warn_all("pre_down", &hooks.pre_down, interface);
        if is_asked {
            // The result of the write is ignored: the work goes on even if the daemon has ended and
            // reads no answer.
            let _ = writeln!(to, "done").and_then(|()| to.flush());
            // Waits until the daemon has ended: by that time its interface is deleted.
            let _ = io::copy(from, &mut io::sink());
        }
        warn_all("post_down", &hooks.post_down, interface);
        if let Some(socket) = socket {
            remove_socket(socket);
        }
    }
}

/// Removes the control socket of the daemon, which has ended. The socket of another daemon at the
/// same path stays. The kernel may close the socket of a killed daemon later than its pipe to this
/// process, so the removal is tried several times.
fn remove_socket(path: &Path) {
    for _ in 0..REMOVALS_MAX {
        match socket::remove_dead(path) {
            Ok(_) => return,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => std::thread::sleep(LOOK),
            Err(error) => {
                let shown = path.display();
                return tracing::warn!("{shown} stays, until the next start removes it: {error}");
            }
        }
    }
}

/// Runs commands one after the other, and stops at the first that fails.
fn run_all(point: &str, commands: &[String], interface: &str) -> Result<()> {
    for command in commands {
        let status = run(command, interface, HOOK_WAIT_MAX)
            .with_context(|| format!("{point}: cannot run `{command}`"))?;
        match status {
            Some(status) if status.success() => {}
            Some(status) => bail!("{point}: `{command}` failed: {status}"),
            None => bail!(
                "{point}: `{command}` took longer than {} s and was killed",
                HOOK_WAIT_MAX.as_secs()
            ),
        }
    }
    Ok(())
}

/// Runs all commands one after the other; a failure is logged, and the next command is run.
fn warn_all(point: &str, commands: &[String], interface: &str) {
    for command in commands {
        if let Err(error) = run_all(point, std::slice::from_ref(command), interface) {
            tracing::warn!("{error:#}");
        }
    }
}

/// Runs a command in a shell. Returns `None` if it ran longer than `wait_max` and was killed.
fn run(command: &str, interface: &str, wait_max: Duration) -> Result<Option<ExitStatus>> {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", &command.replace("%i", interface)])
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SRD_INTERFACE", interface)
        .stdin(Stdio::null())
        // The standard output of this process carries the answer to the daemon, so the command must
        // not write to it.
        .stdout(io::stderr())
        .process_group(0);
    // This process blocks signals, which must still reach the programs that the command starts.
    srd_net::raw::unblock_signals(&mut shell);
    let mut child = shell.spawn()?;
    let deadline = Instant::now() + wait_max;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            if let Ok(group) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::ExitStatusExt as _;

    fn says(file: &Path, word: &str) -> Vec<String> {
        vec![format!("echo {word} %i $SRD_INTERFACE >> {}", file.display())]
    }

    /// Returns the first line of a daemon.
    fn line(hooks: Hooks, socket: Option<PathBuf>) -> String {
        let work = Work { interface: "srd7".to_owned(), hooks, socket };
        serde_json::to_string(&work).unwrap()
    }

    fn serve_from(from: &mut impl BufRead, to: &mut impl io::Write) -> Result<()> {
        Work::read(from)?.carry_out(from, to);
        Ok(())
    }

    fn end(input: &str) -> (String, String) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("log");
        let hooks = Hooks {
            pre_down: [vec!["false".to_owned()], says(&file, "pre")].concat(),
            post_down: says(&file, "post"),
            ..Hooks::default()
        };
        let line = line(hooks, None);
        let mut answer = Vec::new();
        serve_from(&mut format!("{line}\n{input}").as_bytes(), &mut answer).unwrap();
        (std::fs::read_to_string(file).unwrap(), String::from_utf8(answer).unwrap())
    }

    #[test]
    fn the_end_runs_both_whether_it_was_said_or_the_daemon_died() {
        let both = "pre srd7 srd7\npost srd7 srd7\n";
        assert_eq!(end("down\n"), (both.into(), "done\n".into()));
        assert_eq!(end(""), (both.into(), String::new()));
        // Text from the daemon other than the notice of the end is not run as a command.
        assert_eq!(end("echo no\nrm -rf x\n"), (both.into(), "done\n".into()));
        assert!(serve_from(&mut &b"rubbish\n"[..], &mut Vec::new()).is_err());
    }

    /// The socket of `srd up --try` stayed in the directory of the user `srd`, because root without
    /// capabilities may not remove it from there.
    #[test]
    fn regression_the_end_removes_the_socket_of_a_dead_daemon_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("srd7.sock");
        let line = line(Hooks::default(), Some(path.clone()));
        let end =
            |input: &str| serve_from(&mut format!("{line}\n{input}").as_bytes(), &mut Vec::new());
        for input in ["down\n", ""] {
            let listener = UnixListener::bind(&path).unwrap();
            // A child process of another test may keep the descriptor for a moment.
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
            end(input).unwrap();
            assert!(!path.exists(), "{input:?}");
        }
        end("").unwrap();
        let _next = UnixListener::bind(&path).unwrap();
        end("").unwrap();
        assert!(path.exists());
    }

    #[test]
    fn only_a_directory_of_another_user_than_root_needs_a_remover() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("srd7.sock");
        assert!(!needs_remover(&path));
        if geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(65_533), None).unwrap();
            assert!(needs_remover(&path));
        }
    }

    #[test]
    fn a_command_that_fails_or_lasts_too_long_ends_the_start() {
        let error = run_all("pre_up", &["exit 7".to_owned()], "srd0").unwrap_err().to_string();
        assert!(error.contains("pre_up: `exit 7` failed") && error.contains('7'), "{error}");
        let begin = Instant::now();
        let ended = run("sleep 100 & sleep 100", "srd0", Duration::from_millis(50)).unwrap();
        assert!(ended.is_none() && begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn regression_a_command_receives_the_signals_that_this_process_blocks() {
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTERM);
        blocked.thread_block().unwrap();
        let ended = run("kill -TERM $$; exit 0", "srd0", HOOK_WAIT_MAX).unwrap().unwrap();
        blocked.thread_unblock().unwrap();
        assert_eq!(ended.signal(), Some(15), "{ended}");
    }

    #[test]
    fn commands_come_from_files_that_only_root_can_change() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("srd.toml");
        std::fs::write(&file, "").unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        let set = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode).unwrap();
        };
        let check = || check_owner(&file, &std::fs::metadata(&file).unwrap());
        set(0o640);
        assert_eq!(check().is_ok(), is_root);
        for mode in [0o660, 0o642] {
            set(mode);
            assert!(check().is_err());
        }
    }
}
