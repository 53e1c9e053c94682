//! Whether the state of this process may exist twice: a virtual machine was restored from a
//! snapshot or cloned, or the process from a checkpoint. Both copies hold the keys of every
//! session, so each copy must start another run ([`srd_proto::Endpoint::reseed`]).
//!
//! | change | meaning |
//! |---|---|
//! | the virtual machine's generation id: uevent `NEW_VMGENID` (Linux 6.8) | a snapshot or clone |
//! | its generation counter in `/dev/vmclock0` (since Linux 7.0) | a snapshot or clone |
//! | the boot id | a checkpoint that was restored on another machine or after a restart |
//! | the wall clock, against `CLOCK_BOOTTIME` | the clock was set, as after a restore |
//! | events of the kernel were lost | a lost event may have reported a generation id |
//!
//! The last two are only suspicions: an endpoint acts on a suspicion only if its owner has enabled
//! this. Another run costs each peer a handshake, in which traffic pauses. So if the clock is set
//! again and again, the first [`SUSPICIONS_MAX`] suspicions count immediately, and then one in each
//! [`SUSPICION_EVERY`]; a suspicion that comes earlier counts at the end of this interval. A pause
//! (SIGSTOP, a suspended machine) copies nothing, and changes nothing in this table.
//!
//! One watch serves all endpoints of a process. Bounds: the watch queries the kernel at most once
//! per [`LOOK_EVERY`], and reads at most [`EVENTS_MAX`] events each time.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use netlink_sys::protocols::NETLINK_KOBJECT_UEVENT;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt;
use srd_proto::time::{Duration, Instant};

use crate::sys::fork::{OfProcess, Process};
use crate::sys::os;

/// Shortest interval between two queries to the kernel.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Shortest interval between two reads of the boot id.
const BOOT_ID_EVERY: Duration = Duration::from_secs(1);
/// Largest number of events that one query reads. Further events wait for the next query.
const EVENTS_MAX: usize = 64;
/// Multicast group of the kernel's own events; udev uses another group.
const KERNEL_GROUP: u32 = 1;
/// Number of suspicions that count even if they follow each other immediately.
const SUSPICIONS_MAX: u32 = 3;
/// Interval at which one more suspicion may count after the first [`SUSPICIONS_MAX`].
const SUSPICION_EVERY: Duration = Duration::from_secs(300);
/// Size of the receive buffer for events, in bytes, as far as the system grants this size.
const EVENT_BYTES: usize = 1 << 20;
/// Smallest step of the wall clock against `CLOCK_BOOTTIME`, in nanoseconds, that means that the
/// clock was set. A clock that is only slewed moves by at most half a millisecond per second.
const STEP_MIN_NS: u64 = 1_000_000_000;
/// File of the boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Device with the virtual machine's clock and its generation counter (the VMClock specification of
/// uapi-group.org; `vmclock-abi.h` of Linux). Reading it returns a copy of the device's memory.
const VMCLOCK: &str = "/dev/vmclock0";
/// Number of bytes of [`VMCLOCK`] up to the end of the generation counter.
const VMCLOCK_BYTES: usize = 112;
/// First four bytes of [`VMCLOCK`]: "VCLK".
const VMCLOCK_MAGIC: u32 = 0x4b4c_4356;
/// Flag of [`VMCLOCK`]: the hypervisor changes the generation counter after each restore.
const VMCLOCK_HAS_GENERATION: u64 = 1 << 8;

/// A sign that this process may exist twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Copied {
    /// The virtual machine has a new generation id: it was restored from a snapshot or cloned.
    GenerationId,
    /// The machine has another boot id than before: this process was restored on another machine,
    /// or after a restart of the machine.
    BootId,
    /// The wall clock was set, forward or back.
    ClockStep {
        /// Absolute size of the step, in seconds.
        seconds: u64,
    },
    /// Events of the kernel were lost. A lost event may have reported a new generation id.
    EventsLost,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GenerationId => f.write_str("the virtual machine has a new generation id"),
            Self::BootId => f.write_str("the boot id is another one"),
            Self::ClockStep { seconds } => write!(f, "the clock was set by {seconds} s"),
            Self::EventsLost => f.write_str("events of the kernel were lost"),
        }
    }
}

/// Reason why an endpoint must not go on with its sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// This process may exist twice: the endpoint begins another run.
    Copied(Copied),
    /// This process is the child of a fork, and the endpoint belongs to its parent, which has the
    /// same keys.
    Forked,
}

