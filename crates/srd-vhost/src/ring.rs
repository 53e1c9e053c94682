//! One split ring: chains of buffers that the driver makes available, and gets back.
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
//! (VIRTIO 1.2, section 2.7.) Indices count up to 2^16 and wrap; their place is that modulo the
//! size. Used buffers appear to the driver when they are published, all at once. Buffers are given
//! back in the order in which they were taken, so none is under way between two calls.
//!
//! What the driver has written is in the memory of its processor, and takes long to come: heads,
//! descriptors and the beginnings of buffers are read several at a time, so that all of them are on
//! their way together. What goes back is written several at a time, too.

use std::fmt;
use std::sync::atomic::{Ordering, fence};

use crate::memory::{Fault, Memory};

/// The most entries of a ring (VIRTIO 1.2, section 2.7).
pub const SIZE_MAX: u16 = 32_768;
/// The most buffers of a chain. Linux uses 19 for a frame, DPDK as many as a frame has segments.
pub const PIECES_MAX: usize = 256;

/// Entries that are read, and written, at a time.
const TOGETHER: usize = 32;

const DESCRIPTOR_BYTES: u64 = 16;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;
/// Flag of the available ring: the driver needs no interrupts.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the device needs no kicks.
const NO_NOTIFY: u16 = 1;

/// Reason why a ring cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A part of the ring lies outside of the front end's memory or is not aligned, or the size
    /// is invalid.
    Place,
    /// The driver's index claims more entries than the ring holds.
    Index,
    /// A head that is no descriptor.
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

/// Use of the buffers of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The device reads them.
    Read,
    /// The device writes them.
    Write,
}

/// Addresses of a ring in guest memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingLayout {
    /// Entries, a power of two.
    pub size: u16,
    /// The table of descriptors.
    pub descriptors: u64,
    /// The available ring: chains from the driver.
    pub available: u64,
    /// The used ring: chains that the driver gets back.
    pub used: u64,
}

/// A part of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its guest address.
    pub at: u64,
    /// Its bytes.
    pub bytes: u32,
}

/// A chain that was taken. It has to be given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Its first descriptor.
    pub head: u16,
    /// Bytes of all pieces; `None` if the chain is malformed: it loops, is too long, leads out of
    /// the tables, or has buffers of the wrong direction.
    pub bytes: Option<u64>,
}

/// A ring that runs.
#[derive(Debug)]
pub struct Ring {
    place: RingLayout,
    /// Whether `EVENT_IDX` was agreed on.
    event_index: bool,
    next_available: u16,
    /// The driver's index when it was last read.
    available_end: u16,
    next_used: u16,
    /// The used index that the driver sees.
    published: u16,
    /// The used index when an interrupt was last decided on.
    told: u16,
    kicks: Kicks,
    ahead: Ahead,
    /// Used entries that were not written yet, the last ones before `next_used`.
    behind: [u8; TOGETHER * 8],
    behind_count: u8,
}

/// Heads from `next_available` on that were read already, with their descriptors.
#[derive(Debug, Default)]
struct Ahead {
    heads: [u16; TOGETHER],
    /// None: it could not be read.
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
    #[allow(clippy::cast_possible_truncation)] // the parts of a number
    fn read(memory: &Memory, at: u64) -> Option<Self> {
        let raw = memory.read_u128(at).ok()?;
        let (bytes, flags, next) = ((raw >> 64) as u32, (raw >> 96) as u16, (raw >> 112) as u16);
        Some(Self { at: raw as u64, bytes, flags, next })
    }
}

/// State of the request for kicks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kicks {
    /// Nothing yet.
    Unsaid,
    Wanted,
    Refused,
}

impl Ring {
    /// Starts a ring behind the chains that the driver got back. A front end sends an index, too,
    /// but DPDK's virtio-user sends zero after it has lost a back end, although its rings go on.
    /// As chains are given back in their order, nothing else can be under way.
    ///
    /// # Errors
    /// A part lies outside of the memory, or is not aligned.
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
            // Regions may touch, and all between the ends is read and written later: at both ends
            // lies memory, or the first access there breaks the ring.
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

    /// The next entry of the available ring: where another back end would begin.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Number of chains that wait.
    ///
    /// # Errors
    /// The ring cannot go on.
    pub fn waiting(&mut self, memory: &Memory) -> Result<u16, Broken> {
        let end = memory.load(self.place.available + 2)?;
        let waiting = end.wrapping_sub(self.next_available);
        if waiting > self.place.size {
            return Err(Broken::Index);
        }
        self.available_end = end;
        Ok(waiting)
    }

    /// Takes the next chain, whose buffers are added to `pieces`; `None`: no chain waits.
    ///
    /// # Errors
    /// The ring cannot go on.
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

    /// Reads heads that are available, up to the end of the ring, and the first descriptor of each.
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
            // A head beyond the table stops the ring when its turn comes.
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

    /// Gives back the chains that were taken last, as if they had not been.
    pub fn untake(&mut self, chains: u16) {
        self.next_available = self.next_available.wrapping_sub(chains);
        // They are read anew, unless all of them are still there.
        match self.ahead.next.checked_sub(chains.into()) {
            Some(next) => self.ahead.next = next,
            None => (self.ahead.next, self.ahead.end) = (0, 0),
        }
    }

    /// Follows a chain to its end. Returns the bytes of its buffers.
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
                // Nested tables could be endless, and a table must not continue in another one.
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

    /// Gives a chain back, of which so many bytes were written. The driver does not see it yet.
    ///
    /// # Errors
    /// The ring cannot go on.
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

    /// Writes the used entries that were not written yet. They do not go around the ring's end.
    fn write_behind(&mut self, memory: &Memory) -> Result<(), Broken> {
        let count = u16::from(std::mem::take(&mut self.behind_count));
        let entry = u64::from(self.next_used.wrapping_sub(count) % self.place.size);
        let bytes = &self.behind[..usize::from(count) * 8];
        Ok(memory.write(self.place.used + 4 + entry * 8, bytes)?)
    }

    /// Lets the driver see what was given back.
    ///
    /// # Errors
    /// The ring cannot go on.
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
    /// The ring cannot go on.
    pub fn wants_interrupt(&mut self, memory: &Memory) -> Result<bool, Broken> {
        let (from, to) = (self.told, self.published);
        if from == to {
            return Ok(false);
        }
        self.told = to;
        // The driver writes its request, and then reads the index once more. Here the order is
        // reversed, so that at least one side sees the other's write.
        fence(Ordering::SeqCst);
        if self.event_index {
            let event = memory.load(self.place.available + 4 + u64::from(self.place.size) * 2)?;
            return Ok(to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from));
        }
        Ok(memory.load(self.place.available)? & NO_INTERRUPT == 0)
    }

    /// Switches kicks of the driver off: the ring is polled anyway.
    ///
    /// # Errors
    /// The ring cannot go on.
    pub fn refuse_kicks(&mut self, memory: &Memory) -> Result<(), Broken> {
        if !self.event_index && self.kicks != Kicks::Refused {
            memory.store(self.place.used, NO_NOTIFY)?;
        }
        self.kicks = Kicks::Refused;
        Ok(())
    }

    /// Whether the driver may kick.
    pub fn asks_for_kicks(&self) -> bool {
        self.kicks != Kicks::Refused
    }

    /// Requests a kick at the next chain. Returns whether a chain waits already.
    ///
    /// # Errors
    /// The ring cannot go on.
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
