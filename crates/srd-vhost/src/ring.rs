//! One split ring: chains of buffers that the driver makes available and the device gives back.
//!
//! ```text
//!  available ring (the driver writes)
//!  +-------+-------+------------+------------+
//!  | flags | index | head ...   | used event |
//!  +-------+-------+------------+------------+
//!     u16     u16    u16 * size      u16
//!
//!  used ring (the device writes)
//!  +-------+-------+-------------------+-----------------+
//!  | flags | index | head, bytes ...   | available event |
//!  +-------+-------+-------------------+-----------------+
//!     u16     u16    (u32, u32) * size         u16
//!
//!  descriptor: address u64, bytes u32, flags u16, next u16
//! ```
//!
//! (VIRTIO 1.2, section 2.7.) Indices count modulo 2^16; an index modulo the size is the position
//! in the ring. The driver sees used buffers when they are published, all together. Buffers are
//! given back in the order in which they were taken, so between two calls no buffer is in use.
//!
//! Data that the driver has written is in the cache of another processor, so an access takes long.
//! Heads, descriptors and the beginnings of buffers are read several at a time, so that these
//! accesses overlap. Used entries are written several at a time, too.

use std::fmt;
use std::sync::atomic::{Ordering, fence};

use crate::memory::{Fault, Memory};

/// Largest number of entries of a ring (VIRTIO 1.2, section 2.7).
pub const SIZE_MAX: u16 = 32_768;
/// Largest number of buffers of a chain. Linux uses 19 for a frame, and DPDK one for each segment
/// of the frame.
pub const PIECES_MAX: usize = 256;

/// Number of entries that are read together, and that are written together.
const TOGETHER: usize = 32;

const DESCRIPTOR_BYTES: u64 = 16;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;
/// Flag of the available ring: the driver needs no interrupts.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the device needs no kicks.
const NO_NOTIFY: u16 = 1;

/// Reason why a ring has to be stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A part of the ring lies outside of the front end's memory or is not aligned, or the size
    /// is invalid.
    Place,
    /// The driver's index claims more entries than the ring holds.
    Index,
    /// A head is not the index of a descriptor.
    Head,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Place => "it is not in the front end's memory, not aligned, or empty",
            Self::Index => "the driver's index says that there is more than the ring holds",
            Self::Head => "the driver gave a number that is no descriptor",
        })
    }
}

impl From<Fault> for Broken {
    fn from(_: Fault) -> Self {
        Self::Place
    }
}

/// Access of the device to the buffers of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The device reads the buffers.
    Read,
    /// The device writes the buffers.
    Write,
}

/// Size of a ring, and the guest addresses of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingLayout {
    /// Number of entries, a power of two.
    pub size: u16,
    /// Address of the descriptor table.
    pub descriptors: u64,
    /// Address of the available ring: chains from the driver.
    pub available: u64,
    /// Address of the used ring: chains that are given back to the driver.
    pub used: u64,
}

/// A part of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Guest address of the part.
    pub at: u64,
    /// Length of the part in bytes.
    pub bytes: u32,
}

/// A chain that the device has taken. The device has to give it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Index of the first descriptor of the chain.
    pub head: u16,
    /// Length of all pieces in bytes; `None` if the chain is malformed: it loops, is too long,
    /// leads out of the tables, or has buffers of the wrong direction.
    pub bytes: Option<u64>,
}

/// A ring in use.
#[derive(Debug)]
pub struct Ring {
    place: RingLayout,
    /// Whether both ends agreed on `EVENT_IDX`.
    event_index: bool,
    next_available: u16,
    /// The driver's index when it was last read.
    available_end: u16,
    next_used: u16,
    /// The used index that the driver can see.
    published: u16,
    /// The used index when the device last decided whether to interrupt the driver.
    told: u16,
    kicks: Kicks,
    ahead: Ahead,
    /// Used entries just before `next_used` that were not yet written to the ring.
    behind: [u8; TOGETHER * 8],
    behind_count: u8,
}

/// Heads from `next_available` on that were already read, with their descriptors.
#[derive(Debug, Default)]
struct Ahead {
    heads: [u16; TOGETHER],
    /// First descriptor of each head; `None`: the descriptor could not be read.
    descriptors: [Option<Descriptor>; TOGETHER],
    next: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
struct Descriptor {
    at: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    #[allow(clippy::cast_possible_truncation)] // these casts select parts of a number
    fn read(memory: &Memory, at: u64) -> Option<Self> {
        let raw = memory.read_u128(at).ok()?;
        let (bytes, flags, next) = ((raw >> 64) as u32, (raw >> 96) as u16, (raw >> 112) as u16);
        Some(Self { at: raw as u64, bytes, flags, next })
    }
}

/// Whether the device requests kicks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kicks {
    /// The device has not written a request yet.
    Unsaid,
    Wanted,
    Refused,
}

