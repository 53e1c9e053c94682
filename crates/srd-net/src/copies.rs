//! Whether the state of this process may exist twice: a virtual machine was restored from a
//! snapshot or cloned, or the process from a checkpoint. Both copies hold the keys of every
//! session, so each must begin another run ([`srd_proto::Endpoint::reseed`]).
//!
//! | what changes | what it shows |
//! |---|---|
//! | the virtual machine's generation id: uevent `NEW_VMGENID` | a snapshot or clone |
//! | the boot id | a checkpoint that was restored on another machine or after a restart |
//! | the wall clock, against `CLOCK_BOOTTIME` | the clock was set, as after a restore |
//!
//! The last is no more than a suspicion: an endpoint counts it if its owner asked for that. A pause
//! (SIGSTOP, a suspended machine) copies nothing, and changes none of the three.
//!
//! One watch serves all endpoints of a process. Bounds: it looks every [`LOOK_EVERY`] at most, and
//! reads [`EVENTS_MAX`] events each time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use netlink_sys::protocols::NETLINK_KOBJECT_UEVENT;
use netlink_sys::{Socket, SocketAddr};
use srd_proto::time::{Duration, Instant};

use crate::sys::os;

/// How often the kernel is asked at most.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the boot id is read at most.
const BOOT_ID_EVERY: Duration = Duration::from_secs(1);
/// Events that one look reads; the rest waits for the next.
const EVENTS_MAX: usize = 64;
/// The group of the kernel's own events; udev has another.
const KERNEL_GROUP: u32 = 1;
/// A wall clock that moves by so much against the time since the start was set; an adjusted one
/// moves by half a millisecond a second.
const STEP_MIN_NS: u64 = 1_000_000_000;
/// Where the kernel shows the boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A sign that this process may exist twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Copied {
    /// The virtual machine has another generation id.
    GenerationId,
    /// The machine has another boot id.
    BootId,
    /// The wall clock was set, by so many seconds.
    ClockStep {
        /// Forward or back.
        seconds: u64,
    },
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GenerationId => f.write_str("the virtual machine has a new generation id"),
            Self::BootId => f.write_str("the boot id is another one"),
            Self::ClockStep { seconds } => write!(f, "the clock was set by {seconds} s"),
        }
    }
}

/// The findings of the watch that an endpoint has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    found: u64,
    certain: u64,
    steps: u64,
    /// Whether a step of the clock counts.
    pub(crate) counts_steps: bool,
}

/// When the kernel is next asked, in nanoseconds.
static LOOK_AT: AtomicU64 = AtomicU64::new(0);
/// Rises with each finding.
static FOUND: AtomicU64 = AtomicU64::new(0);
static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

impl Copies {
    /// An endpoint that begins now.
    pub(crate) fn new() -> Self {
        let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = watch.get_or_insert_with(Watch::new);
        let found = FOUND.load(Ordering::Acquire);
        Self { found, certain: watch.certain.0, steps: watch.steps.0, counts_steps: false }
    }

    /// The newest finding since the last call that concerns this endpoint.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Copied> {
        ask(now);
        if FOUND.load(Ordering::Acquire) == self.found { None } else { self.take() }
    }

    #[cold]
    fn take(&mut self) -> Option<Copied> {
        let watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = watch.as_ref()?;
        self.found = FOUND.load(Ordering::Acquire);
        let (certain, step) = (watch.certain.0 != self.certain, watch.steps.0 != self.steps);
        (self.certain, self.steps) = (watch.certain.0, watch.steps.0);
        let certain = if certain { watch.certain.1 } else { None };
        certain.or(if step && self.counts_steps { watch.steps.1 } else { None })
    }
}

/// Asks the kernel, if the last time is long enough ago and no other thread does.
fn ask(now: Instant) {
    let due = LOOK_AT.load(Ordering::Relaxed);
    if now.as_nanos() < due {
        return;
    }
    let Ok(mut watch) = WATCH.try_lock() else { return };
    LOOK_AT.store((now + LOOK_EVERY).as_nanos(), Ordering::Relaxed);
    if watch.get_or_insert_with(Watch::new).look(now) {
        FOUND.fetch_add(1, Ordering::Release);
    }
}

/// The kernel's answers at the last look.
struct Watch {
    /// None: the system has no such events, or this process may not have them.
    events: Option<Socket>,
    boot_id: Option<Vec<u8>>,
    boot_id_at: Instant,
    /// Wall clock minus time since the start, wrapping.
    offset_ns: u64,
    /// How often each kind was found, and what was found last.
    certain: (u64, Option<Copied>),
    steps: (u64, Option<Copied>),
}

impl Watch {
    fn new() -> Self {
        Self {
            events: events().ok(),
            boot_id: std::fs::read(BOOT_ID).ok(),
            boot_id_at: Instant::from_nanos(os::monotonic_ns()),
            offset_ns: offset(),
            certain: (0, None),
            steps: (0, None),
        }
    }

    /// Asks for everything. Returns whether anything was found.
    fn look(&mut self, now: Instant) -> bool {
        let step = self.step(offset());
        let certain = if self.has_new_id() { Some(Copied::GenerationId) } else { None };
        let certain = certain.or_else(|| self.has_other_boot(now).then_some(Copied::BootId));
        if certain.is_some() {
            self.certain = (self.certain.0 + 1, certain);
        }
        if step.is_some() {
            self.steps = (self.steps.0 + 1, step);
        }
        certain.is_some() || step.is_some()
    }

    /// Reads the kernel's events.
    fn has_new_id(&mut self) -> bool {
        let Some(socket) = &self.events else { return false };
        let mut found = false;
        for _ in 0..EVENTS_MAX {
            match socket.recv_from_full() {
                // Any process may write to another's socket; the kernel has no port.
                Ok((event, from)) => found |= from.port_number() == 0 && is_new_id(&event),
                // No more; or some were lost, which busy hot-plugging does and no copy needs.
                Err(_) => break,
            }
        }
        found
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

    /// Notes the difference of the clocks. Returns by how much it has moved, if by a step.
    fn step(&mut self, offset_ns: u64) -> Option<Copied> {
        let before = std::mem::replace(&mut self.offset_ns, offset_ns);
        let moved = offset_ns.wrapping_sub(before).cast_signed().unsigned_abs();
        (moved >= STEP_MIN_NS).then_some(Copied::ClockStep { seconds: moved / 1_000_000_000 })
    }
}

/// Whether an event of the kernel says that the virtual machine has a new generation id.
fn is_new_id(event: &[u8]) -> bool {
    event.split(|byte| *byte == 0).any(|line| line == b"NEW_VMGENID=1")
}

/// A socket that the kernel's events arrive at.
fn events() -> std::io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_KOBJECT_UEVENT)?;
    socket.bind(&SocketAddr::new(0, KERNEL_GROUP))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Wall clock minus time since the start, suspended time included.
fn offset() -> u64 {
    os::realtime_ns().wrapping_sub(os::boottime_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch { events: None, ..Watch::new() }
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