/// State of one endpoint: the numbers of the findings that this endpoint has processed. All
/// endpoints of the process share one watch, which counts the findings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    process: Process,
    found: u64,
    certain: u64,
    suspicions: u64,
    /// Whether this endpoint receives suspicions (a set clock, lost events) in addition to certain
    /// findings.
    pub(crate) counts_suspicions: bool,
}

/// Time of the next query to the kernel, in nanoseconds of the clock of endpoints.
static LOOK_AT: AtomicU64 = AtomicU64::new(0);
/// Number of queries of this process that found a sign of a copy.
static FOUND: AtomicU64 = AtomicU64::new(0);

/// Returns the watch of this process. The child of a fork has its own watch: it would otherwise
/// share the kernel's events with its parent, and might wait for a lock that no thread holds there.
fn watch() -> &'static Mutex<Watch> {
    static WATCH: OfProcess<Mutex<Watch>> = OfProcess::new();
    WATCH.get(|_| Mutex::new(Watch::new()))
}

impl Copies {
    /// Returns the state of an endpoint that starts now: earlier findings do not concern it.
    pub(crate) fn new() -> Self {
        let watch = watch().lock().unwrap_or_else(PoisonError::into_inner);
        let found = FOUND.load(Ordering::Acquire);
        let (certain, suspicions) = (watch.certain.0, watch.suspicions.0);
        let process = Process::current();
        Self { process, found, certain, suspicions, counts_suspicions: false }
    }

    /// Returns the newest finding since the last call that concerns this endpoint. In the child of
    /// a fork, every call returns [`Finding::Forked`] for an endpoint of the parent.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Finding> {
        ask(now);
        let is_same = self.process.is_current() && FOUND.load(Ordering::Acquire) == self.found;
        if is_same { None } else { self.take() }
    }

    #[cold]
    fn take(&mut self) -> Option<Finding> {
        if !self.process.is_current() {
            return Some(Finding::Forked);
        }
        let watch = watch().lock().unwrap_or_else(PoisonError::into_inner);
        self.found = FOUND.load(Ordering::Acquire);
        let certain = if watch.certain.0 == self.certain { None } else { watch.certain.1 };
        let suspected = watch.suspicions.0 != self.suspicions && self.counts_suspicions;
        (self.certain, self.suspicions) = (watch.certain.0, watch.suspicions.0);
        certain.or(if suspected { watch.suspicions.1 } else { None }).map(Finding::Copied)
    }
}

/// Queries the kernel, if [`LOOK_EVERY`] has passed since the last query and no other thread is
/// querying it.
fn ask(now: Instant) {
    let due = LOOK_AT.load(Ordering::Relaxed);
    if now.as_nanos() < due {
        return;
    }
    let Ok(mut watch) = watch().try_lock() else { return };
    LOOK_AT.store((now + LOOK_EVERY).as_nanos(), Ordering::Relaxed);
    if watch.look(now) {
        FOUND.fetch_add(1, Ordering::Release);
    }
}

/// The kernel's answers at the last query.
struct Watch {
    /// Socket for the kernel's events. `None`: the system has no such events, or this process has
    /// no permission to receive them.
    events: Option<Socket>,
    /// The virtual machine's clock device. `None`: there is no such device, or this process may not
    /// read it.
    vmclock: Option<File>,
    /// Last generation counter of the device.
    generation: Option<u64>,
    boot_id: Option<Vec<u8>>,
    boot_id_at: Instant,
    /// Wall clock minus `CLOCK_BOOTTIME` in nanoseconds, modulo 2^64.
    offset_ns: u64,
    /// Number of certain findings (another generation id or boot id), and the last of them.
    certain: (u64, Option<Copied>),
    suspicions: (u64, Option<Copied>),
    rate: Rate,
}