impl Ring {
    /// Starts a ring after the chains that were given back to the driver. A front end sends an
    /// index, too, but DPDK's virtio-user sends zero after it has lost a back end, although its
    /// rings continue. Chains are given back in order, so no other chain can be in use.
    ///
    /// # Errors
    /// A [`Broken`] error, if a part of the ring lies outside of the memory or is not aligned, or
    /// the size is invalid.
    pub fn start(place: RingLayout, event_index: bool, memory: &Memory) -> Result<Self, Broken> {
        let fits = place.size.is_power_of_two() && place.size <= SIZE_MAX;
        let aligned = place.descriptors.is_multiple_of(DESCRIPTOR_BYTES)
            && place.available.is_multiple_of(2)
            && place.used.is_multiple_of(4);
        if !fits || !aligned {
            return Err(Broken::Place);
        }
        let size = u64::from(place.size);
        let parts = [
            (place.descriptors, size * DESCRIPTOR_BYTES),
            (place.available, 6 + size * 2),
            (place.used, 6 + size * 8),
        ];
        for (at, bytes) in parts {
            let end = at.checked_add(bytes).ok_or(Broken::Place)?;
            // The first and the last byte of each part have to be in the memory. The bytes between
            // may lie in several adjacent regions; if there is a gap, the first access to it stops
            // the ring.
            memory.read(at, &mut [0])?;
            memory.read(end - 1, &mut [0])?;
        }
        let next_used = memory.load(place.used + 2)?;
        Ok(Self {
            place,
            event_index,
            next_available: next_used,
            available_end: next_used,
            next_used,
            published: next_used,
            told: next_used,
            kicks: Kicks::Unsaid,
            ahead: Ahead::default(),
            behind: [0; TOGETHER * 8],
            behind_count: 0,
        })
    }

    /// Returns the index of the next entry of the available ring, from which another back end would
    /// continue.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Returns the number of chains that are available.
    ///
    /// # Errors
    /// A [`Broken`] error, if the driver's index is invalid or cannot be read.
    pub fn waiting(&mut self, memory: &Memory) -> Result<u16, Broken> {
        let end = memory.load(self.place.available + 2)?;
        let waiting = end.wrapping_sub(self.next_available);
        if waiting > self.place.size {
            return Err(Broken::Index);
        }
        self.available_end = end;
        Ok(waiting)
    }

    /// Takes the next chain, and adds its buffers to `pieces`. `None`: no chain is available.
    ///
    /// # Errors
    /// A [`Broken`] error, if the available ring is invalid or cannot be read.
    pub fn take(
        &mut self,
        memory: &Memory,
        access: Access,
        pieces: &mut Vec<Piece>,
    ) -> Result<Option<Chain>, Broken> {
        if self.ahead.next == self.ahead.end {
            if self.next_available == self.available_end && self.waiting(memory)? == 0 {
                return Ok(None);
            }
            self.read_ahead(memory, access)?;
        }
        let head = self.ahead.heads[self.ahead.next];
        if head >= self.place.size {
            return Err(Broken::Head);
        }
        let first = self.ahead.descriptors[self.ahead.next];
        self.ahead.next += 1;
        self.next_available = self.next_available.wrapping_add(1);
        let before = pieces.len();
        let bytes = first.and_then(|first| self.follow(memory, first, access, pieces));
        if bytes.is_none() {
            pieces.truncate(before);
        }
        Ok(Some(Chain { head, bytes }))
    }

    /// Reads the available heads, up to the end of the ring, and the first descriptor of each head.
    fn read_ahead(&mut self, memory: &Memory, access: Access) -> Result<(), Broken> {
        let entry = self.next_available % self.place.size;
        let waiting = self.available_end.wrapping_sub(self.next_available);
        let count = usize::from(waiting.min(self.place.size - entry)).min(TOGETHER);
        let mut raw = [0; TOGETHER * 2];
        let raw = &mut raw[..count * 2];
        memory.read(self.place.available + 4 + u64::from(entry) * 2, raw)?;
        let Ahead { heads, descriptors, next, end } = &mut self.ahead;
        (*next, *end) = (0, count);
        for ((head, descriptor), raw) in heads.iter_mut().zip(&mut *descriptors).zip(raw.chunks(2))
        {
            *head = u16::from_le_bytes([raw[0], raw[1]]);
            // A head beyond the table stops the ring when this head is taken.
            let at = self.place.descriptors + u64::from(*head) * DESCRIPTOR_BYTES;
            let is_there = *head < self.place.size;
            *descriptor = is_there.then(|| Descriptor::read(memory, at)).flatten();
        }
        if access == Access::Read {
            for descriptor in descriptors[..count].iter().flatten() {
                memory.touch(descriptor.at, descriptor.bytes);
            }
        }
        Ok(())
    }

    /// Undoes the last `chains` calls of [`Ring::take`].
    pub fn untake(&mut self, chains: u16) {
        self.next_available = self.next_available.wrapping_sub(chains);
        // The heads are read again, unless all of them are still stored in `ahead`.
        match self.ahead.next.checked_sub(chains.into()) {
            Some(next) => self.ahead.next = next,
            None => (self.ahead.next, self.ahead.end) = (0, 0),
        }
    }

