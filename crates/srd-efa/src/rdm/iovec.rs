//! Memory in pieces, as applications name it (`struct iovec`). Bound: [`IOV_COUNT_MAX`].

use bytes::{Bytes, BytesMut};

use crate::layer::request::{Iov, RmaIov};
use crate::memory::Memory;

/// Largest number of pieces of a buffer.
pub(crate) const IOV_COUNT_MAX: usize = 4;

/// A buffer of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IoVec {
    list: [Iov; IOV_COUNT_MAX],
    count: usize,
    /// Total length of all pieces in bytes.
    length: u64,
}

impl IoVec {
    /// Returns the buffer; `None` if there are more than [`IOV_COUNT_MAX`] pieces, or if a piece
    /// exceeds the address space.
    pub(crate) fn of(iov: &[Iov]) -> Option<Self> {
        let mut list = [Iov { addr: 0, length: 0 }; IOV_COUNT_MAX];
        let mut length = 0u64;
        for (to, from) in list.get_mut(..iov.len())?.iter_mut().zip(iov) {
            from.addr.checked_add(from.length)?;
            length = length.checked_add(from.length)?;
            *to = *from;
        }
        Some(Self { list, count: iov.len(), length })
    }

    /// Returns the total length of all pieces in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn as_slice(&self) -> &[Iov] {
        &self.list[..self.count]
    }

    /// Returns contiguous memory at `offset` of the buffer: its address, and its bytes, at most
    /// `most`. `None` at the end of the buffer.
    pub(crate) fn run_at(&self, mut offset: u64, most: u64) -> Option<Iov> {
        for piece in self.as_slice() {
            if offset < piece.length {
                let length = (piece.length - offset).min(most);
                return Some(Iov { addr: piece.addr + offset, length });
            }
            offset -= piece.length;
        }
        None
    }

    /// Returns address and length of each contiguous part of the `bytes` bytes from `offset` on.
    fn runs(&self, offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize)> {
        let (mut at, end) = (offset, offset + bytes as u64);
        core::iter::from_fn(move || {
            let run = self.run_at(at, end - at)?;
            at += run.length;
            let length = usize::try_from(run.length).ok().filter(|length| *length > 0)?;
            Some((run.addr, length))
        })
    }

    /// Returns `bytes` bytes from `offset` on, to be sent. They are not copied if they lie in one
    /// piece.
    pub(crate) fn read(&self, memory: &mut dyn Memory, offset: u64, bytes: usize) -> Bytes {
        if bytes == 0 {
            return Bytes::new();
        }
        let first = self.run_at(offset, bytes as u64);
        if let Some(run) = first.filter(|run| run.length == bytes as u64) {
            return memory.read(0, run.addr, bytes);
        }
        let mut whole = BytesMut::with_capacity(bytes);
        self.append(memory, offset, bytes, &mut whole);
        whole.freeze()
    }

    /// Appends a copy of `bytes` bytes from `offset` on to `into`.
    pub(crate) fn append(
        &self,
        memory: &mut dyn Memory,
        offset: u64,
        bytes: usize,
        into: &mut BytesMut,
    ) {
        for (addr, length) in self.runs(offset, bytes) {
            memory.append(0, addr, length, into);
        }
    }

    /// Writes bytes into the buffer from `offset` on, as many as fit.
    pub(crate) fn write(&self, memory: &mut dyn Memory, offset: u64, mut bytes: &[u8]) {
        for (addr, length) in self.runs(offset, bytes.len()) {
            let (now, later) = bytes.split_at(length);
            memory.write(0, addr, now);
            bytes = later;
        }
    }
}

/// Pieces of a peer's memory in a read, write or atomic operation (`struct fi_rma_iov`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RmaIoVec {
    list: [RmaIov; IOV_COUNT_MAX],
    count: usize,
}

impl RmaIoVec {
    /// Returns the pieces; `None` if there are more than [`IOV_COUNT_MAX`], or if a piece exceeds
    /// the address space.
    pub(crate) fn of(iov: &[RmaIov]) -> Option<Self> {
        let mut list = [RmaIov { addr: 0, length: 0, rkey: 0 }; IOV_COUNT_MAX];
        for (to, from) in list.get_mut(..iov.len())?.iter_mut().zip(iov) {
            from.addr.checked_add(from.length)?;
            *to = *from;
        }
        Some(Self { list, count: iov.len() })
    }

    pub(crate) fn as_slice(&self) -> &[RmaIov] {
        &self.list[..self.count]
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.as_slice().iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.length))
    }

    /// Returns contiguous memory of the peer at `offset` of the pieces, of at most `most` bytes.
    /// `None` at the end of the last piece.
    pub(crate) fn run_at(&self, mut offset: u64, most: u64) -> Option<RmaIov> {
        for piece in self.as_slice() {
            if offset < piece.length {
                let length = (piece.length - offset).min(most);
                return Some(RmaIov { addr: piece.addr + offset, length, ..*piece });
            }
            offset -= piece.length;
        }
        None
    }
}
