//! What must be done when this process ends, however it ends: a child keeps the list, and works
//! through it from the last line to the first when its standard input ends.
//!
//! Lines that begin with `+` are added, with `-` taken away. The child ignores the signals that end
//! its parent in order. A card that starts waits for the children of those that were killed
//! ([`crate::locks`]).

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::locks;

const KEEPER: &str = r#"
trap '' INT TERM HUP
umask 077
exec 9>"$0/$$.keeper" && flock 9 && echo begun || exit
exec >/dev/null
todo=
while IFS= read -r line; do
    command=${line#?}
    rest=$(printf '%s\n' "$todo" | grep -vxF -- "$command")
    case $line in
        +*) todo=$(printf '%s\n%s' "$command" "$rest") ;;
        *) todo=$rest ;;
    esac
done
printf '%s\n' "$todo" | sh
rm -f "$0/$$.keeper" "$0/$$.card"
"#;

/// The list.
#[derive(Clone, Debug)]
pub(crate) struct Undo(Arc<Mutex<Keeper>>);

#[derive(Debug)]
struct Keeper {
    child: Watched,
    list: Option<File>,
    /// Locked: this process adds to the list.
    _adds: Option<File>,
    /// Whether another process has the list, too.
    is_passed_on: bool,
}

/// The child: of this process, or of one before.
#[derive(Debug)]
enum Watched {
    Own(Child),
    Adopted { process: OwnedFd, pid: u32 },
}

impl Undo {
    /// Starts the child, when those of cards that were killed have done their work.
    pub(crate) fn start() -> Result<Self> {
        Self::start_at(Path::new(locks::DIRECTORY))
    }

    /// The same with another directory of locks.
    pub(crate) fn start_at(directory: &Path) -> Result<Self> {
        locks::make(directory)?;
        locks::wait_for_keepers(directory);
        let mut child = Command::new("sh");
        child.args(["-c", KEEPER]).arg(directory).stdin(Stdio::piped());
        child.stdout(Stdio::piped()).stderr(Stdio::null());
        // Its own group: what ends the terminal's programs does not end it.
        std::os::unix::process::CommandExt::process_group(&mut child, 0);
        let mut child = child.spawn().context("`sh` cannot be run")?;
        let list = child.stdin.take().map(|stdin| File::from(OwnedFd::from(stdin)));
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        if said != "begun\n" {
            drop(list);
            let _ = child.wait();
            bail!("`sh` and `flock` cannot be run: apt-get install util-linux");
        }
        let adds = Some(locks::add_to(directory, child.id())?);
        Ok(Self::of(Keeper { child: Watched::Own(child), list, _adds: adds, is_passed_on: false }))
    }

    fn of(keeper: Keeper) -> Self {
        Self(Arc::new(Mutex::new(keeper)))
    }

    /// The list of another process, which ends soon: its child, and the way to that.
    pub(crate) fn adopt(pid: u32, list: OwnedFd) -> Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.context("the child that keeps the list has no number")?;
        let process = pidfd_open(number, PidfdFlags::empty())
            .context("the child that keeps the list of what is done at the end is gone")?;
        let (child, list) = (Watched::Adopted { process, pid }, Some(File::from(list)));
        // A child of an earlier program has no lock, and its card needs none.
        let adds = locks::add_to(Path::new(locks::DIRECTORY), pid).ok();
        // Until that process has let go, it is the one that waits.
        Ok(Self::of(Keeper { child, list, _adds: adds, is_passed_on: true }))
    }

    /// The child and the way to it, for another process.
    pub(crate) fn duty(&self) -> Result<(u32, OwnedFd)> {
        let keeper = self.keeper();
        let list = keeper.list.as_ref().context("the list is closed")?;
        let pid = match &keeper.child {
            Watched::Own(child) => child.id(),
            Watched::Adopted { pid, .. } => *pid,
        };
        Ok((pid, OwnedFd::from(list.try_clone()?)))
    }

    /// Another process has the list: the end of this one is none of its business.
    pub(crate) fn pass_on(&self) {
        self.keeper().is_passed_on = true;
    }

    /// This process is the only one that has the list.
    pub(crate) fn take_on(&self) {
        self.keeper().is_passed_on = false;
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command of the shell at the end.
    pub(crate) fn later(&self, command: &str) -> Result<()> {
        self.say('+', command)
    }

    /// Does not run it any more.
    pub(crate) fn never(&self, command: &str) {
        if let Err(error) = self.say('-', command) {
            tracing::warn!("at the end `{command}` is run once more: {error:#}");
        }
    }

    fn say(&self, sign: char, command: &str) -> Result<()> {
        let mut keeper = self.keeper();
        let list = keeper.list.as_mut().context("the list is closed")?;
        let line = format!("{sign}{command}\n");
        list.write_all(line.as_bytes()).context("the child that keeps the list has ended")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.list.take());
        if self.is_passed_on {
            return;
        }
        match &mut self.child {
            Watched::Own(child) => {
                let _ = child.wait();
            }
            Watched::Adopted { process, .. } => {
                let mut ended = [PollFd::new(process, PollFlags::IN)];
                while poll(&mut ended, None) == Err(rustix::io::Errno::INTR) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_list_is_done_from_the_last_to_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let echo = |what: &str| format!("echo {what} >> {}", log.display());
        let undo = Undo::start_at(&directory.path().join("locks")).unwrap();
        for what in ["one", "two", "three", "two"] {
            undo.later(&echo(what)).unwrap();
        }
        undo.never(&echo("three"));
        undo.never(&echo("unknown"));
        drop(undo);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "two\none\n");
    }

    /// A kill of the parent closes the pipe as a drop does; the signals that end it in order reach
    /// the child, too.
    #[test]
    fn signals_do_not_keep_it_from_its_work() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let locks = directory.path().join("locks");
        let undo = Undo::start_at(&locks).unwrap();
        undo.later(&format!("echo done > {}", log.display())).unwrap();
        let (pid, list) = undo.duty().unwrap();
        drop(list);
        std::thread::sleep(std::time::Duration::from_millis(100));
        for signal in ["-INT", "-TERM", "-HUP"] {
            let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
            assert!(status.success());
        }
        drop(undo);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "done\n");
    }

    /// What a killed card's child undoes would be gone for the next one.
    #[test]
    fn regression_a_start_waits_for_the_child_of_a_card_that_was_killed() {
        let directory = tempfile::tempdir().unwrap();
        let (log, locks) = (directory.path().join("log"), directory.path().join("locks"));
        let killed = Undo::start_at(&locks).unwrap();
        killed.later(&format!("sleep 0.3; echo done > {}", log.display())).unwrap();
        let beside = Undo::start_at(&locks).unwrap();
        assert!(!log.exists(), "a card that lives is not waited for");
        {
            // As a kill leaves it.
            let mut keeper = killed.keeper();
            (keeper.list, keeper._adds) = (None, None);
        }
        let next = Undo::start_at(&locks).unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "done\n");
        drop((killed, beside, next));
        assert_eq!(std::fs::read_dir(&locks).unwrap().count(), 0, "nothing is left");
    }
}
