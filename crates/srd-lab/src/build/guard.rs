//! Guards that remove a fabric or a directory when the process ends: on drop, on panic, and on
//! Ctrl-C and similar signals.
//!
//! After SIGKILL no cleanup can run; the next `up` or `down` of the same name removes the remains.
//! A process that calls `std::process::exit` must drop its guards first.

use crate::build::config::FabricConfig;
use crate::build::fabric::{DownReport, Fabric};
use crate::build::state::Owner;
use crate::programs::signals::{self, CleanupId};
use anyhow::Result;
use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A fabric that is removed when this is dropped or when SIGINT, SIGTERM, SIGHUP or SIGQUIT ends
/// the process. If the fabric was removed earlier and one of the same name was built since then,
/// the new one stays.
#[derive(Debug)]
pub struct FabricGuard {
    fabric: Fabric,
    owner: Owner,
    cleanup: Option<CleanupId>,
}

impl Fabric {
    /// Builds a fabric that is removed with the guard or this process.
    pub fn up_guarded(config: FabricConfig) -> Result<FabricGuard> {
        config.validate()?;
        let owner = Owner::this_process()?;
        let name = config.name_prefix.clone();
        // The cleanup is registered before the first namespace exists, because a signal may arrive
        // during construction. It removes the fabric only if this process owns it, so a refused
        // `up` removes no fabric of another process.
        let cleanup = signals::on_termination(move || {
            if let Err(error) = Fabric::down_if_owned(&name, owner) {
                tell(&format!("fabric `{name}` is left behind: {error:#}"));
            }
        })?;
        match Fabric::build(config, Some(owner)) {
            Ok(fabric) => Ok(FabricGuard { fabric, owner, cleanup: Some(cleanup) }),
            Err(error) => {
                signals::forget(cleanup);
                Err(error)
            }
        }
    }
}

impl FabricGuard {
    /// Removes the fabric now and returns the removed objects.
    pub fn down(mut self) -> Result<DownReport> {
        self.end()
    }

    fn end(&mut self) -> Result<DownReport> {
        let Some(cleanup) = self.cleanup.take() else { return Ok(DownReport::default()) };
        // The cleanup stays registered until the fabric is gone, because a signal may arrive during
        // the removal.
        let removed = Fabric::down_if_owned(self.fabric.name(), self.owner);
        signals::forget(cleanup);
        removed
    }
}

impl Deref for FabricGuard {
    type Target = Fabric;

    fn deref(&self) -> &Fabric {
        &self.fabric
    }
}

impl Drop for FabricGuard {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("fabric `{}` is left behind: {error:#}", self.fabric.name());
        }
    }
}

/// A directory that only this user can read, and that is removed when this is dropped or when
/// SIGINT, SIGTERM, SIGHUP or SIGQUIT ends the process.
#[derive(Debug)]
pub struct DirectoryGuard {
    path: PathBuf,
    /// Whether this process created the directory and has not removed it.
    is_ours: Arc<Mutex<bool>>,
    cleanup: Option<CleanupId>,
}

impl DirectoryGuard {
    /// Creates the directory; `None` if the path exists already.
    pub fn make(path: &Path) -> Result<Option<Self>> {
        Self::make_by(path, || DirBuilder::new().mode(0o700).create(path))
    }

