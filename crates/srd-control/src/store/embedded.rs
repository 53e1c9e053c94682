//! A store in one file, for one controller: a database of redb.
//!
//! A commit is durable when it returns: redb writes the changed pages to free places of the file,
//! and then the header that refers to them, with a checksum. If the process or the machine ends in
//! the middle, the next start finds the state before or after the commit.
//!
//! If an operation on the file fails, for example because the disk is full, the database is opened
//! again, and its number of commits shows whether the commit was made. Exception: if the
//! synchronisation with the device fails, the kernel may have dropped data that reads of the file
//! still return. After such an error, this process refuses all calls.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{
    Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError,
};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use rustix::process::geteuid;
use srd_trust::place;
use srd_trust::private::{self, Exposed};

use super::{CommitError, FORMAT, KeyChange, News, Store};

/// Table with the keys and values of the state.
const VALUES: TableDefinition<'_, &str, &str> = TableDefinition::new("values");
/// Table with numbers that describe the file.
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");
/// Key of the version of the format of keys and values.
const FORMAT_KEY: &str = "format";
/// Key of the number of commits since the file was created.
const COMMITS_KEY: &str = "commits";
/// Largest size of redb's cache in bytes. A small cache suffices, because the controller keeps the
/// state in memory.
const CACHE_BYTES_MAX: usize = 32 << 20;

/// First bytes of each file of redb. The creation of a file writes them last; until then, the file
/// has zeros in their place.
const MAGIC: [u8; 9] = *b"redb\x1a\n\xa9\r\n";

/// Function that opens the database.
type Open = Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send>;

/// A store in one file.
pub struct EmbeddedStore {
    open: Open,
    /// Absent after an error of the file, until it is opened again.
    database: Option<Database>,
    sync: Arc<Sync>,
    commits: u64,
    /// Whether it is unknown to the caller which state the file has.
    is_unknown: bool,
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("commits", &self.commits).finish_non_exhaustive()
    }
}

/// State of the synchronisation with the device.
#[derive(Debug, Default)]
struct Sync {
    has_failed: AtomicBool,
}

/// Storage below a database, which records whether a synchronisation has failed.
#[derive(Clone, Debug)]
struct Watched<B> {
    storage: B,
    sync: Arc<Sync>,
}

impl<B: StorageBackend> StorageBackend for Watched<B> {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.storage.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.storage.sync_data();
        if synced.is_err() {
            self.sync.has_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.storage.write(offset, data)
    }
}

/// A file that this process has locked.
#[derive(Clone, Debug)]
struct LockedFile(Arc<File>);

impl StorageBackend for LockedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    /// If the file grows, its new blocks are allocated at once. So if the disk is full, the growth
    /// fails, and not a later write into the new blocks.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let old = self.0.metadata()?.len();
        if len > old {
            match fallocate(&self.0, FallocateFlags::empty(), old, len - old) {
                Err(Errno::OPNOTSUPP) => {}
                allocated => return Ok(allocated?),
            }
        }
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

impl LockedFile {
    /// Opens a file that only its owner can access, and locks it. A link is refused. `creates`: the
    /// file may be new.
    fn open(path: &Path, creates: bool) -> Result<Self, String> {
        let shown = path.display();
        let directory = directory_of(path);
        if geteuid().is_root() {
            place::check(directory).map_err(|error| format!("{shown}: {error}"))?;
        }
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        let flags = i32::try_from(flags).map_err(|error| format!("{shown}: {error}"))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(creates).truncate(false).mode(0o600);
        let file = options.custom_flags(flags).open(path).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::LOOP) => format!("{shown} is a link: name the file itself"),
                Some(Errno::ACCESS) => denied(path),
                _ => format!("{shown}: {error}"),
            }
        })?;
        let is_file = file.metadata().is_ok_and(|of| of.is_file());
        if !is_file {
            return Err(format!("{shown} is no regular file"));
        }
        if !creates && !is_replaceable(&file).map_err(|error| format!("{shown}: {error}"))? {
            return Err(format!(
                "{shown} is no state of `srd control`: it is a file of another program, or it is \
                 damaged. Name another file; one that does not exist is created"
            ));
        }
        match private::check(&file, None) {
            Ok(Ok(())) => {}
            Ok(Err(Exposed::Mode(mode))) => {
                return Err(format!(
                    "other users may read {shown} (mode {mode:04o}): chmod 600 {shown}"
                ));
            }
            Ok(Err(Exposed::Owner(user))) => {
                return Err(format!("{shown} belongs to the user {user}, not to this one"));
            }
            Ok(Err(_)) => return Err(format!("other users may access {shown}")),
            Err(error) => return Err(format!("{shown}: {error}")),
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "{shown} is used by another controller: end that controller first"
                ));
            }
            Err(TryLockError::Error(error)) => return Err(format!("{shown}: {error}")),
        }
        // The name of a new file is as durable as its content.
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Self(Arc::new(file)))
    }
}

