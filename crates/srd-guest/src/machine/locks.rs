//! Locks of cards: files in a directory that only root may enter, because a process that can open a
//! file can lock it.
//!
//! | file | holder |
//! |---|---|
//! | `srd-i-NAME` | the card that owns the namespace of this name; its content marks a pod |
//! | `PID.keeper` | the helper with this process id |
//! | `PID.card` | the card of this helper |
//! | `edge-N` | the helper that has the internet's side of the network namespace with the inode N |
//!
//! A helper restores everything after the end of its card, and would also undo settings of a card
//! that starts meanwhile. So a card that starts waits for such helpers, [`WAIT_MAX`] at most.
//!
//! If a card and its helper are both killed, their files stay. The next card that starts removes
//! them. A file is removed only by a process that has an exclusive lock on it, and a process that
//! takes a lock then checks that the file is still there. So a process id may be used again at any
//! time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use srd_trust::place;

use crate::control::protocol::PREFIX;

/// Mode of the card's directory: only root changes it, and other users find sockets in it.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
/// Directory of the locks.
pub(crate) const DIRECTORY: &str = "/run/srd-card/locks";
/// Longest time for which a start waits for the helper of a killed card.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Pause between two checks of a lock.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of checks after which a file that is still locked counts as the file of a running card.
const LOOKS: u32 = 3;
/// Content of the lock of a pod's namespace.
const POD: &[u8; 4] = b"pod\n";
/// Maximum number of attempts to take a lock whose file is removed each time.
const TRIES_MAX: u32 = 100;

/// A lock on a file, which is held until this value is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    file: File,
}

