//! Entries of a table by number, in chunks that do not move.
//!
//! The part of an entry that each packet of its flow reads and writes is one line of memory, if the
//! caller's value has at most [`VALUE_BYTES`]. The links of the timing wheel, and the addresses of
//! IPv6 keys, are in columns beside: arrays that have the same numbers.

use alloc::vec;
use alloc::vec::Vec;

use crate::track::key::Key;
use crate::track::state::Progress;
use crate::track::timeouts::Timeouts;
use crate::track::wheel::{Link, Links};

/// Largest number of bytes of the caller's value with which an entry is one line of memory.
pub(super) const VALUE_BYTES: usize = 40;
/// Largest number of bytes of an entry with such a value, and of its part of the columns.
pub(super) const BYTES_MAX: usize =
    size_of::<AlignedSlot<[u64; VALUE_BYTES / 8]>>() + size_of::<Link>() + size_of::<[u64; 4]>();
/// Number of entries of a chunk. Memory of a chunk that no entry has used yet was not accessed, so
/// most systems have not assigned it.
const CHUNK: usize = 8192;
/// Number that stands for no entry.
pub(super) const NONE: u32 = u32::MAX;
/// Idle time, in ticks, of a flow that is not tracked.
const UNTRACKED_TICKS: u32 = 60;

/// Bits of [`Entry::flags`].
const LOCAL_FIRST: u8 = 1;
const TRACKED: u8 = 2;

/// The part of an entry that each packet needs.
pub(super) struct Entry<T> {
    /// Short form of the key, which is the whole key for IPv4.
    words: [u64; 2],
    /// First tick at which the entry has expired.
    pub(super) expires: u32,
    pub(super) progress: Progress,
    flags: u8,
    pub(super) value: T,
}

/// A slot of the table, at the begin of a line of memory.
#[repr(align(64))]
struct AlignedSlot<T>(Slot<T>);

/// Content of a slot of the table, which is used or free.
enum Slot<T> {
    /// A free slot, with the number of the next free slot.
    Free(u32),
    Used(Entry<T>),
}

const _: () = assert!(size_of::<AlignedSlot<[u64; VALUE_BYTES / 8]>>() == 64, "one line of memory");

impl<T> Entry<T> {
    /// Creates the entry of a flow. `local_first`: whether the local end sent the first packet.
    pub(super) fn new(key: &Key, progress: Progress, local_first: bool, value: T) -> Self {
        let flags = if local_first { LOCAL_FIRST } else { 0 };
        Self { words: key.short(), expires: 0, progress, flags, value }
    }

    /// Whether the local end sent the first packet.
    #[inline]
    pub(super) fn is_local_first(&self) -> bool {
        self.flags & LOCAL_FIRST != 0
    }

    /// Whether the entry counts against the allowance.
    #[inline]
    pub(super) fn is_tracked(&self) -> bool {
        self.flags & TRACKED != 0
    }

    pub(super) fn set_tracked(&mut self, tracked: bool) {
        let rest = self.flags & !TRACKED;
        self.flags = if tracked { rest | TRACKED } else { rest };
    }

    /// Sets the time of expiry of a flow that had a packet at the tick `now` (T3, T6). Returns this
    /// time if the timing wheel has to move the entry. Otherwise the entry is in the slot of an
    /// earlier time, and moves when the wheel arrives there.
    #[inline]
    pub(super) fn renew(&mut self, timeouts: &[Timeouts], now: u32) -> Option<u32> {
        let (eni, protocol) = Key::eni_and_protocol(self.words);
        let timeouts = timeouts.get(usize::from(eni)).unwrap_or(&Timeouts::DEFAULT);
        let ticks = match self.is_tracked() {
            true => timeouts.idle_ticks(self.progress.state, protocol),
            false => UNTRACKED_TICKS,
        };
        // One more tick, because the present tick has begun.
        let expires = now + 1 + ticks.min(1 << 19);
        let before = core::mem::replace(&mut self.expires, expires);
        (before > expires || before == 0).then_some(expires)
    }
}

/// Entries by number.
pub(super) struct Entries<T> {
    chunks: Vec<Vec<AlignedSlot<T>>>,
    links: Vec<Vec<Link>>,
    /// Addresses of IPv6 keys. The array of a chunk is empty until the chunk has such a key.
    addresses: Vec<Vec<[u64; 4]>>,
    places: u32,
    free: u32,
}

