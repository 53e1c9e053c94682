//! A program in the background that ends with its guard.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of checks for the end of a program.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A started program. When dropped, it gets SIGTERM, and SIGKILL if it does not end.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    leave_max: Duration,
}

impl Running {
    /// Takes ownership of a child. After SIGTERM the child gets `leave_max` to end.
    pub fn new(child: Child, leave_max: Duration) -> Running {
        Running { child: Some(child), leave_max }
    }

    /// Returns the process id until the program has been waited for.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the exit status, if the program has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.as_mut().context("it was waited for")?.try_wait().context("wait")
    }

    /// Waits at most `at_most` for the program to end, and returns its exit status.
    pub fn wait(mut self, at_most: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + at_most;
        loop {
            if let Some(status) = self.ended()? {
                self.child = None;
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("still running after {} s", at_most.as_secs());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Sends SIGTERM to the program.
    pub fn ask_to_leave(&self) {
        if let Some(child) = &self.child {
            // An error is ignored: the program may have ended already. Its id stays valid, because
            // it is reaped only by our wait.
            let _ = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
        }
    }

    /// Sends SIGTERM and waits. A program that does not end is killed, which is an error.
    pub fn leave(mut self) -> Result<ExitStatus> {
        self.ask_to_leave();
        let deadline = Instant::now() + self.leave_max;
        loop {
            if let Some(status) = self.ended()? {
                self.child = None;
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("did not end within {} s of SIGTERM; killed", self.leave_max.as_secs());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Sends SIGKILL, like a crash, and waits.
    pub fn kill(mut self) -> Result<()> {
        let mut child = self.child.take().context("it was waited for")?;
        child.kill().context("kill")?;
        child.wait().context("wait")?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_leave();
        let Some(mut child) = self.child.take() else { return };
        let deadline = Instant::now() + self.leave_max;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Time limit for a program that ends as requested.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(text: &str) -> Child {
        Command::new("sh").args(["-c", text]).spawn().expect("sh")
    }

    #[test]
    fn a_program_ends_with_its_guard() {
        let child = shell("exec sleep 60");
        let pid = child.id();
        drop(Running::new(child, PATIENCE));
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn one_that_does_not_listen_is_killed_and_reported() {
        let child = shell("trap '' TERM; exec sleep 60");
        let (pid, began) = (child.id(), Instant::now());
        let mut running = Running::new(child, Duration::from_millis(200));
        while !ignores_termination(pid) {
            assert!(began.elapsed() < PATIENCE, "the shell sets its trap");
            thread::sleep(LOOK_EVERY);
        }
        assert!(running.ended().unwrap().is_none());
        let error = running.leave().expect_err("does not listen").to_string();
        assert!(error.contains("SIGTERM"), "{error}");
    }

    /// Whether a process ignores SIGTERM, from its mask of ignored signals.
    fn ignores_termination(pid: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        (ignored >> (Signal::TERM.as_raw() - 1)) & 1 == 1
    }

    #[test]
    fn waiting_has_a_limit() {
        assert!(
            Running::new(shell("exit 3"), Duration::ZERO)
                .wait(PATIENCE)
                .is_ok_and(|status| status.code() == Some(3))
        );
        let slow = Running::new(shell("exec sleep 60"), PATIENCE);
        assert!(slow.wait(Duration::from_millis(50)).is_err());
    }
}
