//! State of a fabric on disk: one small JSON file per fabric name.
//!
//! The file is written before the first namespace is created, and removed after the last namespace
//! is removed. Every change reads the file, and replaces it by an atomic rename, under an exclusive
//! lock. So several processes can work on one fabric: for example, one guards it and another fails
//! a spine.

use crate::build::config::{FabricConfig, check_name};
use crate::faults::fault::Faults;
use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of the file's format.
pub const STATE_VERSION: u32 = 1;
const RUN_DIR: &str = "/run/opensrd";
/// Name of the lock file of measurements; it cannot collide with the file of a fabric, because
/// those have a suffix.
const MEASUREMENT: &str = "measurement";
/// Name of the lock file for the machine's list of congestion controls: it is locked to change the
/// list, or to rely on it.
const CONGESTION: &str = "congestion";

/// The process at whose end a fabric is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Process id of the owner.
    pub pid: u32,
    /// Start time in clock ticks since boot: a later process with the same id has a different start
    /// time.
    pub start_ticks: u64,
}

/// Content of the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Version of the format: always [`STATE_VERSION`].
    pub version: u32,
    /// Configuration of the fabric, as it was requested.
    pub config: FabricConfig,
    /// Time of creation, in seconds of Unix time.
    pub created_unix_s: u64,
    /// The process at whose end the fabric is removed; `None` if it stays until `srd lab down`.
    pub owner: Option<Owner>,
    /// All namespaces of the fabric, including those not created yet.
    pub namespaces: Vec<String>,
    /// Whether the fabric is completely built.
    pub complete: bool,
    /// Faults that are in force now.
    #[serde(default)]
    pub faults: Faults,
    /// Number of extra MPTCP subflows per connection.
    #[serde(default)]
    pub mptcp_subflows: u16,
    /// Minimum retransmission timeout of the hosts in milliseconds, if it was set.
    #[serde(default)]
    pub rto_min_ms: Option<u32>,
    /// Default congestion control of the hosts, if it was set.
    #[serde(default)]
    pub congestion: Option<String>,
    /// Congestion controls that this fabric added to the machine's list for namespaces.
    #[serde(default)]
    pub congestion_allowed: Vec<String>,
}

impl State {
    /// Returns the state of a fabric that is about to be built.
    #[must_use]
    pub fn new(config: FabricConfig, owner: Option<Owner>) -> State {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        State {
            version: STATE_VERSION,
            namespaces: crate::build::plan::namespace_names(&config),
            config,
            created_unix_s: now.as_secs(),
            owner,
            complete: false,
            faults: Faults::default(),
            mptcp_subflows: 0,
            rto_min_ms: None,
            congestion: None,
            congestion_allowed: Vec::new(),
        }
    }

    /// Parses the text of a state file.
    pub fn parse(text: &str) -> Result<State> {
        let state: State = serde_json::from_str(text)?;
        if state.version != STATE_VERSION {
            bail!("version {} is not {STATE_VERSION}", state.version);
        }
        state.config.validate()?;
        Ok(state)
    }
}

impl Owner {
    /// Returns the entry of this process.
    pub fn this_process() -> Result<Owner> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid).context("/proc/self/stat")?;
        Ok(Owner { pid, start_ticks })
    }

    /// Whether the process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// Returns field 22 of `/proc/<pid>/stat`; the name in field 2 may contain anything, even
/// parentheses.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let running = fields.next()? != "Z";
    if running { fields.nth(18)?.parse().ok() } else { None }
}