    /// Follows a chain to its end. Returns the length of its buffers in bytes.
    fn follow(
        &self,
        memory: &Memory,
        first: Descriptor,
        access: Access,
        pieces: &mut Vec<Piece>,
    ) -> Option<u64> {
        let (mut table, mut entries) = (self.place.descriptors, u32::from(self.place.size));
        let (mut descriptor, mut is_indirect, mut total) = (first, false, 0_u64);
        for _ in 0..PIECES_MAX {
            let Descriptor { at, bytes, flags, next } = descriptor;
            let mut index = u32::from(next);
            if flags & INDIRECT != 0 {
                // Nested tables could be endless, and a table has to be the last descriptor of its
                // chain.
                if is_indirect || flags & NEXT != 0 || bytes % 16 != 0 {
                    return None;
                }
                (table, entries, index, is_indirect) = (at, bytes / 16, 0, true);
            } else {
                if (flags & WRITABLE != 0) != (access == Access::Write) {
                    return None;
                }
                pieces.push(Piece { at, bytes });
                total += u64::from(bytes);
                if flags & NEXT == 0 {
                    return Some(total);
                }
            }
            if index >= entries {
                return None;
            }
            let at = table.checked_add(u64::from(index) * DESCRIPTOR_BYTES)?;
            descriptor = Descriptor::read(memory, at)?;
        }
        None
    }

    /// Gives a chain back, with the number of bytes that were written. The driver sees the chain
    /// only after [`Ring::publish`].
    ///
    /// # Errors
    /// A [`Broken`] error, if the used ring cannot be written.
    pub fn give_back(&mut self, memory: &Memory, head: u16, bytes: u32) -> Result<(), Broken> {
        let entry = u64::from(bytes) << 32 | u64::from(head);
        let at = usize::from(self.behind_count) * 8;
        self.behind[at..at + 8].copy_from_slice(&entry.to_le_bytes());
        self.behind_count += 1;
        self.next_used = self.next_used.wrapping_add(1);
        let is_full = usize::from(self.behind_count) == TOGETHER;
        if is_full || self.next_used.is_multiple_of(self.place.size) {
            return self.write_behind(memory);
        }
        Ok(())
    }

    /// Writes the used entries that are still pending. They do not wrap around the ring's end.
    fn write_behind(&mut self, memory: &Memory) -> Result<(), Broken> {
        let count = u16::from(std::mem::take(&mut self.behind_count));
        let entry = u64::from(self.next_used.wrapping_sub(count) % self.place.size);
        let bytes = &self.behind[..usize::from(count) * 8];
        Ok(memory.write(self.place.used + 4 + entry * 8, bytes)?)
    }

    /// Makes all chains that were given back visible to the driver.
    ///
    /// # Errors
    /// A [`Broken`] error, if the used ring cannot be written.
    pub fn publish(&mut self, memory: &Memory) -> Result<(), Broken> {
        if self.published != self.next_used {
            self.write_behind(memory)?;
            memory.store(self.place.used + 2, self.next_used)?;
            self.published = self.next_used;
        }
        Ok(())
    }

    /// Whether the driver has requested an interrupt for the chains that were published since the
    /// last call.
    ///
    /// # Errors
    /// A [`Broken`] error, if the driver's request cannot be read.
    pub fn wants_interrupt(&mut self, memory: &Memory) -> Result<bool, Broken> {
        let (from, to) = (self.told, self.published);
        if from == to {
            return Ok(false);
        }
        self.told = to;
        // The driver writes its request, and then reads the index again. The device writes the
        // index, and then reads the request. So at least one side sees the other side's write.
        fence(Ordering::SeqCst);
        if self.event_index {
            let event = memory.load(self.place.available + 4 + u64::from(self.place.size) * 2)?;
            return Ok(to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from));
        }
        Ok(memory.load(self.place.available)? & NO_INTERRUPT == 0)
    }

    /// Switches kicks of the driver off, because the device polls the ring.
    ///
    /// # Errors
    /// A [`Broken`] error, if the used ring cannot be written.
    pub fn refuse_kicks(&mut self, memory: &Memory) -> Result<(), Broken> {
        if !self.event_index && self.kicks != Kicks::Refused {
            memory.store(self.place.used, NO_NOTIFY)?;
        }
        self.kicks = Kicks::Refused;
        Ok(())
    }

    /// Whether this end of the ring requests kicks (notifications) of the driver for new buffers.
    pub fn asks_for_kicks(&self) -> bool {
        self.kicks != Kicks::Refused
    }

    /// Requests a kick for the next chain. Returns whether a chain is available already.
    ///
    /// # Errors
    /// A [`Broken`] error, if a ring cannot be read or written.
    pub fn ask_for_kicks(&mut self, memory: &Memory) -> Result<bool, Broken> {
        self.kicks = Kicks::Wanted;
        if self.event_index {
            let at = self.place.used + 4 + u64::from(self.place.size) * 8;
            memory.store(at, self.next_available)?;
        } else {
            memory.store(self.place.used, 0)?;
        }
        fence(Ordering::SeqCst);
        Ok(self.waiting(memory)? > 0)
    }
}