/// Rate limit of suspicions: bounds how often an uncertain sign of a copy counts.
#[derive(Debug)]
struct Rate {
    left: u32,
    /// Start of the interval at whose end one more suspicion is permitted.
    granted_at: Instant,
    /// A suspicion that is not counted yet, because the rate limit does not permit it.
    waits: Option<Copied>,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { left: SUSPICIONS_MAX, granted_at: now, waits: None }
    }

    /// Takes a new suspicion, if there is one. Returns the suspicion that counts now: the new
    /// suspicion, or an earlier suspicion that was held back. Returns `None` if the rate limit
    /// permits no suspicion yet.
    fn admit(&mut self, now: Instant, suspicion: Option<Copied>) -> Option<Copied> {
        while self.left < SUSPICIONS_MAX && now.since(self.granted_at) >= SUSPICION_EVERY {
            self.left += 1;
            self.granted_at += SUSPICION_EVERY;
        }
        let first = suspicion.or(self.waits)?;
        if self.left == 0 {
            self.waits = Some(first);
            return None;
        }
        if self.left == SUSPICIONS_MAX {
            self.granted_at = now;
        }
        self.left -= 1;
        self.waits = None;
        Some(first)
    }
}

/// Result of reading the kernel's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Read {
    has_new_id: bool,
    were_lost: bool,
}

impl Watch {
    fn new() -> Self {
        let now = crate::clock::now();
        let vmclock = File::open(VMCLOCK).ok();
        Self {
            events: events().ok(),
            generation: vmclock.as_ref().and_then(generation),
            vmclock,
            boot_id: std::fs::read(BOOT_ID).ok(),
            boot_id_at: now,
            offset_ns: offset(),
            certain: (0, None),
            suspicions: (0, None),
            rate: Rate::new(now),
        }
    }

    /// Makes all checks. Returns whether any of them found a sign of a copy.
    fn look(&mut self, now: Instant) -> bool {
        let step = self.step(offset());
        let events = self.events.as_ref().map(|socket| {
            read_events(|| {
                let (event, from) = socket.recv_from_full()?;
                Ok((event, from.port_number()))
            })
        });
        let Read { has_new_id, were_lost } = events.unwrap_or_default();
        let has_new_id = has_new_id | self.has_other_generation();
        let certain = if has_new_id { Some(Copied::GenerationId) } else { None };
        let certain = certain.or_else(|| self.has_other_boot(now).then_some(Copied::BootId));
        if certain.is_some() {
            self.certain = (self.certain.0 + 1, certain);
        }
        let suspicion = step.or(were_lost.then_some(Copied::EventsLost));
        let counts = self.rate.admit(now, suspicion);
        if counts.is_some() {
            self.suspicions = (self.suspicions.0 + 1, counts);
        }
        certain.is_some() || counts.is_some()
    }

    fn has_other_generation(&mut self) -> bool {
        let Some(now) = self.vmclock.as_ref().and_then(generation) else { return false };
        self.generation.replace(now).is_some_and(|before| before != now)
    }

    fn has_other_boot(&mut self, now: Instant) -> bool {
        if now.since(self.boot_id_at) < BOOT_ID_EVERY {
            return false;
        }
        self.boot_id_at = now;
        let Ok(id) = std::fs::read(BOOT_ID) else { return false };
        let before = self.boot_id.replace(id);
        before.is_some() && before != self.boot_id
    }

    /// Stores the difference between the wall clock and `CLOCK_BOOTTIME`. If it has changed at once
    /// by at least `STEP_MIN_NS`, returns the size of this step.
    fn step(&mut self, offset_ns: u64) -> Option<Copied> {
        let before = std::mem::replace(&mut self.offset_ns, offset_ns);
        let moved = offset_ns.wrapping_sub(before).cast_signed().unsigned_abs();
        (moved >= STEP_MIN_NS).then_some(Copied::ClockStep { seconds: moved / 1_000_000_000 })
    }
}

/// Reads the kernel's events. Each call of `next` returns an event and the netlink port of its
/// sender.
fn read_events(mut next: impl FnMut() -> io::Result<(Vec<u8>, u32)>) -> Read {
    let mut read = Read::default();
    for _ in 0..EVENTS_MAX {
        match next() {
            // Any process may write to the netlink socket of another process; only the kernel has
            // port 0.
            Ok((event, from)) => read.has_new_id |= from == 0 && is_new_id(&event),
            // Events that were not lost can still be read.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => read.were_lost = true,
            Err(_) => break,
        }
    }
    read
}