/// Creates the directory of the locks, which only root may enter.
pub(crate) fn make(directory: &Path) -> Result<()> {
    let failed = || format!("cannot make {}: a card needs root", directory.display());
    if let Some(parent) = directory.parent() {
        place::make_directory(parent, DIRECTORY_MODE).with_context(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.with_context(failed)?,
    }
    let facts = fs::symlink_metadata(directory).with_context(failed)?;
    let is_ours = facts.uid() == rustix::process::geteuid().as_raw();
    if !facts.is_dir() || !is_ours || facts.permissions().mode() & 0o077 != 0 {
        let shown = directory.display();
        bail!("{shown} has to be a directory of mode 0700 that belongs to root: remove it");
    }
    Ok(())
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Locks the file at a path, which is created if it is missing. Returns `None` if the lock is not
/// free and the operation does not wait.
fn lock(path: &Path, operation: FlockOperation) -> Result<Option<File>> {
    let shown = || format!("the lock {}", path.display());
    for _ in 0..TRIES_MAX {
        let file = open(path).with_context(shown)?;
        match flock(&file, operation) {
            Ok(()) if is_at(&file, path) => return Ok(Some(file)),
            // The file was removed meanwhile, or a signal has ended the wait.
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error).with_context(shown),
        }
    }
    bail!("{}: its file is removed again and again", shown())
}

impl Lock {
    /// Takes a lock; `None` if another process holds it.
    pub(crate) fn take(directory: &Path, name: &str) -> Result<Option<Self>> {
        let path = directory.join(name);
        let file = lock(&path, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file.map(|file| Self { path, file }))
    }

    /// Records whether the namespace belongs to a pod, and so to another program. The next card
    /// finds the record if this card and its helper are killed.
    pub(crate) fn set_pod(&self, is_pod: bool) -> Result<()> {
        let write = || match is_pod {
            true => self.file.write_all_at(POD, 0),
            false => self.file.set_len(0),
        };
        write().with_context(|| format!("the lock {}", self.path.display()))
    }

    /// Whether the namespace belongs to a pod.
    pub(crate) fn is_of_pod(&self) -> bool {
        let mut content = [0; POD.len()];
        self.file.read_exact_at(&mut content, 0).is_ok() && content == *POD
    }

    /// Removes the file of the lock.
    pub(crate) fn remove(&self) {
        // The file is removed while the lock is held; later it could be another process's file.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether an open file is the file at this path.
fn is_at(file: &File, path: &Path) -> bool {
    let key = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let there = fs::symlink_metadata(path).map(key).ok();
    there.is_some() && file.metadata().map(key).ok() == there
}

/// Marks this process as a helper, as long as the returned file is open.
pub(crate) fn keep(directory: &Path) -> Result<File> {
    make(directory)?;
    // A card that starts may lock the file for a moment, to find whether its holder has ended.
    let file = lock(&own(directory, "keeper"), FlockOperation::LockExclusive)?;
    file.context("the lock of this helper")
}

/// Removes the files that mark this process as a helper, after it has restored everything.
pub(crate) fn forget_keeper(directory: &Path) {
    for of in ["keeper", "card"] {
        let _ = fs::remove_file(own(directory, of));
    }
}

fn own(directory: &Path, of: &str) -> PathBuf {
    directory.join(format!("{}.{of}", std::process::id()))
}

/// Marks this process as the card of the helper with the process id `keeper`, as long as the
/// returned file is open.
pub(crate) fn add_to(directory: &Path, keeper: u32) -> Result<File> {
    let path = directory.join(format!("{keeper}.card"));
    let file = lock(&path, FlockOperation::LockShared)?;
    file.context("the lock of this card")
}

/// Takes the locks of namespaces that ended cards have left to their programs.
pub(crate) fn left(directory: &Path) -> Vec<(String, Lock)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ours = names.filter(|name| name.starts_with(PREFIX));
    ours.filter_map(|name| Lock::take(directory, &name).ok()?.map(|lock| (name, lock))).collect()
}

/// Waits until the helpers of killed cards have restored everything, for at most [`WAIT_MAX`].
/// Removes the files of cards and helpers that were both killed.
pub(crate) fn wait_for_keepers(directory: &Path) {
    wait_for_orphans(directory);
    remove_left(directory);
}

/// Removes the files `PID.keeper` and `PID.card` that no process has locked.
fn remove_left(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_ours = path.extension().is_some_and(|of| of == "keeper" || of == "card");
        let id = path.file_stem().and_then(|id| id.to_str()?.parse::<u32>().ok());
        if !is_ours || id.is_none() {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_free && is_at(&file, &path) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn wait_for_orphans(directory: &Path) {
    let until = Instant::now() + WAIT_MAX;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let keeper = name.to_str().and_then(|name| name.strip_suffix(".keeper"));
        let Some(keeper) = keeper.filter(|keeper| keeper.parse::<u32>().is_ok()) else { continue };
        while is_orphan(directory, keeper) {
            if Instant::now() >= until {
                tracing::warn!(
                    "the process {keeper} still gives back what a card had that was killed: \
                     it may undo what this one sets"
                );
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Whether a helper still restores objects after the end of its card.
fn is_orphan(directory: &Path, keeper: &str) -> bool {
    let [child, card] = ["keeper", "card"].map(|of| directory.join(format!("{keeper}.{of}")));
    let is_free = |path: &Path| {
        let Ok(file) = File::open(path) else { return true };
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    // A program that the card was about to start keeps the card's descriptors for a moment.
    !is_free(&child)
        && (0..LOOKS).any(|look| {
            thread::sleep(PAUSE * look.min(1));
            is_free(&card)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_a_lock_and_its_file_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        make(&at).unwrap();
        make(&at).unwrap();
        assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o777, 0o700);
        let first = Lock::take(&at, "one").unwrap().unwrap();
        assert!(Lock::take(&at, "one").unwrap().is_none());
        let copy = first.file.try_clone().unwrap();
        drop(first);
        let handed = Lock { path: at.join("one"), file: copy };
        assert!(Lock::take(&at, "one").unwrap().is_none(), "another process has it");
        handed.remove();
        let second = Lock::take(&at, "one").unwrap().unwrap();
        drop(handed);
        assert!(Lock::take(&at, "one").unwrap().is_none(), "the second one has it");
        drop(second);
    }

    #[test]
    fn a_lock_records_whether_the_namespace_is_one_of_a_pod() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        make(&at).unwrap();
        let lock = Lock::take(&at, "srd-i-a").unwrap().unwrap();
        assert!(!lock.is_of_pod());
        lock.set_pod(true).unwrap();
        let copy = lock.file.try_clone().unwrap();
        assert!(Lock { path: at.join("srd-i-a"), file: copy }.is_of_pod());
        drop(lock);
        let next = Lock::take(&at, "srd-i-a").unwrap().unwrap();
        assert!(next.is_of_pod(), "the former holder was killed");
        next.set_pod(false).unwrap();
        assert!(!next.is_of_pod());
    }

    #[test]
    fn locks_whose_cards_have_ended_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        make(&at).unwrap();
        // A closed lock may stay in a process that another test is just starting.
        for name in ["srd-i-left", "7.keeper"] {
            fs::write(at.join(name), "").unwrap();
        }
        let begun = Lock::take(&at, "srd-i-begun").unwrap();
        let found = left(&at);
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["srd-i-left"]);
        found.iter().for_each(|(_, lock)| lock.remove());
        drop(begun);
        assert!(!at.join("srd-i-left").exists() && at.join("srd-i-begun").exists());
        assert!(left(&directory.path().join("none")).is_empty());
    }

    /// Regression: the helper of a killed card could undo settings of the next card.
    #[test]
    fn regression_a_start_waits_for_the_helper_of_a_card_that_was_killed() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        make(&at).unwrap();
        // No process has such a high number.
        let lock = |name: &str| Lock::take(&at, name).unwrap().unwrap();
        let (helper, card) = (lock("4194305.keeper"), lock("4194305.card"));
        wait_for_keepers(&at); // a running card is not waited for
        drop(card);
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                done.store(true, std::sync::atomic::Ordering::SeqCst);
                drop(helper);
            });
            wait_for_keepers(&at);
            assert!(done.load(std::sync::atomic::Ordering::SeqCst));
        });
    }

    /// Files stayed if another process had got the id of the helper, or if the helper had ended
    /// before it created its own file.
    #[test]
    fn regression_files_of_a_card_and_a_helper_that_were_both_killed_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        make(&at).unwrap();
        let own = std::process::id();
        let left = [
            String::from("4194305.keeper"),
            String::from("4194305.card"),
            String::from("4194306.card"),
            format!("{own}.keeper"),
            format!("{own}.card"),
        ];
        let others = ["x.card", "srd-i-4194305", "4194305.other"];
        for name in left.iter().map(String::as_str).chain(others) {
            fs::write(at.join(name), "").unwrap();
        }
        let lock = |name: &str| Lock::take(&at, name).unwrap().unwrap();
        let live = (lock("4194307.keeper"), lock("4194307.card"), lock("4194308.card"));
        wait_for_keepers(&at);
        assert!(left.iter().all(|name| !at.join(name).exists()));
        assert!(others.iter().all(|name| at.join(name).exists()));
        assert!(
            ["4194307.keeper", "4194307.card", "4194308.card"]
                .iter()
                .all(|name| { at.join(name).exists() })
        );
        drop(live);
        // A closed lock may stay in a process that another test is just starting.
        let until = Instant::now() + Duration::from_secs(60);
        while at.join("4194307.keeper").exists() || at.join("4194308.card").exists() {
            assert!(Instant::now() < until);
            wait_for_keepers(&at);
        }
    }

    #[test]
    fn a_mark_whose_file_is_removed_before_it_is_locked_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        make(&at).unwrap();
        let path = own(&at, "keeper");
        // A card that starts has found the file before the helper has locked it.
        let looks = open(&path).unwrap();
        flock(&looks, FlockOperation::LockExclusive).unwrap();
        thread::scope(|scope| {
            let kept = scope.spawn(|| keep(&at).unwrap());
            fs::remove_file(&path).unwrap();
            drop(looks);
            let kept = kept.join().unwrap();
            assert!(is_at(&kept, &path));
            remove_left(&at);
            assert!(path.exists());
        });
    }

    #[test]
    fn regression_a_start_that_looks_at_a_helper_does_not_keep_it_from_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        make(&at).unwrap();
        let name = format!("{}.keeper", std::process::id());
        let looks = Lock::take(&at, &name).unwrap().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                drop(looks);
            });
            let kept = keep(&at).unwrap();
            assert!(Lock::take(&at, &name).unwrap().is_none());
            drop(kept);
        });
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("locks");
        fs::create_dir(&at).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make(&at).unwrap_err().to_string().contains("0700"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        assert!(make(&link).is_err());
    }
}
