//! Connections of an instance, up to its allowance. The table also remembers flows that are not
//! tracked, so that the rules need not evaluate each of their packets.
//!
//! One entry is one flow in both directions, with a value of the caller. Invariants: a full table
//! refuses new connections and never gives up an active one. An expired entry is never found, and
//! its memory is free again within one [`GRAIN`] if [`Table::expire`] is called with enough work.
//! Bound: as many entries as the allowance and the limit of untracked flows, of
//! [`ENTRY_BYTES_MAX`] each and the size of the value. Every call does bounded work, except for
//! the growth of the index while it fills for the first time.

use alloc::vec::Vec;

use hashbrown::HashTable;
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};

use crate::hash::Keyed;
use crate::track::key::{ConnectionDirection, Key};
use crate::track::state::{PacketKind, Progress, State};
use crate::track::timeouts::Timeouts;
use crate::track::wheel::{Link, Links, Wheel};

/// Length of a tick of the table, and thereby the precision of expiry.
pub const GRAIN: Duration = Duration::from_secs(1);
/// Largest number of heap bytes that a connection needs, both directions together, without the
/// caller's value (T8): the entry, and the entry's part of the index at the lowest load of the
/// index.
pub const ENTRY_BYTES_MAX: usize = size_of::<EntrySlot<()>>() + 21;
/// Number of entries that are allocated at once; no entry moves when the table grows.
const CHUNK: usize = 1024;
/// Number of steps in which an insertion into a full table searches for expired entries.
const WORK_WHEN_FULL: u32 = 16;
/// Latest tick, so that sums of ticks do not overflow.
const TICK_MAX: u32 = u32::MAX - (1 << 20);

/// Idle time, in ticks, of a flow that is not tracked.
const UNTRACKED_TICKS: u32 = 60;

/// Entry of a flow.
struct Entry<T> {
    key: Key,
    progress: Progress,
    /// Whether the local end sent the first packet.
    local_first: bool,
    /// Whether the entry counts against the allowance.
    tracked: bool,
    /// First tick at which the entry has expired.
    expires: u32,
    link: Link,
    value: T,
}

/// A slot of the table, used or free.
enum EntrySlot<T> {
    /// A free slot, with the number of the next free slot.
    Free(u32),
    Used(Entry<T>),
}

/// Number that stands for no slot.
const NO_PLACE: u32 = u32::MAX;

/// Identifier of an entry while it exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TrackId(u32);

impl TrackId {
    /// Identifier of no entry.
    pub(crate) const NONE: Self = Self(NO_PLACE);
}

/// Result of the search for a packet's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The packet belongs to no known connection. The rules have to evaluate it before
    /// [`Table::insert`].
    New,
    /// The packet belongs to this connection.
    Known {
        /// Identifier of the connection's entry.
        id: TrackId,
        /// State of the connection after this packet.
        state: State,
        /// Direction of the packet in the connection.
        way: ConnectionDirection,
    },
}

/// Error: the table is full. [`crate::limits::Limits::count_refused_connection`] counts the
/// packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Entries by number, in chunks that do not move.
struct Entries<T> {
    chunks: Vec<Vec<EntrySlot<T>>>,
    places: u32,
    free: u32,
}

impl<T> Entries<T> {
    fn get(&self, entry: u32) -> Option<&Entry<T>> {
        let number = entry as usize;
        match self.chunks.get(number / CHUNK)?.get(number % CHUNK)? {
            EntrySlot::Used(entry) => Some(entry),
            EntrySlot::Free(_) => None,
        }
    }

    fn get_mut(&mut self, entry: u32) -> Option<&mut Entry<T>> {
        let number = entry as usize;
        match self.chunks.get_mut(number / CHUNK)?.get_mut(number % CHUNK)? {
            EntrySlot::Used(entry) => Some(entry),
            EntrySlot::Free(_) => None,
        }
    }

    fn of(&mut self, entry: u32) -> &mut Entry<T> {
        self.get_mut(entry).expect("the wheel and the index name entries that live")
    }

    /// Stores an entry in a slot; `None` if all numbers are in use.
    fn put(&mut self, entry: Entry<T>) -> Option<u32> {
        if self.free != NO_PLACE {
            let number = self.free;
            let place = &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
            if let EntrySlot::Free(next) = *place {
                self.free = next;
            }
            *place = EntrySlot::Used(entry);
            return Some(number);
        }
        let number = self.places;
        self.places = number.checked_add(1).filter(|places| *places < NO_PLACE)?;
        if (number as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks.last_mut()?.push(EntrySlot::Used(entry));
        Some(number)
    }

    fn clear(&mut self, number: u32) {
        let place = &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
        *place = EntrySlot::Free(self.free);
        self.free = number;
    }
}

impl<T> Links for Entries<T> {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self.of(entry).link
    }
}

