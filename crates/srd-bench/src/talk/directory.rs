//! Directories with the files of cards: one for each card, below the temporary directory.
//!
//! A directory is removed when its value is dropped, and when a signal ends this process. After
//! SIGKILL it stays. Therefore each directory contains a file that its process has locked, and the
//! next directory that is created removes all directories whose lock is free. The file gets its
//! name after it has been locked, so a directory in use never has a free lock. A directory without
//! the file stays: its process may be creating it, or be of an earlier version.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use srd_lab::DirectoryGuard;

/// Prefix of the names of the directories.
const PREFIX: &str = "srd-talk-";
/// Name of the locked file in a directory.
const LOCK: &str = "lock";
/// Mode of a directory. The card reads its files after it has changed its user.
const MODE: u32 = 0o755;

/// Directory with the files of one card, which is removed when dropped.
pub(super) struct Directory {
    guard: DirectoryGuard,
    /// The locked file. It is unlocked after the directory is gone.
    _lock: File,
}

impl Directory {
    /// Creates the directory of a card. `tag` is different for each card of this machine.
    ///
    /// # Errors
    /// An error of the operating system; the directory exists already.
    pub(super) fn new(tag: &str) -> Result<Self> {
        let base = std::env::temp_dir();
        remove_left(&base);
        Self::new_in(&base, tag)
    }

    fn new_in(base: &Path, tag: &str) -> Result<Self> {
        let path = base.join(format!("{PREFIX}{tag}"));
        let shown = || path.display().to_string();
        let Some(guard) = DirectoryGuard::make(&path)? else {
            bail!("{} is there already: remove it", shown());
        };
        fs::set_permissions(&path, Permissions::from_mode(MODE)).with_context(shown)?;
        let fresh = path.join("lock.new");
        let lock = File::create_new(&fresh).with_context(shown)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(shown)?;
        fs::rename(&fresh, path.join(LOCK)).with_context(shown)?;
        Ok(Self { guard, _lock: lock })
    }

    /// Returns the path of a file in the directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.guard.path().join(name)
    }
}

/// Removes the directories of killed processes of this user. Errors have no effect on the caller.
fn remove_left(base: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        // Every user can create entries in this directory, so those of other users are skipped.
        let is_ours = |of: fs::Metadata| of.is_dir() && of.uid() == own;
        if !fs::symlink_metadata(&path).is_ok_and(is_ours) {
            continue;
        }
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        // A file without a name is one whose directory another process has just removed.
        if is_free && lock.metadata().is_ok_and(|of| of.nlink() > 0) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the directories of killed runs were never removed.
    #[test]
    fn regression_directories_of_killed_runs_are_removed_and_those_in_use_stay() {
        let base = std::env::temp_dir().join(format!("srd-bench-talk-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let make = |name: &str, has_lock: bool| {
            let path = base.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("card.log"), "").unwrap();
            if has_lock {
                fs::write(path.join(LOCK), "").unwrap();
            }
            path
        };
        let killed = make("srd-talk-n1x0", true);
        let others = [make("srd-talk-n1x1", false), make("srd-other-n1x0", true)];
        let link = base.join("srd-talk-n1x2");
        std::os::unix::fs::symlink(&others[1], &link).unwrap();
        let own = Directory::new_in(&base, "n2x0").unwrap();
        fs::write(own.file("vpc.toml"), "").unwrap();
        remove_left(&base);
        assert!(!killed.exists());
        assert!(own.file("vpc.toml").exists(), "its process runs");
        assert!(others.iter().all(|of| of.join("card.log").exists()));
        assert!(link.symlink_metadata().is_ok(), "a link is no directory");
        assert!(Directory::new_in(&base, "n2x0").is_err(), "one directory for each card");
        let path = own.file("");
        drop(own);
        assert!(!path.exists());
        fs::remove_dir_all(base).unwrap();
    }
}