/// Reads the generation counter of the virtual machine's clock device. Returns `None` if the device
/// has no such counter, or if the hypervisor is just changing its memory.
fn generation(device: &File) -> Option<u64> {
    let mut bytes = [0; VMCLOCK_BYTES];
    device.read_exact_at(&mut bytes, 0).ok()?;
    let u32_at = |at: usize| bytes[at..].first_chunk().map(|of| u32::from_le_bytes(*of));
    let u64_at = |at: usize| bytes[at..].first_chunk().map(|of| u64::from_le_bytes(*of));
    let (magic, size, sequence) = (u32_at(0)?, u32_at(4)?, u32_at(12)?);
    // The sequence number is odd during a change.
    let is_whole =
        usize::try_from(size).is_ok_and(|size| size >= VMCLOCK_BYTES) && sequence % 2 == 0;
    let has_it = u64_at(24)? & VMCLOCK_HAS_GENERATION != 0;
    if magic == VMCLOCK_MAGIC && is_whole && has_it { u64_at(104) } else { None }
}

/// Whether an event of the kernel reports a new generation id of the virtual machine.
fn is_new_id(event: &[u8]) -> bool {
    event.split(|byte| *byte == 0).any(|line| line == b"NEW_VMGENID=1")
}

/// Opens a socket that receives the kernel's events.
fn events() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_KOBJECT_UEVENT)?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, EVENT_BYTES).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, EVENT_BYTES);
    }
    socket.bind(&SocketAddr::new(0, KERNEL_GROUP))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Returns the wall clock minus `CLOCK_BOOTTIME` (which includes suspended time), in nanoseconds
