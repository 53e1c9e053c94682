//! Data from BPF programs to this process: records in a ring (`BPF_MAP_TYPE_RINGBUF`), and a
//! counter.
//!
//! ```text
//!  page 0   how far this process has read          (this process writes it)
//!  page 1   how far the kernel has given out room  (the kernel writes it)
//!  then     the ring, twice, so that no record is in two parts
//!  record   length and two bits: being written, given up | 4 bytes of the kernel's | the bytes
//! ```
//!
//! A record belongs to the kernel until the first bit of its length is cleared, and then to this
//! process until it publishes its read position: no byte is read and written at the same time. If
//! the ring has no free space, the program gets an error, and continues without a record. The size
//! of the ring bounds the memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::ring::Mapping;
use crate::sys::bpf::{Purpose, Shape, make_map};

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;
/// Flag of a map that this process may map into memory (`BPF_F_MMAPABLE`).
const MAPPABLE: u32 = 1 << 10;

/// Flag of a record that is being written (`BPF_RINGBUF_BUSY_BIT`).
const BUSY: u32 = 1 << 31;
/// Flag of a record that was discarded (`BPF_RINGBUF_DISCARD_BIT`).
const DISCARDED: u32 = 1 << 30;
/// Bytes of the header before each record.
const HEADER_BYTES: usize = 8;
/// While records are read, their space is returned to the programs after each 1/`SHARES` of the
/// ring.
const SHARES: usize = 16;

/// State of the ring after records were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remainder {
    /// The ring is empty.
    Nothing,
    /// The next record is being written.
    Unfinished,
    /// There are more records.
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
    /// Offset of the ring's first byte in `written`.
    begin: usize,
    /// Read position of this process. It increases beyond the ring's size, and may wrap.
    at: usize,
}

impl RecordRing {
    /// Makes a ring of this many bytes, or of the next smaller power of two; at least one page.
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

    /// Returns the descriptor, for instructions that use the ring.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Calls `see` with each finished record, and advances past at most `records_max` records.
    /// Returns the state of the ring after that.
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

    /// Returns the bytes of the record at `place`. The kernel has passed this record to this
    /// process.
    fn record(&self, place: usize, bytes: usize) -> &[u8] {
        let start = self.written.at(self.begin + place + HEADER_BYTES, bytes);
        // SAFETY: the range is inside the mapping. The record is finished, and the kernel does not
        // write there before this process publishes its read position, which only `look` does,
        // after the last use of these bytes.
        unsafe { std::slice::from_raw_parts(start.cast_const(), bytes) }
    }

    /// Returns the read or write position of the ring, which is in the first eight bytes of a
    /// mapping.
    fn index<'a>(&self, mapping: &'a Mapping) -> &'a AtomicUsize {
        let place = mapping.at(0, size_of::<usize>()).cast();
        // SAFETY: the address is inside the mapping and aligned (mappings begin on pages), is valid
        // as long as the mapping, and is only accessed atomically; the position that the kernel
        // writes is only read.
        unsafe { AtomicUsize::from_ptr(place) }
    }

    /// Returns the length of the record at `place`, with its flags.
    fn length(&self, place: usize) -> &AtomicU32 {
        let place = self.written.at(self.begin + place, size_of::<u32>()).cast();
        // SAFETY: the address is inside the mapping and aligned (records begin on multiples of
        // eight), is valid as long as `self`, and is only read, atomically.
        unsafe { AtomicU32::from_ptr(place) }
    }
}

/// A counter that BPF programs increment and this process reads.
#[derive(Debug)]
pub(crate) struct Counter {
    fd: OwnedFd,
    memory: Mapping,
}

impl Counter {
    /// Returns a counter that is zero.
    pub(crate) fn new() -> io::Result<Self> {
        let kind = BPF_MAP_TYPE_ARRAY;
        let shape = Shape { kind, key_bytes: 4, value_bytes: 8, entries: 1, flags: MAPPABLE };
        let fd = make_map(shape, Purpose::Ingress)?;
        let memory = Mapping::to_read(fd.as_fd(), page_bytes(), 0)?;
        Ok(Self { fd, memory })
    }

    /// Returns the descriptor, for instructions that use the counter.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Returns the value of the counter.
    pub(crate) fn value(&self) -> u64 {
        let place = self.memory.at(0, size_of::<u64>()).cast();
        // SAFETY: the address is inside the mapping and aligned, and is only read, atomically.
        unsafe { AtomicU64::from_ptr(place) }.load(Ordering::Relaxed)
    }
}

fn page_bytes() -> usize {
    // SAFETY: takes and returns integers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
