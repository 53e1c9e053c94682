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

use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};

use crate::hash::Keyed;
use crate::track::entries::{self, Entries, Entry, NONE};
use crate::track::index::{self, Index};
use crate::track::key::{ConnectionDirection, Key};
use crate::track::state::{PacketKind, Progress, State};
use crate::track::timeouts::Timeouts;
use crate::track::wheel::Wheel;

/// Length of a tick of the table, and thereby the precision of expiry.
pub const GRAIN: Duration = Duration::from_secs(1);
/// Largest number of heap bytes that a connection needs, both directions together, with a value of
/// at most 40 bytes (T8): the entry, and its part of the index directly after the index has grown.
pub const ENTRY_BYTES_MAX: usize = entries::BYTES_MAX + index::BYTES_MAX;
/// Number of steps in which an insertion into a full table searches for expired entries.
const WORK_WHEN_FULL: u32 = 16;
/// Latest tick, so that sums of ticks do not overflow.
const TICK_MAX: u32 = u32::MAX - (1 << 20);

/// Identifier of an entry while it exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TrackId(u32);

impl TrackId {
    /// Identifier of no entry.
    pub(crate) const NONE: Self = Self(NONE);
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

/// A connection that [`Table::known_flow`] has found.
pub struct FlowEntry<'a, T> {
    /// Identifier of the connection's entry.
    pub id: TrackId,
    /// The caller's value.
    pub value: &'a mut T,
    /// Whether the flow counts as a tracked connection.
    pub tracked: bool,
    /// Whether the local end sent the first packet.
    pub local_first: bool,
}

/// Table of the connections and remembered flows of one instance.
pub struct Table<T = ()> {
    entries: Entries<T>,
    index: Index,
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
    /// Key that was hashed last, and its hash. So the key of a packet is hashed once, although a
    /// new flow is searched for, and then inserted.
    hashed: (Key, u32),
}

impl<T> Table<T> {
    /// Creates the table of an instance from its allowance of connections, the idle times of each
    /// of its ENIs, and a secret for the hash.
    pub fn new(allowance: u32, timeouts: &[Timeouts], secret: Secret, now: Instant) -> Self {
        Self::with_hash(allowance, timeouts, Keyed::new(secret), now)
    }

    fn with_hash(allowance: u32, timeouts: &[Timeouts], hash: Keyed, now: Instant) -> Self {
        Self {
            entries: Entries::new(),
            index: Index::new(),
            wheel: Wheel::new(0),
            timeouts: timeouts.to_vec(),
            hash,
            allowance,
            untracked: 0,
            untracked_max: 0,
            epoch: now,
            now: 0,
            expected: NONE,
            hashed: (Key::FIRST, half(Key::FIRST.hash(&hash))),
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
        self.known_flow(now, key, seen).map(|known| known.id)
    }

    /// Finds the connection of a packet as [`Table::known`] does, and returns its value.
    #[inline]
    pub fn known_flow(
        &mut self,
        now: Instant,
        key: &Key,
        seen: PacketKind,
    ) -> Option<FlowEntry<'_, T>> {
        let now = self.tick(now);
        let number = self.find(key)?;
        let entry = self.entries.of(number);
        let over = matches!(entry.progress.state, State::Closing | State::Closed);
        if entry.expires <= now || over && seen.opens() {
            return None;
        }
        let (tracked, local_first) = (entry.is_tracked(), entry.is_local_first());
        Some(FlowEntry { id: TrackId(number), value: &mut entry.value, tracked, local_first })
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
        let way = if entry.is_local_first() == local {
            ConnectionDirection::Forward
        } else {
            ConnectionDirection::Back
        };
        entry.progress.packet(seen, way);
        let state = entry.progress.state;
        if let Some(expires) = entry.renew(&self.timeouts, self.now) {
            self.wheel.file(&mut self.entries, id.0, expires);
        }
        (state, way)
    }

    /// Hash of a key in this table, for [`Table::touch`], [`Table::look`] and [`Table::expect`].
    #[inline]
    pub(crate) fn hash(&self, key: &Key) -> u32 {
        half(key.hash(&self.hash))
    }

    /// Reads a part of the memory with which [`Table::look`] begins. If several packets are looked
    /// up, the caller first calls this function for each: no instruction depends on what was read,
    /// so the processor waits for all of this memory at once. The caller has to use the result, for
    /// example by [`core::hint::black_box`].
    #[inline]
    pub(crate) fn touch(&self, hash: u32) -> u32 {
        self.index.touch(hash)
    }

    /// Returns the entry that a packet probably belongs to. Only the index is read.
    #[inline]
    pub(crate) fn look(&self, hash: u32) -> Option<TrackId> {
        self.index.find(hash, |_| true).map(TrackId)
    }

    /// Reads a part of an entry, as [`Table::touch`] does with the index.
    #[inline]
    pub(crate) fn touch_entry(&self, id: TrackId) -> u32 {
        self.entries.get(id.0).map_or(0, |entry| entry.expires)
    }

    /// Returns the value of an entry that [`Table::look`] found, and whether the flow is tracked;
    /// `None` if the packet has another key, or the entry has expired.
    #[inline]
    pub(crate) fn peek(&self, id: TrackId, key: &Key) -> Option<(&T, bool)> {
        let entry = self.entries.with_key(id.0, key)?;
        (entry.expires > self.now).then_some((&entry.value, entry.is_tracked()))
    }

