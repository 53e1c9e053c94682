//! Directories of cards, below `$XDG_RUNTIME_DIR/srd-control` or `/run/srd-control`.
//!
//! The server and the keeper of a card lock the file `lock` in its directory. The keeper removes
//! the directory. If the keeper was killed, the next server finds that the lock is free, and
//! removes the directory. The server also locks the file `server`, so that the next server finds
//! directories whose keepers still end the machines of a killed server.
//!
//! The server runs as root, and `$XDG_RUNTIME_DIR` may be the one of another user: `sudo -E`, `su`.
//! That user could replace the files of a card. So the variable is used only if no user but the one
//! of this process and root can change the directory or one above it.

use crate::output::tell;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use srd_trust::place;

/// Name of the lock in a directory.
const LOCK: &str = "lock";
/// Name of the lock of the server in a directory.
const SERVER: &str = "server";
/// Name of the VPC's file in a directory.
const VPC: &str = "vpc.toml";
/// Name of the card's socket in a directory.
const SOCKET: &str = "card.sock";
/// Mode bits of other users.
const OTHERS: u32 = 0o077;
/// Mode bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;
/// Longest wait for another server that creates or removes a directory.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const HOLD_PAUSE: Duration = Duration::from_millis(10);

/// The directory of a card.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
    /// The lock of the server; absent in the keeper.
    _server: Option<File>,
}

/// Whether no other user can replace files in an existing directory.
fn is_trusted(path: &Path) -> bool {
    // In a sticky directory such as /tmp, another user could create the directory of cards first.
    let is_own = |of: fs::Metadata| of.is_dir() && of.mode() & OTHERS_WRITE == 0;
    path.is_absolute() && place::is_roots_alone(path) && fs::metadata(path).is_ok_and(is_own)
}

/// Returns the directory of the directories of cards for this value of `$XDG_RUNTIME_DIR`.
fn base_below(runtime: Option<OsString>) -> PathBuf {
    let runtime = runtime.map(PathBuf::from).filter(|path| is_trusted(path));
    runtime.unwrap_or_else(|| PathBuf::from("/run")).join("srd-control")
}

fn base() -> PathBuf {
    base_below(std::env::var_os("XDG_RUNTIME_DIR"))
}

/// Creates a directory of mode 0700, unless it exists and belongs to this user alone.
fn make(path: &Path) -> Result<()> {
    let failed = || format!("cannot make the directory {}", path.display());
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.with_context(failed)?,
    }
    let of = fs::symlink_metadata(path).with_context(failed)?;
    let is_ours = of.uid() == geteuid().as_raw();
    if !of.is_dir() || !is_ours || of.permissions().mode() & OTHERS != 0 {
        bail!("{} has to be a directory of mode 0700 of this user: remove it", path.display());
    }
    Ok(())
}

/// Flags for a directory that is no link.
fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Creates the directory of the directories of cards, unless it exists, and locks it. While the
/// lock is held, no other server creates or removes directories in it, or removes it.
fn hold(base: &Path) -> Result<File> {
    let failed = || format!("cannot lock the directory {}", base.display());
    let until = Instant::now() + HOLD_WAIT_MAX;
    loop {
        make(base)?;
        place::check(base)?;
        let file = match open(base, directory_flags(), Mode::empty()) {
            // Another server has removed it.
            Err(Errno::NOENT) if Instant::now() < until => continue,
            opened => File::from(opened.with_context(failed)?),
        };
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK || Instant::now() > until {
                return Err(error).with_context(failed);
            }
            thread::sleep(HOLD_PAUSE);
        }
        let own = file.metadata().with_context(failed)?;
        let is_removed = fs::symlink_metadata(base)
            .map_or(true, |of| (of.dev(), of.ino()) != (own.dev(), own.ino()));
        if !is_removed || Instant::now() > until {
            return Ok(file);
        }
    }
}

/// Removes the directory of the directories of cards, if it is empty. An error has no effect on
/// later servers.
pub(super) fn remove_base() {
    remove_base_in(&base());
}

fn remove_base_in(base: &Path) {
    if base.exists()
        && let Ok(_held) = hold(base)
    {
        let _ = fs::remove_dir(base);
    }
}

fn lock(path: &Path, name: &str) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(path.join(name)).context("the lock of a card's directory")?;
    flock(&lock, FlockOperation::NonBlockingLockShared).context("the lock is taken")?;
    Ok(lock)
}

impl Directory {
    /// Creates the directory for the card of a region.
    pub(super) fn create(account: &str, region: &str, number: u64) -> Result<Self> {
        Self::create_in(&base(), account, region, number)
    }

