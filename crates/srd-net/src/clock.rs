//! Time: one clock for the core, for timers and for the kernel's receive stamps.
//!
//! The clock is `CLOCK_BOOTTIME` in nanoseconds. It also counts the time for which the machine is
//! suspended: peers forget an endpoint in that time (H8, H9 of `docs/spec/srd.md`). The kernel
//! stamps arrivals with `CLOCK_REALTIME`, which may be slewed or stepped. Therefore the difference
//! of the two clocks is measured again every few milliseconds, and a converted stamp is never in
//! the future, and never far in the past.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::FlockOperation;
use srd_proto::Secret;
use srd_proto::ids::Epoch;
use srd_proto::time::{Duration, Instant};

use crate::sys::os;

/// Time for which a measured difference of the clocks is used.
const OFFSET_LIFETIME: Duration = Duration::from_millis(5);
/// Number of samples per measurement. The sample that took the shortest time is used.
const OFFSET_SAMPLES: usize = 3;
/// Largest plausible age of a receive stamp. An older stamp is wrong: the wall clock was stepped.
const STAMP_AGE_MAX: Duration = Duration::from_secs(1);

/// The clock of this machine.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Wall clock minus this clock in nanoseconds, modulo 2^64.
    offset_ns: u64,
    measured_at: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Returns a clock with the current difference from the wall clock.
    pub fn new() -> Self {
        let mut clock = Self { offset_ns: 0, measured_at: Instant::ZERO };
        clock.measure();
        clock
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(os::boottime_ns())
    }

    /// Returns the arrival time of a packet with the kernel's wall-clock stamp `stamp_ns`. Without
    /// a stamp, or with an impossible stamp, the result is the current time, `now`.
    pub fn arrival(&mut self, stamp_ns: u64, now: Instant) -> Instant {
        if stamp_ns == 0 {
            return now;
        }
        if now.since(self.measured_at) > OFFSET_LIFETIME {
            self.measure();
        }
        let mapped = Instant::from_nanos(stamp_ns.wrapping_sub(self.offset_ns));
        if mapped > now || now.since(mapped) > STAMP_AGE_MAX { now } else { mapped }
    }

    fn measure(&mut self) {
        let mut width_ns = u64::MAX;
        for _ in 0..OFFSET_SAMPLES {
            let before = os::boottime_ns();
            let wall = os::realtime_ns();
            let after = os::boottime_ns();
            let width = after.saturating_sub(before);
            if width < width_ns {
                width_ns = width;
                self.offset_ns = wall.wrapping_sub(before + width / 2);
                self.measured_at = Instant::from_nanos(after);
            }
        }
    }
}

/// Returns the epoch of an endpoint that starts now: wall-clock nanoseconds, so that a restarted
/// endpoint has a larger epoch.
pub fn epoch() -> Epoch {
    Epoch(os::realtime_ns())
}

/// Smallest difference between an epoch and the previous epoch in the same file. The difference is
/// large because an endpoint adds one to its epoch for each context that it starts again.
const EPOCH_STEP: u64 = 1 << 32;
/// Largest epoch that is accepted: the year 2262, in which a clock of 63-bit nanoseconds ends. A
/// larger epoch would leave too few numbers above it to count up.
const EPOCH_MAX: u64 = i64::MAX.cast_unsigned();
/// Longest time that [`lasting_epoch`] waits for another daemon's lock on the directory of the
/// epoch file.
const LOCK_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10);
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);
/// Largest number of bytes that are read from the epoch file, which contains a number and white
/// space.
const EPOCH_FILE_BYTES_MAX: u64 = 64;

/// Returns an epoch as [`epoch`] does, and larger than every epoch that was drawn with the same
/// file before, even if the clock was set back in the meantime: the file stores the last epoch. A
/// file without a number, or with a number that no clock can show, counts as absent. A process that
/// may write to the directory can choose the number and nothing more: links are not followed when
/// the file is replaced. If other daemons use the same directory, the call waits for their lock for
/// at most ten seconds.
///
/// # Errors
/// An error of the operating system with the name of the file, if the file cannot be written (the
/// previous file then remains), or if another daemon holds the lock of the directory for more than
/// ten seconds.
pub fn lasting_epoch(file: &Path) -> io::Result<Epoch> {
    let named = |error: io::Error| {
        let what = format!("cannot store the epoch of this run in {}: {error}", file.display());
        io::Error::new(error.kind(), what)
    };
    next_epoch(file).map_err(named)
}

