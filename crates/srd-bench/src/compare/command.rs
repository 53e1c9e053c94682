//! The user's command: its arguments, its time limit, and its output.

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use srd_lab::command::find_program;
use std::ffi::OsString;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Placeholder for the server's address in the arguments of a command.
pub const SERVER: &str = "{server}";
/// Largest number of bytes of a command's output that are stored. Of a longer output, the last
/// bytes are stored.
const KEPT_BYTES: usize = 16 << 20;
/// Time between SIGTERM and SIGKILL when a command is ended, and longest wait for its last output.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// Interval at which a wait for a command checks whether the user has interrupted the comparison.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Largest number of characters of a failed command's output in an error message.
const COMPLAINT_CHARS: usize = 600;

/// Program and arguments of a command, which usually contain the server's address.
#[derive(Clone, Debug)]
pub struct CommandLine(Vec<OsString>);

impl CommandLine {
    /// Creates the command from a program and its arguments.
    ///
    /// # Errors
    /// The list is empty.
    pub fn new(words: Vec<OsString>) -> Result<CommandLine> {
        if words.is_empty() {
            bail!("no command to run: write it behind --");
        }
        Ok(CommandLine(words))
    }

    /// Whether the placeholder for the server's address occurs in the program or an argument.
    #[must_use]
    pub fn name_the_server(&self) -> bool {
        self.0.iter().any(|word| word.to_string_lossy().contains(SERVER))
    }

    /// Returns the command as one line, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// Returns the program's name if no such program is installed; `None` if it is.
    #[must_use]
    pub fn missing_program(&self) -> Option<String> {
        let program = self.0.first()?.to_string_lossy();
        let is_there = program.contains(SERVER) || find_program(&program).is_some();
        (!is_there).then(|| program.into_owned())
    }

    /// Returns the command with the placeholder replaced by `server`, preceded by the words in
    /// `before`. The variable `SRD_SERVER` also contains the address.
    ///
    /// # Errors
    /// There is no such program.
    pub(super) fn command(&self, before: &[&str], server: IpAddr) -> Result<Command> {
        let with_address = |word: &OsString| match word.to_str() {
            Some(text) => OsString::from(text.replace(SERVER, &server.to_string())),
            None => word.clone(),
        };
        let before = before.iter().map(OsString::from);
        let mut words = before.chain(self.0.iter().map(with_address));
        let program = words.next().context("no command to run")?;
        let shown = program.to_string_lossy();
        let path = find_program(&shown).with_context(|| format!("{shown}: no such program"))?;
        let mut command = Command::new(path);
        command.args(words).env("SRD_SERVER", server.to_string());
        piped(&mut command);
        Ok(command)
    }
}

/// Sets up a command with its own process group, pipes for its output, and an empty input.
pub(super) fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0)
}

/// A command that has ended, or that was ended because its time was up.
#[derive(Debug)]
pub(super) struct Ended {
    /// Seconds from the start of the command to its end.
    pub(super) seconds: f64,
    /// Exit status; `None` if the command was ended because its time was up.
    status: Option<ExitStatus>,
    /// Standard output of the command.
    pub(super) out: Printed,
    err: Printed,
}

impl Ended {
    /// Waits until a child of [`piped`] has ended or its time is up. Then ends all remaining
    /// processes of the child's process group.
    ///
    /// # Errors
    /// If `stop` was set during the wait, or the kernel reports an error.
    pub(super) fn wait(mut child: Child, at_most: Duration, stop: &AtomicBool) -> Result<Ended> {
        let began = Instant::now();
        let out = Reader::start(child.stdout.take())?;
        let err = Reader::start(child.stderr.take())?;
        let ended_itself = sleep_until_end(&child, at_most, stop)?;
        let seconds = began.elapsed().as_secs_f64();
        let status = end_group(&mut child, ended_itself)?;
        if stop.load(Ordering::Acquire) {
            bail!("interrupted");
        }
        let (out, err) = (out.finish(), err.finish());
        Ok(Ended { seconds, status: ended_itself.then_some(status), out, err })
    }

