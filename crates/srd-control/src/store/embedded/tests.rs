//! Tests with a fault of the storage at each of its operations, and with files that contain no
//! store.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// Size of the parts of a write that reach the device as a whole or not at all.
const SECTOR: usize = 512;

/// An operation that the device has not synchronised yet.
#[derive(Clone, Debug)]
enum Pending {
    Write(usize, Vec<u8>),
    Length(usize),
}

/// Behaviour at the operation with the number `at`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// This operation and all later ones fail: the machine has lost its power.
    Crash,
    /// This operation fails, and later ones succeed.
    Once,
}

#[derive(Debug, Default)]
struct Disk {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Number of operations that change something.
    operations: u64,
    at: Option<(u64, Fault)>,
    has_failed_sync: bool,
    /// Largest length of the file in bytes. Growth beyond this length fails, because the disk is
    /// full.
    capacity: Option<usize>,
    /// Whether synchronisation reports success, but does nothing.
    lies: bool,
}

/// A simulated disk, which in a loss of power loses a part of the data that is not synchronised.
#[derive(Clone, Debug, Default)]
struct SimDisk(Arc<Mutex<Disk>>);

fn failed() -> io::Error {
    io::Error::other("the disk is broken")
}

impl Disk {
    /// Counts an operation, and returns the error if it fails.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.at {
            Some((at, Fault::Crash)) if self.operations >= at => Err(failed()),
            Some((at, Fault::Once)) if self.operations == at => Err(failed()),
            _ => Ok(()),
        }
    }

    fn apply(image: &mut Vec<u8>, pending: &Pending, takes: &mut dyn FnMut() -> bool) {
        match pending {
            Pending::Length(length) => image.resize(*length, 0),
            Pending::Write(offset, data) => {
                for (number, sector) in data.chunks(SECTOR).enumerate() {
                    let at = offset + number * SECTOR;
                    if takes() && at + sector.len() <= image.len() {
                        image[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
    }
}

impl SimDisk {
    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk with an empty store, which has a fault at this operation after its creation.
    fn with(at: u64, fault: Fault) -> Self {
        let disk = Self::default();
        drop(EmbeddedStore::on(disk.clone()).unwrap());
        let operations = disk.lock().operations;
        disk.lock().at = Some((operations + at, fault));
        disk
    }

    fn holding(image: Vec<u8>) -> Self {
        let disk = Disk { live: image.clone(), durable: image, ..Disk::default() };
        Self(Arc::new(Mutex::new(disk)))
    }

    /// The content of the device after a loss of power: all synchronised data, and those sectors of
    /// the other writes that the seed selects.
    fn after_crash(&self, seed: u64) -> Vec<u8> {
        let disk = self.lock();
        let mut image = disk.durable.clone();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut takes = || match seed {
            0 => false,
            1 => true,
            _ => {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random & 4 == 0
            }
        };
        for pending in &disk.pending {
            if matches!(pending, Pending::Write(..)) || takes() {
                Disk::apply(&mut image, pending, &mut takes);
            }
        }
        image
    }
}

impl StorageBackend for SimDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.lock();
        let offset = usize::try_from(offset).unwrap();
        let found = disk.live.get(offset..offset + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.lock();
        disk.operate()?;
        let len = usize::try_from(len).unwrap();
        if disk.capacity.is_some_and(|capacity| len > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.live.resize(len, 0);
        disk.pending.push(Pending::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.lock();
        if let Err(error) = disk.operate() {
            disk.has_failed_sync = true;
            return Err(error);
        }
        if !disk.lies {
            disk.durable = disk.live.clone();
            disk.pending.clear();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.lock();
        disk.operate()?;
        let offset = usize::try_from(offset).unwrap();
        if disk.live.len() < offset + data.len() {
            disk.live.resize(offset + data.len(), 0);
            let length = disk.live.len();
            disk.pending.push(Pending::Length(length));
        }
        disk.live[offset..offset + data.len()].copy_from_slice(data);
        disk.pending.push(Pending::Write(offset, data.to_vec()));
        Ok(())
    }
}

#[test]
fn a_file_obeys_the_laws_of_stores() {
    let directory = tempfile::tempdir().unwrap();
    let mut number = 0;
    crate::store::laws::check(60, 1, || {
        number += 1;
        let path = directory.path().join(number.to_string());
        move || Box::new(EmbeddedStore::open(&path).unwrap()) as Box<dyn Store>
    });
}

type State = BTreeMap<String, String>;

/// Transactions that add, replace and remove keys. Some are large, so that the file grows.
fn transactions() -> Vec<Vec<KeyChange>> {
    let change = |step: usize, of: usize| -> Vec<KeyChange> {
        let size = [10, 700, 9000, 60_000][step % 4];
        let value = |n: usize| step.to_string().repeat(size + n);
        let put = (0..of).map(|n| (format!("object/{}", (step * 3 + n) % 17), Some(value(n))));
        let removed = (0..2).map(|n| (format!("object/{}", (step * 5 + n) % 17), None));
        removed.chain(put).collect()
    };
    (0..10).map(|step| change(step, 1 + step % 5)).collect()
}

fn apply(state: &mut State, changes: &[KeyChange]) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(state.insert(key.clone(), value.clone())),
            None => drop(state.remove(key)),
        }
    }
}

/// The states before the first transaction, and after each of them.
fn states() -> Vec<State> {
    let mut states = vec![State::new()];
    for changes in transactions() {
        let mut next = states.last().unwrap().clone();
        apply(&mut next, &changes);
        states.push(next);
    }
    states
}

fn content(store: &mut EmbeddedStore) -> State {
    store.load().unwrap().into_iter().collect()
}

/// Opens a store on a disk, and makes all transactions until the first error. Returns the number of
/// acknowledged transactions; `None` if the store was not opened.
fn run(disk: &SimDisk) -> Option<usize> {
    let mut store = EmbeddedStore::on(disk.clone()).ok()?;
    let all = transactions();
    let count = all.len();
    for (made, changes) in all.into_iter().enumerate() {
        if store.commit(changes).is_err() {
            return Some(made);
        }
    }
    Some(count)
}

/// Number of operations of a run without faults.
fn operations() -> u64 {
    let disk = SimDisk::with(u64::MAX / 2, Fault::Crash);
    let before = disk.lock().operations;
    assert_eq!(run(&disk), Some(transactions().len()));
    let after = disk.lock().operations;
    after - before
}

/// Ends the machine at each operation of the store, and checks the state of the next start.
#[test]
fn a_crash_at_any_operation_leaves_the_state_before_or_after_the_transaction() {
    let states = states();
    let last = operations();
    assert!(last > 50, "{last}");
    let mut after = 0;
    for at in 1..=last + 1 {
        let disk = SimDisk::with(at, Fault::Crash);
        let acknowledged = run(&disk).unwrap_or(0);
        for seed in 0..5 {
            let image = disk.after_crash(seed);
            let again = SimDisk::holding(image);
            let mut store = EmbeddedStore::on(again.clone())
                .unwrap_or_else(|error| panic!("operation {at}, seed {seed}: {error}"));
            let found = content(&mut store);
            let is_before = found == states[acknowledged];
            let is_after = states.get(acknowledged + 1) == Some(&found);
            assert!(is_before || is_after, "operation {at}, seed {seed}: between the states");
            after += usize::from(is_after && !is_before);
            // The store is usable, and a second start finds the same.
            store.commit(vec![("object/new".to_owned(), Some("x".to_owned()))]).unwrap();
            drop(store);
            let mut store = EmbeddedStore::on(SimDisk::holding(again.after_crash(seed))).unwrap();
            let mut wanted = found;
            wanted.insert("object/new".to_owned(), "x".to_owned());
            assert_eq!(content(&mut store), wanted);
        }
    }
    assert!(after > 0, "no crash came between the last write and the acknowledgement");
}

/// A device that reports success without synchronising loses transactions. So the simulation would
/// detect a store that acknowledges a transaction too early.
#[test]
fn a_device_that_does_not_synchronise_loses_transactions() {
    let states = states();
    let disk = SimDisk::default();
    disk.lock().lies = true;
    assert_eq!(run(&disk), Some(transactions().len()));
    let lost = |seed: u64| {
        let store = EmbeddedStore::on(SimDisk::holding(disk.after_crash(seed)));
        store.map_or(true, |mut store| Some(&content(&mut store)) != states.last())
    };
    assert!([0, 2, 3].into_iter().any(lost));
}

/// Fails each operation once. The store continues, or refuses everything until the next start.
#[test]
fn an_error_of_any_operation_is_an_error_of_its_transaction_alone() {
    let last = operations();
    let mut refused = 0;
    for at in 1..=last {
        let disk = SimDisk::with(at, Fault::Once);
        let Ok(mut store) = EmbeddedStore::on(disk.clone()) else { continue };
        let mut state = State::new();
        let mut may_have = Vec::new();
        for changes in transactions() {
            let mut next = state.clone();
            apply(&mut next, &changes);
            match store.commit(changes) {
                Ok(()) => state = next,
                Err(CommitError::Failed(_)) => refused += 1,
                Err(CommitError::Unknown(_)) if disk.lock().has_failed_sync => {
                    assert!(store.refresh().is_err() && store.load().is_err());
                    may_have.push(next);
                }
                Err(CommitError::Unknown(_)) => match store.refresh().unwrap() {
                    News::All(all) => {
                        let all: State = all.into_iter().collect();
                        assert!(all == state || all == next, "operation {at}");
                        state = all;
                    }
                    News::Changes(_) => panic!("operation {at}: the state is unknown"),
                },
                Err(CommitError::Conflict) => panic!("there is no other controller"),
            }
        }
        drop(store);
        let image = disk.lock().live.clone();
        let found = content(&mut EmbeddedStore::on(SimDisk::holding(image)).unwrap());
        assert!(found == state || may_have.contains(&found), "operation {at}");
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_full_disk_refuses_transactions_until_there_is_space() {
    let disk = SimDisk::default();
    let mut store = EmbeddedStore::on(disk.clone()).unwrap();
    store.commit(vec![("object/a".to_owned(), Some("1".to_owned()))]).unwrap();
    let capacity = disk.lock().live.len();
    disk.lock().capacity = Some(capacity);
    let large = || vec![("object/b".to_owned(), Some("x".repeat(2 * capacity)))];
    for _ in 0..3 {
        assert!(matches!(store.commit(large()), Err(CommitError::Failed(_))));
        assert_eq!(store.refresh(), Ok(News::Changes(Vec::new())));
        assert_eq!(content(&mut store).len(), 1);
    }
    // There is still free space for a small change.
    store.commit(vec![("object/a".to_owned(), Some("2".to_owned()))]).unwrap();
    disk.lock().capacity = None;
    store.commit(large()).unwrap();
    assert_eq!(content(&mut store).len(), 2);
    assert_eq!(content(&mut store)["object/a"], "2");
}

/// Damage of the file is detected, or is in an unused part of the file. The parser of the file does
/// not panic.
#[test]
fn a_damaged_file_is_refused_or_has_its_whole_content() {
    let disk = SimDisk::default();
    run(&disk).unwrap();
    let image = disk.lock().live.clone();
    let wanted = states().pop().unwrap();
    let (mut random, mut refused) = (7_u64, 0);
    for round in 0..200 {
        let mut damaged = image.clone();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (random >> 33) as usize % if round % 2 == 0 { 4096 } else { image.len() };
        damaged[at] ^= 1 << (round % 8);
        match EmbeddedStore::on(SimDisk::holding(damaged)) {
            Ok(mut store) => assert_eq!(content(&mut store), wanted, "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0);
    for length in [1, 511, 4096, image.len() / 2] {
        let cut = SimDisk::holding(image[..length].to_vec());
        assert!(EmbeddedStore::on(cut).is_err(), "{length} bytes");
    }
}

#[test]
fn a_file_has_one_controller_and_one_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let mut store = EmbeddedStore::open(&path).unwrap();
    let mode = || path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o600);
    assert!(EmbeddedStore::open(&path).unwrap_err().contains("another controller"));
    store.commit(vec![("object/a".to_owned(), Some("1".to_owned()))]).unwrap();
    drop(store);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    assert!(EmbeddedStore::open(&path).unwrap_err().contains("chmod 600"));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(content(&mut EmbeddedStore::open(&path).unwrap()).len(), 1);
}

#[test]
fn other_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let error = EmbeddedStore::open(&path("missing/state.db")).unwrap_err();
    let begin = format!("{}: the directory ", path("missing/state.db").display());
    assert!(error.starts_with(&begin) && error.contains("missing does not exist"), "{error}");
    assert!(EmbeddedStore::open(directory.path()).is_err());
    let private = |name: &str, text: &[u8]| {
        std::fs::write(path(name), text).unwrap();
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o600)).unwrap();
        path(name)
    };
    let text = private("text", b"hello\n");
    // Regression: the advice for a file that others may read was `chmod`, and then an error of the
    // database.
    for mode in [0o644, 0o600] {
        std::fs::set_permissions(&text, PermissionsExt::from_mode(mode)).unwrap();
        let error = EmbeddedStore::open(&text).unwrap_err();
        assert!(error.contains("is no state") && error.contains("Name another file"), "{error}");
    }
    assert!(EmbeddedStore::open(&private("zeros", &[0; 70_000])).is_err());
    // The creation of these stores did not end.
    for (name, text) in [("early", &b""[..]), ("half", &[0; 5000]), ("late", &MAGIC)] {
        let new = format!("{name}.new");
        private(&new, text);
        drop(EmbeddedStore::open(&path(name)).unwrap());
        assert!(!path(&new).exists());
    }
    assert!(EmbeddedStore::open(&private("empty", b"")).is_ok());

    let make = |name: &str, format: Option<u64>| {
        let database = Database::create(private(name, b"")).unwrap();
        let transaction = database.begin_write().unwrap();
        match format {
            Some(format) => {
                let mut facts = transaction.open_table(FACTS).unwrap();
                facts.insert(FORMAT_KEY, format).unwrap();
            }
            None => drop(transaction.open_table(VALUES).unwrap()),
        }
        transaction.commit().unwrap();
        drop(database);
        EmbeddedStore::open(&path(name)).unwrap_err()
    };
    assert!(make("newer", Some(FORMAT + 1)).contains("format 2"));
    assert!(make("foreign", None).contains("another program"));
    assert!(make("incomplete", Some(FORMAT)).contains("number of commits"));
}

#[test]
fn a_file_of_another_user_is_refused_with_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let user = rustix::process::geteuid();
    let owner = if user.is_root() { "root".to_owned() } else { user.as_raw().to_string() };
    // There is no such file.
    let error = denied(&directory.path().join("state.db"));
    let end = format!("; {} belongs to the user {owner}: ", directory.path().display());
    assert!(error.contains("state.db: permission denied") && error.contains(&end), "{error}");
}

#[test]
fn a_link_is_not_followed_and_another_file_is_not_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let private = |name: &str| {
        std::fs::write(path(name), "the key of a host").unwrap();
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o600)).unwrap();
    };
    let is_kept = |name: &str| std::fs::read(path(name)).unwrap() == b"the key of a host";
    private("victim");
    symlink("victim", path("a.new")).unwrap();
    let error = EmbeddedStore::open(&path("a")).unwrap_err();
    assert!(is_kept("victim") && error.contains("a.new is a link"), "{error}");
    private("b.new");
    let error = EmbeddedStore::open(&path("b")).unwrap_err();
    assert!(is_kept("b.new") && error.contains("another program"), "{error}");
    drop(EmbeddedStore::open(&path("store")).unwrap());
    for (target, name) in [("store", "c"), ("missing", "d")] {
        symlink(target, path(name)).unwrap();
        let error = EmbeddedStore::open(&path(name)).unwrap_err();
        assert!(error.contains("is a link"), "{error}");
    }
    assert!(!path("missing").exists());
}

#[test]
fn root_refuses_a_directory_that_another_user_can_change() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: the directory is checked for root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    chown(&inner, Some(65_534), None).unwrap();
    let path = inner.join("state.db");
    let error = EmbeddedStore::open(&path).unwrap_err();
    assert!(error.contains("others than root") && error.contains("inner"), "{error}");
    assert!(!path.exists() && !inner.join("state.db.new").exists());
    chown(&inner, Some(0), None).unwrap();
    drop(EmbeddedStore::open(&path).unwrap());
    chown(&inner, Some(65_534), None).unwrap();
    assert!(EmbeddedStore::open(&path).is_err());
}