/// An entry of the index, with its hash, so that the index grows without access to the entries.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    hash: u32,
}

impl Slot {
    /// Returns a hash of 64 bits from the stored 32 bits. The index takes a bucket from the low
    /// bits and a tag from the high bits, so both halves contain the stored bits.
    fn hash(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

/// Table of the connections and remembered flows of one instance.
pub struct Table<T = ()> {
    entries: Entries<T>,
    index: HashTable<Slot>,
    wheel: Wheel,
    timeouts: Vec<Timeouts>,
    hash: Keyed,
    allowance: u32,
    untracked: u32,
    untracked_max: u32,
    /// Time of tick zero.
    epoch: Instant,
    now: u32,
    /// Entry that the next packet probably belongs to.
    expected: u32,
}

impl<T> Table<T> {
    /// Creates the table of an instance from its allowance of connections, the idle times of each
    /// of its ENIs, and a secret for the hash.
    pub fn new(allowance: u32, timeouts: &[Timeouts], secret: Secret, now: Instant) -> Self {
        Self {
            entries: Entries { chunks: Vec::new(), places: 0, free: NO_PLACE },
            index: HashTable::new(),
            wheel: Wheel::new(0),
            timeouts: timeouts.to_vec(),
            hash: Keyed::new(secret),
            allowance,
            untracked: 0,
            untracked_max: 0,
            epoch: now,
            now: 0,
            expected: NO_PLACE,
        }
    }

    /// Sets the largest number of flows that the table remembers without tracking them.
    #[must_use]
    pub fn with_untracked(mut self, flows: u32) -> Self {
        self.untracked_max = flows;
        self
    }

    /// Number of connections that the table can still take: `conntrack_allowance_available` (T5).
    pub fn available(&self) -> u32 {
        self.allowance.saturating_sub(self.tracked())
    }

    /// Number of tracked connections.
    #[allow(clippy::cast_possible_truncation)] // the index holds u32 numbers
    pub fn tracked(&self) -> u32 {
        self.index.len() as u32 - self.untracked
    }

    /// Number of flows that the table remembers without tracking them.
    pub fn untracked(&self) -> u32 {
        self.untracked
    }

    /// Changes the idle times of an ENI. They apply to its connections from their next packet on.
    pub fn set_timeouts(&mut self, eni: u16, timeouts: Timeouts) {
        if let Some(there) = self.timeouts.get_mut(usize::from(eni)) {
            *there = timeouts;
        }
    }

    /// Finds the connection of a packet, and updates its state and its time. `local` means that
    /// the instance sent the packet. A segment that opens a connection again is [`Lookup::New`]
    /// (T2).
    pub fn packet(&mut self, now: Instant, key: &Key, local: bool, seen: PacketKind) -> Lookup {
        let Some(id) = self.known(now, key, seen) else { return Lookup::New };
        let (state, way) = self.moved(id, local, seen);
        Lookup::Known { id, state, way }
    }

    /// Finds the connection of a packet as [`Table::packet`] does, without any update: for a
    /// packet that may still be refused.
    #[inline]
    pub fn known(&mut self, now: Instant, key: &Key, seen: PacketKind) -> Option<TrackId> {
        let now = self.tick(now);
        let number = self.find(key)?;
        let entry = self.entries.of(number);
        let over = matches!(entry.progress.state, State::Closing | State::Closed);
        let is_new = entry.expires <= now || over && seen.opens();
        (!is_new).then_some(TrackId(number))
    }

    /// Updates state and expiry time of a connection that [`Table::known`] has found for this
    /// packet. The time of the call of `known` counts as the present time.
    #[inline]
    pub fn moved(
        &mut self,
        id: TrackId,
        local: bool,
        seen: PacketKind,
    ) -> (State, ConnectionDirection) {
        let entry = self.entries.of(id.0);
        let way = if entry.local_first == local {
            ConnectionDirection::Forward
        } else {
            ConnectionDirection::Back
        };
        entry.progress.packet(seen, way);
        let state = entry.progress.state;
        self.file(id.0, self.now);
        (state, way)
    }

    /// Returns the entry that a packet probably belongs to, for [`Table::expect`]. Only the index
    /// is read. If several packets are looked up one after the other, their cache misses overlap.
    pub fn look(&self, key: &Key) -> Option<TrackId> {
        let wanted = self.slot(key, NO_PLACE);
        let found = self.index.find(wanted.hash(), |slot| slot.hash == wanted.hash);
        found.map(|slot| TrackId(slot.number))
    }

    /// Returns the value of an entry that [`Table::look`] found, and whether the flow is tracked;
    /// `None` if the packet has another key, or the entry has expired.
    pub fn peek(&self, id: TrackId, key: &Key) -> Option<(&T, bool)> {
        let entry = self.entries.get(id.0).filter(|entry| entry.key == *key)?;
        (entry.expires > self.now).then_some((&entry.value, entry.tracked))
    }

    /// Sets the entry that the next packet probably belongs to, which saves a search. The key is
    /// compared: if the packet belongs to another entry, the hint has only cost this comparison.
    pub fn expect(&mut self, id: TrackId) {
        self.expected = id.0;
    }

    /// Returns the connection of an ICMP error; the error changes neither state nor time (T7).
    pub fn related(&mut self, now: Instant, key: &Key) -> Option<TrackId> {
        let now = self.tick(now);
        let number = self.find(key)?;
        (self.entries.get(number)?.expires > now).then_some(TrackId(number))
    }

    /// Inserts a connection that was [`Lookup::New`] and that the rules admit. If there is an
    /// expired or closed connection with the same key, it is replaced.
    ///
    /// # Errors
    /// [`Full`] if the allowance is used up. No other connection is replaced (T5).
    pub fn insert(
        &mut self,
        now: Instant,
        key: &Key,
        local: bool,
        seen: PacketKind,
        value: T,
    ) -> Result<TrackId, Full> {
        self.forget(key);
        self.make_room(now)?;
        self.enter(now, key, local, seen, true, value).ok_or(Full)
    }

    /// Remembers a flow that is not tracked. Returns `None` if the table is full; then each of the
    /// flow's packets is [`Lookup::New`].
    pub fn remember(
        &mut self,
        now: Instant,
        key: &Key,
        local: bool,
        seen: PacketKind,
        value: T,
    ) -> Option<TrackId> {
        self.forget(key);
        if self.untracked >= self.untracked_max {
            self.expire(now, WORK_WHEN_FULL, |_, _| ());
        }
        if self.untracked >= self.untracked_max {
            return None;
        }
        self.enter(now, key, local, seen, false, value)
    }

    /// Begins to track a flow that was only remembered.
    ///
    /// # Errors
    /// [`Full`] if the allowance is used up (T5).
    pub fn track(&mut self, now: Instant, id: TrackId) -> Result<(), Full> {
        if self.entries.get(id.0).is_none_or(|entry| entry.tracked) {
            return Ok(());
        }
        self.make_room(now)?;
        let tick = self.tick(now);
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.tracked = true;
            self.untracked -= 1;
            self.file(id.0, tick);
        }
        Ok(())
    }

    fn forget(&mut self, key: &Key) {
        if let Some(number) = self.find(key) {
            self.drop_entry(number);
        }
    }

    fn make_room(&mut self, now: Instant) -> Result<(), Full> {
        if self.available() == 0 {
            self.expire(now, WORK_WHEN_FULL, |_, _| ());
        }
        if self.available() == 0 { Err(Full) } else { Ok(()) }
    }

    fn enter(
        &mut self,
        now: Instant,
        key: &Key,
        local_first: bool,
        seen: PacketKind,
        tracked: bool,
        value: T,
    ) -> Option<TrackId> {
        let tick = self.tick(now);
        let progress = Progress::first(seen);
        let (key, expires, link) = (*key, 0, Link::NONE);
        let entry = Entry { key, progress, local_first, tracked, expires, link, value };
        let id = self.place(entry)?;
        self.file(id.0, tick);
        Some(id)
    }

    /// Stores an entry in a slot and in the index. The caller has to put it into the timing wheel.
    fn place(&mut self, entry: Entry<T>) -> Option<TrackId> {
        let (key, tracked) = (entry.key, entry.tracked);
        let number = self.entries.put(entry)?;
        self.untracked += u32::from(!tracked);
        let slot = self.slot(&key, number);
        self.index.insert_unique(slot.hash(), slot, |slot| slot.hash());
        Some(TrackId(number))
    }

    /// Returns the value of a flow, whether it counts as a tracked connection, and whether the
    /// local end sent its first packet; `None` if the table has no entry with this identifier.
    pub fn value(&mut self, id: TrackId) -> Option<(&mut T, bool, bool)> {
        let entry = self.entries.get_mut(id.0)?;
        Some((&mut entry.value, entry.tracked, entry.local_first))
    }

    /// Changes the value of each flow.
    pub fn each(&mut self, mut change: impl FnMut(&mut T)) {
        let places = self.entries.chunks.iter_mut().flatten();
        places.for_each(|place| {
            if let EntrySlot::Used(entry) = place {
                change(&mut entry.value);
            }
        });
    }

    /// Removes a connection, for example when its ENI is detached or a network ACL ends it.
    pub fn remove(&mut self, id: TrackId) {
        if self.entries.get(id.0).is_some() {
            self.drop_entry(id.0);
        }
    }

    /// Returns the key and the state of a connection.
    pub fn get(&self, id: TrackId) -> Option<(&Key, State)> {
        self.entries.get(id.0).map(|entry| (&entry.key, entry.progress.state))
    }

    /// Returns the flows of at most `places` slots, beginning with slot `from`: key, state, value,
    /// whether the flow is tracked, and whether the local end sent its first packet. Expired flows
    /// are omitted.
    pub fn flows(
        &self,
        from: u32,
        places: u32,
    ) -> impl Iterator<Item = (&Key, State, &T, bool, bool)> + '_ {
        let end = from.saturating_add(places).min(self.entries.places);
        let all = (from..end).filter_map(|number| self.entries.get(number));
        all.filter(|entry| entry.expires > self.now).map(|entry| {
            (&entry.key, entry.progress.state, &entry.value, entry.tracked, entry.local_first)
        })
    }