/// The directory of the state files.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// Lock that is held while a fabric's state is read or changed.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl Store {
    /// Opens `/run/opensrd` or, if that cannot be used, a private directory below the temporary
    /// directory.
    pub fn open() -> Result<Store> {
        if let Ok(store) = Store::at(Path::new(RUN_DIR)) {
            return Ok(store);
        }
        let uid = rustix::process::geteuid().as_raw();
        Store::at(&std::env::temp_dir().join(format!("opensrd-{uid}")))
    }

    /// Opens a store in a directory, which is created if it is missing. Other users must not be
    /// able to write to it.
    pub fn at(dir: &Path) -> Result<Store> {
        DirBuilder::new().recursive(true).mode(0o755).create(dir).with_context(|| at(dir))?;
        let metadata = fs::symlink_metadata(dir).with_context(|| at(dir))?;
        let ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || !ours || metadata.mode() & 0o022 != 0 {
            bail!("{} must be a directory that only this user can write", dir.display());
        }
        rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).with_context(|| at(dir))?;
        Ok(Store { dir: dir.into() })
    }

    /// Waits for the exclusive lock of a fabric's state.
    pub fn lock(&self, name: &str) -> Result<StateLock> {
        let path = self.path(name, "lock")?;
        loop {
            if let Some(lock) = try_lock(&path, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the exclusive lock of measurements on this machine; `None` if another process has it.
    pub(crate) fn try_lock_measurement(&self) -> Result<Option<StateLock>> {
        try_lock(&self.dir.join(MEASUREMENT), FlockOperation::NonBlockingLockExclusive)
    }

    /// Releases the lock of measurements.
    pub(crate) fn unlock_measurement(&self, lock: StateLock) {
        let _ = fs::remove_file(self.dir.join(MEASUREMENT));
        drop(lock);
    }

    /// Runs `work` while no other fabric can change the machine's list of congestion controls.
    ///
    /// # Errors
    /// The errors of `work`; an error of the operating system, if the lock cannot be taken.
    pub(crate) fn with_congestion<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = self.dir.join(CONGESTION);
        let lock = loop {
            if let Some(lock) = try_lock(&path, FlockOperation::LockExclusive)? {
                break lock;
            }
        };
        let result = work();
        let _ = fs::remove_file(&path); // a fabric that waits for it notices and makes another
        drop(lock);
        result
    }

    /// Returns the state of a fabric; `None` if there is no such fabric.
    pub fn read(&self, name: &str) -> Result<Option<State>> {
        let path = self.path(name, "json")?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| at(&path)),
        };
        State::parse(&text).map(Some).with_context(|| at(&path))
    }

    /// Replaces the state of a fabric.
    pub fn write(&self, state: &State, _lock: &StateLock) -> Result<()> {
        let name = &state.config.name_prefix;
        let (path, new) = (self.path(name, "json")?, self.path(name, "new")?);
        fs::write(&new, serde_json::to_string_pretty(state)?).with_context(|| at(&new))?;
        fs::rename(&new, &path).with_context(|| at(&path))
    }

    /// Removes the state and lock file of a fabric.
    pub fn remove(&self, name: &str, lock: StateLock) -> Result<()> {
        for extension in ["new", "json", "lock"] {
            let path = self.path(name, extension)?;
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| at(&path));
                }
                _ => {}
            }
        }
        drop(lock);
        Ok(())
    }

    /// Returns the names of all fabrics that have a state file.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).with_context(|| at(&self.dir))? {
            let path = entry.with_context(|| at(&self.dir))?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if path.extension().is_some_and(|e| e == "json") && check_name(stem).is_ok() {
                names.push(stem.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the path of a file in the directory. The name is checked, so that the path cannot
    /// leave the directory.
    pub(crate) fn path(&self, name: &str, extension: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.dir.join(format!("{name}.{extension}")))
    }
}

/// Locks a file; `None` if another process has the lock, or has removed the file.
fn try_lock(path: &Path, operation: FlockOperation) -> Result<Option<StateLock>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.with_context(|| at(path))?;
    match rustix::fs::flock(&file, operation) {
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
        other => other.with_context(|| at(path))?,
    }
    let key = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let same = fs::metadata(path).ok().map(key) == file.metadata().ok().map(key);
    Ok(same.then_some(StateLock { _file: file }))
}

fn at(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::id::LinkId;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Scratch {
            let dir = std::env::temp_dir().join(format!("srdlab-{test}-{}", std::process::id()));
            Scratch(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn state_survives_the_disk_and_removal_leaves_nothing() {
        let scratch = Scratch::new("roundtrip");
        let store = Store::at(&scratch.0).unwrap();
        let mut state = State::new(FabricConfig::default(), Some(Owner::this_process().unwrap()));
        state.faults.failed_spines.insert(2);
        state.faults.slowed_links.insert(LinkId { leaf: 0, spine: 1 }, 50);
        state.faults.loss_permille.insert(3, 10);
        let lock = store.lock("lab").unwrap();
        store.write(&state, &lock).unwrap();
        assert_eq!(store.read("lab").unwrap(), Some(state));
        assert_eq!(store.names().unwrap(), ["lab"]);
        store.remove("lab", lock).unwrap();
        assert_eq!(store.read("lab").unwrap(), None);
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    }

    #[test]
    fn lock_is_exclusive_and_survives_removal_of_its_file() {
        let scratch = Scratch::new("lock");
        let store = Store::at(&scratch.0).unwrap();
        let first = store.lock("a").unwrap();
        let other = store.clone();
        let waiter = std::thread::spawn(move || other.lock("a").map(|_| ()).is_ok());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiter.is_finished());
        store.remove("a", first).unwrap();
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn damaged_or_foreign_state_is_an_error_with_the_path() {
        let scratch = Scratch::new("damaged");
        let store = Store::at(&scratch.0).unwrap();
        for text in ["", "{", r#"{"version": 1}"#] {
            fs::write(scratch.0.join("lab.json"), text).unwrap();
            let error = format!("{:#}", store.read("lab").expect_err("damaged"));
            assert!(error.contains("lab.json"), "{error}");
        }
        let mut state = State::new(FabricConfig::default(), None);
        state.version = 99;
        let text = serde_json::to_string(&state).unwrap();
        assert!(State::parse(&text).expect_err("too new").to_string().contains("version 99"));
    }

    #[test]
    fn name_cannot_leave_the_directory() {
        let scratch = Scratch::new("escape");
        let store = Store::at(&scratch.0).unwrap();
        assert!(store.read("../etc/passwd").is_err());
    }

    #[test]
    fn owner_is_told_from_a_later_process_of_the_same_id() {
        let owner = Owner::this_process().unwrap();
        assert!(owner.is_alive());
        assert!(!Owner { start_ticks: owner.start_ticks + 1, ..owner }.is_alive());
    }
}
