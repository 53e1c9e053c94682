//! Programs that run in a namespace of an instance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use srd_trust::process::Process;

/// Target of the log messages of this module.
pub(crate) const LOG_TARGET: &str = module_path!();
/// Maximum number of programs that a log line names.
const NAMED_MAX: usize = 8;
/// Maximum number of descriptors of a program that are examined.
const DESCRIPTORS_MAX: usize = 65_536;
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

/// Returns the programs of this network namespace that hold a queue of the TUN device with this
/// name.
pub(crate) fn holders_of_tun(device: &str) -> Vec<Program> {
    let own = key(Path::new("/proc/self/ns/net"));
    let line = format!("iff:\t{device}");
    that(|at| key(&at.join("ns/net")) == own && holds(at, &line))
}

/// Whether the description of a descriptor of the program with this directory has this line.
fn holds(at: &Path, line: &str) -> bool {
    let all = fs::read_dir(at.join("fdinfo")).into_iter().flatten().flatten();
    all.take(DESCRIPTORS_MAX).any(|of| {
        let text = fs::read_to_string(of.path()).unwrap_or_default();
        text.lines().any(|other| other == line)
    })
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
        let mut signalled = Signalled { signal, all: BTreeMap::new() };
        loop {
            let programs = inside_of(&wanted);
            if programs.is_empty() {
                return;
            }
            signalled.forget_ended();
            // Programs that were started meanwhile get the signal as well.
            let is_inside = |pid| is_inside(&wanted, pid);
            let new: Vec<Program> =
                programs.into_iter().filter(|of| signalled.send(of.pid, is_inside)).collect();
            if !new.is_empty() {
                let name = if signal == Signal::KILL { "SIGKILL" } else { "SIGTERM" };
                tracing::info!("programs of instances got {name}: {}", Named(&new));
            }
            if Instant::now() >= until {
                break;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Whether the process that has this id at present is in one of the namespaces `wanted`.
fn is_inside(wanted: &BTreeSet<Key>, pid: i32) -> bool {
    let at = key(&Path::new("/proc").join(pid.to_string()).join("ns/net"));
    at.is_some_and(|at| wanted.contains(&at))
}

/// Programs that have got a signal, by their ids. A program is the same one only as long as it has
/// not ended: a later program may get its id.
struct Signalled {
    signal: Signal,
    all: BTreeMap<i32, Process>,
}

impl Signalled {
    /// Sends the signal to the program that has this id at present, unless the program has got the
    /// signal before, or `is_inside` returns false for its id. Returns whether the program got the
    /// signal.
    fn send(&mut self, pid: i32, is_inside: impl Fn(i32) -> bool) -> bool {
        let before = self.all.get(&pid);
        if before.is_some_and(|of| !of.ends_within(Duration::ZERO).unwrap_or(true)) {
            return false;
        }
        let Some(process) = u32::try_from(pid).ok().and_then(|pid| Process::open(pid).ok()) else {
            return false;
        };
        // The id may have changed its owner before the process was opened. If it changes the owner
        // after that, the signal reaches no process.
        if !is_inside(pid) || process.send(self.signal).is_err() {
            return false;
        }
        self.all.insert(pid, process);
        true
    }

    /// Closes the descriptors of programs that have ended.
    fn forget_ended(&mut self) {
        self.all.retain(|_, of| !of.ends_within(Duration::ZERO).unwrap_or(true));
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

    /// For five seconds, a program whose id had belonged to an ended one did not get the signal.
    #[test]
    fn regression_a_program_with_the_id_of_an_ended_one_gets_the_signal() {
        let sleep = || std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (mut first, mut second) = (sleep(), sleep());
        let pid = i32::try_from(second.id()).unwrap();
        // A signal that has no effect.
        let mut signalled = Signalled { signal: Signal::CONT, all: BTreeMap::new() };
        // The first program had the id that the second one has now.
        signalled.all.insert(pid, Process::open(first.id()).unwrap());
        assert!(!signalled.send(pid, |_| true), "the first one lives, and has got the signal");
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(!signalled.send(pid, |_| false), "the second one is elsewhere");
        assert!(signalled.send(pid, |_| true) && !signalled.send(pid, |_| true));
        second.kill().unwrap();
        second.wait().unwrap();
        assert!(!signalled.send(pid, |_| true));
        signalled.forget_ended();
        assert!(signalled.all.is_empty());
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
