//! A passive capture of the packets that an interface sends and receives, by BPF programs at tc:
//! one small record for each packet, through a ring in memory. For monitoring programs; the
//! transport itself does not use it.
//!
//! The cost for each packet is less than half of the cost of a packet socket
//! ([`crate::interfaces::tap::Tap`]): no reference, no copy beyond the headers of the flow, no
//! wakeup. `docs/watch.md` describes the packets that the programs see.
//!
//! Bounds: the ring's memory, and 64 or 256 bytes of a packet. Packets that do not fit into the
//! ring are counted.

mod program;

use std::fmt;
use std::io;

use crate::interfaces::tap::TappedPacket;
use crate::sys::bpf::{self, Link, LoadError, Program, Purpose};
use crate::sys::shared::records::{Counter, RecordRing, Remainder};
use crate::sys::{errno, interface, os};
use program::{BYTES, KEPT, LENGTH, PROTOCOL, Recorder, SEGMENT, TIME, WAY};

/// Number of bytes that are copied from each packet, from its network header on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Headers of the flow: 64 bytes, or 256 if the packet may be a tunnel.
    Headers,
    /// 256 bytes of every packet.
    More,
}

/// State of the ring after records were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backlog {
    /// All records that existed at the start of the call were read.
    Nothing,
    /// A packet was being recorded during the call. This packet and later packets were not read.
    Unfinished,
    /// There are more records than the limit of the call.
    More,
}

/// Reason why an interface cannot be watched by BPF programs.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProbeError {
    /// The interface does not exist, or does not report its kind.
    Interface(io::Error),
    /// The program does not support this kind of link header.
    LinkKind(u16),
    /// The kernel refused a step of starting the capture.
    Refused {
        /// Step that the kernel refused.
        step: &'static str,
        /// Error that the kernel returned for the step.
        error: io::Error,
        /// Log of the verifier, if the kernel refused the program.
        log: String,
    },
}

impl ProbeError {
    fn of(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Refused { step, error, log: String::new() }
    }

    /// Returns the kind of the equivalent I/O error.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Interface(error) | Self::Refused { error, .. } => error.kind(),
            Self::LinkKind(_) => io::ErrorKind::Unsupported,
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(error) => write!(f, "{error}"),
            Self::LinkKind(kind) => {
                write!(f, "the program knows Ethernet and bare IP, and this link is of kind {kind}")
            }
            Self::Refused { step, error, .. }
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                write!(f, "{step} needs CAP_BPF and CAP_NET_ADMIN in the initial user namespace")
            }
            Self::Refused { step, error, .. } if errno(error) == libc::ENOSYS => {
                write!(f, "{step}: this kernel has no BPF")
            }
            Self::Refused { step, error, log } => {
                write!(f, "{step}: {error}")?;
                if log.is_empty() { Ok(()) } else { write!(f, "\n{log}") }
            }
        }
    }
}

impl std::error::Error for ProbeError {}

/// A capture on an interface by programs at tc. The programs are removed when this value is dropped
/// or the process ends, even by a crash.
#[derive(Debug)]
pub struct Probe {
    ring: RecordRing,
    lost: Counter,
    /// Number of packets that were lost before both programs were attached.
    lost_before: u64,
    /// Time when both programs were attached, by `CLOCK_MONOTONIC`. Older records are not shown.
    began_ns: u64,
    ingress: Link,
    _egress: Link,
}

impl Probe {
    /// Starts to capture packets of the interface. `ring_bytes`: size of the memory for records
    /// that wait to be read.
    ///
    /// # Errors
    /// [`ProbeError`], if the kernel is older than 6.6 or has no BPF, if a right is missing, or if
    /// the link header of the interface is not Ethernet or bare IP.
    pub fn open(interface: &str, keep: Keep, ring_bytes: u32) -> Result<Self, ProbeError> {
        let index = interface::index_of(interface).map_err(ProbeError::Interface)?;
        let kind = interface::link_kind_of(interface).map_err(ProbeError::Interface)?;
        let link_bytes = link_bytes(kind).ok_or(ProbeError::LinkKind(kind))?;
        let ring = RecordRing::new(ring_bytes).map_err(ProbeError::of("making a BPF ring"))?;
        let lost = Counter::new().map_err(ProbeError::of("making a BPF counter"))?;
        let attach = |purpose: Purpose| {
            let recorder = Recorder {
                ring: ring.number(),
                lost: lost.number(),
                link_bytes,
                way: u8::from(purpose == Purpose::Egress),
                whole: keep == Keep::More,
            };
            let program = Program::load(purpose, &program::assemble(&recorder))?;
            let step = "attaching a BPF program at tc (TCX, since Linux 6.6)";
            program.attach_first(index).map_err(ProbeError::of(step))
        };
        let (ingress, egress) = (attach(Purpose::Ingress)?, attach(Purpose::Egress)?);
        let (lost_before, began_ns) = (lost.value(), os::monotonic_ns());
        Ok(Self { ring, lost, lost_before, began_ns, ingress, _egress: egress })
    }