    /// Number of slots, some of which may be free.
    pub fn places(&self) -> u32 {
        self.entries.places
    }

    /// Removes expired entries, with at most `work` steps, and passes each to `expired`. Returns
    /// whether all expired entries were removed (T6).
    pub fn expire(
        &mut self,
        now: Instant,
        mut work: u32,
        expired: impl FnMut(TrackId, &Key),
    ) -> bool {
        self.expire_within(now, &mut work, expired)
    }

    /// Removes entries as [`Table::expire`] does. `work` is the number of steps that are left for
    /// several tables.
    pub(crate) fn expire_within(
        &mut self,
        now: Instant,
        work: &mut u32,
        mut expired: impl FnMut(TrackId, &Key),
    ) -> bool {
        let now = self.tick(now);
        while *work > 0 {
            *work -= 1;
            let number = match self.wheel.step(&mut self.entries, now) {
                None => return true,
                Some(None) => continue,
                Some(Some(number)) => number,
            };
            let expires = self.entries.of(number).expires;
            if expires <= now {
                expired(TrackId(number), &self.entries.of(number).key);
                self.drop_entry(number);
            } else {
                self.wheel.file(&mut self.entries, number, expires);
            }
        }
        false
    }

    fn find(&self, key: &Key) -> Option<u32> {
        if self.entries.get(self.expected).is_some_and(|entry| entry.key == *key) {
            return Some(self.expected);
        }
        self.seek(key)
    }

