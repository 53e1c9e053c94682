//! The connections of an instance, up to its allowance.
//!
//! One entry is one connection in both directions. Invariants: a full table refuses new
//! connections and never gives up one that lives; an entry past its time is never found, and its
//! memory is free again within one [`GRAIN`] if [`Table::expire`] is called with enough work.
//! Bound: as many entries as the allowance, of [`ENTRY_BYTES_MAX`] each; every call does
//! bounded work, but for the growth of the table while it fills for the first time.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::HashTable;
use srd_proto::time::{Duration, Instant};

use crate::hash::Keyed;
use crate::track::key::{Key, Way};
use crate::track::state::{Progress, Seen, State};
use crate::track::timeouts::Timeouts;
use crate::track::wheel::{Link, Links, Wheel};

/// The grain of expiry.
pub const GRAIN: Duration = Duration::from_secs(1);
/// Most bytes of heap for each connection, both directions together (T8): the entry and its place
/// in the list of free ones, twice when their vectors have just doubled, and its place in the index
/// at the lowest load.
pub const ENTRY_BYTES_MAX: usize = 2 * (size_of::<Option<Entry>>() + size_of::<u32>()) + 12;
/// Work that an insertion into a full table spends on entries past their time.
const WORK_WHEN_FULL: u32 = 16;
/// Latest tick, so that sums of ticks do not overflow.
const TICK_MAX: u32 = u32::MAX - (1 << 20);

/// A connection.
struct Entry {
    key: Key,
    progress: Progress,
    /// Whether the local end sent the first packet.
    local_first: bool,
    /// The first tick at which it is past its time.
    expires: u32,
    link: Link,
}

/// Names an entry while it lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TrackId(u32);

/// What a packet is to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It begins a connection, which the rules have to judge before [`Table::insert`].
    New,
    /// It belongs to this connection.
    Known {
        /// The entry.
        id: TrackId,
        /// Its state after this packet.
        state: State,
        /// Which end sent the packet.
        way: Way,
    },
}

/// The table is full. The packet is counted by [`crate::limits::Limits::count_refused_connection`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Entries by number; a free number holds none.
struct Entries(Vec<Option<Entry>>);

impl Entries {
    fn get(&self, entry: u32) -> Option<&Entry> {
        self.0.get(entry as usize)?.as_ref()
    }

    fn of(&mut self, entry: u32) -> &mut Entry {
        self.0[entry as usize].as_mut().expect("the wheel and the index name entries that live")
    }
}

impl Links for Entries {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self.of(entry).link
    }
}

/// The connections.
pub struct Table {
    entries: Entries,
    free: Vec<u32>,
    index: HashTable<u32>,
    wheel: Wheel,
    timeouts: Vec<Timeouts>,
    hash: Keyed,
    allowance: u32,
    /// Ticks are counted from here.
    epoch: Instant,
    now: u32,
}

impl Table {
    /// A table of an instance: its allowance of connections, the times of each of its ENIs, and a
    /// secret.
    pub fn new(allowance: u32, timeouts: &[Timeouts], seed: u64, now: Instant) -> Self {
        Self {
            entries: Entries(Vec::new()),
            free: Vec::new(),
            index: HashTable::new(),
            wheel: Wheel::new(0),
            timeouts: timeouts.to_vec(),
            hash: Keyed::new(seed),
            allowance,
            epoch: now,
            now: 0,
        }
    }

    /// Connections that the table can still take: `conntrack_allowance_available` (T5).
    pub fn available(&self) -> u32 {
        self.allowance.saturating_sub(self.tracked())
    }

    /// Connections in the table.
    #[allow(clippy::cast_possible_truncation)] // the index holds u32 numbers
    pub fn tracked(&self) -> u32 {
        self.index.len() as u32
    }

    /// Changes the times of an ENI; its connections have the new ones from their next packet on.
    pub fn set_timeouts(&mut self, eni: u16, timeouts: Timeouts) {
        if let Some(there) = self.timeouts.get_mut(usize::from(eni)) {
            *there = timeouts;
        }
    }

    /// Finds the connection of a packet, and moves its state and its time. `local` says whether
    /// the instance sent the packet. A segment that opens a connection anew is [`Found::New`]
    /// (T2).
    pub fn packet(&mut self, now: Instant, key: &Key, local: bool, seen: Seen) -> Found {
        let now = self.tick(now);
        let Some(number) = self.find(key) else { return Found::New };
        let entry = self.entries.of(number);
        let over = matches!(entry.progress.state, State::Closing | State::Closed);
        if entry.expires <= now || over && seen.opens() {
            return Found::New;
        }
        let way = if entry.local_first == local { Way::Forward } else { Way::Back };
        entry.progress.packet(seen, way);
        let state = entry.progress.state;
        self.file(number, now);
        Found::Known { id: TrackId(number), state, way }
    }

