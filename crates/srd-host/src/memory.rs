//! The application's memory.
//!
//! Region 0 is the whole address space, with addresses as offsets: it holds the buffers of the
//! application's own operations. Other regions are registrations, which peers read and write:
//! pieces of memory, one after the other.
//!
//! # Soundness
//!
//! Addresses come from the application with its operations and registrations. Therefore
//! [`crate::Handle::call`] is unsafe: its caller guarantees that the addresses are valid. The
//! caller also guarantees that no other thread writes memory that the host reads, or accesses
//! memory that the host writes, until the operation's end was reported, the registration was ended,
//! or the host was closed.
//!
//! The host's part of the contract is that it accesses no memory later. It rests on four rules:
//!
//! * All access is by the host's own calls, under its lock; no thread of this crate keeps an
//!   address.
//! * Bytes that are *sent* from region 0 are used without a copy. The transport drops a payload
//!   before it reports the end of the datagram, and the Messaging Layer reports the end of an
//!   operation after the ends of all its datagrams. Two kinds of datagrams contain copies: those
//!   that continue after their queue pair was closed, and those of a batch that waits for a full
//!   socket.
//! * Bytes that peers *read* from a registration are copied. So a registration may be ended at any
//!   time, also while answers are in flight.
//! * Bytes that are *written* are copied into the memory when they arrive, and only if their
//!   operation or registration still exists.
//!
//! Closing a host drops the transport and the Messaging Layer, and with them every reference to the
//! memory.

use bytes::{Bytes, BytesMut};
use srd_efa::Memory;

/// A piece of the application's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Address of the first byte.
    pub addr: usize,
    /// Bytes of the piece.
    pub length: usize,
}

/// Number of a registration; not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct RegionNumber(pub u32);

/// Registrations of the application's memory. Bound: one entry for each registration.
#[derive(Debug, Default)]
pub struct UserMemory {
    regions: Vec<Option<Box<[Span]>>>,
}

impl UserMemory {
    /// Registers pieces of memory as a region. The caller chooses a small number, and may use it
    /// again after the region was removed.
    pub fn add(&mut self, number: RegionNumber, spans: Box<[Span]>) {
        let at = number.0 as usize;
        assert!(at > 0, "region 0 is all of the application's memory");
        if self.regions.len() <= at {
            self.regions.resize(at + 1, None);
        }
        self.regions[at] = Some(spans);
    }

    /// Removes a region.
    pub fn remove(&mut self, number: RegionNumber) {
        if let Some(region) = self.regions.get_mut(number.0 as usize) {
            *region = None;
        }
    }

    /// Calls `each` with the address and the length of each part of memory that belongs to a range
    /// of a region, in order.
    fn parts(&self, region: u64, offset: u64, bytes: usize, mut each: impl FnMut(usize, usize)) {
        let (Ok(at), Ok(mut offset)) = (usize::try_from(region), usize::try_from(offset)) else {
            return;
        };
        if region == 0 {
            return each(offset, bytes);
        }
        let Some(Some(spans)) = self.regions.get(at) else { return };
        let mut left = bytes;
        for span in spans {
            if offset >= span.length {
                offset -= span.length;
                continue;
            }
            let part = left.min(span.length - offset);
            if part > 0 {
                each(span.addr + offset, part);
            }
            left -= part;
            offset = 0;
        }
    }

    fn copy_to(&self, region: u64, offset: u64, bytes: usize, into: &mut BytesMut) {
        into.reserve(bytes);
        self.parts(region, offset, bytes, |addr, length| {
            // SAFETY: the application guarantees the range, which was checked to lie inside the
            // memory that the application has named.
            let part = unsafe { std::slice::from_raw_parts(pointer(addr), length) };
            into.extend_from_slice(part);
        });
    }
}

fn pointer(addr: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(addr)
}

impl Memory for UserMemory {
    fn read(&mut self, region: u64, offset: u64, bytes: usize) -> Bytes {
        if bytes == 0 {
            return Bytes::new();
        }
        if region != 0 {
            let mut copy = BytesMut::new();
            self.copy_to(region, offset, bytes, &mut copy);
            return copy.freeze();
        }
        let Ok(addr) = usize::try_from(offset) else { return Bytes::new() };
        // SAFETY: the application guarantees that the range is valid until the operation's end was
        // reported. The type's lifetime is longer, but no reference exists for longer: see the top
        // of this file.
        Bytes::from_static(unsafe { std::slice::from_raw_parts(pointer(addr), bytes) })
    }

    fn append(&mut self, region: u64, offset: u64, bytes: usize, into: &mut BytesMut) {
        self.copy_to(region, offset, bytes, into);
    }

    fn write(&mut self, region: u64, offset: u64, bytes: &[u8]) {
        let mut from = bytes;
        self.parts(region, offset, bytes.len(), |addr, length| {
            let (now, later) = from.split_at(length);
            from = later;
            // SAFETY: the application guarantees the range, which was checked to lie inside the
            // memory that the application has named; the arrived bytes lie in buffers of this
            // crate.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), pointer(addr), length) };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(of: &mut [u8]) -> Span {
        Span { addr: of.as_mut_ptr().expose_provenance(), length: of.len() }
    }

    #[test]
    fn region_zero_is_read_where_it_stands() {
        let mut buffer = *b"abcdef";
        let mut memory = UserMemory::default();
        let at = span(&mut buffer).addr as u64;
        let view = memory.read(0, at + 1, 3);
        assert_eq!(&view[..], b"bcd");
        assert_eq!(view.as_ptr().addr() as u64, at + 1);
        drop(view);
        memory.write(0, at + 4, b"XY");
        assert_eq!(&buffer, b"abcdXY");
    }

    #[test]
    fn a_region_is_its_pieces_one_behind_the_other() {
        let (mut first, mut second, mut third) = (*b"ab", *b"cde", *b"fg");
        let mut memory = UserMemory::default();
        let spans = [span(&mut first), span(&mut second), span(&mut third)];
        memory.add(RegionNumber(3), Box::new(spans));
        assert_eq!(&memory.read(3, 0, 7)[..], b"abcdefg");
        assert_eq!(&memory.read(3, 2, 3)[..], b"cde");
        assert_eq!(&memory.read(3, 1, 5)[..], b"bcdef");
        memory.write(3, 1, b"123456");
        assert_eq!(&memory.read(3, 0, 7)[..], b"a123456");
        assert_eq!((&first, &second, &third), (b"a1", b"234", b"56"));
    }

    #[test]
    fn what_peers_read_is_a_copy_and_stands_when_the_region_is_gone() {
        let mut buffer = *b"abc";
        let mut memory = UserMemory::default();
        memory.add(RegionNumber(1), Box::new([span(&mut buffer)]));
        let answer = memory.read(1, 0, 3);
        memory.remove(RegionNumber(1));
        buffer = *b"xyz";
        assert_eq!(&answer[..], b"abc");
        assert_eq!(&memory.read(1, 0, 3)[..], b"");
        assert_eq!(&buffer, b"xyz");
    }

    #[test]
    fn a_range_beyond_the_pieces_is_never_touched() {
        let mut buffer = *b"abc";
        let mut memory = UserMemory::default();
        memory.add(RegionNumber(1), Box::new([Span { length: 2, ..span(&mut buffer) }]));
        memory.write(1, 1, b"123");
        assert_eq!(&buffer, b"a1c");
        assert_eq!(&memory.read(1, 0, 9)[..], b"a1");
    }
}
