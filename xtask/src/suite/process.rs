//! One test as a process, in separate namespaces if the user is root.
//!
//! The namespaces are created by `unshare` (util-linux, on every Debian machine) and set up by
//! [`SET_UP`]: a network with a loopback device, `/run` and `/dev/shm` in memory, the `/sys` of
//! that network, and private changes to `/etc` and `/var/lib`. A PID namespace ends with the test,
//! and with it all processes that the test left behind.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::programs::Test;
use super::schedule::{Turn, computes, runs_apart};

/// Script that runs as the first process in the namespaces of a test: `sh -c SET_UP srd-test PLACE
/// PROGRAM ARGUMENTS...`, with the number of the test's slot as PLACE.
///
/// Tests use process ids in names below `/tmp`, which all tests share. The process ids of a test
/// begin at a multiple of its slot number, so they are unique among running tests. Kernels before
/// 6.14 do not support ids above the machine's `pid_max`; with such a kernel two tests may use the
/// same name.
const SET_UP: &str = "\
echo $((1000 + $1 * 8000)) 2>/dev/null >/proc/sys/kernel/ns_last_pid
shift
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t sysfs sysfs /sys
own=/run/test
mkdir -p /run/netns /run/lock \
    $own/etc/upper $own/etc/work $own/var/lib/upper $own/var/lib/work
for file in hosts hostname resolv.conf; do
    mountpoint -q /etc/$file || continue
    touch /run/test/$file
    mount --bind /etc/$file /run/test/$file
done
for of in /etc /var/lib; do
    layers=lowerdir=$of,upperdir=$own$of/upper,workdir=$own$of/work
    mount -t overlay -o $layers overlay $of 2>/dev/null || :
done
for file in hosts hostname resolv.conf; do
    [ ! -e /run/test/$file ] || mount --bind /run/test/$file /etc/$file
done
ip link set lo up
set +e
\"$@\"
exit $?
";

/// Options of `unshare` that create the namespaces of a test.
const UNSHARE: [&str; 7] =
    ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=slave"];

/// Largest number of bytes that are kept from the end of a test's output.
const OUTPUT_BYTES_KEPT: u64 = 4 << 20;

/// Largest number of bytes that a test may print; a test that prints more is stopped.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// Returns the processor time of all child processes of the runner that have ended.
pub(super) fn cpu_of_children() -> Duration {
    std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu(&stat)).unwrap_or_default()
}

/// Whether tests run in separate namespaces.
pub(super) enum Isolation {
    /// Each test that needs separate namespaces runs in them.
    Namespaces,
    /// No test runs in separate namespaces, for the given reason.
    None(String),
}

impl Isolation {
    /// Tries to create the namespaces of a test, and to find the given test program in them.
    pub(super) fn of_this_machine(program: &Path) -> Self {
        let tried = Command::new("unshare")
            .args(UNSHARE)
            .args(["sh", "-c", SET_UP, "srd-test", "0", "test", "-x"])
            .arg(program)
            .stdin(Stdio::null())
            .output();
        match tried {
            Ok(output) if output.status.success() => Self::Namespaces,
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().next().unwrap_or("the test programs are not seen there");
                Self::None(first.to_owned())
            }
            Err(error) => Self::None(format!("unshare (util-linux): {error}")),
        }
    }
}

/// A running test.
pub(super) struct Running {
    /// The test that runs.
    pub(super) test: Test,
    /// Number of the slot that the test occupies; tests that run at the same time have different
    /// slots.
    pub(super) place: usize,
    child: Child,
    /// Whether the runner has waited for the process. Then its id may belong to another process.
    is_reaped: bool,
    output: File,
    began: Instant,
    limit: Duration,
    stopped: Option<Stopped>,
}

/// Reason why the runner stopped a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The test took longer than the given limit.
    Late(Duration),
    /// The test printed more than [`OUTPUT_BYTES_MAX`] bytes.
    Loud,
}

