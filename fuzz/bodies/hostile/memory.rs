//! Memory that checks every access.
//!
//! Buffers of operations are in region 0, each at addresses that are never used again. Each piece
//! of shared memory is a region. Ranges that the transport refers to while it sends them are
//! recorded until it releases them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use srd_efa::Memory;

/// Permitted use of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// The buffer is sent.
    Read,
    /// The buffer is received into.
    Write,
}

struct Buffer {
    bytes: Vec<u8>,
    of: Use,
    /// Number of the operation that the buffer belongs to.
    context: u64,
}

/// A shared piece of memory.
struct Region {
    bytes: Vec<u8>,
    write: bool,
    read: bool,
}

/// Ranges of region 0 that the transport still refers to, each with a number.
type LentRanges = Arc<Mutex<BTreeMap<u64, Range<u64>>>>;

/// Bytes that the transport sends. When it drops them, their range is released.
struct Lent {
    bytes: Vec<u8>,
    number: u64,
    held: LentRanges,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// A node's memory.
#[derive(Default)]
pub(crate) struct Checked {
    buffers: BTreeMap<u64, Buffer>,
    regions: BTreeMap<u64, Region>,
    next: u64,
    held: LentRanges,
    lent: u64,
}

impl Checked {
    /// Creates a buffer for an operation. Returns its address in region 0.
    pub(crate) fn place(&mut self, context: u64, of: Use, length: usize) -> u64 {
        // The gap ensures that the next buffer does not begin at the end of this one.
        let at = 4096 + self.next;
        self.next += length as u64 + 64;
        let bytes = (0..length).map(|n| (n as u64 ^ context) as u8).collect();
        self.buffers.insert(at, Buffer { bytes, of, context });
        at
    }

    /// Frees the buffers of an operation that has ended. Checks that the transport does not refer
    /// to any part of them.
    pub(crate) fn free(&mut self, context: u64) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        self.buffers.retain(|at, buffer| {
            if buffer.context != context {
                return true;
            }
            let end = at + buffer.bytes.len() as u64;
            let held = held.values().find(|range| range.start < end && *at < range.end);
            assert_eq!(held, None, "{at}..{end} of {context} is still being sent");
            false
        });
    }

    pub(crate) fn share(&mut self, number: u64, length: usize, read: bool, write: bool) {
        self.regions.insert(number, Region { bytes: vec![7; length], write, read });
    }

    pub(crate) fn unshare(&mut self, number: u64) {
        self.regions.remove(&number);
    }

    /// Checks, when a node has ended, that the transport refers to no range any more.
    pub(crate) fn assert_untouched(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.is_empty(), "held after the end: {held:?}");
    }

    /// Returns the buffer that contains a range of region 0, and the offset of the range in it.
    fn find(&self, offset: u64, bytes: usize) -> Option<(u64, usize)> {
        let (at, buffer) = self.buffers.range(..=offset).next_back()?;
        let inside = usize::try_from(offset - at).ok()?;
        (inside + bytes <= buffer.bytes.len()).then_some((*at, inside))
    }
}

impl Memory for Checked {
    fn read(&mut self, region: u64, offset: u64, bytes: usize) -> Bytes {
        if bytes == 0 {
            return Bytes::new();
        }
        if region != 0 {
            // Data of a shared region that peers read is copied, as in a host with real sockets.
            let from = self.regions.get(&region).expect("a region that is not shared is read");
            let at = offset as usize;
            let part = from.bytes.get(at..at + bytes).expect("read beyond a region");
            // Compare and fetch operations of peers first read the data.
            assert!(from.read || from.write, "read without the right");
            return Bytes::copy_from_slice(part);
        }
        let Some((at, inside)) = self.find(offset, bytes) else {
            panic!("{bytes} bytes at {offset} are read, which belong to no operation");
        };
        let part = self.buffers[&at].bytes[inside..inside + bytes].to_vec();
        self.lent += 1;
        let (number, held) = (self.lent, Arc::clone(&self.held));
        held.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, offset..offset + bytes as u64);
        Bytes::from_owner(Lent { bytes: part, number, held })
    }

    fn write(&mut self, region: u64, offset: u64, bytes: &[u8]) {
        if region != 0 {
            let to = self.regions.get_mut(&region).expect("a region that is not shared is written");
            assert!(to.write, "written without the right");
            let at = offset as usize;
            let part = to.bytes.get_mut(at..at + bytes.len()).expect("write beyond a region");
            part.copy_from_slice(bytes);
            return;
        }
        let Some((at, inside)) = self.find(offset, bytes.len()) else {
            panic!("{} bytes at {offset} are written, which nobody posted", bytes.len());
        };
        let Some(buffer) = self.buffers.get_mut(&at) else { return };
        assert_eq!(buffer.of, Use::Write, "what is sent from is written to");
        buffer.bytes[inside..inside + bytes.len()].copy_from_slice(bytes);
    }
}
