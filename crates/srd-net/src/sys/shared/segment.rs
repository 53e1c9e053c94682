//! Memory that two processes share. Neither process can remove the memory that the other has
//! mapped.
//!
//! The other process may write any bytes at any time. So the only references into the memory are
//! atomic words, bytes are copied in and out, and each offset is checked: the other process can
//! cause wrong bytes, and nothing worse.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

use super::ring::Mapping;

/// Seals that fix the size of the file.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory that this process shares with another process.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: Mapping,
}

impl Segment {
    /// Creates memory of this many bytes, all zero. Returns it with the descriptor by which another
    /// process maps it.
    pub(crate) fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("srd", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        let mapping = Mapping::shared(file.as_fd(), bytes)?;
        Ok((Self { mapping }, file))
    }

    /// Maps memory that another process has created. Its size must be exactly `bytes`, and sealed:
    /// if the file could shrink, the next access would kill this process.
    pub(crate) fn open(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let sealed = fcntl_get_seals(file)?.contains(SEALS);
        let size = rustix::fs::fstat(file)?.st_size;
        if !sealed || u64::try_from(size).ok() != Some(bytes as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "memory that may shrink"));
        }
        Ok(Self { mapping: Mapping::shared(file, bytes)? })
    }

    /// Returns the word at an offset that is a multiple of four.
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "a word is aligned");
        // SAFETY: the word lies in the mapping, which lives as long as `self`, and is aligned,
        // since mappings begin at a page; this process accesses words of a segment only atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.at(at, 4).cast()) }
    }

    /// Copies bytes into the memory.
    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        let to = self.mapping.at(at, from.len());
        // SAFETY: the range lies in the mapping, and `from` is other memory of this process,
        // because no slice of the mapping is ever given out.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// Copies bytes out of the memory.
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) {
        let from = self.mapping.at(at, to.len());
        // SAFETY: the range lies in the mapping, `to` is other memory of this process, and every
        // value of a byte is valid.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn both_ends_see_the_same_memory() {
        let (here, file) = Segment::create(8192).unwrap();
        let there = Segment::open(file.as_fd(), 8192).unwrap();
        here.write(100, b"hello");
        here.word(4).store(7, Ordering::Release);
        let mut bytes = [0; 5];
        there.read(100, &mut bytes);
        assert_eq!((&bytes, there.word(4).load(Ordering::Acquire)), (b"hello", 7));
    }

    #[test]
    fn memory_that_may_shrink_or_has_another_size_is_refused() {
        let (_, sealed) = Segment::create(8192).unwrap();
        assert!(Segment::open(sealed.as_fd(), 4096).is_err());
        assert!(rustix::fs::ftruncate(&sealed, 4096).is_err());
        let open = memfd_create("srd", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        assert!(Segment::open(open.as_fd(), 8192).is_err());
    }

    #[test]
    #[should_panic(expected = "a place outside of a mapping")]
    fn a_word_behind_the_end_is_refused() {
        Segment::create(4096).unwrap().0.word(4096);
    }
}