/// Result of a test's process.
#[derive(Debug)]
pub(super) struct End {
    /// Whether the process exited with the status 0.
    pub(super) success: bool,
    /// Reason why the runner stopped the process; `None` if it ended on its own.
    pub(super) stopped: Option<Stopped>,
    /// The last part of the output of the process and its children.
    pub(super) output: String,
    /// Time from the start to the end of the process.
    pub(super) wall: Duration,
    /// Processor time of the process and of the children for which it waited.
    pub(super) cpu: Duration,
}

impl End {
    /// Returns the result of a process that could not be started.
    pub(super) fn of_none() -> Self {
        let nothing = Duration::ZERO;
        Self { success: false, stopped: None, output: String::new(), wall: nothing, cpu: nothing }
    }
}

impl Running {
    /// Starts a test in the namespaces that it needs.
    ///
    /// # Errors
    /// An error of the operating system, if the process cannot be started or the output file cannot
    /// be created.
    pub(super) fn start(turn: Turn, isolation: &Isolation) -> Result<Self> {
        let Turn { test, place, limit } = turn;
        let (program, arguments) = test.command();
        // `setpriv` ends the test together with the runner, even if the runner is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if computes(&test) {
            command.args(["nice", "-n", "19"]);
        }
        if matches!(isolation, Isolation::Namespaces)
            && test.program.integration
            && runs_apart(&test)
        {
            command.arg("unshare").args(UNSHARE);
            command.args(["sh", "-c", SET_UP, "srd-test", &place.to_string()]);
        }
        command.arg(program);
        let output = tempfile::tempfile().context("a file for the output of a test")?;
        let child = command
            .args(arguments)
            .current_dir(test.directory())
            .env("CARGO_MANIFEST_DIR", test.directory())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} cannot start", test.full_name()))?;
        let (began, is_reaped) = (Instant::now(), false);
        Ok(Self { test, place, child, is_reaped, output, began, limit, stopped: None })
    }

    /// Returns the result of the process, or `None` if it still runs. Stops the process if it
    /// exceeds its time limit or prints too much. `seen` is the processor time of all children that
    /// ended earlier; it is updated.
    ///
    /// # Errors
    /// An error of the operating system, if the status of the process or its output cannot be read.
    pub(super) fn look(&mut self, now: Instant, seen: &mut Duration) -> Result<Option<End>> {
        if !self.has_ended()? {
            let is_late = now.duration_since(self.began) > self.limit;
            if self.stopped.is_none()
                && (is_late || self.output.metadata()?.len() > OUTPUT_BYTES_MAX)
            {
                self.stopped =
                    Some(if is_late { Stopped::Late(self.limit) } else { Stopped::Loud });
                self.stop();
            }
            return Ok(None);
        }
        // The signal ends processes that a test without namespaces has left in its process group.
        self.stop();
        let status = self.child.wait()?;
        self.is_reaped = true;
        let before = std::mem::replace(seen, cpu_of_children());
        Ok(Some(End {
            success: status.success(),
            stopped: self.stopped,
            output: self.read_output()?,
            wall: self.began.elapsed(),
            cpu: seen.saturating_sub(before),
        }))
    }

    /// Whether the process has ended. Its id stays in use until the runner waits for it.
    fn has_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_some())
    }

    /// Ends the process and its group. The runner has not waited for the process yet.
    fn stop(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL); // it may be gone
    }

    fn read_output(&self) -> Result<String> {
        let bytes = self.output.metadata()?.len();
        let mut kept = vec![0; usize::try_from(bytes.min(OUTPUT_BYTES_KEPT))?];
        self.output.read_exact_at(&mut kept, bytes.saturating_sub(OUTPUT_BYTES_KEPT))?;
        Ok(String::from_utf8_lossy(&kept).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Otherwise the runner ends early.
        if !self.is_reaped {
            self.stop();
            let _ = self.child.wait();
        }
    }
}

/// Returns the user and system time of all ended children according to a line of `/proc/PID/stat`,
/// in which a tick is 10 ms.
fn cpu(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(13);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_found_behind_a_name_with_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 5 6 7 8 900 901 120 3 20 0 1 0 9 0 0";
        assert_eq!(cpu(stat), Some(Duration::from_millis(1230)));
        assert_eq!(cpu("nonsense"), None);
    }
}