    /// Describes why the command failed; `None` if it succeeded.
    pub(super) fn failure(&self, limit: Duration) -> Option<String> {
        let how = match self.status {
            Some(status) if status.success() => return None,
            Some(status) => format!("ended with {status}"),
            None => format!("had not ended after {} s", limit.as_secs_f64()),
        };
        let said = self.err.text() + &self.out.text();
        let said = last_of(&said);
        Some(if said.is_empty() { how } else { format!("{how}: {said}") })
    }
}

/// A server that runs beside the command. Dropping this ends the server and all processes of its
/// process group.
pub(super) struct Server {
    child: Child,
    out: Option<Reader>,
    err: Option<Reader>,
}

impl Server {
    /// Takes over a running child whose command was set up with [`piped`].
    pub(super) fn new(mut child: Child) -> Result<Server> {
        let out = Some(Reader::start(child.stdout.take())?);
        let err = Some(Reader::start(child.stderr.take())?);
        Ok(Server { child, out, err })
    }

    /// Describes why the server has ended; `None` if it is running, as it should be.
    pub(super) fn failure(&mut self) -> Result<Option<String>> {
        if !sleep_until_end(&self.child, Duration::ZERO, &AtomicBool::new(false))? {
            return Ok(None);
        }
        let status = end_group(&mut self.child, true)?;
        let printed = |reader: &mut Option<Reader>| {
            reader.take().map(|reader| reader.finish().text()).unwrap_or_default()
        };
        let said = printed(&mut self.err) + &printed(&mut self.out);
        let said = last_of(&said);
        let colon = if said.is_empty() { "" } else { ": " };
        Ok(Some(format!("ended with {status}{colon}{said}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If the server has ended and was reaped, its number may belong to another process, which
        // must not be ended.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = end_group(&mut self.child, false);
        }
    }
}

/// Returns the last characters of a program's output, at most [`COMPLAINT_CHARS`].
fn last_of(said: &str) -> String {
    let said: Vec<char> = said.trim().chars().collect();
    said[said.len().saturating_sub(COMPLAINT_CHARS)..].iter().collect()
}

/// The last part of an output, at most [`KEPT_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Printed {
    kept: Vec<u8>,
    cut: u64,
}

impl Printed {
    /// Returns the output as text; invalid UTF-8 is replaced.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }

    /// Returns the number of bytes at the beginning that were dropped because the output was too
    /// long.
    pub(super) fn cut_bytes(&self) -> u64 {
        self.cut
    }

    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        // Old bytes are dropped only when twice the limit is stored, so that each byte is moved at
        // most once.
        if self.kept.len() > 2 * KEPT_BYTES {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let cut = self.kept.len().saturating_sub(KEPT_BYTES);
        self.kept.drain(..cut);
        self.cut += cut as u64;
    }
}

/// A thread that reads the output of a command, so that the command never waits for a reader.
struct Reader {
    printed: Arc<Mutex<Printed>>,
    /// Disconnected when all writers have closed the pipe.
    over: Receiver<()>,
}

impl Reader {
    fn start(from: Option<impl Read + Send + 'static>) -> Result<Reader> {
        let mut from = from.context("its output is not piped")?;
        let printed = Arc::new(Mutex::new(Printed::default()));
        let ((open, over), shared) = (mpsc::channel(), Arc::clone(&printed));
        let read = move || {
            let (_open, mut buffer) = (open, vec![0; 64 << 10]);
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                lock(&shared).push(&buffer[..count]);
            }
        };
        thread::Builder::new()
            .name("output".into())
            .spawn(read)
            .context("cannot start a thread")?;
        Ok(Reader { printed, over })
    }

    /// Returns the output. Waits only for [`LEAVE_MAX`], because a process that left the process
    /// group may keep the pipe open for ever. Later output is ignored.
    fn finish(self) -> Printed {
        let _: Result<(), RecvTimeoutError> = self.over.recv_timeout(LEAVE_MAX);
        let mut printed = std::mem::take(&mut *lock(&self.printed));
        printed.trim();
        printed
    }
}