    /// Returns the start of the capture of both directions, in nanoseconds since 1970. Older
    /// packets are not shown.
    pub fn began_ns(&self) -> u64 {
        self.began_ns.saturating_add(offset_ns())
    }

    /// Calls `see` with up to `records_max` recorded packets. A new record causes no wake-up, so
    /// call this at intervals.
    pub fn look(&mut self, records_max: usize, mut see: impl FnMut(TappedPacket<'_>)) -> Backlog {
        let since_1970_ns = offset_ns();
        let rest = self.ring.look(records_max, |record| {
            if let Some(seen) = read(record, self.began_ns, since_1970_ns) {
                see(seen);
            }
        });
        match rest {
            Remainder::Nothing => Backlog::Nothing,
            Remainder::Unfinished => Backlog::Unfinished,
            Remainder::More => Backlog::More,
        }
    }

    /// Returns the number of packets since the start that were not shown because the ring was full.
    ///
    /// # Errors
    /// An error, if the interface was removed.
    pub fn lost(&self) -> io::Result<u64> {
        if self.ingress.is_attached()? {
            Ok(self.lost.value() - self.lost_before)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "the interface is gone"))
        }
    }
}

/// Returns the numbers of programs that are attached at tc of an interface, including those of
/// other processes: first the number for received packets, then the number for sent packets.
///
/// # Errors
/// An error of the operating system, if there is no such interface or `CAP_NET_ADMIN` is missing.
pub fn programs_at(interface: &str) -> io::Result<[u32; 2]> {
    let index = interface::index_of(interface)?;
    let at = |purpose| bpf::programs_at(index, purpose);
    Ok([at(Purpose::Ingress)?, at(Purpose::Egress)?])
}

impl From<LoadError> for ProbeError {
    fn from(refused: LoadError) -> Self {
        let step = "loading a BPF program";
        Self::Refused { step, error: refused.error, log: refused.log }
    }
}

/// Link kind of an interface without link headers, such as a modem (`ARPHRD_RAWIP`).
const ARPHRD_RAWIP: u16 = 519;

/// Returns the length in bytes of the link header of an interface of this kind; `None` if the kind
/// is not supported.
fn link_bytes(kind: u16) -> Option<u8> {
    match kind {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(14),
        libc::ARPHRD_NONE | ARPHRD_RAWIP => Some(0),
        _ => None,
    }
}

/// Longest time in nanoseconds that reading both clocks may take. If it takes longer, the clocks
/// are read again.
const NEAR_NS: u64 = 1_000;
/// Largest number of times that one measurement reads both clocks.
const READINGS_MAX: usize = 16;

/// Returns the difference between the time since 1970 and `CLOCK_MONOTONIC`; it changes when the
/// clock is set. Of several pairs of readings the closest pair is used, because this process may
/// lose its CPU between the two readings.
fn offset_ns() -> u64 {
    let (mut apart_least, mut offset) = (u64::MAX, 0);
    for _ in 0..READINGS_MAX {
        let before = os::monotonic_ns();
        let now = os::realtime_ns();
        let apart = os::monotonic_ns().saturating_sub(before);
        if apart < apart_least {
            (apart_least, offset) = (apart, now.saturating_sub(before + apart / 2));
        }
        if apart_least < NEAR_NS {
            break;
        }
    }
    offset
}

/// Returns the packet in a record; `None` if the record is older than `began_ns` or malformed.
fn read(record: &[u8], began_ns: u64, since_1970_ns: u64) -> Option<TappedPacket<'_>> {
    let field = |at: i16, bytes: usize| {
        let at = usize::from(at.unsigned_abs());
        record.get(at..at + bytes)
    };
    let half = |at: i16| Some(u16::from_ne_bytes(field(at, 2)?.try_into().ok()?));
    let time_ns = u64::from_ne_bytes(field(TIME, 8)?.try_into().ok()?);
    if time_ns < began_ns {
        return None;
    }
    let segment_bytes = half(SEGMENT)?;
    Some(TappedPacket {
        time_ns: time_ns.saturating_add(since_1970_ns),
        outgoing: *field(WAY, 1)?.first()? != 0,
        protocol: u16::from_be(half(PROTOCOL)?),
        length: u32::from_ne_bytes(field(LENGTH, 4)?.try_into().ok()?),
        segment_bytes: (segment_bytes > 0).then_some(segment_bytes),
        bytes: field(BYTES, half(KEPT)?.into())?,
    })
}