    /// The connection that an ICMP error is about; the error moves neither state nor time (T7).
    pub fn related(&mut self, now: Instant, key: &Key) -> Option<TrackId> {
        let now = self.tick(now);
        let number = self.find(key)?;
        (self.entries.get(number)?.expires > now).then_some(TrackId(number))
    }

    /// Enters a connection that was [`Found::New`] and that the rules admit; takes the place of
    /// one of the same key that is over.
    ///
    /// # Errors
    /// [`Full`] if the allowance is used up. No other connection is given up for it (T5).
    pub fn insert(
        &mut self,
        now: Instant,
        key: &Key,
        local: bool,
        seen: Seen,
    ) -> Result<TrackId, Full> {
        let tick = self.tick(now);
        if let Some(number) = self.find(key) {
            self.drop_entry(number);
        }
        if self.available() == 0 {
            self.expire(now, WORK_WHEN_FULL, |_, _| ());
        }
        if self.available() == 0 {
            return Err(Full);
        }
        let entry = Entry {
            key: *key,
            progress: Progress::first(seen),
            local_first: local,
            expires: 0,
            link: Link::NONE,
        };
        let number = self.place(entry)?;
        let (entries, hash) = (&self.entries, &self.hash);
        let rehash = |number: &u32| entries.get(*number).map_or(0, |e| hash.hash_one(e.key));
        self.index.insert_unique(hash.hash_one(key), number, rehash);
        self.file(number, tick);
        Ok(TrackId(number))
    }

    /// Takes a connection out, as when its ENI is detached or a network ACL ends it.
    pub fn remove(&mut self, id: TrackId) {
        if self.entries.get(id.0).is_some() {
            self.drop_entry(id.0);
        }
    }

    /// The key and the state of a connection.
    pub fn get(&self, id: TrackId) -> Option<(&Key, State)> {
        self.entries.get(id.0).map(|entry| (&entry.key, entry.progress.state))
    }

    /// Frees entries past their time, with at most `work` steps; `expired` gets each. Returns
    /// whether none is left (T6).
    pub fn expire(
        &mut self,
        now: Instant,
        work: u32,
        mut expired: impl FnMut(TrackId, &Key),
    ) -> bool {
        let now = self.tick(now);
        for _ in 0..work {
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
        let is = |number: &u32| self.entries.get(*number).is_some_and(|entry| entry.key == *key);
        self.index.find(self.hash.hash_one(key), is).copied()
    }

    fn place(&mut self, entry: Entry) -> Result<u32, Full> {
        if let Some(number) = self.free.pop() {
            self.entries.0[number as usize] = Some(entry);
            return Ok(number);
        }
        let number = u32::try_from(self.entries.0.len()).map_err(|_| Full)?;
        self.entries.0.push(Some(entry));
        Ok(number)
    }

    fn drop_entry(&mut self, number: u32) {
        self.wheel.remove(&mut self.entries, number);
        let hash = self.hash.hash_one(self.entries.of(number).key);
        if let Ok(found) = self.index.find_entry(hash, |other| *other == number) {
            found.remove();
        }
        self.entries.0[number as usize] = None;
        self.free.push(number);
    }

    /// Sets the time of an entry by its state, rounded up to the grain (T3, T6).
    fn file(&mut self, number: u32, now: u32) {
        let entry = self.entries.of(number);
        let timeouts = self.timeouts.get(usize::from(entry.key.eni()));
        let idle =
            timeouts.unwrap_or(&Timeouts::DEFAULT).idle(entry.progress.state, entry.key.protocol());
        let ticks = idle.as_nanos().div_ceil(GRAIN.as_nanos());
        // One more, since the tick of now has begun.
        let expires = now + 1 + u32::try_from(ticks).unwrap_or(TICK_MAX).min(1 << 19);
        entry.expires = expires;
        self.wheel.file(&mut self.entries, number, expires);
    }

    /// The tick of a time. Time that runs backwards stands still.
    fn tick(&mut self, now: Instant) -> u32 {
        let tick = now.since(self.epoch).as_nanos() / GRAIN.as_nanos();
        self.now = self.now.max(u32::try_from(tick).unwrap_or(TICK_MAX).min(TICK_MAX));
        self.now
    }
}

#[cfg(test)]
mod tests;
