//! What must be done when this process ends, however it ends: a child keeps the list, and works
//! through it from the last line to the first when its standard input ends.
//!
//! Lines that begin with `+` are added, with `-` taken away. The child ignores the signals that end
//! its parent in order.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

const KEEPER: &str = r#"
trap '' INT TERM HUP
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
"#;

/// The list.
#[derive(Clone, Debug)]
pub(crate) struct Undo(Arc<Mutex<Keeper>>);

#[derive(Debug)]
struct Keeper {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Undo {
    /// Starts the child.
    pub(crate) fn start() -> Result<Self> {
        let mut child = Command::new("sh");
        child.args(["-c", KEEPER]).stdin(Stdio::piped());
        child.stdout(Stdio::null()).stderr(Stdio::null());
        // Its own group: what ends the terminal's programs does not end it.
        std::os::unix::process::CommandExt::process_group(&mut child, 0);
        let mut child = child.spawn().context("`sh` cannot be run")?;
        let stdin = child.stdin.take();
        Ok(Self(Arc::new(Mutex::new(Keeper { child, stdin }))))
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
        let mut keeper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin = keeper.stdin.as_mut().context("the list is closed")?;
        writeln!(stdin, "{sign}{command}").context("the child that keeps the list has ended")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
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
        let undo = Undo::start().unwrap();
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
        let undo = Undo::start().unwrap();
        undo.later(&format!("echo done > {}", log.display())).unwrap();
        let pid = undo.0.lock().unwrap().child.id();
        std::thread::sleep(std::time::Duration::from_millis(100));
        for signal in ["-INT", "-TERM", "-HUP"] {
            let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
            assert!(status.success());
        }
        drop(undo);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "done\n");
    }
}