impl<T> Entries<T> {
    pub(super) fn new() -> Self {
        let (chunks, links, addresses) = (Vec::new(), Vec::new(), Vec::new());
        Self { chunks, links, addresses, places: 0, free: NONE }
    }

    /// Number of slots, some of which may be free.
    pub(super) fn places(&self) -> u32 {
        self.places
    }

    #[inline]
    pub(super) fn get(&self, entry: u32) -> Option<&Entry<T>> {
        let number = entry as usize;
        match &self.chunks.get(number / CHUNK)?.get(number % CHUNK)?.0 {
            Slot::Used(entry) => Some(entry),
            Slot::Free(_) => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, entry: u32) -> Option<&mut Entry<T>> {
        let number = entry as usize;
        match &mut self.chunks.get_mut(number / CHUNK)?.get_mut(number % CHUNK)?.0 {
            Slot::Used(entry) => Some(entry),
            Slot::Free(_) => None,
        }
    }

    #[inline]
    pub(super) fn of(&mut self, entry: u32) -> &mut Entry<T> {
        self.get_mut(entry).expect("the wheel and the index name entries that live")
    }

    /// Returns an entry if it has this key.
    #[inline]
    pub(super) fn with_key(&self, entry: u32, key: &Key) -> Option<&Entry<T>> {
        let found = self.get(entry).filter(|found| found.words == key.short())?;
        (!key.is_v6() || self.addresses_of(entry) == key.addresses()).then_some(found)
    }

    /// Returns the key of an entry that `get` has returned.
    pub(super) fn key(&self, entry: u32) -> Option<Key> {
        let words = self.get(entry)?.words;
        Some(Key::of_short(words, || self.addresses_of(entry)))
    }

    /// Returns the link of an entry to the timing wheel.
    pub(super) fn link_of(&self, entry: u32) -> Link {
        let number = entry as usize;
        let link = self.links.get(number / CHUNK).and_then(|links| links.get(number % CHUNK));
        link.copied().unwrap_or(Link::NONE)
    }

    /// Returns all entries, to change them.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.chunks.iter_mut().flatten().filter_map(|line| match &mut line.0 {
            Slot::Used(entry) => Some(entry),
            Slot::Free(_) => None,
        })
    }

    /// Stores an entry in a slot; `None` if all numbers are in use.
    pub(super) fn put(&mut self, key: &Key, entry: Entry<T>) -> Option<u32> {
        let number = if self.free == NONE {
            let number = self.places;
            self.places = number.checked_add(1).filter(|places| *places < NONE)?;
            if (number as usize).is_multiple_of(CHUNK) {
                self.chunks.push(Vec::with_capacity(CHUNK));
                self.links.push(Vec::with_capacity(CHUNK));
                self.addresses.push(Vec::new());
            }
            self.links.last_mut()?.push(Link::NONE);
            self.chunks.last_mut()?.push(AlignedSlot(Slot::Used(entry)));
            number
        } else {
            let number = self.free;
            let AlignedSlot(slot) =
                &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
            if let Slot::Free(next) = *slot {
                self.free = next;
            }
            *slot = Slot::Used(entry);
            number
        };
        if key.is_v6() {
            let addresses = &mut self.addresses[number as usize / CHUNK];
            if addresses.is_empty() {
                *addresses = vec![[0; 4]; CHUNK];
            }
            addresses[number as usize % CHUNK] = key.addresses();
        }
        Some(number)
    }

    pub(super) fn clear(&mut self, number: u32) {
        let AlignedSlot(slot) = &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
        *slot = Slot::Free(self.free);
        self.free = number;
    }

    /// Returns the addresses of an IPv6 key.
    fn addresses_of(&self, entry: u32) -> [u64; 4] {
        let number = entry as usize;
        let chunk = self.addresses.get(number / CHUNK);
        chunk.and_then(|chunk| chunk.get(number % CHUNK)).copied().unwrap_or_default()
    }
}

impl<T> Links for Entries<T> {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self.links[entry as usize / CHUNK][entry as usize % CHUNK]
    }
}
