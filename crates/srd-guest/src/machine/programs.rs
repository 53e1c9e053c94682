//! Programs that run in a namespace of an instance.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Target of the log messages of this module.
pub(crate) const LOG_TARGET: &str = module_path!();
/// Maximum number of programs that a log line names.
const NAMED_MAX: usize = 8;
/// Time for a program to end after SIGTERM, and again after SIGKILL.
const END_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two checks whether the programs have ended.
const PAUSE: Duration = Duration::from_millis(20);

/// A program whose main thread is in a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) pid: i32,
    pub(crate) name: String,
}

/// Several programs as text: the first few by name and process id.
pub(crate) struct Named<'a>(pub(crate) &'a [Program]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Program { pid, name }) in self.0.iter().take(NAMED_MAX).enumerate() {
            let between = if number == 0 { "" } else { ", " };
            write!(f, "{between}{name} ({pid})")?;
        }
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Device and inode of a namespace's file, which identify the namespace.
type Key = (u64, u64);

fn key(path: &Path) -> Option<Key> {
    fs::metadata(path).ok().map(|of| (of.dev(), of.ino()))
}

/// Returns the programs in the namespace of this file.
pub(crate) fn inside(path: &Path) -> Vec<Program> {
    key(path).map(|key| inside_of(&[key].into())).unwrap_or_default()
}

fn inside_of(wanted: &BTreeSet<Key>) -> Vec<Program> {
    let is_inside = |at: &Path| key(&at.join("ns/net")).is_some_and(|key| wanted.contains(&key));
    that(is_inside)
}

/// Returns the programs for which `shows` returns true. The argument of `shows` is the program's
/// directory below `/proc`.
pub(crate) fn that(shows: impl Fn(&Path) -> bool) -> Vec<Program> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let program = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let at = entry.path();
        shows(&at).then_some(())?;
        let name = fs::read_to_string(at.join("comm")).unwrap_or_default();
        // A program chooses its name, so control characters are replaced for the log.
        let name = name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c });
        Some(Program { pid, name: name.collect() })
    };
    processes.filter_map(program).collect()
}

impl Program {
    /// Start time in ticks since the start of the machine: later than the start time of its parent.
    #[cfg(test)]
    pub(crate) fn began(&self) -> Option<u64> {
        /// Index of the field after the name. The name may contain spaces and parentheses.
        const START: usize = 19;
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let (_, behind) = text.rsplit_once(')')?;
        behind.split_whitespace().nth(START)?.parse().ok()
    }
}

/// Ends the programs in the network namespaces `paths` by SIGTERM, and programs that still run
/// after [`END_WAIT_MAX`] by SIGKILL. The log names the programs. A program that survives SIGKILL
/// is left running.
pub(crate) fn end<'a>(paths: impl Iterator<Item = &'a Path>) {
    let wanted: BTreeSet<Key> = paths.filter_map(key).collect();
    for signal in [Signal::TERM, Signal::KILL] {
        let until = Instant::now() + END_WAIT_MAX;
        let mut told = BTreeSet::new();
        loop {
            let programs = inside_of(&wanted);
            if programs.is_empty() {
                return;
            }
            // Programs that were started meanwhile get the signal as well.
            let new: Vec<Program> = programs.into_iter().filter(|of| told.insert(of.pid)).collect();
            if !new.is_empty() {
                let name = if signal == Signal::KILL { "SIGKILL" } else { "SIGTERM" };
                tracing::info!("programs of instances get {name}: {}", Named(&new));
            }
            new.iter().for_each(|Program { pid, .. }| tell(&wanted, *pid, signal));
            if Instant::now() >= until {
                break;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Sends a signal to a program in one of the namespaces `wanted`, and not to a new process with the
/// same id.
fn tell(wanted: &BTreeSet<Key>, pid: i32, signal: Signal) {
    let process = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let Some(Ok(process)) = process else { return };
    let at = key(&Path::new("/proc").join(pid.to_string()).join("ns/net"));
    if at.is_some_and(|at| wanted.contains(&at)) {
        let _ = pidfd_send_signal(&process, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_few_programs() {
        let all: Vec<Program> =
            (1..=10).map(|pid| Program { pid, name: format!("p{pid}") }).collect();
        assert_eq!(Named(&all[..2]).to_string(), "p1 (1), p2 (2)");
        assert!(Named(&all).to_string().ends_with("p8 (8) and 2 more"));
        assert_eq!(Named(&[]).to_string(), "");
    }

    #[test]
    fn a_child_began_after_this_program() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let program = |pid: u32| Program { pid: i32::try_from(pid).unwrap(), name: String::new() };
        let (own, other) = (program(std::process::id()).began(), program(child.id()).began());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own.is_some() && own <= other, "{own:?} {other:?}");
        assert_eq!(program(child.id()).began(), None);
    }

    #[test]
    fn this_program_is_in_its_own_namespace() {
        let own = inside(Path::new("/proc/self/ns/net"));
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(own.iter().any(|of| of.pid == pid && !of.name.is_empty()), "{own:?}");
        assert!(inside(Path::new("/proc/self/ns/none")).is_empty());
    }
}
