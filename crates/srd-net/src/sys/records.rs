//! Data from BPF programs to this process: records in a ring (`BPF_MAP_TYPE_RINGBUF`), a counter.
//!
//! ```text
//!  page 0   how far this process has read          (this process writes it)
//!  page 1   how far the kernel has given out room  (the kernel writes it)
//!  then     the ring, twice, so that no record is in two parts
//!  record   length and two bits: being written, given up | 4 bytes of the kernel's | the bytes
//! ```
//!
//! A record belongs to the kernel until the first bit of its length is cleared, and then to this
//! process until it publishes its read position: no byte is ever read and written at a time. A
//! program that finds no room gets an error, and continues without a record. The bound is the
//! ring's size.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::bpf::{Purpose, Shape, make_map};
use super::ring::Mapping;

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;
/// This process may map it (`BPF_F_MMAPABLE`).
const MAPPABLE: u32 = 1 << 10;

/// The record is being written (`BPF_RINGBUF_BUSY_BIT`).
const BUSY: u32 = 1 << 31;
/// Flag of a record that was discarded (`BPF_RINGBUF_DISCARD_BIT`).
const DISCARDED: u32 = 1 << 30;
/// Bytes before a record.
const HEADER_BYTES: usize = 8;
/// Shares of the ring after which room is given back, while records are read.
const SHARES: usize = 16;

/// State of the ring after a look at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remainder {
    /// Nothing is left.
    Nothing,
    /// The next record is being written.
    Unfinished,
    /// There are more.
    More,
}

/// A ring that programs write records into.
#[derive(Debug)]
pub(crate) struct RecordRing {
    fd: OwnedFd,
    read: Mapping,
    written: Mapping,
    /// Bytes of the ring: a power of two.
    bytes: usize,
    /// Offset of its first byte in `written`.
    begin: usize,
    /// Read position of this process; it grows beyond the ring's size, and may wrap.
    at: usize,
}

impl RecordRing {
    /// A ring of this many bytes, or of the next smaller power of two; a page at least.
    pub(crate) fn new(bytes: u32) -> io::Result<Self> {
        let page = page_bytes();
        let bytes = bytes.checked_ilog2().map_or(1, |bits| 1 << bits).max(page);
        let entries = u32::try_from(bytes).map_err(io::Error::other)?;
        let kind = BPF_MAP_TYPE_RINGBUF;
        let shape = Shape { kind, key_bytes: 0, value_bytes: 0, entries, flags: 0 };
        let fd = make_map(shape, Purpose::Ingress)?;
        let read = Mapping::of(fd.as_fd(), page, 0)?;
        let offset = libc::off_t::try_from(page).map_err(io::Error::other)?;
        let written = Mapping::to_read(fd.as_fd(), page + 2 * bytes, offset)?;
        Ok(Self { fd, read, written, bytes, begin: page, at: 0 })
    }

    /// The descriptor, for instructions that name the ring.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Shows up to `records_max` records.
    pub(crate) fn look(&mut self, records_max: usize, mut see: impl FnMut(&[u8])) -> Remainder {
        let mut given_back = self.at;
        let mut rest = Remainder::More;
        let mut end = self.index(&self.written).load(Ordering::Acquire);
        for _ in 0..records_max {
            if self.at == end {
                end = self.index(&self.written).load(Ordering::Acquire);
                if self.at == end {
                    rest = Remainder::Nothing;
                    break;
                }
            }
            let place = self.at & (self.bytes - 1);
            let length = self.length(place).load(Ordering::Acquire);
            if length & BUSY != 0 {
                rest = Remainder::Unfinished;
                break;
            }
            let bytes = (length & !DISCARDED) as usize;
            if length & DISCARDED == 0 {
                see(self.record(place, bytes));
            }
            self.at = self.at.wrapping_add((HEADER_BYTES + bytes).next_multiple_of(8));
            if self.at.wrapping_sub(given_back) >= self.bytes / SHARES {
                given_back = self.at;
                self.index(&self.read).store(self.at, Ordering::Release);
            }
        }
        self.index(&self.read).store(self.at, Ordering::Release);
        rest
    }

    /// The bytes of the record at `place`. The kernel has passed this record to this process.
    fn record(&self, place: usize, bytes: usize) -> &[u8] {
        let start = self.written.at(self.begin + place + HEADER_BYTES, bytes);
        // SAFETY: the range is inside of the mapping. The record is finished, and the kernel does
        // not write there before this process publishes its read position, which only `look`
        // does, after the last use of these bytes.
        unsafe { std::slice::from_raw_parts(start.cast_const(), bytes) }
    }

    /// The position in the first eight bytes of a mapping.
    fn index<'a>(&self, mapping: &'a Mapping) -> &'a AtomicUsize {
        let place = mapping.at(0, size_of::<usize>()).cast();
        // SAFETY: the place is inside of the mapping and aligned (mappings begin on pages), lives
        // as long as the mapping, and is only accessed atomically; the one that must not be
        // written is only read.
        unsafe { AtomicUsize::from_ptr(place) }
    }

    /// The length of the record at `place`, with its bits.
    fn length(&self, place: usize) -> &AtomicU32 {
        let place = self.written.at(self.begin + place, size_of::<u32>()).cast();
        // SAFETY: the place is inside of the mapping and aligned (records begin on multiples of
        // eight), lives as long as `self`, and is only read, atomically.
        unsafe { AtomicU32::from_ptr(place) }
    }
}

/// A number that programs count up.
#[derive(Debug)]
pub(crate) struct Counter {
    fd: OwnedFd,
    memory: Mapping,
}

impl Counter {
    /// A counter that is zero.
    pub(crate) fn new() -> io::Result<Self> {
        let kind = BPF_MAP_TYPE_ARRAY;
        let shape = Shape { kind, key_bytes: 4, value_bytes: 8, entries: 1, flags: MAPPABLE };
        let fd = make_map(shape, Purpose::Ingress)?;
        let memory = Mapping::to_read(fd.as_fd(), page_bytes(), 0)?;
        Ok(Self { fd, memory })
    }

    /// The descriptor, for instructions that name the counter.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Value of the counter.
    pub(crate) fn value(&self) -> u64 {
        let place = self.memory.at(0, size_of::<u64>()).cast();
        // SAFETY: the place is inside of the mapping and aligned, and is only read, atomically.
        unsafe { AtomicU64::from_ptr(place) }.load(Ordering::Relaxed)
    }
}

fn page_bytes() -> usize {
    // SAFETY: takes and returns integers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