fn next_epoch(file: &Path) -> io::Result<Epoch> {
    let directory = alone_beside(file)?;
    let least = last_epoch(file).map_or(0, |last| last.saturating_add(EPOCH_STEP));
    let epoch = os::realtime_ns().max(least);
    // The file is replaced as a whole: a number that was written in part would be a smaller number.
    let mut draft = file.as_os_str().to_owned();
    draft.push(".new");
    // Removes the draft of an interrupted run, or a link to another file that has its name.
    let _ = std::fs::remove_file(&draft);
    let draft = Path::new(&draft);
    let made = OpenOptions::new().write(true).create_new(true).open(draft)?;
    let stored = write_epoch(made, epoch).and_then(|()| std::fs::rename(draft, file));
    if stored.is_err() {
        let _ = std::fs::remove_file(draft);
    }
    stored?;
    // The new name is stored before the epoch is used. A file system that cannot store directories
    // (EINVAL) stores the name itself.
    match directory.sync_all() {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(Epoch(epoch)),
    }
}

fn write_epoch(mut file: File, epoch: u64) -> io::Result<()> {
    writeln!(file, "{epoch}")?;
    file.sync_data()
}

/// Locks the directory of a file: another daemon may start with an interface of the same name, in
/// another network namespace. The lock ends when the returned file is closed.
fn alone_beside(file: &Path) -> io::Result<File> {
    let above = file.parent().filter(|above| !above.as_os_str().is_empty());
    let directory = File::open(above.unwrap_or(Path::new(".")))?;
    let until = std::time::Instant::now() + LOCK_WAIT_MAX;
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR)
                if std::time::Instant::now() < until =>
            {
                std::thread::sleep(LOCK_PAUSE);
            }
            done => return done.map(|()| directory).map_err(io::Error::from),
        }
    }
}

/// Returns the epoch in a file; `None` if it is not a regular file, or contains no epoch.
fn last_epoch(file: &Path) -> Option<u64> {
    // Without O_NONBLOCK, opening a pipe would wait for a writer.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(EPOCH_FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|last| *last <= EPOCH_MAX)
}

/// Returns the current time (`CLOCK_BOOTTIME`), on the clock that all endpoints of this machine
/// use.
pub fn now() -> Instant {
    Instant::from_nanos(os::boottime_ns())
}

/// Returns 32 bytes from the kernel's random generator.
///
/// # Errors
/// An error of the kernel, if the system has no `getrandom`.
pub fn seed() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    os::random(&mut bytes)?;
    Ok(bytes)
}

/// Replaces the bytes by bytes from the kernel's random generator. If the generator fails, the
/// bytes stay unchanged.
pub(crate) fn fresh(bytes: &mut [u8; 16]) {
    let _ = os::random(bytes);
}

/// Returns a secret from the kernel's random generator.
///
/// # Errors
/// An error of the kernel, if the system has no `getrandom`.
pub fn secret() -> io::Result<Secret> {
    let mut bytes = [0; 16];
    os::random(&mut bytes)?;
    Ok(Secret::new(bytes))
}