    /// Sets the entry that the next packet probably belongs to, which saves a search. The key is
    /// compared: if the packet belongs to another entry, the hint has only cost this comparison.
    pub(crate) fn expect(&mut self, id: TrackId) {
        self.expected = id.0;
    }

    /// Sets the hash of a key, which [`Table::hash`] has returned, for the next packet.
    pub(crate) fn expect_hash(&mut self, key: &Key, hash: u32) {
        self.hashed = (*key, hash);
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
        if self.entries.get(id.0).is_none_or(Entry::is_tracked) {
            return Ok(());
        }
        self.make_room(now)?;
        let tick = self.tick(now);
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.set_tracked(true);
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
        let mut entry = Entry::new(key, Progress::first(seen), local_first, value);
        entry.set_tracked(tracked);
        let id = self.place(key, entry)?;
        self.file(id.0, tick);
        Some(id)
    }

    /// Stores an entry in a slot and in the index. The caller has to put it into the timing wheel.
    fn place(&mut self, key: &Key, entry: Entry<T>) -> Option<TrackId> {
        let tracked = entry.is_tracked();
        let number = self.entries.put(key, entry)?;
        self.untracked += u32::from(!tracked);
        let hash = self.hash_once(key);
        self.index.insert(hash, number);
        Some(TrackId(number))
    }

    /// Returns the value of a flow, whether it counts as a tracked connection, and whether the
    /// local end sent its first packet; `None` if the table has no entry with this identifier.
    pub fn value(&mut self, id: TrackId) -> Option<(&mut T, bool, bool)> {
        let entry = self.entries.get_mut(id.0)?;
        let (tracked, local_first) = (entry.is_tracked(), entry.is_local_first());
        Some((&mut entry.value, tracked, local_first))
    }

    /// Changes the value of each flow.
    pub fn each(&mut self, mut change: impl FnMut(&mut T)) {
        self.entries.all_mut().for_each(|entry| change(&mut entry.value));
    }

    /// Removes a connection, for example when its ENI is detached or a network ACL ends it.
    pub fn remove(&mut self, id: TrackId) {
        if self.entries.get(id.0).is_some() {
            self.drop_entry(id.0);
        }
    }

    /// Removes the connections for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&Key) -> bool) {
        for number in 0..self.entries.places() {
            if self.entries.key(number).is_some_and(|key| !keep(&key)) {
                self.drop_entry(number);
            }
        }
    }

    /// Returns the key and the state of a connection.
    pub fn get(&self, id: TrackId) -> Option<(Key, State)> {
        self.entries.key(id.0).zip(self.entries.get(id.0).map(|entry| entry.progress.state))
    }

    /// Returns the flows of at most `places` slots, beginning with slot `from`: key, state, value,
    /// whether the flow is tracked, and whether the local end sent its first packet. Expired flows
    /// are omitted.
    pub fn flows(
        &self,
        from: u32,
        places: u32,
    ) -> impl Iterator<Item = (Key, State, &T, bool, bool)> + '_ {
        let end = from.saturating_add(places).min(self.entries.places());
        (from..end).filter_map(|number| {
            let entry = self.entries.get(number).filter(|entry| entry.expires > self.now)?;
            let (tracked, local_first) = (entry.is_tracked(), entry.is_local_first());
            let key = self.entries.key(number)?;
            Some((key, entry.progress.state, &entry.value, tracked, local_first))
        })
    }

    /// Number of slots, some of which may be free.
    pub fn places(&self) -> u32 {
        self.entries.places()
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
                if let Some(key) = self.entries.key(number) {
                    expired(TrackId(number), &key);
                }
                self.drop_entry(number);
            } else {
                self.wheel.file(&mut self.entries, number, expires);
            }
        }
        false
    }

    #[inline]
    fn find(&mut self, key: &Key) -> Option<u32> {
        if self.entries.with_key(self.expected, key).is_some() {
            return Some(self.expected);
        }
        self.seek(key)
    }

    fn seek(&mut self, key: &Key) -> Option<u32> {
        let hash = self.hash_once(key);
        self.index.find(hash, |number| self.entries.with_key(number, key).is_some())
    }

    /// Returns the hash of a key, which is computed unless it is known already.
    #[inline]
    fn hash_once(&mut self, key: &Key) -> u32 {
        if self.hashed.0 != *key {
            self.hashed = (*key, self.hash(key));
        }
        self.hashed.1
    }

    fn drop_entry(&mut self, number: u32) {
        self.wheel.remove(&mut self.entries, number);
        if let Some(key) = self.entries.key(number) {
            self.index.remove(self.hash(&key), number);
        }
        self.untracked -= u32::from(!self.entries.of(number).is_tracked());
        self.entries.clear(number);
    }

    /// Sets the expiry time of an entry by its state, rounded up to [`GRAIN`] (T3, T6).
    fn file(&mut self, number: u32, now: u32) {
        if let Some(expires) = self.entries.of(number).renew(&self.timeouts, now) {
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

/// Half of a hash, which is as good as all of it.
#[allow(clippy::cast_possible_truncation)] // the low half
fn half(hash: u64) -> u32 {
    hash as u32
}

mod stored;
#[cfg(test)]
mod tests;