    fn create_in(base: &Path, account: &str, region: &str, number: u64) -> Result<Self> {
        // Another server that starts does not find the directory before it has its lock.
        let _held = hold(base)?;
        let name = format!("{}-{number}-{account}-{region}", std::process::id());
        let path = base.join(name);
        make(&path)?;
        make(&path.join("user-data"))?;
        make(&path.join("flow-logs"))?;
        let server = Some(lock(&path, SERVER)?);
        Ok(Self { _server: server, ..Self::enter(&path)? })
    }

    /// Locks an existing directory.
    pub(super) fn enter(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), _lock: lock(path, LOCK)?, _server: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn vpc(&self) -> PathBuf {
        self.path.join(VPC)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    pub(super) fn flow_logs(&self) -> PathBuf {
        self.path.join("flow-logs")
    }

    /// Path of the script of an instance.
    pub(super) fn script(&self, instance: &str) -> PathBuf {
        self.path.join("user-data").join(instance)
    }

    /// Path of the output of an instance's script.
    pub(super) fn output(&self, instance: &str) -> PathBuf {
        self.path.join("user-data").join(format!("{instance}.log"))
    }

    /// Replaces the VPC's file as a whole.
    pub(super) fn write_vpc(&self, text: &str) -> Result<()> {
        let new = self.path.join("vpc.toml.new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, self.vpc())).context("the VPC's file")
    }

    /// Removes the directory.
    pub(super) fn remove(self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Whether a directory has the name of a card's: PID-NUMBER-ACCOUNT-REGION.
fn is_name_of_a_card(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_region = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let parts: Vec<&str> = name.splitn(4, '-').collect();
    matches!(parts[..], [pid, number, account, region]
        if [pid, number, account].into_iter().all(is_number) && is_region(region))
}

/// Locks a file in the directory of a card, unless another process has locked it: the file
/// [`LOCK`] if the card has neither a server nor a keeper, the file [`SERVER`] if it has no server.
fn lock_abandoned(base: &File, name: &str, lock: &str) -> Option<File> {
    let directory = openat(base, name, directory_flags(), Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = File::from(openat(&directory, lock, flags, Mode::empty()).ok()?);
    let is_file = lock.metadata().is_ok_and(|of| of.is_file());
    let is_locked = is_file && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    is_locked.then_some(lock)
}

/// Removes directories whose keepers were killed.
///
/// # Errors
/// The directory of these directories is a link, or another user can change it.
pub(super) fn sweep() -> Result<()> {
    sweep_in(&base())
}

/// Waits until the keepers of killed servers have ended the machines of these servers.
///
/// # Errors
/// The machines have not ended in time, or the directory of these directories cannot be read.
pub(super) fn wait_for_keepers(until: Instant) -> Result<()> {
    wait_for_keepers_in(&base(), until)
}

fn wait_for_keepers_in(base: &Path, until: Instant) -> Result<()> {
    loop {
        let held = hold(base)?;
        let entries = fs::read_dir(base).context("the directories of cards")?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut cards = names.filter(|name| is_name_of_a_card(name));
        let Some(name) = cards.find(|name| lock_abandoned(&held, name, SERVER).is_some()) else {
            return Ok(());
        };
        if Instant::now() > until {
            bail!("the machines of a killed server have not ended: {}", base.join(name).display());
        }
        drop(held);
        thread::sleep(HOLD_PAUSE);
    }
}

fn sweep_in(base: &Path) -> Result<()> {
    let held = hold(base)?;
    for entry in fs::read_dir(base).context("the directories of cards")?.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !is_name_of_a_card(&name) {
            continue;
        }
        if let Some(_lock) = lock_abandoned(&held, &name, LOCK) {
            let path = base.join(&name);
            tell!("srd: {} of a killed server is removed", path.display());
            // This call follows no links.
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{chown, symlink};

    const NAME: &str = "7-1-123456789012-us-east-1";

    /// Makes a directory that looks like the one of a killed server.
    fn abandoned(path: &Path) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join(LOCK), "").unwrap();
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_runtime_directory_that_others_can_change_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let above = directory.path().join("above");
        let runtime = above.join("runtime");
        fs::create_dir_all(&runtime).unwrap();
        let used = || base_below(Some(runtime.clone().into_os_string()));
        let (own, common) = (runtime.join("srd-control"), Path::new("/run/srd-control"));
        for (of_above, mode, wanted) in [
            (0o755, 0o700, own.as_path()),
            (0o1777, 0o700, &own),
            (0o777, 0o700, common),
            (0o755, 0o720, common),
            (0o755, 0o1777, common),
        ] {
            set_mode(&above, of_above);
            set_mode(&runtime, mode);
            assert_eq!(used(), wanted, "{of_above:o} {mode:o}");
        }
        set_mode(&above, 0o755);
        set_mode(&runtime, 0o700);
        assert_eq!(used(), own);
        if geteuid().is_root() {
            chown(&above, Some(65_534), None).unwrap();
            assert_eq!(used(), common, "the user renames the directory");
            chown(&above, Some(0), None).unwrap();
            chown(&runtime, Some(65_534), None).unwrap();
            assert_eq!(used(), common);
        }
        for other in ["", "relative", "/missing/directory"] {
            assert_eq!(base_below(Some(other.into())), common);
        }
        assert_eq!(base_below(None), common);
    }

    #[test]
    fn a_sweep_does_not_follow_a_link_at_the_base() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        abandoned(&victim.join(NAME));
        set_mode(&victim, 0o700);
        let base = directory.path().join("srd-control");
        symlink(&victim, &base).unwrap();
        sweep_in(&base).unwrap_err();
        assert!(victim.join(NAME).join(LOCK).exists());
        Directory::create_in(&base, "1", "us-east-1", 1).unwrap_err();
    }

    #[test]
    fn a_sweep_removes_directories_of_killed_servers_only() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("srd-control");
        let lives = Directory::create_in(&base, "123456789012", "us-east-1", 1).unwrap();
        let victim = directory.path().join("victim");
        abandoned(&victim);
        let [link, file] = ["8-1-123456789012-us-east-1", "9-1-123456789012-us-east-1"];
        symlink(&victim, base.join(link)).unwrap();
        // The lock is a link as well.
        fs::create_dir(base.join(file)).unwrap();
        symlink(victim.join(LOCK), base.join(file).join(LOCK)).unwrap();
        abandoned(&base.join("dpkg"));
        abandoned(&base.join(NAME));
        symlink(&victim, base.join(NAME).join("link")).unwrap();
        sweep_in(&base).unwrap();
        assert!(!base.join(NAME).exists());
        assert!(victim.join(LOCK).exists());
        assert!(base.join("dpkg").exists() && base.join(link).exists() && base.join(file).exists());
        assert!(lives.vpc().parent().unwrap().exists());
        drop(lives);
    }

    #[test]
    fn a_sweep_waits_for_a_server_that_creates_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("srd-control");
        let held = hold(&base).unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| sweep_in(&base));
            // The directory has no server yet. In the pause, a sweep that does not wait removes it.
            abandoned(&base.join(NAME));
            thread::sleep(HOLD_PAUSE * 5);
            let lock = lock(&base.join(NAME), LOCK).unwrap();
            drop(held);
            other.join().unwrap().unwrap();
            assert!(base.join(NAME).exists());
            drop(lock);
        });
    }

    /// The empty directory stayed after the end of the server.
    #[test]
    fn regression_an_empty_directory_is_removed_and_a_server_that_waits_makes_another() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("srd-control");
        remove_base_in(&base);
        assert!(!base.exists());
        let card = Directory::create_in(&base, "1", "us-east-1", 1).unwrap();
        remove_base_in(&base);
        assert!(card.vpc().parent().unwrap().exists(), "it is not empty");
        card.remove();
        let held = hold(&base).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| Directory::create_in(&base, "1", "us-east-1", 2));
            thread::sleep(HOLD_PAUSE * 5);
            fs::remove_dir(&base).unwrap();
            drop(held);
            waits.join().unwrap().unwrap().remove();
        });
        remove_base_in(&base);
        assert!(!base.exists());
    }

    #[test]
    fn a_server_waits_for_the_keeper_of_a_killed_one() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("srd-control");
        let server = Directory::create_in(&base, "123456789012", "us-east-1", 1).unwrap();
        let soon = || Instant::now() + HOLD_PAUSE * 5;
        wait_for_keepers_in(&base, soon()).unwrap();
        let path = server.path().to_owned();
        let keeper = Directory::enter(&path).unwrap();
        drop(server);
        let error = wait_for_keepers_in(&base, soon()).unwrap_err();
        assert!(error.to_string().contains("have not ended"), "{error}");
        thread::scope(|scope| {
            let (base, wait) = (&base, Instant::now() + HOLD_WAIT_MAX);
            let waits = scope.spawn(move || wait_for_keepers_in(base, wait));
            thread::sleep(HOLD_PAUSE * 5);
            assert!(!waits.is_finished());
            keeper.remove();
            waits.join().unwrap().unwrap();
        });
    }

    #[test]
    fn names_of_other_programs_are_not_those_of_cards() {
        for name in [NAME, "1-2-3-eu"] {
            assert!(is_name_of_a_card(name), "{name}");
        }
        for name in ["dpkg", "1-2-3", "1-2-3-", "x-2-3-eu", "1--3-eu", "1-2-3-e/u", "1-2-3-..", ""]
        {
            assert!(!is_name_of_a_card(name), "{name}");
        }
    }
}