/// Returns the CPU time that all threads of this process have used.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(os::process_cpu_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_secrets_differ_in_every_byte() {
        let all: Vec<[u8; 16]> = (0..1000).map(|_| *secret().unwrap().bytes()).collect();
        for at in 0..16 {
            let values: std::collections::BTreeSet<u8> = all.iter().map(|of| of[at]).collect();
            // Each of 256 values is missing with a probability of 2 %. It is practically impossible
            // that 100 values are missing.
            assert!(values.len() > 156, "byte {at} has {} values", values.len());
        }
        let words: std::collections::BTreeSet<u64> =
            all.iter().map(|bytes| Secret::new(*bytes).word()).collect();
        assert_eq!(words.len(), all.len());
        assert!(words.iter().filter(|word| **word > 1 << 32).count() > 990);
    }

    #[test]
    fn a_stamp_of_now_maps_to_about_now() {
        let mut clock = Clock::new();
        let before = clock.now();
        let stamp = os::realtime_ns();
        let now = clock.now();
        let mapped = clock.arrival(stamp, now);
        assert!(mapped <= now);
        assert!(mapped + Duration::from_millis(100) > before);
    }

    #[test]
    fn absent_future_and_ancient_stamps_count_as_now() {
        let mut clock = Clock::new();
        let now = clock.now();
        let wall = os::realtime_ns();
        assert_eq!(clock.arrival(0, now), now);
        assert_eq!(clock.arrival(wall + 60_000_000_000, now), now);
        assert_eq!(clock.arrival(wall - 60_000_000_000, now), now);
        assert_eq!(clock.arrival(1, now), now);
    }

    #[test]
    fn a_lasting_epoch_grows_although_the_clock_was_set_back() {
        let name = format!("srd-epoch-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let first = lasting_epoch(&file).unwrap();
        assert!(first >= Epoch(os::realtime_ns() - 60_000_000_000));
        // Content of the file after a run whose clock was a day ahead.
        let ahead = first.0 + 86_400_000_000_000;
        std::fs::write(&file, format!("{ahead}\n")).unwrap();
        let second = lasting_epoch(&file).unwrap();
        let third = lasting_epoch(&file).unwrap();
        assert!(second.0 > ahead && third > second, "{ahead} {second:?} {third:?}");
        for nonsense in ["", "soon", "-1"] {
            std::fs::write(&file, nonsense).unwrap();
            assert!(lasting_epoch(&file).unwrap() < second, "the clock's");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(lasting_epoch(Path::new("/nowhere/epoch")).is_err());
    }

    /// Makes a directory for one test.
    fn directory(name: &str) -> std::path::PathBuf {
        let directory =
            std::env::temp_dir().join(format!("srd-epoch-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// Environment variable with a directory: if it is set, the test of a full disk runs in a mount
    /// namespace of its own.
    const FULL: &str = "SRD_NET_TEST_FULL_DISK";

    /// If the disk is full, the start fails with an error that names the file, and the epoch of the
    /// previous run remains.
    #[test]
    fn regression_a_full_disk_keeps_the_last_epoch() {
        let Some(directory) = std::env::var_os(FULL).map(std::path::PathBuf::from) else {
            return run_with_a_small_disk();
        };
        let mount = ["-t", "tmpfs", "-o", "size=8k", "srd-test"];
        let mounted = std::process::Command::new("mount").args(mount).arg(&directory).status();
        assert!(mounted.unwrap().success());
        let (file, fill) = (directory.join("epoch"), directory.join("fill"));
        let ahead = os::realtime_ns() + 86_400_000_000_000;
        std::fs::write(&file, format!("{ahead}\n")).unwrap();
        std::fs::write(&fill, [0; 4096]).unwrap();
        let error = lasting_epoch(&file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
        assert_eq!(last_epoch(&file), Some(ahead), "the file remains");
        let names = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| name == "epoch" || name == "fill"));
        std::fs::remove_file(&fill).unwrap();
        let next = lasting_epoch(&file).unwrap();
        assert!(next.0 > ahead && last_epoch(&file) == Some(next.0));
    }

    /// Environment variable: if it is set, the test of suspended time runs in a time namespace in
    /// which the machine was suspended for an hour.
    const SUSPENDED: &str = "SRD_NET_TEST_SUSPENDED";

    /// Regression: an endpoint did not notice the time for which its machine was suspended. A peer
    /// had forgotten it, and delivered its datagram again.
    #[test]
    fn regression_the_clock_counts_the_time_of_a_suspended_machine() {
        if std::env::var_os(SUSPENDED).is_none() {
            return run_after_a_suspension();
        }
        let awake = Instant::from_nanos(os::monotonic_ns());
        for now in [now(), Clock::new().now()] {
            assert!(now.since(awake) > Duration::from_secs(3000), "{now:?}, awake {awake:?}");
        }
        a_stamp_of_now_maps_to_about_now();
        let mut alarm = crate::sys::timer::Alarm::new().unwrap();
        let at = now() + Duration::from_millis(2);
        alarm.ring_by(at.as_nanos()).unwrap();
        let mut interests = [os::Interest::readable(alarm.fd())];
        assert_eq!(os::wait(&mut interests, Some(60_000_000_000)).unwrap(), 1);
        assert!(now() >= at, "the alarm has another clock");
    }

    fn run_after_a_suspension() {
        let namespace = ["--time", "--boottime", "3600", "--fork"];
        let can = std::process::Command::new("unshare").args(namespace).arg("true").status();
        if !can.is_ok_and(|status| status.success()) {
            println!("skipped: time namespaces need privileges, and the program unshare");
            return;
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = "regression_the_clock_counts_the_time_of_a_suspended_machine";
        let output = std::process::Command::new("unshare")
            .args(namespace)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::{name}")])
            .env(SUSPENDED, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    /// Runs the test of a full disk in a mount namespace, whose mounts end with the process.
    fn run_with_a_small_disk() {
        let can = ["--mount", "true"];
        if !std::process::Command::new("unshare").args(can).status().is_ok_and(|s| s.success()) {
            println!("skipped: mount namespaces need privileges, and the program unshare");
            return;
        }
        let directory = directory("full");
        let (_, module) = module_path!().split_once("::").unwrap();
        let output = std::process::Command::new("unshare")
            .arg("--mount")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::regression_a_full_disk_keeps_the_last_epoch")])
            .env(FULL, &directory)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn regression_an_epoch_that_no_clock_can_have_shown_counts_as_absent() {
        let directory = directory("huge");
        let file = directory.join("epoch");
        for absurd in [u64::MAX, u64::MAX - EPOCH_STEP, EPOCH_MAX + 1] {
            std::fs::write(&file, format!("{absurd}\n")).unwrap();
            let first = lasting_epoch(&file).unwrap();
            assert!(first.0 <= os::realtime_ns(), "{absurd}: {first:?}");
            assert!(lasting_epoch(&file).unwrap() > first, "it grows again");
        }
        std::fs::write(&file, format!("{EPOCH_MAX}\n")).unwrap();
        assert_eq!(lasting_epoch(&file).unwrap(), Epoch(EPOCH_MAX + EPOCH_STEP));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// Regression: daemons in several network namespaces share one state directory.
    #[test]
    fn regression_daemons_that_begin_at_once_have_epochs_of_their_own() {
        let directory = directory("at-once");
        let file = directory.join("epoch");
        // The clock was set back since the file was written, so the file alone determines the next
        // epoch.
        let ahead = os::realtime_ns() + 86_400_000_000_000;
        std::fs::write(&file, format!("{ahead}\n")).unwrap();
        // A thread that draws again at once mostly gets the lock again, and each draw waits for the
        // disk. The waits of all threads together have to be shorter than `LOCK_WAIT_MAX`.
        let drawn = || (0..8).map(|_| lasting_epoch(&file).unwrap().0).collect::<Vec<u64>>();
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(drawn)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "two daemons have one epoch");
        assert_eq!(last_epoch(&file), all.last().copied());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn regression_a_link_in_the_state_directory_overwrites_nothing() {
        let directory = directory("link");
        let (file, victim) = (directory.join("epoch"), directory.join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, directory.join("epoch.new")).unwrap();
        lasting_epoch(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(std::fs::symlink_metadata(&file).unwrap().is_file());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn regression_a_pipe_or_an_endless_file_in_place_of_the_epoch_holds_nothing_up() {
        let directory = directory("pipe");
        let file = directory.join("epoch");
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let (told, hears) = std::sync::mpsc::channel();
        let of_pipe = file.clone();
        std::thread::spawn(move || told.send(lasting_epoch(&of_pipe)));
        let drawn = hears.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits");
        assert!(drawn.is_ok());
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(lasting_epoch(&file).is_ok());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_offset_is_measured_again_after_its_lifetime() {
        let mut clock = Clock::new();
        clock.offset_ns = 12345;
        clock.measured_at = Instant::ZERO;
        let now = clock.now();
        let mapped = clock.arrival(os::realtime_ns(), now + Duration::from_millis(1));
        assert!(now.since(mapped) < Duration::from_millis(100));
        assert_ne!(clock.offset_ns, 12345);
    }
}
