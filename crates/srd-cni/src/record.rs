//! Records of attachments, one file for each, in a directory that only root may enter. A record is
//! written before the API is called, and removed after the instance is gone. So each instance has a
//! record, whatever ends the plugin.
//!
//! | file | content |
//! |---|---|
//! | `KEY.json` | the record of a container's interface; KEY is a hash of the names |
//! | `node` | name of this machine in tags: random digits |
//! | `lock` | lock: `GC` excludes all other commands that change records |
//! | `KEY.lock` | lock of an attachment, while a command changes it |

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use srd_trust::place;

use crate::environment::Attachment;
use crate::error::{Code, Failure};

/// Largest size of a record in bytes.
pub const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Prefix of the keys of records.
pub const KEY_PREFIX: &str = "cni-";
/// Number of hexadecimal digits of a key.
const KEY_DIGITS: usize = 32;
/// Longest wait for the lock.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);
/// Pause between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Suffix of the files of records.
const SUFFIX: &str = ".json";

/// The record of an attachment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Name of the network.
    pub network: String,
    /// Identifier of the container.
    pub container: String,
    /// Name of the interface in the container.
    pub ifname: String,
    /// Path of the network namespace.
    pub netns: PathBuf,
    /// Client token of the launch.
    pub token: String,
    /// Instance of the pod; `None` as long as no answer to the launch was read.
    pub instance: Option<String>,
    /// Interface of the instance.
    pub interface: Option<String>,
    /// Whether the container was detached while the API gave no answer.
    pub is_detached: bool,
}

impl Record {
    /// The error for another attachment with the names of this one.
    pub fn exists(&self) -> Failure {
        let Self { container, ifname, network, .. } = self;
        let message = format!(
            "the container {container} has the interface {ifname} of the network {network} \
             already: DEL removes it"
        );
        Failure::new(Code::Exists, message)
    }
}

/// Returns the key of the record of an attachment, which is also the name of the pod.
pub fn key(network: &str, attachment: &Attachment) -> String {
    let Attachment { container, ifname } = attachment;
    let names = format!("{network}\0{container}\0{ifname}");
    let hash = hex(digest(&SHA256, names.as_bytes()).as_ref());
    format!("{KEY_PREFIX}{}", &hash[..KEY_DIGITS])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns random digits.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn random() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Failure::new(Code::Io, "the kernel gives no random bytes"))?;
    Ok(hex(&bytes))
}

/// The directory of the records.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
}

/// Error while a record is read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    Io(String),
    /// The file is no record.
    Damaged,
}

/// The lock of the records, which is held until this value is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The lock of one attachment, which is held until this value is dropped.
#[derive(Debug)]
pub struct KeyLock {
    path: PathBuf,
    _file: File,
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        // A command that waits for the lock of this file notices that the file is gone.
        let _ = fs::remove_file(&self.path);
    }
}

fn io(what: &str, path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Io, format!("cannot {what} {}: {error}", path.display()))
}