/// Whether a file is a database of redb, or what an incomplete creation of one has left.
fn is_replaceable(file: &File) -> io::Result<bool> {
    let mut first = [0; MAGIC.len()];
    let length = file.read_at(&mut first, 0)?;
    Ok(length == 0 || first == MAGIC || first[..length].iter().all(|byte| *byte == 0))
}

/// Returns the directory of a file.
fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    directory.unwrap_or_else(|| Path::new("."))
}

/// Returns the error about a file that this user may not open. It names the owner of the file, or
/// of its directory if there is no such file.
fn denied(path: &Path) -> String {
    let owner = [path, directory_of(path)].into_iter().find_map(|at| {
        let user = fs::metadata(at).ok()?.uid();
        let user = if user == 0 { "root".to_owned() } else { user.to_string() };
        Some(format!("; {} belongs to the user {user}", at.display()))
    });
    format!(
        "{}: permission denied{}: run the command as the user of the controller",
        path.display(),
        owner.unwrap_or_default()
    )
}

impl EmbeddedStore {
    /// Opens or creates the file, which gets mode 0600. The file stays locked as long as this value
    /// lives.
    ///
    /// # Errors
    /// If another controller uses the file, if other users may access it, or if an operation on it
    /// fails. A link, a damaged file, and a file with other contents or of another version are
    /// refused. For root, a directory that another user can change is refused as well
    /// ([`place::check`]).
    pub fn open(path: &Path) -> Result<Self, String> {
        if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let directory = directory_of(path);
            let (shown, above) = (path.display(), directory.display());
            if fs::metadata(directory).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                return Err(format!(
                    "{shown}: the directory {above} does not exist: create it, or name another file"
                ));
            }
            Self::create(path).map_err(|error| format!("{shown} cannot be created: {error}"))?;
        }
        let file = LockedFile::open(path, false)?;
        Self::on(file).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Creates a file with an empty store. The file gets its name when it is complete, unless
    /// another controller has created it meanwhile.
    fn create(path: &Path) -> Result<(), String> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let failed = |error: &dyn fmt::Display| format!("{}: {error}", new.display());
        let file = LockedFile::open(&new, true)?;
        // A creation that did not end has left its part.
        if !is_replaceable(&file.0).map_err(|error| failed(&error))? {
            return Err(failed(&"the file is the one of another program"));
        }
        file.0.set_len(0).map_err(|error| failed(&error))?;
        drop(Self::on(file.clone()).map_err(|error| failed(&error))?);
        file.0.sync_all().map_err(|error| failed(&error))?;
        let linked = match fs::hard_link(&new, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        };
        let removed = fs::remove_file(&new);
        linked.and(removed).map_err(|error| failed(&error))
    }

    /// Opens or creates a database in this storage.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn on(storage: impl StorageBackend + Clone) -> Result<Self, String> {
        let sync = Arc::new(Sync::default());
        let storage = Watched { storage, sync: Arc::clone(&sync) };
        let open = move || {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES_MAX);
            // A damaged file is refused.
            builder.set_check_integrity_on_open(true);
            let database = builder.create_with_backend(storage.clone())?;
            // An earlier process may have written pages without synchronising them. From here on
            // they are durable.
            storage.sync_data()?;
            Ok(database)
        };
        let open = Box::new(open);
        let mut store = Self { open, database: None, sync, commits: 0, is_unknown: false };
        store.commits = store.enter().map_err(|error| error.to_string())?;
        Ok(store)
    }

    /// Returns the database, and opens it first if it is not open.
    fn database(&mut self) -> Result<&Database, redb::Error> {
        if self.sync.has_failed.load(Ordering::Relaxed) {
            let message = "the device has not kept a change: check it, and start the server again";
            return Err(redb::Error::Io(io::Error::other(message)));
        }
        let database = match self.database.take() {
            Some(database) => database,
            None => (self.open)()?,
        };
        Ok(self.database.insert(database))
    }

    /// Checks the version of the database, or writes the version if the database is new. Returns
    /// the number of commits.
    fn enter(&mut self) -> Result<u64, redb::Error> {
        let database = self.database()?;
        let is_new = match database.begin_read()?.open_table(FACTS) {
            Ok(_) => false,
            Err(TableError::TableDoesNotExist(_)) => {
                let reader = database.begin_read()?;
                if reader.list_tables()?.next().is_some() {
                    return Err(other("the file is the one of another program"));
                }
                true
            }
            Err(error) => return Err(error.into()),
        };
        if is_new {
            let transaction = database.begin_write()?;
            transaction.open_table(VALUES)?;
            {
                let mut facts = transaction.open_table(FACTS)?;
                facts.insert(FORMAT_KEY, FORMAT)?;
                facts.insert(COMMITS_KEY, 0)?;
            }
            transaction.commit()?;
        }
        let facts = database.begin_read()?.open_table(FACTS)?;
        let fact = |key| Ok::<_, redb::Error>(facts.get(key)?.map(|value| value.value()));
        match fact(FORMAT_KEY)? {
            Some(FORMAT) => {}
            Some(found) => {
                let what = format!("the file has the format {found}, and this program reads");
                return Err(other(&format!("{what} {FORMAT}")));
            }
            None => return Err(other("the file has no format")),
        }
        fact(COMMITS_KEY)?.ok_or_else(|| other("the file has no number of commits"))
    }

    fn write(&mut self, changes: Vec<KeyChange>) -> Result<(), redb::Error> {
        let commits = self.commits + 1;
        let transaction = self.database()?.begin_write()?;
        {
            let mut values = transaction.open_table(VALUES)?;
            for (key, value) in changes {
                match value {
                    Some(value) => values.insert(key.as_str(), value.as_str())?,
                    None => values.remove(key.as_str())?,
                };
            }
            transaction.open_table(FACTS)?.insert(COMMITS_KEY, commits)?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn read(&mut self) -> Result<Vec<(String, String)>, redb::Error> {
        let values = self.database()?.begin_read()?.open_table(VALUES)?;
        let mut all = Vec::new();
        for entry in values.iter()? {
            let (key, value) = entry?;
            all.push((key.value().to_owned(), value.value().to_owned()));
        }
        Ok(all)
    }
}

/// An error about the content of a file.
fn other(message: &str) -> redb::Error {
    redb::Error::Io(io::Error::other(message.to_owned()))
}

impl Store for EmbeddedStore {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.commits = self.enter().map_err(|error| error.to_string())?;
        let all = self.read().map_err(|error| error.to_string());
        match &all {
            Ok(_) => self.is_unknown = false,
            // After an error of a read, the database has to be opened again, as after an error of a
            // commit.
            Err(_) => self.database = None,
        }
        all
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        let Err(error) = self.write(changes) else {
            self.commits += 1;
            return Ok(());
        };
        self.database = None;
        match self.enter() {
            Ok(commits) if commits == self.commits + 1 => {
                self.commits = commits;
                Ok(())
            }
            Ok(commits) if commits == self.commits => Err(CommitError::Failed(error.to_string())),
            _ => {
                self.database = None;
                self.is_unknown = true;
                Err(CommitError::Unknown(error.to_string()))
            }
        }
    }

    fn refresh(&mut self) -> Result<News, String> {
        if self.is_unknown {
            return Ok(News::All(self.load()?));
        }
        Ok(News::Changes(Vec::new()))
    }
}

#[cfg(test)]
mod tests;