/// modulo 2^64.
fn offset() -> u64 {
    os::realtime_ns().wrapping_sub(os::boottime_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a child of a fork that opened an endpoint waited for ever, if another thread of
    /// the parent was querying the kernel at the fork.
    #[test]
    fn regression_the_child_of_a_fork_waits_for_no_query_of_its_parent() {
        let query = super::watch().lock().unwrap();
        let code = crate::sys::fork::in_child(60, || {
            Copies::new();
            0
        });
        assert_eq!(code, Some(0), "the child waited for the lock");
        drop(query);
    }

    /// The child of a fork has the keys of its parent's sessions. If both went on with them, they
    /// would seal different packets under the same numbers.
    #[test]
    fn the_child_of_a_fork_cannot_go_on_with_an_endpoint_of_its_parent() {
        struct Nobody;

        impl crate::Application for Nobody {
            fn delivered(&mut self, _: &mut crate::Context<'_>, _: srd_proto::Delivery<'_>) {}
        }

        let config = srd_proto::Config::default();
        let mut endpoint = crate::LocalEndpoint::over(crate::NoIo::new().unwrap(), config).unwrap();
        let code = crate::sys::fork::in_child(60, || {
            let refused = || endpoint.poll(Duration::ZERO, &mut Nobody).is_err();
            u8::from(std::iter::repeat_with(refused).take(3).all(|refused| refused))
        });
        assert_eq!(code, Some(1), "the child used the endpoint of its parent");
        endpoint.poll(Duration::ZERO, &mut Nobody).unwrap();
    }

    fn watch() -> Watch {
        Watch { events: None, vmclock: None, generation: None, ..Watch::new() }
    }

    /// Since Linux 6.9, no event reports a restored snapshot; since Linux 7.0, a counter does.
    #[test]
    fn regression_a_generation_counter_that_changes_is_a_certain_sign_once() {
        let name = format!("srd-vmclock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let write = |magic: u32, size: u32, sequence: u32, flags: u64, generation: u64| {
            let mut page = vec![0; 4096];
            page[..4].copy_from_slice(&magic.to_le_bytes());
            page[4..8].copy_from_slice(&size.to_le_bytes());
            page[12..16].copy_from_slice(&sequence.to_le_bytes());
            page[24..32].copy_from_slice(&flags.to_le_bytes());
            page[104..112].copy_from_slice(&generation.to_le_bytes());
            std::fs::write(&path, page).unwrap();
        };
        let (magic, flag) = (VMCLOCK_MAGIC, VMCLOCK_HAS_GENERATION);
        write(magic, 4096, 2, flag | 1, 7);
        let device = File::open(&path).unwrap();
        let generation = generation(&device);
        assert_eq!(generation, Some(7));
        let mut watch = Watch { vmclock: Some(device), generation, ..watch() };
        let now = crate::clock::now();
        let certain = |watch: &mut Watch| {
            watch.look(now);
            watch.certain
        };
        assert_eq!(certain(&mut watch), (0, None));
        // Memory that is not valid, or that is being changed, is no sign.
        for (magic, size, sequence, flags) in
            [(1, 4096, 2, flag), (magic, 104, 2, flag), (magic, 4096, 3, flag), (magic, 4096, 2, 1)]
        {
            write(magic, size, sequence, flags, 8);
            assert_eq!(certain(&mut watch), (0, None));
        }
        write(magic, 4096, 4, flag, 8);
        for _ in 0..2 {
            assert_eq!(certain(&mut watch), (1, Some(Copied::GenerationId)));
        }
        write(magic, 4096, 6, flag, 3);
        assert_eq!(certain(&mut watch), (2, Some(Copied::GenerationId)));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_kernels_word_is_one_line_of_its_event() {
        let event = b"change@/devices/LNXSYSTM:00/QEMUVGID:00\0ACTION=change\0SUBSYSTEM=acpi\0\
                      NEW_VMGENID=1\0SEQNUM=1234";
        assert!(is_new_id(event));
        assert!(!is_new_id(b"change@/x\0ACTION=change\0NEW_VMGENID=10\0"));
        assert!(!is_new_id(b"add@/x\0NAME=NEW_VMGENID=1\0"));
        assert!(!is_new_id(b""));
    }

    #[test]
    fn a_clock_that_is_set_counts_and_one_that_is_adjusted_does_not() {
        let mut watch = watch();
        let start = watch.offset_ns;
        assert_eq!(watch.step(start.wrapping_add(STEP_MIN_NS - 1)), None);
        let at = watch.offset_ns;
        for (to, seconds) in [(at + 90_000_000_000, 90), (at, 90)] {
            assert_eq!(watch.step(to), Some(Copied::ClockStep { seconds }));
            assert_eq!(watch.step(to), None, "it is said once");
        }
    }

    /// Regression: each time that the clock was set paused traffic, even if it was set again and
    /// again.
    #[test]
    fn regression_a_clock_that_is_set_again_and_again_counts_now_and_then() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let step = |seconds| Some(Copied::ClockStep { seconds });
        let mut rate = Rate::new(at(0));
        let counted = (1..=1000).filter(|n| rate.admit(at(*n), step(*n)).is_some());
        let expected: Vec<u64> = vec![1, 2, 3, 301, 601, 901];
        assert_eq!(counted.collect::<Vec<_>>(), expected);
        // A suspicion that came too early counts once, at the end of the interval.
        assert_eq!(rate.admit(at(1200), None), None);
        assert_eq!(rate.admit(at(1201), None), step(1000));
        assert_eq!(rate.admit(at(1202), None), None);
        // After a long time without a suspicion, the full number counts again.
        let counted = (5000..5010).filter(|n| rate.admit(at(*n), step(*n)).is_some());
        assert_eq!(counted.count(), 3);
    }

    /// Regression: a flood of events hides the event of a generation id.
    #[test]
    fn regression_lost_events_are_a_suspicion_and_those_behind_are_read() {
        let id = b"change@/x\0NEW_VMGENID=1\0".to_vec();
        let lost = || Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        let none = || Err(io::ErrorKind::WouldBlock.into());
        let read = |mut all: Vec<io::Result<(Vec<u8>, u32)>>| {
            all.reverse();
            read_events(|| all.pop().unwrap_or_else(none))
        };
        let found = |has_new_id, were_lost| Read { has_new_id, were_lost };
        assert_eq!(read(vec![lost(), Ok((id.clone(), 0))]), found(true, true));
        assert_eq!(read(vec![Ok((id.clone(), 7)), lost()]), found(false, true));
        assert_eq!(read(vec![Ok((id, 0))]), found(true, false));
        assert_eq!(read(Vec::new()), found(false, false));
        // The number of reads is bounded, whatever the kernel returns.
        let mut calls = 0;
        read_events(|| {
            calls += 1;
            lost()
        });
        assert_eq!(calls, EVENTS_MAX);
    }

    #[test]
    fn another_boot_id_is_found_after_a_while_and_once() {
        let mut watch = watch();
        watch.boot_id = Some(b"of another machine".to_vec());
        let later = watch.boot_id_at + BOOT_ID_EVERY;
        assert!(!watch.has_other_boot(watch.boot_id_at), "too early to ask");
        if std::fs::read(BOOT_ID).is_err() {
            println!("skipped: {BOOT_ID} cannot be read here");
            return;
        }
        assert!(watch.has_other_boot(later));
        assert!(!watch.has_other_boot(later + BOOT_ID_EVERY));
    }
}