impl Records {
    /// Opens the directory, and creates it with mode 0700 if it does not exist.
    ///
    /// # Errors
    /// With [`Code::Io`], if the directory cannot be created, or another user may enter it.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| io("use", directory, error);
        if let Some(above) = directory.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(above).map_err(failed)?;
        }
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed)?,
        }
        place::check(directory).map_err(failed)?;
        let facts = fs::symlink_metadata(directory).map_err(failed)?;
        if !facts.is_dir() || facts.mode() & 0o077 != 0 {
            let why = "it has to be a directory of mode 0700 (chmod 700)";
            return Err(io("use", directory, why));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// Takes the lock, alone or together with other commands.
    ///
    /// # Errors
    /// With [`Code::TryAgain`], if other commands hold it for too long.
    pub fn lock(&self, alone: bool) -> Result<Lock, Failure> {
        self.lock_within(alone, LOCK_WAIT_MAX)
    }

    fn lock_within(&self, alone: bool, wait_max: Duration) -> Result<Lock, Failure> {
        let path = self.directory.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(|error| io("open", &path, error))?;
        let operation = match alone {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        let until = Instant::now() + wait_max;
        while flock(&file, operation).is_err() {
            if Instant::now() >= until {
                let what = "another command of the plugin holds the lock";
                let message = format!("{what} {} for too long", path.display());
                return Err(Failure::new(Code::TryAgain, message));
            }
            thread::sleep(LOCK_PAUSE);
        }
        Ok(Lock { _file: file })
    }

    /// Takes the lock of an attachment, alone.
    ///
    /// # Errors
    /// With [`Code::TryAgain`], if another command holds it for too long.
    pub fn lock_key(&self, key: &str) -> Result<KeyLock, Failure> {
        self.lock_key_within(key, LOCK_WAIT_MAX)?.ok_or_else(|| {
            let message = format!("another command works on the attachment {key} for too long");
            Failure::new(Code::TryAgain, message)
        })
    }

    /// Takes the lock of an attachment, alone; `None` if another command holds it.
    ///
    /// # Errors
    /// With [`Code::Io`].
    pub fn try_lock_key(&self, key: &str) -> Result<Option<KeyLock>, Failure> {
        self.lock_key_within(key, Duration::ZERO)
    }

    fn lock_key_within(&self, key: &str, wait_max: Duration) -> Result<Option<KeyLock>, Failure> {
        let path = self.directory.join(format!("{key}.lock"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let until = Instant::now() + wait_max;
        loop {
            let file = options.open(&path).map_err(|error| io("open", &path, error))?;
            let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            // The command that held the lock has removed its file.
            let is_same = || Some(file.metadata().ok()?.ino() == fs::metadata(&path).ok()?.ino());
            if is_locked && is_same() == Some(true) {
                return Ok(Some(KeyLock { path, _file: file }));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            thread::sleep(LOCK_PAUSE);
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}{SUFFIX}"))
    }

    /// Returns a record; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or is no record.
    pub fn get(&self, key: &str) -> Result<Option<Record>, ReadError> {
        let path = self.path(key);
        let failed = |error: std::io::Error| ReadError::Io(format!("{}: {error}", path.display()));
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let mut text = Vec::new();
        file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
        let is_long = u64::try_from(text.len()).is_ok_and(|length| length > RECORD_BYTES_MAX);
        let record = serde_json::from_slice(&text).ok().filter(|_| !is_long);
        record.map(Some).ok_or(ReadError::Damaged)
    }

    /// Writes a new record.
    ///
    /// # Errors
    /// With [`Code::Exists`], if there is a record with this key.
    pub fn create(&self, key: &str, record: &Record) -> Result<(), Failure> {
        let (path, new) = (self.path(key), self.write(key, record)?);
        let linked = fs::hard_link(&new, &path);
        let _ = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(record.exists()),
            linked => linked.and_then(|()| self.sync()).map_err(|e| io("write", &path, e)),
        }
    }

    /// Replaces a record.
    ///
    /// # Errors
    /// With [`Code::Io`].
    pub fn put(&self, key: &str, record: &Record) -> Result<(), Failure> {
        let (path, new) = (self.path(key), self.write(key, record)?);
        let renamed = fs::rename(&new, &path).and_then(|()| self.sync());
        renamed.map_err(|error| io("write", &path, error))
    }

    /// Writes a record to a file with another name, and returns the path.
    fn write(&self, key: &str, record: &Record) -> Result<PathBuf, Failure> {
        let text = serde_json::to_vec(record);
        self.write_new(key, &text.map_err(|error| io("write", &self.path(key), error))?)
    }

    /// Writes a file that has another name than the final one, and returns its path. The content is
    /// durable when the call returns.
    fn write_new(&self, name: &str, text: &[u8]) -> Result<PathBuf, Failure> {
        let new = self.directory.join(format!(".{name}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&new).and_then(|mut file| {
            file.write_all(text)?;
            file.sync_all()
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&new);
            io("write", &new, error)
        })?;
        Ok(new)
    }

    fn sync(&self) -> std::io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    /// Removes a record, if there is one.
    ///
    /// # Errors
    /// With [`Code::Io`].
    pub fn remove(&self, key: &str) -> Result<(), Failure> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| self.sync()).map_err(|e| io("remove", &path, e)),
        }
    }

    /// Returns the keys of all records.
    ///
    /// # Errors
    /// With [`Code::Io`].
    pub fn keys(&self) -> Result<Vec<String>, Failure> {
        let failed = |error| io("read", &self.directory, error);
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let key = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            keys.extend(key.filter(|key| key.starts_with(KEY_PREFIX)).map(str::to_owned));
        }
        keys.sort();
        Ok(keys)
    }

    /// Returns the name of this machine in tags. The first call draws it, and makes it durable
    /// before it is used: after a crash of the machine, the tags of its instances still contain it.
    /// A call that finds the name of another call uses it after [`Self::create`] has made the
    /// directory durable.
    ///
    /// # Errors
    /// With [`Code::Io`].
    pub fn node(&self) -> Result<String, Failure> {
        let path = self.directory.join("node");
        for _ in 0..2 {
            match fs::read_to_string(&path) {
                Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
                Ok(_) => return Err(io("use", &path, "it is empty: remove it")),
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(io("read", &path, error));
                }
                Err(_) => {}
            }
            let new = self.write_new("node", random()?.as_bytes())?;
            let linked = fs::hard_link(&new, &path).and_then(|()| self.sync());
            let _ = fs::remove_file(&new);
            match linked {
                // Another command has written it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                linked => linked.map_err(|error| io("write", &path, error))?,
            }
        }
        Err(io("read", &path, "it is removed again and again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn record(container: &str) -> Record {
        Record {
            network: "cloud".into(),
            container: container.into(),
            ifname: "eth0".into(),
            netns: "/run/netns/x".into(),
            token: "t".into(),
            instance: None,
            interface: None,
            is_detached: false,
        }
    }

    fn records() -> (tempfile::TempDir, Records) {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::open(&directory.path().join("a/records")).unwrap();
        (directory, records)
    }

    #[test]
    fn a_record_is_created_once_replaced_and_removed() {
        let (_directory, records) = records();
        let attachment = Attachment { container: "c".into(), ifname: "eth0".into() };
        let key = key("cloud", &attachment);
        assert_eq!(records.get(&key), Ok(None));
        records.remove(&key).unwrap();
        records.create(&key, &record("c")).unwrap();
        let failure = records.create(&key, &record("c")).unwrap_err();
        assert_eq!(failure.code, Code::Exists);
        assert!(failure.message.contains("DEL removes it"), "{failure:?}");
        let known = Record { instance: Some("i-1".into()), ..record("c") };
        records.put(&key, &known).unwrap();
        assert_eq!(records.get(&key), Ok(Some(known)));
        let mode = fs::metadata(records.path(&key)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, records.keys().unwrap()), (0o600, vec![key.clone()]));
        records.remove(&key).unwrap();
        assert_eq!(fs::read_dir(&records.directory).unwrap().count(), 0, "no file is left");
    }

    #[test]
    fn keys_differ_and_are_names_of_pods() {
        let of = |network: &str, container: &str, ifname: &str| {
            let (container, ifname) = (container.to_owned(), ifname.to_owned());
            key(network, &Attachment { container, ifname })
        };
        let all = [of("a", "b", "c"), of("ab", "", "c"), of("a", "bc", ""), of("a", "b", "d")];
        for (at, key) in all.iter().enumerate() {
            assert_eq!((key.len(), &key[..4]), (36, KEY_PREFIX));
            assert!(!all[..at].contains(key));
        }
    }

    #[test]
    fn damaged_and_long_records_are_named() {
        let (_directory, records) = records();
        let text = serde_json::to_string(&record("c")).unwrap();
        let filled = |bytes: u64| {
            let rest = usize::try_from(bytes).unwrap() - text.len();
            format!("{text}{}", " ".repeat(rest))
        };
        fs::write(records.path("cni-a"), filled(RECORD_BYTES_MAX)).unwrap();
        assert_eq!(records.get("cni-a"), Ok(Some(record("c"))));
        for text in [filled(RECORD_BYTES_MAX + 1), String::new(), "{}".into()] {
            fs::write(records.path("cni-a"), text).unwrap();
            assert_eq!(records.get("cni-a"), Err(ReadError::Damaged));
        }
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let (_directory, records) = records();
        fs::set_permissions(&records.directory, Permissions::from_mode(0o750)).unwrap();
        let failure = Records::open(&records.directory).unwrap_err();
        assert!(failure.message.contains("chmod 700"), "{failure:?}");
    }

    #[test]
    fn the_name_of_the_machine_stays() {
        let (_directory, records) = records();
        let node = records.node().unwrap();
        assert_eq!((node.len(), records.node().unwrap()), (32, node));
        let names: Vec<_> = fs::read_dir(&records.directory).unwrap().flatten().collect();
        let modes = names.iter().map(|of| of.metadata().unwrap().permissions().mode() & 0o777);
        assert_eq!(modes.collect::<Vec<_>>(), [0o600], "as records, and no other file is left");
    }

    #[test]
    fn one_command_at_a_time_has_the_lock_of_an_attachment() {
        let (_directory, records) = records();
        let first = records.try_lock_key("cni-a").unwrap().unwrap();
        let _other = records.try_lock_key("cni-b").unwrap().unwrap();
        assert!(records.try_lock_key("cni-a").unwrap().is_none());
        // The file of a lock that was released is not the one that others have.
        let waits = thread::spawn({
            let records = records.clone();
            move || records.lock_key("cni-a").unwrap()
        });
        drop(first);
        let second = waits.join().unwrap();
        assert!(records.try_lock_key("cni-a").unwrap().is_none());
        drop(second);
        drop(records.try_lock_key("cni-a").unwrap().unwrap());
        assert!(!records.directory.join("cni-a.lock").exists(), "no file is left");
    }

    #[test]
    fn one_command_excludes_all_others_and_they_do_not_exclude_each_other() {
        let (_directory, records) = records();
        let first = records.lock(false).unwrap();
        let second = records.lock(false).unwrap();
        let failure = records.lock_within(true, Duration::ZERO).unwrap_err();
        assert_eq!(failure.code, Code::TryAgain);
        drop((first, second));
        let alone = records.lock(true).unwrap();
        assert!(records.lock_within(false, Duration::ZERO).is_err());
        drop(alone);
        records.lock(false).unwrap();
    }
}
