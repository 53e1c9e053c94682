//! Directories of cards, below `$XDG_RUNTIME_DIR/srd-control` or `/run/srd-control`.
//!
//! The server and the keeper of a card lock the file `lock` in its directory. The keeper removes
//! the directory. If the keeper was killed, the next server finds that the lock is free, and
//! removes the directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

/// Name of the lock in a directory.
const LOCK: &str = "lock";
/// Name of the VPC's file in a directory.
const VPC: &str = "vpc.toml";
/// Name of the card's socket in a directory.
const SOCKET: &str = "card.sock";

/// The directory of a card.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

fn base() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    runtime.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("srd-control")
}

/// Creates a directory of mode 0700, unless it exists and belongs to this user alone.
fn make(path: &Path) -> Result<()> {
    let failed = || format!("cannot make the directory {}", path.display());
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.with_context(failed)?,
    }
    let of = fs::symlink_metadata(path).with_context(failed)?;
    let is_ours = of.uid() == rustix::process::geteuid().as_raw();
    if !of.is_dir() || !is_ours || of.permissions().mode() & 0o077 != 0 {
        bail!("{} has to be a directory of mode 0700 of this user: remove it", path.display());
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(path.join(LOCK)).context("the lock of a card's directory")?;
    flock(&lock, FlockOperation::NonBlockingLockShared).context("the lock is taken")?;
    Ok(lock)
}

impl Directory {
    /// Creates the directory for the card of a region.
    pub(super) fn create(account: &str, region: &str, number: u64) -> Result<Self> {
        let base = base();
        make(&base)?;
        let name = format!("{}-{number}-{account}-{region}", std::process::id());
        let path = base.join(name);
        make(&path)?;
        make(&path.join("user-data"))?;
        make(&path.join("flow-logs"))?;
        Self::enter(&path)
    }

    /// Locks an existing directory.
    pub(super) fn enter(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), _lock: lock(path)? })
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

/// Removes directories whose keepers were killed.
pub(super) fn sweep() {
    for entry in fs::read_dir(base()).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            eprintln!("srd: {} of a killed server is removed", path.display());
            let _ = fs::remove_dir_all(&path);
        }
    }
}