fn lock(printed: &Mutex<Printed>) -> MutexGuard<'_, Printed> {
    printed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the child has ended, the time is up, or `stop` is set. Returns whether the child has
/// ended. The child is not reaped.
fn sleep_until_end(child: &Child, at_most: Duration, stop: &AtomicBool) -> Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("pidfd_open")?;
    let deadline = Instant::now() + at_most;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let slice = Timespec::try_from(left.min(LOOK_EVERY))?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&slice)) {
            Ok(0) if left.is_zero() || stop.load(Ordering::Acquire) => return Ok(false),
            Ok(0) => {}
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
    }
}

/// Ends the remaining processes of the child's process group, and reaps the child.
///
/// The child is reaped last: until then its number is not free, so no other process or group can
/// have it.
fn end_group(child: &mut Child, ended_itself: bool) -> Result<ExitStatus> {
    let group = Pid::from_child(child);
    if !ended_itself && kill_process_group(group, Signal::TERM).is_ok() {
        sleep_until_end(child, LEAVE_MAX, &AtomicBool::new(false))?;
    }
    // An error means that the group has no processes left.
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().context("wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest duration of a test's command.
    const LIMIT: Duration = Duration::from_secs(60);

    fn run(shell: &str, limit: Duration) -> Ended {
        let child = piped(Command::new("sh").args(["-c", shell])).spawn().unwrap();
        Ended::wait(child, limit, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn the_servers_address_takes_its_place_in_every_word() {
        let words = ["echo", "{server}:80", "-x{server}"].map(OsString::from).to_vec();
        let words = CommandLine::new(words).unwrap();
        assert!(words.name_the_server());
        let command = words.command(&[], "10.0.0.7".parse().unwrap()).unwrap();
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["10.0.0.7:80", "-x10.0.0.7"]);
        let none = CommandLine::new(vec!["no-such-program-here".into()]).unwrap();
        assert!(!none.name_the_server());
        assert!(none.command(&[], "::1".parse().unwrap()).is_err());
        assert!(CommandLine::new(Vec::new()).is_err());
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_with_what_it_started() {
        // On a busy machine the shell may need longer than the first limit to print the number.
        let limits = [300, 3000, 30_000].map(Duration::from_millis);
        let run_for = |limit| {
            let ended = run("sleep 90 & echo $!; wait", limit);
            (!ended.out.text().is_empty()).then_some((ended, limit))
        };
        let (ended, limit) = limits.into_iter().find_map(run_for).expect("it prints a number");
        let failure = ended.failure(limit).unwrap();
        let expected = format!("had not ended after {} s", limit.as_secs_f64());
        assert!(failure.starts_with(&expected), "{failure}");
        let child: i32 = ended.out.text().trim().parse().unwrap();
        let (cwd, began) = (format!("/proc/{child}/cwd"), Instant::now());
        while std::path::Path::new(&cwd).exists() {
            assert!(began.elapsed() < LIMIT, "it goes on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_interrupt_ends_the_command() {
        let child = piped(Command::new("sleep").arg("60")).spawn().unwrap();
        let (pid, stop) = (child.id(), AtomicBool::new(true));
        let error = Ended::wait(child, LIMIT, &stop).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn what_a_command_leaves_behind_does_not_hold_us_up() {
        let began = Instant::now();
        assert!(run("sleep 90 & exit 0", LIMIT).failure(LIMIT).is_none());
        let gone_away = run("echo first; setsid sleep 90 & exit 0", LIMIT);
        assert!(gone_away.failure(LIMIT).is_none());
        assert_eq!(gone_away.out.text(), "first\n");
        // Each of the two sleeping commands would take longer.
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn only_the_end_of_endless_output_is_kept() {
        let mut printed = Printed::default();
        for _ in 0..5 {
            printed.push(&vec![b'a'; KEPT_BYTES / 2]);
        }
        printed.push(b"end");
        printed.trim();
        assert_eq!(printed.kept.len(), KEPT_BYTES);
        assert_eq!(printed.cut_bytes(), KEPT_BYTES as u64 * 3 / 2 + 3);
        assert!(printed.text().ends_with("aend"));
    }
}