    fn make_by(path: &Path, make: impl FnOnce() -> io::Result<()>) -> Result<Option<Self>> {
        let is_ours = Arc::new(Mutex::new(false));
        let at_signal = (path.to_owned(), Arc::clone(&is_ours));
        // The cleanup is registered before the directory exists, because a signal may arrive during
        // the creation. It waits until it is clear whether this process created the directory.
        let cleanup = signals::on_termination(move || {
            let (path, is_ours) = at_signal;
            remove_own(&is_ours, || remove(&path));
        })?;
        let made = {
            let mut is_ours = is_ours.lock().unwrap_or_else(PoisonError::into_inner);
            let made = make();
            *is_ours = made.is_ok();
            made
        };
        let mut guard = Self { path: path.to_owned(), is_ours, cleanup: Some(cleanup) };
        let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        match made {
            Ok(()) => Ok(Some(guard)),
            Err(error) => {
                guard.keep();
                if is_there(&error) {
                    return Ok(None);
                }
                Err(anyhow::Error::new(error).context(path.display().to_string()))
            }
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory: it is not removed any more.
    pub fn keep(&mut self) {
        if let Some(cleanup) = self.cleanup.take() {
            signals::forget(cleanup);
        }
    }

    fn end_by(&mut self, remove: impl FnOnce(&Path)) {
        let Some(cleanup) = self.cleanup.take() else { return };
        // The cleanup stays registered until the directory is gone, because a signal may arrive
        // during the removal.
        remove_own(&self.is_ours, || remove(&self.path));
        signals::forget(cleanup);
    }
}

impl Drop for DirectoryGuard {
    fn drop(&mut self) {
        self.end_by(remove);
    }
}

/// Calls `remove` if the directory is one that this process created and has not removed. A second
/// caller waits for the end of the removal.
fn remove_own(is_ours: &Mutex<bool>, remove: impl FnOnce()) {
    let mut is_ours = is_ours.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_ours) {
        remove();
    }
}

/// Removes a directory in which programs that are ending may still write.
fn remove(path: &Path) {
    const TIMES: usize = 3;
    for _ in 0..TIMES {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            _ => return,
        }
    }
    tell(&format!("{} is left behind: remove it", path.display()));
}

/// Prints a line to standard error. An error of the stream is ignored: `eprintln!` would panic, and
/// the remaining cleanups would not run.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_its_guard_and_one_that_is_there_stays() {
        let outer = std::env::temp_dir().join(format!("srdlab-guard-{}", std::process::id()));
        let first = DirectoryGuard::make(&outer).unwrap().unwrap();
        std::fs::write(outer.join("key"), "").unwrap();
        assert!(DirectoryGuard::make(&outer).unwrap().is_none());
        assert!(outer.join("key").exists());
        drop(first);
        assert!(!outer.exists());
        DirectoryGuard::make(&outer).unwrap().unwrap().keep();
        assert!(outer.exists());
        std::fs::remove_dir(&outer).unwrap();
        assert!(DirectoryGuard::make(&outer.join("no/such")).is_err());
    }

    const INNER: &str = "SRD_LAB_TEST_DIRECTORY";

    /// Returns the path of the test's directory in the process that this starts. In the process
    /// that calls it first, expects that the started one is ended by a signal and leaves no
    /// directory, and returns `None`.
    fn in_a_process_that_a_signal_ends(test: &str) -> Option<PathBuf> {
        if let Some(path) = std::env::var_os(INNER) {
            return Some(PathBuf::from(path));
        }
        let path = std::env::temp_dir().join(format!("srdlab-{test}-{}", std::process::id()));
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = &format!("{module}::{test}");
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let status = command.args(["--exact", name]).env(INNER, &path).status().unwrap();
        let is_left = path.exists();
        let _ = std::fs::remove_dir(&path);
        assert!(!status.success() && !is_left, "{status}");
        None
    }

    /// Sends SIGTERM to this process, and waits until the thread that runs the cleanups has
    /// started.
    fn terminate() {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
    }

    /// Regression: a signal between the creation of a directory and its registration left the
    /// directory, and a key in it, behind.
    #[test]
    fn regression_a_signal_while_a_directory_is_made_removes_it() {
        let test = "regression_a_signal_while_a_directory_is_made_removes_it";
        let Some(path) = in_a_process_that_a_signal_ends(test) else { return };
        let make = || {
            std::fs::create_dir(&path)?;
            terminate();
            Ok(())
        };
        let made = DirectoryGuard::make_by(&path, make);
        std::mem::forget(made);
        std::thread::sleep(std::time::Duration::from_secs(60));
    }

    /// Regression: a signal during the removal of a directory ended the process, and the rest of
    /// the directory was left behind.
    #[test]
    fn regression_a_signal_while_a_directory_is_removed_does_not_keep_it() {
        let test = "regression_a_signal_while_a_directory_is_removed_does_not_keep_it";
        let Some(path) = in_a_process_that_a_signal_ends(test) else { return };
        let mut guard = DirectoryGuard::make(&path).unwrap().unwrap();
        guard.end_by(|path| {
            terminate();
            remove(path);
        });
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}
