//! Memory that the kernel shares with this process, and the rings of AF_XDP in it.
//!
//! A ring has one producer and one consumer, and each of the two writes one index, which the other
//! only reads. Indices increase and wrap; a slot is an index modulo the ring's size, a power of
//! two. A producer writes slots, then its index (release); a consumer reads the index (acquire),
//! then slots. So no slot is read and written at the same time.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A memory mapping that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, as the memory of a boxed slice does.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps zeroed memory of this process.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// Maps a part of the memory of a descriptor.
    pub(super) fn of(fd: BorrowedFd<'_>, bytes: usize, offset: libc::off_t) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// Maps all memory of a descriptor. A page is allocated at its first use.
    pub(super) fn shared(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    }

    /// Maps a part of the memory of a descriptor for reading only.
    pub(super) fn to_read(
        fd: BorrowedFd<'_>,
        bytes: usize,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        Self::with(libc::PROT_READ, bytes, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    }

    fn new(
        bytes: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        Self::with(libc::PROT_READ | libc::PROT_WRITE, bytes, flags, fd, offset)
    }

    fn with(
        access: libc::c_int,
        bytes: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { base, bytes })
    }

    /// Returns the address of the mapping, as a number for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Returns the size of the mapping in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a pointer to the byte at `offset`; `length` bytes from there on are inside the
    /// mapping.
    pub(super) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "a place outside of a mapping");
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and size are those of the mapping, which is not used from now on.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Location of a ring in a socket's mappings.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    /// Offset of the ring for `mmap`.
    pub(super) offset: libc::off_t,
    /// Offsets of the ring's parts in its mapping.
    pub(super) parts: libc::xdp_ring_offset,
    /// Number of slots: a power of two.
    pub(super) slots: u32,
}

/// The producer's or the consumer's side of a ring with entries `T`, which are plain data.
#[derive(Debug)]
struct Ring<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    slots_at: usize,
    slots: u32,
    /// Current value of the index that this side writes.
    own: u32,
    /// The other side's index when it was last read.
    other: u32,
    kind: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(fd: BorrowedFd<'_>, place: RingLayout) -> io::Result<Self> {
        assert!(place.slots.is_power_of_two(), "a ring's size is a power of two");
        let part = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let slots_at = part(place.parts.desc)?;
        let bytes = slots_at + place.slots as usize * size_of::<T>();
        Ok(Self {
            mapping: Mapping::of(fd, bytes, place.offset)?,
            producer: part(place.parts.producer)?,
            consumer: part(place.parts.consumer)?,
            flags: part(place.parts.flags)?,
            slots_at,
            slots: place.slots,
            own: 0,
            other: 0,
            kind: PhantomData,
        })
    }

    fn index(&self, offset: usize) -> &AtomicU32 {
        let place = self.mapping.at(offset, size_of::<u32>()).cast();
        // SAFETY: the address is inside the mapping, is aligned (the kernel keeps each index on a
        // separate cache line), is valid as long as `self`, and is only accessed atomically.
        unsafe { AtomicU32::from_ptr(place) }
    }

    fn slot(&self, index: u32) -> *mut T {
        let number = (index & (self.slots - 1)) as usize;
        self.mapping.at(self.slots_at + number * size_of::<T>(), size_of::<T>()).cast()
    }
}

/// A ring that this process writes.
#[derive(Debug)]
pub(super) struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    pub(super) fn map(fd: BorrowedFd<'_>, place: RingLayout) -> io::Result<Self> {
        Ring::map(fd, place).map(Self)
    }

    /// Writes an entry, which the kernel sees after [`Producer::publish`]. Returns false if the
    /// ring is full.
    pub(super) fn push(&mut self, entry: T) -> bool {
        let ring = &mut self.0;
        if ring.own.wrapping_sub(ring.other) == ring.slots {
            ring.other = ring.index(ring.consumer).load(Ordering::Acquire);
            if ring.own.wrapping_sub(ring.other) == ring.slots {
                return false;
            }
        }
        // SAFETY: the slot is inside of the mapping, and the kernel has read its previous entry:
        // the kernel's index has passed this entry.
        unsafe { ring.slot(ring.own).write(entry) };
        ring.own = ring.own.wrapping_add(1);
        true
    }

    /// Publishes all written entries to the kernel.
    pub(super) fn publish(&mut self) {
        self.0.index(self.0.producer).store(self.0.own, Ordering::Release);
    }

    /// Whether the kernel has taken all published entries.
    pub(super) fn is_drained(&self) -> bool {
        self.0.index(self.0.consumer).load(Ordering::Acquire) == self.0.own
    }

    /// Whether the kernel processes further entries only after a system call.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.index(self.0.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that this process reads.
#[derive(Debug)]
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Copy> Consumer<T> {
    pub(super) fn map(fd: BorrowedFd<'_>, place: RingLayout) -> io::Result<Self> {
        Ring::map(fd, place).map(Self)
    }

    /// Reads the next entry; `None` if the ring is empty. The kernel may use the entry's slot again
    /// after [`Consumer::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.own == ring.other {
            ring.other = ring.index(ring.producer).load(Ordering::Acquire);
            if ring.own == ring.other {
                return None;
            }
        }
        // SAFETY: the slot is inside of the mapping, and the kernel has written it: the kernel's
        // index has passed this slot. `T` is plain data, for which any bytes are valid.
        let entry = unsafe { ring.slot(ring.own).read() };
        ring.own = ring.own.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of all read entries to the kernel.
    pub(super) fn release(&mut self) {
        self.0.index(self.0.consumer).store(self.0.own, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns both sides of one ring, without a kernel between them.
    fn pair(slots: u32) -> (Producer<u64>, Consumer<u64>) {
        let ring = |mapping| Ring {
            mapping,
            producer: 0,
            consumer: 64,
            flags: 128,
            slots_at: 192,
            slots,
            own: u32::MAX - 2, // the indices wrap in the test
            other: u32::MAX - 2,
            kind: PhantomData,
        };
        let memory = Mapping::anonymous(4096).unwrap();
        let twin = Mapping { base: memory.base, bytes: memory.bytes };
        let (producer, consumer) = (Producer(ring(memory)), Consumer(ring(twin)));
        for offset in [0, 64] {
            producer.0.index(offset).store(u32::MAX - 2, Ordering::Relaxed);
        }
        (producer, consumer)
    }

    #[test]
    fn entries_come_in_order_after_publication_and_a_full_ring_takes_none() {
        let (mut producer, mut consumer) = pair(8);
        for round in 0..5u64 {
            for i in 0..8 {
                assert!(producer.push(round * 8 + i));
            }
            assert!(!producer.push(99), "eight entries fill it");
            assert_eq!(consumer.pop(), None, "nothing is published");
            producer.publish();
            assert!(!producer.is_drained());
            let got: Vec<u64> = std::iter::from_fn(|| consumer.pop()).collect();
            assert_eq!(got, (round * 8..round * 8 + 8).collect::<Vec<_>>());
            assert!(!producer.push(99), "the slots are not given back yet");
            consumer.release();
            assert!(producer.is_drained() && !producer.needs_wakeup());
        }
        std::mem::forget(consumer); // the producer owns the mapping
    }
}