    fn seek(&self, key: &Key) -> Option<u32> {
        let wanted = self.slot(key, NO_PLACE);
        let is = |slot: &Slot| {
            let entry = self.entries.get(slot.number).filter(|_| slot.hash == wanted.hash);
            entry.is_some_and(|entry| entry.key == *key)
        };
        self.index.find(wanted.hash(), is).map(|slot| slot.number)
    }

    #[allow(clippy::cast_possible_truncation)] // half of the hash is as good as all of it
    fn slot(&self, key: &Key, number: u32) -> Slot {
        Slot { number, hash: key.hash(&self.hash) as u32 }
    }

    fn drop_entry(&mut self, number: u32) {
        self.wheel.remove(&mut self.entries, number);
        let key = self.entries.of(number).key;
        let hash = self.slot(&key, number).hash();
        if let Ok(found) = self.index.find_entry(hash, |other| other.number == number) {
            found.remove();
        }
        self.untracked -= u32::from(!self.entries.of(number).tracked);
        self.entries.clear(number);
    }

    /// Sets the expiry time of an entry by its state, rounded up to [`GRAIN`] (T3, T6).
    fn file(&mut self, number: u32, now: u32) {
        let entry = self.entries.of(number);
        let timeouts = self.timeouts.get(usize::from(entry.key.eni()));
        let timeouts = timeouts.unwrap_or(&Timeouts::DEFAULT);
        let ticks = match entry.tracked {
            true => timeouts.idle_ticks(entry.progress.state, entry.key.protocol()),
            false => UNTRACKED_TICKS,
        };
        // One more tick, because the present tick has begun.
        let expires = now + 1 + ticks.min(1 << 19);
        let before = core::mem::replace(&mut entry.expires, expires);
        // Otherwise the entry is in the slot of an earlier time, and moves when the wheel arrives
        // there.
        if before > expires || before == 0 {
            self.wheel.file(&mut self.entries, number, expires);
        }
    }

    /// Returns the tick of a time. A time before the time of an earlier call counts as the earlier
    /// call's time.
    fn tick(&mut self, now: Instant) -> u32 {
        let tick = now.since(self.epoch).as_nanos() / GRAIN.as_nanos();
        self.now = self.now.max(u32::try_from(tick).unwrap_or(TICK_MAX).min(TICK_MAX));
        self.now
    }
}

mod stored;
#[cfg(test)]
mod tests;
