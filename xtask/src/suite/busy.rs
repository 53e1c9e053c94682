//! Additional load while the tests run, to find tests that depend on an idle machine.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Processes that keep all processors busy until this value is dropped or the runner ends.
pub(super) struct Load(Vec<Child>);

impl Load {
    /// Starts a busy loop for each processor. Each loop is a separate session, so that the
    /// scheduler gives it the same share as all tests together, like a program of another user.
    ///
    /// # Errors
    /// An error of the operating system, if `setpriv` or `setsid` (util-linux) cannot be started.
    pub(super) fn start() -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut load = Self(Vec::new());
        for _ in 0..processors {
            let child = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "setsid", "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .context("setpriv (util-linux), for the load")?;
            load.0.push(child);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill(); // it may be gone
            let _ = child.wait();
        }
    }
}
